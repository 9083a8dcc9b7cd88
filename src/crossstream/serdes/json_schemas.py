"""Polars and Arrow schemas as JSON shapes: every field may be null or missing, others are ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.serdes import json_shapes as leaves
from crossstream.serdes import refusals
from crossstream.serdes.json_shapes import (
    Field,
    Layout,
    Leaf,
    ListOf,
    NoColumn,
    Shape,
    StructOf,
    list_of,
    nameable,
)


def struct_dtype(given: Any) -> pl.Struct | None:
    """The Polars struct that a schema describes; None if ``given`` is not a schema. Raises CS-404."""
    if isinstance(given, pa.StructType):
        given = pa.schema(list(given))
    if isinstance(given, pa.Schema):
        frame = pl.from_arrow(given.empty_table())
        assert isinstance(frame, pl.DataFrame)
        return pl.Struct(dict(frame.schema))
    if isinstance(given, pl.Struct):
        return given
    if isinstance(given, dict):
        if not all(isinstance(name, str) for name in given):
            raise refusals.unusable_type(given, "not all field names are text")
        try:
            return pl.Struct(dict(pl.Schema(given)))
        except Exception as error:
            raise refusals.unusable_type(given, f"not all values are Polars types ({error})") from error
    return None


def read_schema(dtype: pl.Struct, strict: bool = False) -> Layout:
    """The fields of a schema. ``strict``: unknown ones are errors. Raises CS-404 for a type JSON has not."""
    for one in dtype.fields:
        if not nameable(one.name):
            raise refusals.unusable_type(
                dtype, f"{one.name!r} as a field name, with quotes or control characters"
            )
    fields = tuple(
        Field(
            one.name,
            f"f{position}",
            shape_of(_instance(one.dtype), strict),
            True,
            msgspec.field(default=None),
        )
        for position, one in enumerate(dtype.fields)
    )
    return Layout("schema", fields, {"forbid_unknown_fields": strict})


def schema_name(dtype: pl.DataType) -> str:
    """A type as text that no release of Polars changes: ``{id: Int64, tags: [String]}``."""
    if isinstance(dtype, pl.Struct):
        return (
            "{"
            + ", ".join(f"{field.name}: {schema_name(_instance(field.dtype))}" for field in dtype.fields)
            + "}"
        )
    if isinstance(dtype, pl.List):
        return f"[{schema_name(_instance(dtype.inner))}]"
    if isinstance(dtype, pl.Datetime):
        return f"Datetime({dtype.time_unit}, {dtype.time_zone})"
    if isinstance(dtype, pl.Decimal):
        return f"Decimal({dtype.precision}, {dtype.scale})"
    return type(dtype).__name__


Narrow = Callable[[Any], Any]


def narrowing(shape: Shape) -> Narrow | None:
    """What makes of a plain value of the shape (never None) what the column holds; None: nothing to do.

    Changes dicts in place. Raises ValueError for a value that does not fit.
    """
    if isinstance(shape, Leaf):
        return shape.narrow
    if isinstance(shape, ListOf):
        item = narrowing(shape.item)
        return None if item is None else lambda values: [None if one is None else item(one) for one in values]
    return _struct_narrowing(shape)


def _struct_narrowing(shape: StructOf) -> Narrow | None:
    steps = {}
    for field in shape.fields:
        assert not isinstance(field.shape, NoColumn)
        step = narrowing(field.shape)
        if step is not None:
            steps[field.name] = step
    if not steps:
        return None

    def narrow(value: dict[str, Any]) -> dict[str, Any]:
        for name, step in steps.items():
            if value[name] is not None:
                value[name] = step(value[name])
        return value

    return narrow


_LEAVES = {
    pl.Float32(): leaves.float32(),
    pl.Float64(): leaves.FLOAT64,
    pl.String(): leaves.STRING,
    pl.Boolean(): leaves.BOOLEAN,
    pl.Binary(): leaves.BINARY,
    pl.Date(): leaves.DATE,
    pl.Time(): leaves.TIME,
    pl.Duration("us"): leaves.DURATION,
}
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)


def shape_of(dtype: pl.DataType, strict: bool = False) -> Shape:
    """The shape of a column. ``strict``: as in `read_schema`. Raises CS-404 for a type JSON has not."""
    if isinstance(dtype, pl.Struct):
        struct = read_schema(dtype, strict).struct()
        assert isinstance(struct, StructOf)
        return struct
    if isinstance(dtype, pl.List):
        return list_of(shape_of(_instance(dtype.inner), strict), nullable=True)
    if dtype in _INTEGERS:
        return leaves.integer(dtype)
    if isinstance(dtype, pl.Datetime) and dtype.time_unit != "ns":
        return leaves.timestamp(dtype.time_unit, dtype.time_zone)
    if isinstance(dtype, pl.Decimal):
        return leaves.decimal(dtype.precision or 38, dtype.scale)
    leaf = _LEAVES.get(dtype)
    if leaf is None:
        raise refusals.unusable_type(dtype, f"JSON values are not read as {dtype}; times are of 'us' or 'ms'")
    return leaf


def _instance(dtype: Any) -> pl.DataType:
    """Polars lets a type stand for its instance."""
    made: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return made
