"""Which rows of a column a serde refuses, and the bytes of the others.

The serde decides on each row alone, in the form that it has. The result of an expression is a column, of which a serde
may take what it would not take as an object (a UUID as text). So the batch in which a row comes makes no difference. A
column is halved until the refused rows stand alone: one wrong row among many costs few calls. Nulls are null bytes in
every serde, also where the type of their column is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.values import Bytes, Values
from crossstream.errors import SerdeError
from crossstream.serdes import Serde
from crossstream.serdes import serde as calls
from crossstream.serdes.refusals import NO_COLUMN
from crossstream.storage.columns import take_or_null

Segment: TypeAlias = tuple[np.ndarray, Bytes | SerdeError]
"""Rows in ascending order, and their bytes, or why the serde refuses each of them."""

_FEW = 16
"""Rows that are checked one by one: where many are wrong, halving further would check each of them twice."""


def encoded(values: Values, serde: Serde) -> tuple[Bytes, list[tuple[int, SerdeError]]]:
    """The bytes, null where there are none, and the refused rows in ascending order.

    Raises `SerdeError` for what is not a matter of single rows.
    """
    rows, found, wrong = [np.empty(0, np.int64)], [pa.nulls(0, pa.large_binary())], []
    for own, part in values.parts():
        for within, piece in _pieces(part, serde):
            if isinstance(piece, SerdeError):
                wrong += [(row, piece) for row in own[within].tolist()]
            else:
                rows.append(own[within])
                found.append(piece)
    places = np.concatenate(rows)
    place = np.full(values.rows, -1, np.int64)
    place[places] = np.arange(len(places))
    return take_or_null(pa.concat_arrays(found), place), sorted(wrong, key=lambda one: one[0])


def first_refused(values: Values, serde: Serde) -> tuple[int, SerdeError] | None:
    """The first row that the serde refuses, and why; None if it refuses none. Raises as `encoded`."""
    wrong = encoded(values, serde)[1]
    return wrong[0] if wrong else None


def _pieces(values: Values, serde: Serde) -> Iterator[Segment]:
    """All rows but nulls; the refused ones in ascending order."""
    rows = np.flatnonzero(~values.missing())
    if not values.expressed():
        yield from _one_by_one(values.objects(), rows, serde)
        return
    column = values.series()
    there = column if len(rows) == len(column) else column.gather(pl.Series(rows, dtype=pl.Int64))
    refusal = _of_the_type(there, serde)
    yield from _halved(there, rows, serde) if refusal is None else [(rows, refusal)]


def _one_by_one(items: list[Any], rows: np.ndarray, serde: Serde) -> Iterator[Segment]:
    taken: list[int] = []
    found: list[bytes | None] = []
    for row in rows.tolist():
        try:
            found.append(calls.serialize(serde, items[row]))
            taken.append(row)
        except SerdeError as error:
            yield np.array([row]), error
    yield np.array(taken, np.int64), pa.array(found, pa.large_binary())


def _halved(column: pl.Series, rows: np.ndarray, serde: Serde) -> Iterator[Segment]:
    if not len(rows):
        return
    found = _column(column, serde)
    if not isinstance(found, SerdeError) or len(rows) == 1:
        yield rows, found
        return
    step = (len(rows) + 1) // 2 if len(rows) > _FEW else 1
    for start in range(0, len(rows), step):
        yield from _halved(column[start : start + step], rows[start : start + step], serde)


def _column(column: pl.Series, serde: Serde) -> Bytes | SerdeError:
    try:
        return calls.encode_series(serde, column)
    except SerdeError as error:
        if error.code == NO_COLUMN:
            raise
        return error


def _of_the_type(column: pl.Series, serde: Serde) -> SerdeError | None:
    """What the serde says of the type of a column, and so of any of its rows; None if it takes the type."""
    refusal = _column(column.clear(), serde)
    if not isinstance(refusal, SerdeError) or not len(column):
        return None
    first = _column(column[:1], serde)
    return first if isinstance(first, SerdeError) and first.what == refusal.what else None
