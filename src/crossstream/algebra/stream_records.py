"""The records of both sides of a stream–stream join, in the order in which they arrived.

A record has a *place* in its batch, and an arrival number that no other record of its state partition has: the number
of the batch and the place. A stream joined with itself plays both sides: each record has two places, left then right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from crossstream.algebra.change import Changes, both_sides
from crossstream.algebra.hashing import hash_keys
from crossstream.algebra.windows import LEFT, RIGHT, SIDES
from crossstream.state.columns import EMPTY_BYTES, Column, take, valid
from crossstream.state.run import Run, is_sorted, sorted_order

PLACE_BITS = 32
"""Lower bits of an arrival number: the place of the record in its batch."""


@dataclass(frozen=True, slots=True)
class Records:
    """Columns by place. ``row``: of the record among those of its side; ``key``: in wire form, may be null.

    ``kept``: whether key and value are there.
    """

    side: np.ndarray
    row: np.ndarray
    ts: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    key: Column
    hashes: np.ndarray
    headers: pa.LargeBinaryArray | None
    has_key: np.ndarray
    has_value: np.ndarray
    batch: int
    kept: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept", self.has_key & self.has_value)

    @property
    def count(self) -> int:
        return len(self.ts)

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """The arrival numbers of records."""
        return places.astype(np.uint64) + np.uint64(self.batch << PLACE_BITS)

    def run(self, side: int, values: Column) -> Run:
        """The records of a side that are kept, sorted as in a store; ``values``: of all records of the side."""
        places = np.flatnonzero(self.kept & (self.side == side))
        if not len(places):
            return _NO_ROWS
        order = sorted_order({"h": self.hashes[places], "s": self.ts[places]})
        places = places if is_sorted(order) else places[order]
        count = len(places)
        return Run(
            {
                "h": self.hashes[places],
                "s": self.ts[places],
                "key": take(self.key, places),
                "n": self.numbers(places),
                "value": take(values, self.row[places]),
                "headers": pa.nulls(count, pa.large_binary())
                if self.headers is None
                else take(self.headers, places),
                "place": places,
            },
            count,
        )


_NO_ROWS = Run(
    {
        "h": np.empty(0, np.uint64),
        "s": np.empty(0, np.int64),
        "key": EMPTY_BYTES,
        "n": np.empty(0, np.uint64),
        "value": EMPTY_BYTES,
        "headers": EMPTY_BYTES,
        "place": np.empty(0, np.int64),
    }
)


def records_of(
    left: Changes,
    right: Changes,
    *,
    itself: bool,
    right_first: Callable[[np.ndarray], np.ndarray],
    batch: int,
    bits: int,
) -> Records:
    """The records of both sides by arrival; keys and values are in wire form.

    ``itself``: both sides are the same stream, in arrival order. ``right_first``: tells of which input records, by
    their `minor`, the rows that came to the right side arrived first.
    """
    if itself:
        side = np.tile(np.array(SIDES, np.int8), left.rows)
        row = np.repeat(np.arange(left.rows), 2)
        order = row
        both, sides = left, [left, left]
    else:
        both, sides = both_sides(left, right), [left, right]
        of_side = np.repeat(np.array(SIDES, np.int8), [left.rows, right.rows])
        order = np.arange(1)
        if both.rows > 1:
            order = np.lexsort((of_side ^ right_first(both.minor), both.minor, both.major))
        side = of_side[order]
        row = np.where(side == RIGHT, order - left.rows, order)
    key = both.key.wire() if _is_all(order, both.rows) else take(both.key.wire(), order)
    there = np.concatenate([~one.value.missing() for one in sides])
    return Records(
        side,
        row,
        both.ts[order],
        both.major[order],
        both.minor[order],
        key,
        hash_keys(key, bits),
        both.headers if both.headers is None else take(both.headers, order),
        valid(key),
        there[np.where(side == LEFT, row, sides[LEFT].rows + row)],
        batch,
    )


def _is_all(order: np.ndarray, rows: int) -> bool:
    return len(order) == rows and is_sorted(order)
