"""Streaming DataFrames as sources: the serdes that follow from the types of their columns, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crossstream import serdes
from crossstream.api.options import Consumed
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.json.plain import UntypedJson
from crossstream.serdes.own import known

_BY_TYPE = {
    "string": serdes.string,
    "binary": serdes.bytes,
    "smallint": serdes.int16,
    "int": serdes.int32,
    "bigint": serdes.int64,
    "float": serdes.float32,
    "double": serdes.float64,
    "boolean": serdes.boolean,
}

TIMES = ("timestamp", "timestamp_ntz", "bigint", "int")
"""Types of the column of the times. Numbers are milliseconds since the epoch."""

_TAKEN = {
    "timestamp": TIMES,
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Types of the optional columns."""

COLUMNS = ("key", "value", *_TAKEN)
"""The columns that are read; others may be of any type."""

_UNREADABLE = ("variant", "interval", "interval year", "interval month", "interval year to month")
_GEO = ("geometry", "geography")


def frame_serdes(operator: str, frame: Any, consumed: Consumed) -> tuple[EngineSerde, EngineSerde]:
    """The serdes of key and value: those of ``consumed``, else by the columns' types.

    Raises CS-150 for anything but a streaming DataFrame with columns key and value, and for names and types that it
    cannot read; CS-101 for settings of ``consumed`` that only topics have.
    """
    check_streaming(operator, frame)
    for what, step in _frame_faults(frame):
        raise refuse("CS-150", what, step, **caller_location(operator))
    check_settings(operator, consumed)
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    return (
        consumed.key or _serde_of(operator, "key", types["key"]),
        consumed.value or _serde_of(operator, "value", types["value"]),
    )


def check_streaming(operator: str, frame: Any) -> None:
    """Raises CS-150 for anything but a streaming DataFrame of a classic session."""
    kind = type(frame)
    if not getattr(frame, "isStreaming", False):
        what = f"{operator} takes a streaming DataFrame, not {kind.__name__}"
        step = "make it with spark.readStream; a batch DataFrame has no changes to follow"
        if hasattr(frame, "isStreaming"):
            what = f"{operator} takes a streaming DataFrame, and this one is static"
            step = (
                "make it with spark.readStream; a small table that is read again from time to time is "
                'builder.global_table_from(frame, key="…")'
            )
    elif kind.__module__.startswith("pyspark.sql.connect"):
        what = "a DataFrame of Spark Connect cannot be a source: the engine runs in the driver of its rows"
        step = "make it in a session of this process: SparkSession.builder.master(…), without remote(…)"
    else:
        return
    raise refuse("CS-150", what, step, **caller_location(operator))


def check_settings(operator: str, consumed: Consumed) -> None:
    """Refuses (CS-101) settings that only topics have."""
    if consumed.load is not None:
        what = f'load="first" is for topics, and {operator} reads a DataFrame, whose end is not known'
        step = "read the topic itself with builder.table(…), or leave load out"
        raise refuse("CS-101", what, step, **caller_location(operator))
    if consumed.timestamp_extractor is not None or consumed.offset_reset != "earliest":
        raise refuse(
            "CS-101",
            f"timestamp_extractor and offset_reset are for topics, and {operator} reads a DataFrame",
            "compute the column timestamp; set where to begin on spark.readStream, such as startingOffsets",
            **caller_location(operator),
        )


def _serde_of(operator: str, column: str, type_name: str) -> EngineSerde:
    if type_name in _BY_TYPE:
        return known(_BY_TYPE[type_name]())
    if type_name.startswith(("struct<", "map<string,", "array<")):
        return UntypedJson()
    what = f"column {column} is of type {type_name}, which has no serde"
    step = f"pass Consumed({column}=…), or cast the column"
    raise refuse("CS-150", what, step, **caller_location(operator))


def _frame_faults(frame: Any) -> Iterator[tuple[str, str]]:
    """(fault, next step) of the columns of a DataFrame."""
    for name in COLUMNS:
        found = [column for column in frame.columns if column.lower() == name]
        if found not in ([], [name]):
            step = f'keep one of them, and call it {name}: .drop("…"), .withColumnRenamed("{found[0]}", "{name}")'
            yield f"the DataFrame has columns that Spark takes for {name}: {', '.join(found)}", step
    missing = [name for name in ("key", "value") if name not in frame.columns]
    if missing:
        yield (
            f"the DataFrame has no column {' and '.join(missing)}",
            'for plain columns name those of the key: key="…"; or select key, value and optionally timestamp and '
            "headers",
        )
    types = {field.name: field.dataType for field in frame.schema.fields}
    for column, taken in _TAKEN.items():
        if column in types and types[column].simpleString() not in taken:
            yield (
                f"column {column} is of type {types[column].simpleString()}",
                f"cast it to {' or '.join(taken)}",
            )
    for name in ("key", "value"):
        for fault in _unreadable(types[name].jsonValue(), name):
            yield (
                f"column {fault}, which no serde reads",
                "change it in the DataFrame: rename such fields, and cast(… as string) types that JSON lacks",
            )


def _unreadable(kind: Any, path: str) -> Iterator[str]:
    """The faults in a type in Spark's JSON form: text, or a dict of inner types. ``path``: of the column or field."""
    if isinstance(kind, str):
        if kind in _UNREADABLE or kind.startswith(_GEO):
            yield f"{path} is of type {kind}"
        return
    names = [field["name"] for field in kind.get("fields", ())]
    yield from (f"{path} has several fields {name}" for name in dict.fromkeys(names) if names.count(name) > 1)
    for field in kind.get("fields", ()):
        yield from _unreadable(field["type"], f"{path}.{field['name']}")
    for part in ("elementType", "keyType", "valueType"):
        yield from _unreadable(kind.get(part, ""), path)
