"""The columns that an expression reads, and the expression on them.

Every column has a declared type, so a record means the same in whatever batch it comes (decision 0031).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from crossstream.columns.functions import Function
from crossstream.columns.projection import ALL, WHOLE, Same, fields_of, projection_of
from crossstream.columns.values import Values
from crossstream.errors import ProcessingError

Types = Mapping[str, "pl.DataType | None"]
"""The declared types of the arguments of an expression; None: not declared."""


def is_joiner(arguments: Mapping[str, Any]) -> bool:
    """Whether a function gets the sides of a join, and not one value."""
    return "left" in arguments


def frame_for(function: Function, key: Values, arguments: Mapping[str, Values]) -> pl.DataFrame:
    """The columns that the expression of the function reads. Raises `SerdeError`."""
    projection, joiner = projection_of(function), is_joiner(arguments)
    columns = {"key": key.series()} if "key" in projection else {}
    for name, values in arguments.items():
        if name != WHOLE and (name in projection or (joiner and ALL in projection)):
            columns[name] = values.series(fields_of(function, name))
    if not joiner:
        columns.update(_value_columns(function, arguments, columns))
    return pl.DataFrame(columns or {"key": pl.Series(np.zeros(key.rows, np.int8))})


def _value_columns(
    function: Function, arguments: Mapping[str, Values], others: Mapping[str, Any]
) -> dict[str, pl.Series]:
    projection = projection_of(function)
    whole = WHOLE in projection or ALL in projection
    names = projection.keys() - others.keys() - {WHOLE, ALL, "key"}
    if not (whole or names):
        return {}
    series = arguments[WHOLE].series(None if whole else names)
    found = {}
    if isinstance(series.dtype, pl.Struct):
        fields = series.struct
        found = {
            name: fields.field(name) for name in fields.schema if name in projection or ALL in projection
        }
    if WHOLE in projection or not isinstance(series.dtype, pl.Struct):
        found.setdefault(WHOLE, series)
    return found


def reads_fields_only(function: Function, others: Mapping[str, Any]) -> bool:
    """Whether an expression reads fields of a value, and not the whole value."""
    projection = projection_of(function)
    return WHOLE not in projection and bool(projection.keys() - others.keys() - {"key"})


def select(expression: pl.Expr, frame: pl.DataFrame) -> pl.Series:
    """The result of the expression, one value for each row. Raises CS-501 for another number of values."""
    rows = frame.height
    try:
        result = frame.select(expression.alias("result")).to_series()
    except pl.exceptions.DuplicateError:
        if not expression.meta.has_multiple_outputs():
            raise
        raise ProcessingError(
            "an expression gave several columns, where there is one value for each record",
            code="CS-501",
            next='make one of them: pl.struct(pl.col("a", "b"))',
        ) from None
    if len(result) == 1 != rows:
        result = result.new_from_index(0, rows)
    if len(result) != rows:
        raise ProcessingError(
            f"an expression gave {len(result)} rows for {rows} records",
            code="CS-501",
            next="use expressions that give one value for each row: no aggregation, filter or explode",
        )
    return as_plain(result)


def as_plain(series: pl.Series) -> pl.Series:
    """With one type for each kind of value, as stores and topics keep it. Raises `PolarsError` if one does not fit.

    Polars has many: ``dt.hour`` gives eight bits, in which 23 × 60 is 100. So whole numbers have 64 bits, points in
    time are microseconds in UTC, categories are text.
    """
    dtype = plain(series.dtype)
    return series if dtype == series.dtype else series.cast(dtype)


@lru_cache(maxsize=512)
def plain(dtype: Any) -> Any:
    """The type that a column of this type has after `as_plain`."""
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: plain(field.dtype) for field in dtype.fields})
    if isinstance(dtype, pl.List | pl.Array):
        return pl.List(plain(dtype.inner))
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime("us", None if dtype.time_zone is None else "UTC")
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(38, dtype.scale)
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.String()
    if dtype.is_integer() and dtype != pl.UInt64:
        return pl.Int64()
    return pl.Duration("us") if isinstance(dtype, pl.Duration) else dtype


def result_type(function: Function, key: pl.DataType | None, types: Types) -> pl.DataType:
    """The type of what the expression gives for columns of these types. Raises `PolarsError`, CS-501."""
    assert function.expression is not None
    return _result_type(Same(function.expression), key, tuple(types.items()))


@lru_cache(maxsize=256)
def _result_type(
    same: Same, key: pl.DataType | None, types: tuple[tuple[str, pl.DataType | None], ...]
) -> pl.DataType:
    function = Function(expression=same.expression, with_key=True)
    columns = {name: Values(series=pl.Series([], dtype=dtype)) for name, dtype in types}
    frame = frame_for(function, Values(series=pl.Series([], dtype=key)), columns)
    return select(same.expression, frame).dtype
