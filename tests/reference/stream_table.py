"""Stream-table join: each stream record sees the table's changes that came before it.

    stream record (k, v, ts):
        v None                       dropped, counted
        k None                       inner: dropped, counted;  left: j(v, None) at once, also with grace
        table row t, or left         k = j(v, t) @ ts
        no row, inner                nothing, not counted
    table record: changes the table, emits nothing

t is the current row of an unversioned table, whatever its timestamp; of a versioned one the row valid at ts.

With grace g (versioned table only) records wait in a buffer ordered by (ts, key bytes, arrival). Its clock is
the newest stream-side timestamp it took:

    ts < clock - g               too late to wait: joined at once, not dropped
    else                         buffered; then all with ts <= clock - g are joined, each at its own ts

Table records do not move that clock, nor does the end of input. cf. KIP-923
"""

from __future__ import annotations

from collections import Counter

from tests.reference.functions import Joiner
from tests.reference.records import NULL_KEY, NULL_VALUE, Change, Event, Record, Side, key_bytes
from tests.reference.tables import Table


class StreamTableJoin:
    def __init__(
        self, kind: str, joiner: Joiner, table: Table, grace: int | None, dropped: Counter[str]
    ) -> None:
        self.kind = kind
        self.joiner = joiner
        self.table = table
        self.grace = grace
        self.dropped = dropped
        self.buffer: list[Record] = []
        self.clock: int | None = None

    def receive(self, events: list[tuple[Side, Event]]) -> list[Event]:
        out: list[Event] = []
        for _, event in events:
            if isinstance(event, Change):
                self.table.put(event.key, event.new, event.ts)
            else:
                out.extend(self.stream_record(event))
        return out

    def stream_record(self, x: Record) -> list[Record]:
        if x.value is None or (x.key is None and self.kind == "inner"):
            self.dropped[NULL_VALUE if x.value is None else NULL_KEY] += 1
            return []
        if x.key is None or self.grace is None or self.too_late(x):
            return self.look_up(x)
        self.clock = x.ts if self.clock is None else max(self.clock, x.ts)
        self.buffer.append(x)
        return self.release(self.clock - self.grace)

    def too_late(self, x: Record) -> bool:
        return self.clock is not None and self.grace is not None and x.ts < self.clock - self.grace

    def release(self, until: int) -> list[Record]:
        due = sorted((x for x in self.buffer if x.ts <= until), key=lambda x: (x.ts, key_bytes(x.key)))
        self.buffer = [x for x in self.buffer if x.ts > until]
        return [result for x in due for result in self.look_up(x)]

    def look_up(self, x: Record) -> list[Record]:
        row = None if x.key is None else self.table.get(x.key, as_of=x.ts)
        if row is None and self.kind == "inner":
            return []
        return [Record(x.key, self.joiner(x.key, x.value, row and row.value), x.ts, x.headers)]
