"""Columns as the engine holds them: numpy for fixed width, Arrow large binary for bytes.

A set of columns is a plain dict from name to array, all of one length. The few operations here are
all that runs and kernels need; each is one vectorised call per column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import eq
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Column = Any
"""`numpy.ndarray` (fixed width) or `pyarrow.LargeBinaryArray` (bytes, nullable)."""

Columns = Mapping[str, Column]

_FEW = 64
"""Columns of up to so many rows are shared by single rows of them, instead of copied."""

_VERY_FEW = 16
"""Up to so many rows a loop over Python's own bytes costs less than a call of Arrow's kernels."""

_SHORT = 64
"""Bytes of a key up to which numpy compares keys of one length in half the time of Arrow, and those of 8 in a sixth."""

EMPTY_BYTES = pa.array([], pa.large_binary())


def take(column: Column, rows: np.ndarray) -> Column:
    """The rows of a column, in the order asked for."""
    if isinstance(column, np.ndarray):
        return column[rows]
    if not len(rows):
        return column.slice(0, 0)
    if len(rows) == 1 and len(column) <= _FEW:
        return column.slice(int(rows[0]), 1)
    if len(rows) <= _VERY_FEW:
        return pa.array([column[row].as_py() for row in rows.tolist()], column.type)
    return column.take(pa.array(rows))


def take_or_null(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """The rows of an Arrow column; a negative row number gives null."""
    if len(rows) <= 1:
        return take(column, rows) if not len(rows) or rows[0] >= 0 else pa.nulls(1, column.type)
    missing = rows < 0
    if not missing.any():
        return take(column, rows)
    if len(rows) <= _VERY_FEW:
        return pa.array([None if row < 0 else column[row].as_py() for row in rows.tolist()], column.type)
    return column.take(pa.array(rows, mask=missing))


def cut(column: Column, start: int, stop: int) -> Column:
    """Rows ``start`` to ``stop`` without copying."""
    if isinstance(column, np.ndarray):
        return column[start:stop]
    return column.slice(start, stop - start)


def concat(parts: Sequence[Column]) -> Column:
    """One column out of several of the same type."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return pa.concat_arrays(parts)


def take_all(columns: Columns, rows: np.ndarray) -> dict[str, Column]:
    if len(rows) <= _VERY_FEW:
        return {name: take(column, rows) for name, column in columns.items()}
    indices = pa.array(rows)
    return {
        name: column[rows] if isinstance(column, np.ndarray) else column.take(indices)
        for name, column in columns.items()
    }


def cut_all(columns: Columns, start: int, stop: int) -> dict[str, Column]:
    return {name: cut(column, start, stop) for name, column in columns.items()}


def concat_all(parts: Sequence[Columns]) -> dict[str, Column]:
    """Sets of columns one after the other; all have the same names."""
    return {name: concat([part[name] for part in parts]) for name in parts[0]}


def equal(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Row by row, whether two byte columns without nulls hold the same bytes."""
    if len(left) <= _VERY_FEW:
        return np.array(list(map(eq, left.to_pylist(), right.to_pylist())), bool)
    return np.asarray(pc.equal(left, right))


def same_rows(left: pa.Array, rows: np.ndarray, right: pa.Array, others: np.ndarray | None) -> np.ndarray:
    """Pair by pair, whether rows of two byte columns hold the same bytes; none of these rows is null.

    ``others``: None for every row in turn.
    """
    if len(rows) > _VERY_FEW:
        mine = _as_items(left, len(rows))
        theirs = mine if right is left or mine is None else _as_items(right, len(rows))
        if mine is not None and theirs is not None and mine.dtype == theirs.dtype:
            return np.asarray(mine[rows] == (theirs if others is None else theirs[others]))
    return equal(take(left, rows), right if others is None else take(right, others))


def _as_items(column: pa.Array, wanted: int) -> np.ndarray | None:
    """All rows as one numpy array, if they are of one length, and not too many to look at for so few ``wanted``."""
    if column.null_count or not 0 < len(column) <= 4 * wanted:
        return None
    _, positions, content = column.buffers()
    ends = np.frombuffer(positions, np.int64, len(column) + 1, column.offset * 8)
    width = int(ends[1] - ends[0])
    if not 0 < width <= _SHORT or (np.diff(ends) != width).any():
        return None
    return np.frombuffer(content, np.uint8)[ends[0] : ends[-1]].view("u8" if width == 8 else f"V{width}")


def valid(column: pa.Array) -> np.ndarray:
    """Row by row, whether the value is there."""
    if column.null_count in (0, len(column)):
        return np.full(len(column), column.null_count == 0)
    return np.asarray(column.is_valid())


def to_record_batch(columns: Columns) -> pa.RecordBatch:
    """The columns as one Arrow record batch."""
    arrays = [pa.array(c) if isinstance(c, np.ndarray) else c for c in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def from_record_batch(batch: pa.RecordBatch) -> dict[str, Column]:
    """The columns of a record batch, without copying."""
    return {
        name: column.to_numpy(zero_copy_only=True) if pa.types.is_primitive(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
