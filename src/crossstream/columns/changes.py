"""Changes: records of a stream, or changes of a table, as columns in arrival order.

The same columns serve both. A null value is a null record in a stream and a tombstone in a table.
`major` and `minor` carry the arrival order of the record that caused a row (see `order.py`); they travel
with every row, for Spark does not keep order through a shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import hash_keys
from crossstream.columns.values import Values, concat_values
from crossstream.records import decode_headers, encode_headers
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import EMPTY_BYTES, Column, concat, cut, take, take_or_null, valid
from crossstream.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows in arrival order. ``ts``: ms; ``headers``: packed (see `records.py`) or None where no row has any.

    ``old``: for tables, if an operator needs it, the value before the change. ``extra``: columns from one operator for
    the next.
    """

    key: Values
    value: Values
    ts: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    headers: pa.LargeBinaryArray | None = None
    old: Values | None = None
    extra: Mapping[str, Column] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return len(self.ts)

    def take(self, rows: np.ndarray) -> Changes:
        """The rows asked for, in that order."""
        if len(rows) == 1 == self.rows and rows[0] == 0:
            return self
        return Changes(
            self.key.take(rows),
            self.value.take(rows),
            self.ts[rows],
            self.major[rows],
            self.minor[rows],
            None if self.headers is None else take_or_null(self.headers, rows),
            None if self.old is None else self.old.take(rows),
            {name: take(column, rows) for name, column in self.extra.items()},
        )

    def slice(self, start: int, stop: int) -> Changes:
        """Rows ``start`` to ``stop``, sharing what is there."""
        return Changes(
            self.key.slice(start, stop),
            self.value.slice(start, stop),
            self.ts[start:stop],
            self.major[start:stop],
            self.minor[start:stop],
            None if self.headers is None else cut(self.headers, start, stop),
            None if self.old is None else self.old.slice(start, stop),
            {name: cut(column, start, stop) for name, column in self.extra.items()},
        )

    def chunks(self, size: int) -> Iterator[Changes]:
        """At most ``size`` rows at a time; nothing if there are none."""
        if 0 < self.rows <= size:
            yield self
            return
        for start in range(0, self.rows, size):
            yield self.slice(start, min(start + size, self.rows))

    def where(self, mask: np.ndarray) -> Changes:
        """The rows for which the mask holds."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def without(self, rows: Sequence[int]) -> Changes:
        """The other rows."""
        keep = np.ones(self.rows, bool)
        keep[list(rows)] = False
        return self.where(keep)

    def with_value(self, value: Values, old: Values | None = None) -> Changes:
        return replace(self, value=value, old=old)

    def hashes(self, bits: int = 64) -> np.ndarray:
        """Hashes of the serialised keys."""
        return hash_keys(self.key.wire(), bits)


def no_changes(key: EngineSerde | None, value: EngineSerde | None) -> Changes:
    """No rows, with keys and values of these serdes: a side of a join that nothing happened to."""
    none = np.empty(0, np.int64)
    return Changes(Values(key, wire=EMPTY_BYTES), Values(value, wire=EMPTY_BYTES), none, none, none)


def concat_changes(parts: Sequence[Changes]) -> Changes:
    """Rows one after the other; ``extra`` columns must be the same in all parts."""
    if len(parts) == 1:
        return parts[0]
    return Changes(
        concat_values([part.key for part in parts]),
        concat_values([part.value for part in parts]),
        np.concatenate([part.ts for part in parts]),
        np.concatenate([part.major for part in parts]),
        np.concatenate([part.minor for part in parts]),
        concat_headers([(part.headers, part.rows) for part in parts]),
        None if parts[0].old is None else concat_values([part.old for part in parts if part.old is not None]),
        {name: concat([part.extra[name] for part in parts]) for name in parts[0].extra},
    )


def both_sides(left: Changes, right: Changes) -> Changes:
    """The rows of both sides, those of the left one first: their keys, places in time and headers, without values.

    The key serde of both is the same. The values are placeholders: do not read them.
    """
    sides = [side for side in (left, right) if side.rows] or [left]
    if len(sides) == 1:
        one = sides[0]
        return Changes(one.key, one.key, one.ts, one.major, one.minor, one.headers)
    keys = concat_values([side.key for side in sides])
    return Changes(
        keys,
        keys,
        np.concatenate([left.ts, right.ts]),
        np.concatenate([left.major, right.major]),
        np.concatenate([left.minor, right.minor]),
        concat_headers([(side.headers, side.rows) for side in sides]),
    )


def concat_headers(parts: Sequence[tuple[pa.LargeBinaryArray | None, int]]) -> pa.LargeBinaryArray | None:
    """Header columns one after the other; None where no part has one."""
    if all(headers is None for headers, _ in parts):
        return None
    return pa.concat_arrays(
        [pa.nulls(rows, pa.large_binary()) if headers is None else headers for headers, rows in parts]
    )


def reference(name: str) -> str:
    """The column of a left row's foreign key into the table of this name; null if it has none."""
    return f"reference {name}"


_LOOKED_AT = 1024
"""Rows of a sorted run that are searched for a key."""


@dataclass(slots=True)
class LookupCounts:
    """Counts of rows that looked for a partner, which a kernel adds to. ``most``: the partners that one row found."""

    matched: int = 0
    unmatched: int = 0
    most: int = 0

    def count(self, asking: np.ndarray, found: np.ndarray) -> None:
        """``asking``: the rows that look for a partner; ``found``: those of them that find one."""
        matched = int(np.count_nonzero(found))
        self.matched += matched
        self.unmatched += int(np.count_nonzero(asking)) - matched


def some_key(view: Snapshot, serde: EngineSerde | None) -> Values | None:
    """The key of a row that a store has or had a short time ago; None for an empty store."""
    for run in view.segments() if view.rows else ():
        if run.rows:
            gone = run["gone"]
            row = int(gone[:_LOOKED_AT].argmin()) if gone[0] else 0
            if not gone[row]:
                return Values(serde, wire=run["key"].slice(row, 1))
    return None


def some_given(keys: Values) -> Values | None:
    """One of the keys that is not null."""
    there = np.flatnonzero(~keys.missing())
    return keys.take(there[:1]) if len(there) else None


JoinKind = Literal["inner", "left", "outer"]
"""Which rows without a partner come out of a join: none, those of the left side, or those of both."""

Headers = Literal["left", "right", "both"]
"""Of the left side, of the right one, or those of the left one and then those of the right one."""


def headers_in(changes: Changes) -> Column:
    """The headers as a column, which has nulls where no row has any."""
    return pa.nulls(changes.rows, pa.large_binary()) if changes.headers is None else changes.headers


def headers_of(wanted: Headers, left: Column | None, right: Column | None) -> Column | None:
    """The headers of a join's results, from those of their sides; None where no row has any."""
    if wanted != "both":
        return left if wanted == "left" else right
    if left is None or right is None:
        return right if left is None else left
    there = valid(left), valid(right)
    rows = np.where(there[0], 0, len(left)) + np.arange(len(left))
    either = pa.concat_arrays([left, right]).take(pa.array(rows))
    two = np.flatnonzero(there[0] & there[1])
    if not len(two):
        return either
    pairs = [(left[row].as_py(), right[row].as_py()) for row in two.tolist()]
    made = [encode_headers([*decode_headers(one), *decode_headers(other)]) for one, other in pairs]
    place = np.arange(len(left))
    place[two] = len(left) + np.arange(len(two))
    return pa.concat_arrays([either, pa.array(made, pa.large_binary())]).take(pa.array(place))
