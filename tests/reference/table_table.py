"""Table-table join by primary key.

    result[k] = j(left[k], right[k])    inner: both rows;  left: a left row;  outer: any row

A change of one side, with o the other side's row:

    inner             o present   j, or a tombstone if the row went (also one that was never there)
                      o absent    nothing
    left, from left   o present   j(new, o), or a tombstone
                      o absent    j(new, None), or a tombstone if there was a row, else nothing
    left, from right  o present   j(o, new), new may be None;  o absent: nothing
    outer             o present   j, with None for the missing side
                      o absent    j(new, None), or a tombstone if there was a row, else nothing

    timestamp = max(the change's, that of o); o absent: the change's

Nothing is de-duplicated. Where one input record reaches both sides (a table joined with itself, a chain
that uses one table twice), the row changes once, from its old value to what both new rows give: emitted if
either side alone would emit, or if the row existed; timestamp the max of both changes.

An update behind the latest version of a versioned input does not trigger: dropped and counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.reference.functions import Joiner
from tests.reference.records import OUT_OF_ORDER, Change, Event, Side
from tests.reference.tables import Row

OTHER: dict[Side, Side] = {"left": "right", "right": "left"}


class TableTableJoin:
    def __init__(self, kind: str, joiner: Joiner, dropped: Counter[str]) -> None:
        self.kind = kind
        self.joiner = joiner
        self.dropped = dropped
        self.rows: dict[Side, dict[Any, Row]] = {"left": {}, "right": {}}
        self.result: dict[Any, Any] = {}

    def receive(self, events: list[tuple[Side, Event]]) -> list[Event]:
        changes = latest_by_key(events, self.dropped)
        return [out for key, sides in changes.items() for out in self.change(key, sides)]

    def change(self, key: Any, changes: dict[Side, Change]) -> list[Event]:
        for side, change in changes.items():
            apply(change, self.rows[side])
        old = self.result.get(key)
        if old is None and not any(self.speaks(side, change) for side, change in changes.items()):
            return []
        new = self.joined(key)
        if new is None:
            self.result.pop(key, None)
        else:
            self.result[key] = new
        return [Change(key, new, old, self.timestamp(key, changes))]

    def speaks(self, side: Side, change: Change) -> bool:
        """Whether this side's change, seen alone, gives a result."""
        if change.key in self.rows[OTHER[side]]:
            return True
        outer = self.kind == "outer" or (self.kind, side) == ("left", "left")
        return outer and not (change.new is None and change.old is None)

    def joined(self, key: Any) -> Any:
        left, right = (self.rows[side].get(key) for side in ("left", "right"))
        needed = {"inner": left and right, "left": left, "outer": left or right}[self.kind]
        return self.joiner(key, left and left.value, right and right.value) if needed else None

    def timestamp(self, key: Any, changes: dict[Side, Change]) -> int:
        still = [rows[key].ts for side, rows in self.rows.items() if side not in changes and key in rows]
        return max([change.ts for change in changes.values()] + still)


def latest_by_key(events: list[tuple[Side, Event]], dropped: Counter[str]) -> dict[Any, dict[Side, Change]]:
    """The changes of one input record by key and side; those behind a newer version are dropped, once."""
    changes: dict[Any, dict[Side, Change]] = {}
    behind = set()
    for side, event in events:
        assert isinstance(event, Change)
        if event.latest:
            assert side not in changes.get(event.key, {}), "a table changes at most once per key and record"
            changes.setdefault(event.key, {})[side] = event
        else:
            behind.add(event.key)
    dropped[OUT_OF_ORDER] += len(behind)
    return changes


def apply(change: Change, rows: dict[Any, Row]) -> None:
    if change.new is None:
        rows.pop(change.key, None)
    else:
        rows[change.key] = Row(change.new, change.ts)
