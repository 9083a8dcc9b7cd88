"""Stream-global join: a stream record looks up the row of m = selector(k, v) in a whole table.

    v None                       dropped, counted
    m None                       inner: dropped, counted;  left: k = j(v, None), whatever k is
    row t of m, or left          k = j(v, t) @ ts        k is the stream's key and may be None
    no row, inner                nothing, not counted

The selector runs before the test for nulls. Table records emit nothing. cf. KIP-99, KAFKA-19208
"""

from __future__ import annotations

from collections import Counter

from tests.reference.functions import Joiner, Selector
from tests.reference.records import NULL_KEY, NULL_VALUE, Change, Event, Record, Side
from tests.reference.tables import PlainTable


class StreamGlobalJoin:
    def __init__(self, kind: str, joiner: Joiner, selector: Selector, dropped: Counter[str]) -> None:
        self.kind = kind
        self.joiner = joiner
        self.selector = selector
        self.dropped = dropped
        self.table = PlainTable()

    def receive(self, events: list[tuple[Side, Event]]) -> list[Event]:
        out: list[Event] = []
        for _, event in events:
            if isinstance(event, Change):
                self.table.put(event.key, event.new, event.ts)
            else:
                out.extend(self.stream_record(event))
        return out

    def stream_record(self, x: Record) -> list[Record]:
        mapped = self.selector(x.key, x.value)
        if x.value is None or (mapped is None and self.kind == "inner"):
            self.dropped[NULL_VALUE if x.value is None else NULL_KEY] += 1
            return []
        row = None if mapped is None else self.table.get(mapped)
        if row is None and self.kind == "inner":
            return []
        return [Record(x.key, self.joiner(x.key, x.value, row and row.value), x.ts, x.headers)]
