"""Table-table join by foreign key: left table by primary key k, right table by foreign key f = x(k, row).

    result[k] = j(left[k], right[x(left[k])])    inner: both rows;  left: a left row (f may be None)

    right: as inner, and outer: as left, both with the key (k, None) instead of k, and
    result[None, f] = j(None, right[f])          where no left row refers to f

A left change of k, with a, b different foreign keys and r(f) the right row of f:

    left change        inner                                       left
    no row -> a        j if r(a), else nothing                     j(new, r(a) or None)
    no row -> None     nothing, drop counted                       j(new, None)
    a -> a             j if r(a), else nothing                     j(new, r(a) or None)
    a -> b             j if r(b), else a tombstone                 j(new, r(b) or None)
    a -> None          a tombstone [r(a)], drop counted            j(new, None)
    None -> a          j if r(a), else nothing                     j(new, r(a) or None)
    None -> None       nothing, drop counted                       j(new, None)
    a -> no row        a tombstone [r(a)]                          a tombstone
    None -> no row     nothing                                     a tombstone
    no row -> no row   nothing                                     nothing

    timestamp = max(the left change's, that of the right row used); [r(a)]: the old foreign row counts as used

A right change of f answers every left row that refers to f, in byte order of k, even where it changes
nothing: j(row, new), or for a deleted right row a tombstone (inner) or j(row, None) (left).

    timestamp = the right change's alone

Where one input record changes both a left row and the right row it refers to, the result changes once, as
the left change says; if that says nothing, as the right change says.

The row of (None, f), in right and outer joins, when

    f gets its first referrer               a tombstone if r(f), else nothing
    f loses its last referrer               j(None, r(f)) if r(f), else nothing
    r(f) changes, f has no referrer         j(None, new), or a tombstone if there was a row
    r(f) changes, f has referrers           nothing

    timestamp = that of the right change; where referrers came or went, max(the left changes', that of r(f))

An update behind the latest version of a versioned input is dropped and counted.
cf. KIP-213, KAFKA-16407, KAFKA-18713
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from tests.reference.functions import Joiner, Selector
from tests.reference.records import NULL_FOREIGN_KEY, Change, Event, Side, key_bytes
from tests.reference.table_table import apply, latest_by_key
from tests.reference.tables import Row


class ForeignKeyJoin:
    def __init__(self, kind: str, joiner: Joiner, extractor: Selector, dropped: Counter[str]) -> None:
        self.kind = {"right": "inner", "outer": "left"}.get(kind, kind)
        self.either = kind in ("right", "outer")
        self.joiner = joiner
        self.extractor = extractor
        self.dropped = dropped
        self.left: dict[Any, Row] = {}
        self.right: dict[Any, Row] = {}
        self.result: dict[Any, Any] = {}

    def receive(self, events: list[tuple[Side, Event]]) -> list[Event]:
        changes = latest_by_key(events, self.dropped)
        left = [sides["left"] for sides in changes.values() if "left" in sides]
        right = [sides["right"] for sides in changes.values() if "right" in sides]
        before = {change.key: self.left.get(change.key) for change in left}
        alone = self.alone()
        for change in left:
            apply(change, self.left)
        for change in right:
            apply(change, self.right)

        results: dict[Any, Change] = {}
        for change in left:
            self.from_left(change, before[change.key], results)
        for change in right:
            self.from_right(change, results)
        if self.either:
            results = {(k, None): replace(change, key=(k, None)) for k, change in results.items()}
            self.unreferenced(left, right, before, alone, results)
        return [self.emit(results[key]) for key in sorted(results, key=key_bytes)]

    def alone(self) -> set[Any]:
        """The right keys that no left row refers to."""
        return self.right.keys() - {self.foreign_key(k, row) for k, row in self.left.items()}

    def unreferenced(
        self,
        left: list[Change],
        right: list[Change],
        before: dict[Any, Row | None],
        was_alone: set[Any],
        results: dict[Any, Change],
    ) -> None:
        moves: dict[Any, int] = {}
        for change in left:
            old = self.foreign_key(change.key, before[change.key])
            new = self.foreign_key(change.key, self.left.get(change.key))
            for f in {old, new} if old != new else ():
                moves[f] = max(change.ts, moves.get(f, change.ts))
        changed = {change.key: change.ts for change in right}
        is_alone = self.alone()
        for f in moves.keys() | changed.keys():
            row = self.right.get(f)
            if (f in is_alone and (f in changed or f not in was_alone)) or f in was_alone - is_alone:
                new = None if f not in is_alone or row is None else self.joiner((None, f), None, row.value)
                ts = max(moves[f], -1 if row is None else row.ts) if f in moves else changed[f]
                results[None, f] = Change((None, f), new, None, ts)

    def from_left(self, change: Change, before: Row | None, results: dict[Any, Change]) -> None:
        k, now = change.key, self.left.get(change.key)
        old_f = self.foreign_key(k, before)
        new_f = self.foreign_key(k, now)
        if before is None and now is None:
            return
        if self.kind == "left":
            results[k] = self.answer(change, self.right.get(new_f))
            return
        if now is not None and new_f is None:
            self.dropped[NULL_FOREIGN_KEY] += 1
        if new_f is None and old_f is not None:
            results[k] = self.answer(change, self.right.get(old_f), tombstone=True)
        elif new_f in self.right or (new_f != old_f and old_f is not None):
            results[k] = self.answer(change, self.right.get(new_f))

    def answer(self, change: Change, used: Row | None, tombstone: bool = False) -> Change:
        ts = change.ts if used is None else max(change.ts, used.ts)
        new = None if tombstone else self.joined(change.key, used)
        return Change(change.key, new, None, ts)

    def from_right(self, change: Change, results: dict[Any, Change]) -> None:
        for k, row in self.left.items():
            if k not in results and self.foreign_key(k, row) == change.key:
                results[k] = Change(k, self.joined(k, self.right.get(change.key)), None, change.ts)

    def joined(self, k: Any, right: Row | None) -> Any:
        left = self.left.get(k)
        if left is None or (right is None and self.kind == "inner"):
            return None
        return self.joiner((k, None) if self.either else k, left.value, right and right.value)

    def foreign_key(self, k: Any, row: Row | None) -> Any:
        return None if row is None else self.extractor(k, row.value)

    def emit(self, change: Change) -> Change:
        old = self.result.pop(change.key, None)
        if change.new is not None:
            self.result[change.key] = change.new
        return Change(change.key, change.new, old, change.ts)
