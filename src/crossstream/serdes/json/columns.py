"""Objects and JSON to Polars series. A series is made to fit the declared type before it is written (`text`)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import date
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError
from crossstream.serdes import arrays, errors
from crossstream.serdes.contract import Readers
from crossstream.serdes.json.bounds import is_decimal, may_have_exponents
from crossstream.serdes.json.native import NativeColumns, native_of
from crossstream.serdes.json.rows import CHUNK, Decoder, Read, decode_rows, whole
from crossstream.serdes.json.shapes import (
    KEPT,
    Layout,
    Leaf,
    ListOf,
    NoColumn,
    Shape,
    StructOf,
    column,
    is_checked,
    narrowed,
)

FEW = 64
"""Rows up to which Python objects are cheaper than a call for each column, or of Polars' encoder."""


def _to_series(values: list[Any], shape: Shape, serde: str, exponents: bool) -> pl.Series:
    """A series of wire values, None → null. Raises `SerdeError` (CS-402) for what the column cannot hold.
    ``exponents``: there may be decimals with some, as 1E-1000000000, for which Arrow ends the process."""
    try:
        if exponents or len(values) <= FEW:
            plain = msgspec.to_builtins(values, builtin_types=KEPT)
            series = series_of_plain(narrowed(plain, shape) if exponents else plain, shape)
        else:
            series = _series(values, shape)
        if beyond_the_calendar(series):
            raise ValueError("a time before the year 1 or after 9999 in UTC")
        return series
    except (TypeError, ValueError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise errors.undecodable(serde, f"beyond what a column of {shape.dtype} holds: {error}") from error


def series_of_plain(values: list[Any], shape: Shape) -> pl.Series:
    """A series of dicts, lists and single values that fit the shape."""
    return pl.Series(pa.array(values, _arrow_type(shape)))


@lru_cache(maxsize=512)
def _arrow_type(shape: Shape) -> pa.DataType:
    return pl.Series([], dtype=shape.dtype).to_arrow().type


def _series(values: list[Any], shape: Shape) -> pl.Series:
    if isinstance(shape, Leaf):
        return _leaves(values, shape)
    present = values
    if type(None) in set(map(type, values)):
        present = [value for value in values if value is not None]
    if isinstance(shape, ListOf):
        items = _series(list(chain.from_iterable(present)), shape.item)
        dense = arrays.list_series(np.fromiter(map(len, present), np.int64, len(present)), items)
    else:
        dense = _structs(present, shape)
    if present is values:
        return dense
    there = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return arrays.series_with_nulls(dense, there)


def _leaves(values: list[Any], shape: Leaf) -> pl.Series:
    if shape.wire is UUID:
        values = [None if value is None else str(value) for value in values]
    if isinstance(shape.dtype, pl.Decimal):  # Polars would round
        return pl.Series(pa.array(values, pa.decimal128(shape.dtype.precision or 38, shape.dtype.scale)))
    return pl.Series(values, dtype=shape.dtype)


def _structs(values: list[Any], shape: Any) -> pl.Series:
    return arrays.struct_of(
        {
            field.name: _series(list(map(attrgetter(field.attribute), values)), column(field))
            for field in shape.fields
        },
        len(values),
    )


def conform(values: pl.Series, shape: Shape, serde: str) -> pl.Series:
    """The series in exactly the type of ``shape``: fields in its order, missing ones null, numbers widened.

    Raises `SerdeError`: CS-401 for another type, CS-403 for a number beyond the range, CS-401 for a field the
    shape does not have, CS-401 for a null where none can be read.
    """
    fitted = values if values.dtype == shape.dtype else _cast(values, shape, serde, "")
    _check_nulls(fitted, shape, serde, "")
    return fitted


def _cast(values: pl.Series, shape: Shape, serde: str, path: str) -> pl.Series:
    if values.dtype == shape.dtype:
        return values
    if values.dtype == pl.Null or 0 < len(values) == values.null_count():  # nulls say nothing of their type
        return arrays.null_series(len(values), shape.dtype)
    if isinstance(shape, StructOf) and isinstance(values.dtype, pl.Struct):
        return _cast_struct(values, shape, serde, path)
    if not _fits(values.dtype, shape.dtype):
        cast = f"cast in the expression, for instance .cast({shape.dtype})"
        raise errors.wrong_column(serde, values.dtype, str(shape.dtype), cast, path)
    try:
        fitted = values.cast(shape.dtype, strict=True)
    except pl.exceptions.PolarsError as error:
        raise _beyond(values, str(error), serde, path) from error
    if _overflown(values, fitted):
        raise _beyond(values, "a finite number is beyond the range of Float32", serde, path)
    return fitted


def _beyond(values: pl.Series, reason: str, serde: str, path: str) -> CrossStreamError:
    return errors.no_bytes_for(
        serde, values, f"{path or 'value'}: {reason}", "cast or filter in the expression"
    )


def _overflown(wide: pl.Series, narrow: pl.Series) -> bool:
    """Whether a finite number became infinite as a Float32, also in lists: for Polars that is no error."""
    if isinstance(narrow.dtype, pl.List):
        return _overflown(wide.explode(empty_as_null=False), narrow.explode(empty_as_null=False))
    if narrow.dtype != pl.Float32:
        return False
    infinite = narrow.is_infinite()
    return infinite.any() and (infinite & wide.cast(pl.Float64).is_finite()).any()


def _cast_struct(values: pl.Series, shape: StructOf, serde: str, path: str) -> pl.Series:
    given = {part.name: part for part in values.struct.unnest().get_columns()}
    known = [field.name for field in shape.fields]
    if unknown := given.keys() - set(known):
        raise errors.unknown_fields(serde, unknown, known)
    blank = arrays.null_series(len(values), pl.Null())
    parts = {
        field.name: _cast(given.get(field.name, blank), column(field), serde, errors.below(path, field.name))
        for field in shape.fields
    }
    return arrays.with_nulls_of(arrays.struct_of(parts, len(values)), values)


def _fits(given: Any, wanted: Any) -> bool:
    """Whether a cast keeps what the values mean."""
    if isinstance(given, pl.List) and isinstance(wanted, pl.List):
        return given.inner == pl.Null or _fits(given.inner, wanted.inner)
    if isinstance(given, pl.Datetime) and isinstance(wanted, pl.Datetime):
        return (given.time_zone is None) == (wanted.time_zone is None)
    if wanted.is_float():
        return bool(given.is_integer() or given.is_float())
    if wanted.is_integer():
        return bool(given.is_integer())
    if wanted.is_decimal():
        return bool(given.is_integer() or (given.is_decimal() and wanted.scale >= given.scale))
    return given == wanted or (wanted == pl.String and given in (pl.Categorical, pl.Enum))


def _check_nulls(values: pl.Series, shape: Shape, serde: str, path: str) -> None:
    if isinstance(shape, StructOf):
        parts = values.struct.unnest().get_columns() if shape.fields else []
        for part, field in zip(parts, shape.fields, strict=True):
            inside = errors.below(path, field.name)
            if not field.nullable and part.null_count() > values.null_count():
                raise errors.null_field(serde, inside)
            _check_nulls(part, column(field), serde, inside)
    elif isinstance(shape, ListOf) and not (shape.nullable and _all_nullable(shape.item)):
        items = pl.Series(values.to_arrow().flatten())
        if not shape.nullable and items.null_count():
            raise errors.null_field(serde, f"{path}[]")
        _check_nulls(items, shape.item, serde, f"{path}[]")


def _all_nullable(shape: Shape) -> bool:
    if isinstance(shape, ListOf):
        return shape.nullable and _all_nullable(shape.item)
    if isinstance(shape, StructOf):
        return all(field.nullable and _all_nullable(column(field)) for field in shape.fields)
    return True


def beyond_the_calendar(values: pl.Series) -> bool:
    """Whether a time in the series is before the year 1 or after 9999, so that Python has no object for it."""
    dtype: Any = values.dtype
    if not len(values) or not any_leaf(dtype, _is_dated):
        return False
    if isinstance(dtype, pl.Struct):
        return any(map(beyond_the_calendar, values.struct.unnest().get_columns()))
    if isinstance(dtype, pl.List | pl.Array):
        return beyond_the_calendar(values.explode(empty_as_null=False))
    per_day = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
    width = 1 if dtype == pl.Date else per_day[dtype.time_unit]
    least, most = values.to_physical().min(), values.to_physical().max()
    return least is not None and not _FIRST_DAY * width <= least <= most < (_LAST_DAY + 1) * width  # type: ignore[operator]


_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days


def _is_dated(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Datetime | pl.Date)


@lru_cache(maxsize=1024)
def any_leaf(dtype: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether ``holds`` is true of a column in a column of this type."""
    if isinstance(dtype, pl.Struct):
        return any(any_leaf(field.dtype, holds) for field in dtype.fields)
    if isinstance(dtype, pl.Array):
        return holds(dtype) or any_leaf(dtype.inner, holds)
    return any_leaf(dtype.inner, holds) if isinstance(dtype, pl.List) else holds(dtype)


class Columns(NamedTuple):
    """How a column is decoded: by ``decoder``, then ``convert`` (None: nothing to convert) to the ``shape``.

    ``read``: the part of an object that functions read, now or later. ``native``: what does the same in C.
    """

    decoder: Decoder
    shape: Shape
    convert: Any
    read: Read = whole
    native: NativeColumns | None = None

    def decoded(self, data: pa.LargeBinaryArray, serde: str) -> pl.Series:
        """The column, decoded some thousand rows at a time."""
        chunks = [data.slice(start, CHUNK) for start in range(0, len(data), CHUNK)] or [data]
        parts = [self._decoded(rows, serde) for rows in chunks]
        return parts[0] if len(parts) == 1 else pl.concat(parts, rechunk=True)

    def _decoded(self, data: pa.LargeBinaryArray, serde: str) -> pl.Series:
        if self.native is not None and len(data) > FEW and (found := self.native.decoded(data)) is not None:
            return found
        values = decode_rows(data, self.decoder, serde, self.read)
        if self.convert is not None:
            try:
                values = msgspec.convert(msgspec.to_builtins(values, builtin_types=KEPT), self.convert)
            except (msgspec.MsgspecError, TypeError, ValueError) as error:
                raise errors.undecodable(serde, str(error)) from error
        has_decimals = any_leaf(self.shape.dtype, is_decimal)
        return _to_series(values, self.shape, serde, has_decimals and may_have_exponents(data))


def checked(
    layout: Layout, decoder: Decoder, names: frozenset[str], fit: Collection[str], readers: Readers
) -> Columns:
    """Columns of these fields, and of others that must ``fit`` into columns where only making the column shows it."""
    made = [
        field.name
        for field in layout.fields
        if field.name in names
        or (field.name in fit and not is_checked(field.shape) and not isinstance(field.shape, NoColumn))
    ]
    shape = layout.struct(made)
    if isinstance(shape, NoColumn):
        raise errors.no_column(layout.title, shape.reason)
    native = native_of(layout, shape)
    if readers.callables:
        return Columns(decoder, shape, None, native=native)
    read = fields_read(layout, names, readers)
    fields = [(field.name, attrgetter(field.attribute)) for field in layout.fields if field.name in read]
    return Columns(
        decoder, shape, None, lambda value: value and {name: get(value) for name, get in fields}, native
    )


def fields_read(layout: Layout, names: frozenset[str], readers: Readers) -> frozenset[str]:
    """The fields that are read as columns, now or later."""
    known = frozenset(field.name for field in layout.fields)
    if readers.fields is not None:
        return (names | readers.fields) & known
    return names | {field.name for field in layout.fields if not isinstance(field.shape, NoColumn)}


def some_fields(layout: Layout, names: frozenset[str], serde: str) -> Shape | NoColumn:
    known = [field.name for field in layout.fields]
    if unknown := names.difference(known):
        raise errors.unknown_fields(serde, unknown, known)
    return layout.struct(names)
