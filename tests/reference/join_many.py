"""A left table with several right tables, by a foreign key f = x(k, row) into each of them.

    result[k] = j(left[k], {name: right[name][x[name](left[k])]})    inner: all rows;  left: a left row (others: None)

A left change of k

    all foreign keys name a row, or left      j(new, rows)
    not all do, and there was a result        a tombstone
    not all do, and there was none            nothing; in an inner join a null foreign key is a counted drop
    no row, and there was a result            a tombstone
    no row, and there was none                nothing

    timestamp = max(the left change's, those of the right rows); a tombstone: the left change's

A right change of f answers every left row that refers to f, in byte order of k, even where it changes nothing:
j(row, rows), or in an inner join, where the row of f went, a tombstone, if there was a result.

    timestamp = the right change's alone

Where one input record changes a left row and right rows, or several right rows of one left row, the result changes
once: as the left change says, or as the right one.

An update behind the latest version of a versioned input is dropped and counted; of a left table that is joined with
itself once as a left row and once as a right one, as the two processors of a foreign-key join do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.reference.functions import Selector
from tests.reference.records import NULL_FOREIGN_KEY, OUT_OF_ORDER, Change, key_bytes
from tests.reference.table_table import apply
from tests.reference.tables import Row

ManyJoiner = Callable[[Any, Any, dict[str, Any]], Any]  # (key, left, rows by name)


class JoinMany:
    """``rights``: for each name the extractor, and the input it refers to."""

    def __init__(
        self, kind: str, joiner: ManyJoiner, rights: Mapping[str, tuple[Selector, str]], dropped: Counter[str]
    ) -> None:
        self.kind = kind
        self.joiner = joiner
        self.rights = rights
        self.dropped = dropped
        self.tables: dict[str, dict[Any, Row]] = {}
        self.result: dict[Any, Any] = {}

    def receive(self, changes: Mapping[str, Change | None]) -> list[Change]:
        """What one input record makes of the inputs it changes, ``left`` and others."""
        latest = {side: change for side, change in changes.items() if change is not None and change.latest}
        behind = [side for side, change in changes.items() if change is not None and not change.latest]
        as_right = {side for _, side in self.rights.values()}
        self.dropped[OUT_OF_ORDER] += sum((side == "left") + (side in as_right) for side in behind)
        for side, change in latest.items():
            apply(change, self.table(side))
        answers: dict[Any, Change] = {}
        for name, (_, side) in self.rights.items():
            if side in latest:
                for k, row in self.table("left").items():
                    if self.foreign_keys(k, row)[name] == latest[side].key:
                        answers[k] = self.answer(k, latest[side].ts)
        if "left" in latest:
            answers |= self.from_left(latest["left"])
        return [self.emit(answers[k]) for k in sorted(answers, key=key_bytes) if self.speaks(answers[k])]

    def from_left(self, change: Change) -> dict[Any, Change]:
        k, row = change.key, self.table("left").get(change.key)
        if self.kind == "inner" and row is not None and None in self.foreign_keys(k, row).values():
            self.dropped[NULL_FOREIGN_KEY] += 1
        used = [] if row is None or not self.complete(row, k) else list(self.partners(k, row).values())
        return {k: self.answer(k, max([change.ts, *(partner.ts for partner in used if partner is not None)]))}

    def answer(self, k: Any, ts: int) -> Change:
        row = self.table("left").get(k)
        if row is None or not self.complete(row, k):
            return Change(k, None, None, ts)
        rows = {name: partner and partner.value for name, partner in self.partners(k, row).items()}
        return Change(k, self.joiner(k, row.value, rows), None, ts)

    def speaks(self, change: Change) -> bool:
        return change.new is not None or change.key in self.result

    def complete(self, row: Row, k: Any) -> bool:
        return self.kind == "left" or None not in self.partners(k, row).values()

    def partners(self, k: Any, row: Row) -> dict[str, Row | None]:
        keys = self.foreign_keys(k, row)
        return {name: self.table(side).get(keys[name]) for name, (_, side) in self.rights.items()}

    def foreign_keys(self, k: Any, row: Row) -> dict[str, Any]:
        return {name: extractor(k, row.value) for name, (extractor, _) in self.rights.items()}

    def table(self, side: str) -> dict[Any, Row]:
        return self.tables.setdefault(side, {})

    def emit(self, change: Change) -> Change:
        old = self.result.pop(change.key, None)
        if change.new is not None:
            self.result[change.key] = change.new
        return Change(change.key, change.new, old, change.ts)
