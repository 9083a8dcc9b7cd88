"""The types of Postgres that columns get, and which others hold all of their values.

Polars                          Postgres
Boolean                         boolean
Int8, Int16, UInt8              smallint
Int32, UInt16                   integer
Int64, UInt32                   bigint
UInt64                          numeric(20,0)
Float32, Float64                real, double precision
Decimal(p, s)                   numeric(p,s)
String, Categorical, Enum       text
Binary                          bytea
Date, Time                      date, time
Datetime                        timestamp; with a time zone: timestamptz
Duration                        interval
List, Array of the types above  an array
Struct, List of others          jsonb
"""

from __future__ import annotations

import re

import pyarrow as pa

from crossstream.columns.flat import TIME
from crossstream.columns.in_postgres import is_array, is_json

_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
    pa.time64("us"): "time without time zone",
    pa.timestamp("us"): "timestamp without time zone",
    TIME: "timestamp with time zone",
    pa.duration("us"): "interval",
}
JSON = "jsonb"
_WIDER = {
    "smallint": {"integer", "bigint", "numeric"},
    "integer": {"bigint", "numeric"},
    "bigint": {"numeric"},
    "text": {"character varying"},
    JSON: {"json"},
}
"""Types that hold every value of another one, and give it back."""
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")


def sql_type(kind: pa.DataType) -> str:
    """The type of a column, as Postgres writes it."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if is_array(kind):
        return f"{sql_type(kind.value_type)}[]"
    return JSON if is_json(kind) else _NAMES[kind]


def holds(there: str, wanted: str) -> bool:
    """Whether a column of one type holds all values of another."""
    if there == wanted or there in _WIDER.get(wanted, ()):
        return True
    found, needed = _NUMERIC.fullmatch(there), _NUMERIC.fullmatch(wanted)
    if needed is None:
        return False
    if found is None:
        return there == "numeric"
    precision, scale, digits, decimals = map(int, (*found.groups(), *needed.groups()))
    return scale >= decimals and precision - scale >= digits - decimals
