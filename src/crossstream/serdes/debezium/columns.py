"""Columns of the rows after changes, in the declared types: defaults, and values that a connector left out."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays
from crossstream.serdes.debezium.convert import bad, convert
from crossstream.serdes.debezium.events import Events, Raw
from crossstream.serdes.debezium.settings import Debezium
from crossstream.serdes.json.columns import series_of_plain
from crossstream.serdes.json.shapes import KEPT, Field, column


def upserted(
    settings: Debezium, put: np.ndarray, events: Events, one: Field
) -> tuple[pl.Series, np.ndarray | None]:
    """A column of the rows after the changes, and where it is unavailable; None: nowhere."""
    raw = events.after.column(put, one)
    left_out = None
    if one.name in settings.unavailable and events.rows is None:
        left_out = _left_out(raw.series, settings)
    if left_out is None:
        return _checked(settings, raw, one), None
    made = _checked(settings, raw._replace(series=_without(raw.series, left_out)), one, left_out)
    known = events.before.there()[put] & left_out
    if events.before is not events.after and known.any():  # with REPLICA IDENTITY FULL
        rows = np.flatnonzero(known)
        before = events.before.column(put[rows], one)
        lost = _left_out(before.series, settings)
        there = (
            ~before.series.is_null().to_numpy()
            if lost is None
            else ~(before.series.is_null().to_numpy() | lost)
        )
        if there.any():
            own = events.before.column(put[rows[there]], one)
            found = convert(own.series, column(one).dtype, own.logical, one.name)
            index = np.arange(len(made))
            index[rows[there]] = len(made) + np.arange(len(found))
            made = pl.concat([made, found]).gather(index)
            left_out = left_out.copy()
            left_out[rows[there]] = False
    return made, left_out


def _checked(settings: Debezium, raw: Raw, one: Field, left_out: np.ndarray | None = None) -> pl.Series:
    """The column in its type, with defaults where records lack the field. Raises CS-402 for a null that may not be."""
    made = convert(raw.series, column(one).dtype, raw.logical, one.name)
    if raw.missing is not None and (default := _default_of(one)) is not None:
        made = _put(made, raw.missing, default)
    if left_out is not None:
        made = _put(made, left_out, _filler(one, 1))
    if not one.nullable and made.null_count():
        there = "lacks field" if raw.missing is not None and raw.missing.any() else "has null in field"
        raise bad(f"the row {there} {one.name}, which is neither optional nor has a default")
    return made


def _put(series: pl.Series, where: np.ndarray, one: pl.Series) -> pl.Series:
    """The series with another value in some rows."""
    index = np.arange(len(series))
    index[where] = len(series)
    return pl.concat([series, one.cast(series.dtype) if one.dtype != series.dtype else one]).gather(index)


def _without(series: pl.Series, rows: np.ndarray) -> pl.Series:
    if rows.all():
        return arrays.null_series(len(series), series.dtype)
    return series.gather(pl.Series(pa.array(np.arange(len(series)), mask=rows), dtype=pl.Int64))


def _left_out(series: pl.Series, settings: Debezium) -> np.ndarray | None:
    """Where a connector left a value out; None: nowhere."""
    if isinstance(series.dtype, pl.List):
        return _lists_left_out(series, settings)
    if series.dtype == pl.String:
        found = series.is_in(settings.marks)
    elif series.dtype == pl.Binary:
        found = series.is_in(_as_bytes(settings.marks))
    else:
        return None
    return found.fill_null(False).to_numpy() if found.any() else None


def _as_bytes(marks: Sequence[str]) -> pl.Series:
    return pl.Series([mark.encode() for mark in marks[:1]], dtype=pl.Binary)


def _lists_left_out(series: pl.Series, settings: Debezium) -> np.ndarray | None:
    """Arrays of text and of bytes have the text in their place, those of numbers its bytes, of UUIDs one made of it."""
    inner, size = series.dtype.inner, series.list.len()  # type: ignore[attr-defined]
    value = settings.unavailable_value or ""
    if inner == pl.String:
        digest = bytearray(
            hashlib.md5(value.encode(), usedforsecurity=False).digest()
        )  # Java's nameUUIDFromBytes
        digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
        marks = [*settings.marks, str(uuid.UUID(bytes=bytes(digest)))]
        found = ((size == 1) & series.list.first().is_in(marks)).fill_null(False).to_numpy()
    elif inner == pl.Binary:
        found = (
            ((size == 1) & series.list.first().is_in(_as_bytes(settings.marks))).fill_null(False).to_numpy()
        )
    elif inner.is_integer():
        marks_ = list(value.encode())
        found = np.zeros(len(series), bool)
        for row in np.flatnonzero((size == len(marks_)).fill_null(False).to_numpy()).tolist():
            found[row] = series[row].to_list() == marks_
    else:
        return None
    return found if found.any() else None


_FILLERS: Mapping[type, Any] = {pl.String: "", pl.Binary: b"", pl.List: []}


def _filler(field: Field, rows: int) -> pl.Series:
    """What stands in a field whose value is not known: null, or of a field without null, something empty."""
    dtype = column(field).dtype
    empty = None if field.nullable else next((v for k, v in _FILLERS.items() if isinstance(dtype, k)), None)
    if empty is None:
        return arrays.null_series(rows, dtype)
    return pl.Series([empty], dtype=dtype).new_from_index(0, rows)


def _default_of(field: Field) -> pl.Series | None:
    """The value of a field that a record lacks, as a column of one row; None: there is none."""
    return _made(field) if field.default is not None else None


@lru_cache(maxsize=512)
def _made(field: Field) -> pl.Series:
    given = field.default
    made = given.default_factory() if given.default is msgspec.NODEFAULT else given.default
    plain = msgspec.to_builtins(made, builtin_types=KEPT)
    shape = column(field)
    return arrays.null_series(1, shape.dtype) if plain is None else series_of_plain([plain], shape)
