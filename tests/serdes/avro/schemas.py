"""Random Avro schemas, values of them, and fastavro, which says what is right."""

from __future__ import annotations

import io
import json
import math
import uuid
from collections.abc import Iterator
from datetime import date, datetime, time, timezone
from decimal import Context, Decimal
from itertools import count
from typing import Any, NamedTuple

import fastavro
from hypothesis import strategies as st

UTC = timezone.utc
Values = st.SearchStrategy[Any]


class Typed(NamedTuple):
    """A type as JSON, and its values."""

    schema: Any
    values: Values


def _millis(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


_NAIVE = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
_AWARE = _NAIVE.map(lambda value: value.replace(tzinfo=UTC))
_TIMES = st.times()
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def _logical(kind: str, logical: str, values: Values) -> Typed:
    return Typed({"type": kind, "logicalType": logical}, values)


SINGLE = (
    Typed("boolean", st.booleans()),
    Typed("int", st.integers(-(2**31), 2**31 - 1)),
    Typed("long", st.integers(-(2**63), 2**63 - 1)),
    Typed("float", st.floats(width=32, allow_nan=False)),
    Typed("double", st.floats(allow_nan=False)),
    Typed("bytes", st.binary(max_size=20)),
    Typed("string", _TEXT),
    _logical("int", "date", st.dates()),
    _logical("int", "time-millis", _TIMES.map(_millis)),
    _logical("long", "time-micros", _TIMES),
    _logical("long", "timestamp-millis", _AWARE.map(_millis)),
    _logical("long", "timestamp-micros", _AWARE),
    _logical("long", "local-timestamp-millis", _NAIVE.map(_millis)),
    _logical("long", "local-timestamp-micros", _NAIVE),
    _logical("string", "uuid", st.uuids()),
)


def _decimals(precision: int, scale: int) -> Values:
    most = 10**precision - 1
    return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-scale, _WIDE))


_WIDE = Context(prec=100)


@st.composite
def typed(draw: Any, names: Iterator[int] | None = None, depth: int = 3, unions: bool = True) -> Typed:
    """A type with its values. ``unions``: there may be unions of more than null and one type."""
    names = count() if names is None else names
    kinds = ["single", "single", "decimal", "fixed", "enum"]  # fastavro has no UUIDs of 16 bytes
    if depth > 0:
        kinds += ["record", "array", "map", "nullable", "nullable"] + (["union"] if unions else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "decimal":
        precision = draw(st.integers(1, 38))
        scale = draw(st.integers(0, precision))
        logical = {"logicalType": "decimal", "precision": precision, "scale": scale}
        if draw(st.booleans()):
            return Typed({"type": "bytes", **logical}, _decimals(precision, scale))
        size = draw(st.integers((10**precision).bit_length() // 8 + 1, 18))
        return Typed(
            {"type": "fixed", "name": f"D{next(names)}", "size": size, **logical}, _decimals(precision, scale)
        )
    if kind == "fixed":
        size = draw(st.integers(0, 20))
        schema = {"type": "fixed", "name": f"F{next(names)}", "size": size}
        return Typed(schema, st.binary(min_size=size, max_size=size))
    if kind == "enum":
        symbols = [f"S{at}" for at in range(draw(st.integers(1, 5)))]
        return Typed(
            {"type": "enum", "name": f"E{next(names)}", "symbols": symbols}, st.sampled_from(symbols)
        )
    if kind == "record":
        return draw(records(names, depth - 1, unions))
    if kind == "array":
        item = draw(typed(names, depth - 1, unions))
        return Typed({"type": "array", "items": item.schema}, st.lists(item.values, max_size=4))
    if kind == "map":
        item = draw(typed(names, depth - 1, unions))
        return Typed({"type": "map", "values": item.schema}, st.dictionaries(_TEXT, item.values, max_size=3))
    if kind == "nullable":
        item = draw(typed(names, 0))
        schema = ["null", item.schema] if draw(st.booleans()) else [item.schema, "null"]
        return Typed(schema, st.none() | item.values)
    if kind == "union":
        record = draw(records(names, 0, unions))
        parts = [
            Typed("null", st.none()),
            Typed("boolean", st.booleans()),
            Typed("long", st.integers(-(2**63), 2**63 - 1)),
            Typed("string", _TEXT),
            Typed("bytes", st.binary(max_size=9)),
            record,
        ]
        parts = draw(st.lists(st.sampled_from(parts), min_size=3, unique_by=lambda part: str(part.schema)))
        return Typed([part.schema for part in parts], st.one_of([part.values for part in parts]))
    return draw(st.sampled_from(SINGLE))


@st.composite
def records(draw: Any, names: Iterator[int] | None = None, depth: int = 2, unions: bool = True) -> Typed:
    names = count() if names is None else names
    name = f"R{next(names)}"
    fields = [(f"f{at}", draw(typed(names, depth, unions))) for at in range(draw(st.integers(0, 4)))]
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": one, "type": part.schema} for one, part in fields],
    }
    return Typed(schema, st.fixed_dictionaries({one: part.values for one, part in fields}))


def text(schema: Any) -> str:
    return json.dumps(schema)


def write(schema: Any, value: Any) -> bytes:
    """The bytes of fastavro."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def read(writer: Any, data: bytes, reader: Any = None) -> Any:
    """What fastavro reads, all bytes of it."""
    file = io.BytesIO(data)
    parsed = None if reader is None else fastavro.parse_schema(reader)
    value = fastavro.schemaless_reader(file, fastavro.parse_schema(writer), parsed)
    if file.read(1):
        raise ValueError("bytes are left over")
    return value


def comparable(value: Any) -> Any:
    """A value that is equal to itself: NaN, the sign of zero, and the kinds of numbers are in it."""
    if isinstance(value, dict):
        return {key: comparable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, Decimal):
        return value.as_tuple()
    if isinstance(value, bool | date | datetime | time | uuid.UUID):
        return type(value).__name__, value
    return value
