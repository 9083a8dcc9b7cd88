"""Avro payloads to columns or objects: how values of a writer's schema are read as those of a reader's.

`reading` resolves two schemas into readers, which walk over all payloads at once. A reader gives a Polars series where
the reader's type has a column form, else a list of objects; None for what is only checked. Source: Avro 1.12,
"Schema Resolution".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays
from crossstream.serdes.avro.cursor import DEEPEST, PADDING, Cursor
from crossstream.serdes.avro.objects import Column, objects
from crossstream.serdes.avro.single import Reader
from crossstream.serdes.avro.sizes import EMPTY_ITEMS

CHUNK = 16_384
"""Payloads read at once: what the steps make stays in the cache."""

ROUNDS = 32
"""Items of an array that are found by stepping through all payloads together; those behind them one by one."""


class Record(Reader):
    """``steps``: for every field of the writer its reader, and the number of the reader's field it becomes.

    ``whole``: a further column, of this name, with the bytes of the record as it was written. ``empty``: nothing of
    it is kept, and no value of the writer has any bytes.
    """

    steps: Sequence[tuple[Reader, int | None]] = ()
    constants: dict[int, Column] = {}  # noqa: RUF012
    whole: str | None = None
    empty: bool = False

    def read(self, cursor: Cursor) -> Column:
        if self.empty:
            return None
        if not len(cursor):
            return self.nulls(0)
        start = cursor.pos
        cursor.depth += 1
        if cursor.depth > DEEPEST:
            cursor.fail_all(self.path, f"more than {DEEPEST} levels")
            cursor.depth -= 1
            return self.nulls(len(cursor))
        found: dict[int, Column] = {}
        for reader, target in self.steps:
            if cursor.reasons and (cursor.faults[cursor.rows] != 0).all():
                cursor.depth -= 1
                return self.nulls(len(cursor))
            made = reader.read(cursor)
            if target is not None:
                found[target] = made
        cursor.depth -= 1
        if not self.keep:
            return None
        for target, one in self.constants.items():
            rows = len(cursor)
            found[target] = one.new_from_index(0, rows) if isinstance(one, pl.Series) else (one or []) * rows
        fields = self.node.fields
        if self.column is not None:
            columns = {one.name: found[at] for at, one in enumerate(fields)}
            if self.whole is not None:
                columns[self.whole] = cursor.bytes_at(start, np.maximum(cursor.pos - start, 0))
            return arrays.struct_of(columns, len(cursor))  # type: ignore[arg-type]
        lists = [objects(found[at], one.node) for at, one in enumerate(fields)]
        names = [one.name for one in fields]
        return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


class Union(Reader):
    """``branches``: for every branch of the writer, its reader; a text: why it cannot be read."""

    branches: Sequence[Reader | str] = ()

    def read(self, cursor: Cursor) -> Column:
        if not len(cursor):
            return self.nulls(0)
        branch = cursor.number(self.path)
        count = len(self.branches)
        if not 0 <= int(branch.min()) <= int(branch.max()) < count:
            wrong = (branch < 0) | (branch >= count)
            cursor.fail(wrong, self.path, "a branch that the union does not have")
            branch = np.where(wrong, -1, branch)
        if (broken := cursor.broken()) is not None:
            branch = np.where(broken, -1, branch)
        first = int(branch[0])
        if first >= 0 and (branch == first).all():
            return self._branch(first, cursor)
        parts: list[Column] = []
        order: list[Any] = []
        for at in range(count):
            rows = np.flatnonzero(branch == at)
            if len(rows):
                inner = cursor.some(rows)
                parts.append(self._branch(at, inner))
                cursor.pos[rows] = inner.pos
                order.append(rows)
        return self._joined(parts, order, len(cursor)) if self.keep else None

    def _branch(self, at: int, cursor: Cursor) -> Column:
        reader = self.branches[at]
        if isinstance(reader, str):
            cursor.fail_all(self.path, reader)
            return self.nulls(len(cursor))
        made = reader.read(cursor)
        if not self.keep or isinstance(made, list):
            return made
        if reader.column == pl.Null:
            return self.nulls(len(cursor))
        return made if self.column is not None else objects(made, reader.node)

    def _joined(self, parts: list[Column], order: list[Any], rows: int) -> Column:
        if self.column is None:
            made: list[Any] = [None] * rows
            for part, places in zip(parts, order, strict=True):
                for place, value in zip(places.tolist(), part or (), strict=True):
                    made[place] = value
            return made
        source = np.full(rows, -1, np.int64)
        begin = 0
        kept: list[pl.Series] = []
        for part, places in zip(parts, order, strict=True):
            assert isinstance(part, pl.Series)
            if part.null_count() < len(part):
                source[places] = np.arange(begin, begin + len(places))
                begin += len(places)
                kept.append(part)
        if not kept:
            return self.nulls(rows)
        dense = kept[0] if len(kept) == 1 else pl.concat(kept, rechunk=True)
        return dense.gather(pl.Series(pa.array(source, mask=source < 0)))


class Items(Reader):
    """An array, or a map, whose items are records of key and value."""

    item: Reader
    width: int | None = None
    least: int = 0
    is_map: bool = False
    skip: Callable[[Any, int, int], int]

    def read(self, cursor: Cursor) -> Column:
        if not len(cursor):
            return self.nulls(0)
        owners, parts = [], []
        left = np.zeros(len(cursor), np.int64)
        active = np.arange(len(cursor))
        rounds = 0
        cursor.lists += 1
        if cursor.lists > 2 * DEEPEST:
            cursor.fail_all(self.path, f"more than {2 * DEEPEST} arrays in each other")
            active = active[:0]
        while len(active):
            headed = active[left[active] == 0]
            if len(headed):
                left[headed] = self._counts(cursor, headed)
                active = active[left[active] > 0]
                if not len(active):
                    break
            rounds += 1
            if self.width is not None:
                rows, positions = self._fixed_items(cursor, active, left)
            elif rounds > ROUNDS:
                rows, positions = self._walked(cursor, active, left)
            else:
                rows, positions = active, None
            inner = cursor.some(rows, None if positions is None else positions)
            parts.append(self.item.read(inner))
            owners.append(rows)
            if positions is None:
                cursor.pos[active] = inner.pos
                left[active] -= 1
            broken = cursor.faults[cursor.rows[active]] != 0
            if broken.any():
                cursor.pos[active[broken]] = cursor.end[active[broken]]
                left[active[broken]] = 0
                active = active[~broken]
        cursor.lists -= 1
        return self._lists(cursor, owners, parts) if self.keep else None

    def _counts(self, cursor: Cursor, rows: Any) -> Any:
        """The items of the next block of these rows; 0: there are no more."""
        inner = cursor.some(rows)
        counts = inner.number(self.path)
        negative = counts < 0
        if negative.any():  # the size of the block in bytes follows
            sized = inner.some(negative)
            sizes = sized.number(self.path)
            inner.pos[negative] = sized.pos
            wrong = np.zeros(len(inner), np.bool_)
            wrong[negative] = (sizes < 0) | (sizes > sized.end - sized.pos)
            inner.check(wrong, self.path, "a block that is longer than the payload")
            counts = np.where(wrong, 0, np.abs(counts))
        over = counts < 0  # the lowest number of 64 bits
        if self.least:
            over |= counts > (inner.end - inner.pos) // self.least
        if over.any():
            inner.fail(over, self.path, "more items than the payload has bytes for")
            counts = np.where(over, 0, counts)
        if self.least == 0:
            np.add.at(cursor.empties, inner.rows, np.minimum(counts, EMPTY_ITEMS + 1))
            wrong = cursor.empties[inner.rows] > EMPTY_ITEMS
            inner.check(wrong, self.path, f"more than {EMPTY_ITEMS} items without bytes")
        counts = np.where(inner.faults[inner.rows] != 0, 0, counts)
        cursor.pos[rows] = inner.pos
        return counts

    def _fixed_items(self, cursor: Cursor, active: Any, left: Any) -> tuple[Any, Any]:
        counts = left[active]
        rows = np.repeat(active, counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        positions = np.repeat(cursor.pos[active], counts) + within * self.width
        cursor.pos[active] += counts * self.width
        left[active] = 0
        return rows, positions

    def _walked(self, cursor: Cursor, active: Any, left: Any) -> tuple[Any, Any]:
        """All items of the blocks, found one by one: few payloads have arrays of that length."""
        rows: list[int] = []
        positions: list[int] = []
        for row in active.tolist():
            at, end = int(cursor.pos[row]), int(cursor.end[row])
            data = memoryview(cursor.buffer)  # type: ignore[arg-type]
            for _ in range(int(left[row])):
                rows.append(row)
                positions.append(min(at, end))
                try:
                    at = self.skip(data, at, end)
                except RecursionError:  # the item has too many levels, which it says itself
                    at = end + 1
                if at > end:
                    break
            cursor.pos[row] = min(at, end)
            left[row] = 0
        return np.array(rows, np.int64), np.array(positions, np.int64)

    def _lists(self, cursor: Cursor, owners: list[Any], parts: list[Column]) -> Column:
        owner = np.concatenate(owners) if owners else np.empty(0, np.int64)
        counts = np.bincount(owner, minlength=len(cursor))
        order = np.argsort(owner, kind="stable") if len(parts) > 1 else None
        if self.column is None:
            items = [one for part in parts for one in objects(part, self.item.node)]
            if order is not None:
                items = [items[at] for at in order.tolist()]
            ends = np.cumsum(counts).tolist()
            make: Callable[[Any], Any] = _dict if self.is_map else list
            return [make(items[start:end]) for start, end in pairwise([0, *ends])]
        kept = [part for part in parts if isinstance(part, pl.Series)]
        dense = pl.concat(kept, rechunk=True) if kept else self.item.nulls(0)
        assert isinstance(dense, pl.Series)
        if order is not None:
            dense = dense.gather(pl.Series(order))
        made = arrays.list_series(counts, dense)
        return made if made.dtype == self.column else made.cast(self.column)


def _dict(items: list[Any]) -> dict[str, Any]:
    return {one["key"]: one["value"] for one in items}


class Wrapped(Reader):
    """A value that becomes a branch of the reader's union."""

    inner: Reader

    def read(self, cursor: Cursor) -> Column:
        made = self.inner.read(cursor)
        if self.column is not None and isinstance(made, pl.Series) and made.dtype == pl.Null:
            return made.cast(self.column)
        return made if self.column is not None else objects(made, self.inner.node)


def decoded(reader: Reader, data: pa.LargeBinaryArray, head: int = 0) -> tuple[Column, dict[int, str]]:
    """The values of payloads without nulls, and the reasons of those that cannot be read. With reasons: no values.

    ``head``: bytes in front of each payload.
    """
    positions, content = arrays.offsets(data), arrays.content(data)
    parts: list[Column] = []
    faults: dict[int, str] = {}
    for first in range(0, len(data), CHUNK):
        last = min(first + CHUNK, len(data))
        begin, after = int(positions[first]), int(positions[last])
        buffer = np.zeros(after - begin + PADDING, np.uint8)
        buffer[: after - begin] = content[begin:after]
        cursor = Cursor(buffer, positions[first:last] - begin + head, positions[first + 1 : last + 1] - begin)
        parts.append(reader.read(cursor))
        if (left := cursor.end - cursor.pos).any():
            cursor.fail((left > 0) & (cursor.faults == 0), "", "bytes are left over behind the value")
        if cursor.reasons and cursor.faults.any():
            rows = np.flatnonzero(cursor.faults)
            faults.update({first + row: cursor.reasons[cursor.faults[row] - 1] for row in rows.tolist()})
    if faults:
        return None, faults
    if not parts:
        return reader.nulls(0), {}
    if len(parts) == 1:
        return parts[0], {}
    if isinstance(parts[0], list):
        return [one for part in parts for one in part or ()], {}
    return pl.concat([part for part in parts if isinstance(part, pl.Series)], rechunk=True), {}
