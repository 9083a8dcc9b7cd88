"""Types of Spark as types of Arrow. They are read as Spark writes them in JSON: nothing of Spark is imported."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_SIMPLE = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "char": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "null": pa.null(),
}

_DAY_TIME = ("interval day", "interval hour", "interval minute", "interval second")


def arrow_schema(frame: Any) -> pa.Schema:
    """The columns of a DataFrame. A type that Arrow does not have is an opaque one, of the name that Spark has for it.

    Asks the DataFrame for its schema, which runs no job.
    """
    return pa.schema([pa.field(one.name, arrow_of(one.dataType.jsonValue())) for one in frame.schema.fields])


def arrow_of(kind: Any) -> pa.DataType:
    """The type of Arrow for one of Spark in its JSON form: text, or a dict of inner types.

    >>> arrow_of({"type": "array", "elementType": "decimal(10,2)", "containsNull": True})
    ListType(list<item: decimal128(10, 2)>)
    """
    if isinstance(kind, str):
        return _leaf(kind)
    if kind["type"] == "struct":
        return pa.struct([pa.field(field["name"], arrow_of(field["type"])) for field in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(arrow_of(kind["elementType"]))
    if kind["type"] == "map":
        return pa.map_(arrow_of(kind["keyType"]), arrow_of(kind["valueType"]))
    return _opaque(str(kind["type"]))


def _leaf(kind: str) -> pa.DataType:
    name, _, parameters = kind.partition("(")
    name = name.partition(" collate")[0]
    if name == "decimal" and parameters:
        precision, scale = parameters.rstrip(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    if name.startswith(_DAY_TIME):
        return pa.duration("us")
    found = _SIMPLE.get(name)
    is_fine = not (name.startswith("timestamp") and parameters)  # a precision beyond microseconds
    return found if found is not None and is_fine else _opaque(kind)


def _opaque(name: str) -> pa.DataType:
    return pa.opaque(pa.null(), name, "spark")
