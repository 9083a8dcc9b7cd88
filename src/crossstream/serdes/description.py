"""What a state folder says of a serde: plain data, of which `described` makes it again."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec
import polars as pl

_MOST_DEPTH = 64
"""Levels of a type of columns: Polars itself takes no more than about that."""

_NAMED = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64,
            pl.String, pl.Boolean, pl.Binary, pl.Date, pl.Time,
        )
    }
)  # fmt: skip


class Described(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a serde is made. ``kind``: "known" (by its name), "schema" or "class" (of JSON), "left_or_right", "windowed",
    "avro", "confluent_avro", "confluent_json", "confluent_protobuf" or "own".

    ``columns``: the type of a column, of JSON, as `as_data` gives it. ``is_plain``: whether plain values are written as
    the class writes its own. ``sides``: the serdes of `LeftOrRight` keys, or of the keys in windows; ``size``: of these
    windows.

    ``text``: the schema of Avro, or the full name of a message; ``references``: the schemas that it refers to, by name;
    ``files``: those that describe the message, serialised. ``registry``: the URL of a schema registry, without secrets;
    it is asked for rows that are stored as they were read from a topic.
    """

    name: str
    kind: str
    columns: Any = None
    is_plain: bool = False
    sides: tuple[Described, ...] = ()
    size: int | None = None
    text: str = ""
    references: tuple[tuple[str, str], ...] = ()
    files: tuple[bytes, ...] = ()
    registry: str = ""
    decimals: Literal["text", "number"] = "text"


def as_data(dtype: Any) -> Any:
    """A type of columns as JSON: a name, or an object of one field, such as ``{"list": "String"}``."""
    if isinstance(dtype, pl.Struct):
        return {"struct": {field.name: as_data(field.dtype) for field in dtype.fields}}
    if isinstance(dtype, pl.List):
        return {"list": as_data(dtype.inner)}
    if isinstance(dtype, pl.Datetime):
        return {"datetime": [dtype.time_unit, dtype.time_zone]}
    if isinstance(dtype, pl.Duration):
        return {"duration": [dtype.time_unit]}
    if isinstance(dtype, pl.Decimal):
        return {"decimal": [dtype.precision, dtype.scale]}
    return dtype.__name__ if isinstance(dtype, type) else type(dtype).__name__


def of_data(data: Any, depth: int = _MOST_DEPTH) -> pl.DataType:
    """The type that `as_data` wrote. Raises some exception for a wrong description."""
    if isinstance(data, str):
        return _NAMED[data]()
    if not depth:
        raise ValueError(f"it goes deeper than {_MOST_DEPTH} levels")
    ((kind, what),) = data.items()
    if kind == "struct":
        return pl.Struct({name: of_data(inner, depth - 1) for name, inner in what.items()})
    if kind == "list":
        return pl.List(of_data(what, depth - 1))
    if kind == "decimal":
        precision, scale = what
        if not (isinstance(precision, int | None) and 0 <= scale <= (precision or 38) <= 38):
            raise ValueError(f"there is no decimal of {precision} digits, {scale} of them behind the point")
        return pl.Decimal(precision, scale)
    unit, *zone = what
    if unit not in ("ms", "us", "ns"):
        raise ValueError(f"there is no unit {unit!r}")
    if kind == "duration" and not zone:
        return pl.Duration(unit)
    if kind != "datetime" or len(zone) != 1:
        raise ValueError(f"there is no type {kind!r}")
    if zone[0] is not None:
        ZoneInfo(zone[0])
    return pl.Datetime(unit, zone[0])
