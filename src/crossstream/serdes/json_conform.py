"""A series made to fit a declared shape before it is written: what is written must be readable again."""

from __future__ import annotations

from typing import Any

import polars as pl

from crossstream.errors import SerdeError
from crossstream.serdes import refusals
from crossstream.serdes.json_columns import null_series, struct_of, with_nulls_of
from crossstream.serdes.json_shapes import ListOf, Shape, StructOf, column


def conform(values: pl.Series, shape: Shape, serde: str) -> pl.Series:
    """The series in exactly the type of ``shape``: fields in its order, missing ones null, numbers widened.

    Raises `SerdeError`: CS-401 for another type, CS-403 for a number beyond the range, CS-408 for a field the
    shape does not have, CS-409 for a null where none can be read.
    """
    fitted = values if values.dtype == shape.dtype else _cast(values, shape, serde, "")
    _check_nulls(fitted, shape, serde, "")
    return fitted


def _cast(values: pl.Series, shape: Shape, serde: str, path: str) -> pl.Series:
    if values.dtype == shape.dtype:
        return values
    if values.dtype == pl.Null or 0 < len(values) == values.null_count():  # nulls say nothing of their type
        return null_series(len(values), shape.dtype)
    if isinstance(shape, StructOf) and isinstance(values.dtype, pl.Struct):
        return _cast_struct(values, shape, serde, path)
    if not _fits(values.dtype, shape.dtype):
        cast = f"cast in the expression, for instance .cast({shape.dtype})"
        raise refusals.wrong_column(serde, values.dtype, str(shape.dtype), cast, path)
    try:
        fitted = values.cast(shape.dtype, strict=True)
    except pl.exceptions.PolarsError as error:
        raise _beyond(values, str(error), serde, path) from error
    if _overflown(values, fitted):
        raise _beyond(values, "a finite number is beyond the range of Float32", serde, path)
    return fitted


def _beyond(values: pl.Series, reason: str, serde: str, path: str) -> SerdeError:
    return refusals.no_bytes_for(
        serde, values, f"{path or 'value'}: {reason}", "cast or filter in the expression"
    )


def _overflown(wide: pl.Series, narrow: pl.Series) -> bool:
    """Whether a finite number became infinite as a Float32, also in lists: for Polars that is no error."""
    if isinstance(narrow.dtype, pl.List):
        return _leaf(narrow.dtype) == pl.Float32 and _overflown(wide.explode(), narrow.explode())
    if narrow.dtype != pl.Float32:
        return False
    infinite = narrow.is_infinite()
    return infinite.any() and (infinite & wide.cast(pl.Float64).is_finite()).any()


def _leaf(dtype: Any) -> Any:
    return _leaf(dtype.inner) if isinstance(dtype, pl.List) else dtype


def _cast_struct(values: pl.Series, shape: StructOf, serde: str, path: str) -> pl.Series:
    given = {part.name: part for part in values.struct.unnest().get_columns()}
    known = [field.name for field in shape.fields]
    if unknown := given.keys() - set(known):
        raise refusals.unknown_fields(serde, unknown, known)
    blank = null_series(len(values), pl.Null())
    parts = {
        field.name: _cast(given.get(field.name, blank), column(field), serde, _below(path, field.name))
        for field in shape.fields
    }
    return with_nulls_of(struct_of(parts, len(values)), values)


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
        return bool(given.is_integer() or _more_digits(wanted, given))
    return given == wanted or (wanted == pl.String and given in (pl.Categorical, pl.Enum))


def _more_digits(wanted: Any, given: Any) -> bool:
    return isinstance(wanted, pl.Decimal) and isinstance(given, pl.Decimal) and wanted.scale >= given.scale


def _check_nulls(values: pl.Series, shape: Shape, serde: str, path: str) -> None:
    if isinstance(shape, StructOf):
        for part, field in zip(_parts(values, shape), shape.fields, strict=True):
            below = _below(path, field.name)
            if not field.nullable and part.null_count() > values.null_count():
                raise refusals.null_field(serde, below)
            _check_nulls(part, column(field), serde, below)
    elif isinstance(shape, ListOf) and not (shape.nullable and _all_nullable(shape.item)):
        items = pl.Series(values.to_arrow().flatten())
        if not shape.nullable and items.null_count():
            raise refusals.null_field(serde, f"{path}[]")
        _check_nulls(items, shape.item, serde, f"{path}[]")


def _parts(values: pl.Series, shape: StructOf) -> list[pl.Series]:
    return values.struct.unnest().get_columns() if shape.fields else []


def _all_nullable(shape: Shape) -> bool:
    if isinstance(shape, ListOf):
        return shape.nullable and _all_nullable(shape.item)
    if isinstance(shape, StructOf):
        return all(field.nullable and _all_nullable(column(field)) for field in shape.fields)
    return True


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
