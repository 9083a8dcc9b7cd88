"""Checks of a streaming DataFrame as a source, without importing pyspark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crossstream import serdes
from crossstream.api.options import Consumed
from crossstream.errors import TopologyError
from crossstream.location import here
from crossstream.serdes import Serde

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

_TAKEN = {
    "timestamp": ("timestamp", "timestamp_ntz", "bigint", "int"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Types of the optional columns. Numbers are milliseconds since the epoch."""

COLUMNS = ("key", "value", *_TAKEN)
"""The columns that are read; others may be of any type."""

_UNREADABLE = ("variant", "interval", "interval year", "interval month", "interval year to month")
_GEO = ("geometry", "geography")


def frame_serdes(operator: str, frame: Any, consumed: Consumed) -> tuple[Serde, Serde]:
    """The serdes of key and value: those of ``consumed``, else by the columns' types.

    Raises CS-150 for anything but a streaming DataFrame with columns key and value, and for names and types that it
    cannot read; CS-101 for settings of ``consumed`` that only topics have.
    """
    _check_frame(operator, frame)
    _check_settings(operator, consumed)
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    _check_types(operator, types)
    _check_readable(operator, frame)
    return (
        consumed.key or _serde_of(operator, "key", types["key"]),
        consumed.value or _serde_of(operator, "value", types["value"]),
    )


def _serde_of(operator: str, column: str, type_name: str) -> Serde:
    if type_name in _BY_TYPE:
        found: Serde = _BY_TYPE[type_name]()
        return found
    if type_name.startswith(("struct<", "map<string,", "array<")):
        return serdes.json()
    raise TopologyError(
        f"column {column} is of type {type_name}, which has no serde",
        code="CS-150",
        where=here(operator),
        next=f"pass Consumed({column}=…), or cast the column",
    )


def _check_frame(operator: str, frame: Any) -> None:
    if not getattr(frame, "isStreaming", False):
        raise TopologyError(
            f"{operator} takes a streaming DataFrame, not {type(frame).__name__}",
            code="CS-150",
            where=here(operator),
            next="make it with spark.readStream; a batch DataFrame has no changes to follow",
        )
    for name in COLUMNS:
        _check_found(operator, name, _found_as(frame, name))
    missing = [name for name in ("key", "value") if name not in frame.columns]
    if missing:
        raise TopologyError(
            f"the DataFrame has no column {' and '.join(missing)}",
            code="CS-150",
            where=here(operator),
            next="select key, value and optionally timestamp and headers; struct(…) makes a value of columns",
        )


def _found_as(frame: Any, name: str) -> list[str]:
    """The columns that Spark finds by a name."""
    if frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        return [column for column in frame.columns if column == name]
    return [column for column in frame.columns if column.lower() == name]


def _check_found(operator: str, name: str, found: list[str]) -> None:
    """Refuses several columns for one name, and a column in other letters, which would not be read."""
    if len(found) > 1:
        raise TopologyError(
            f"the DataFrame has several columns that Spark takes for {name}: {', '.join(found)}",
            code="CS-150",
            where=here(operator),
            next="drop or rename all but one of them",
        )
    if found not in ([], [name]):
        raise TopologyError(
            f"the DataFrame has a column {found[0]}, which Spark takes for {name}",
            code="CS-150",
            where=here(operator),
            next=f'rename it: .withColumnRenamed("{found[0]}", "{name}"); or drop it',
        )


def _check_readable(operator: str, frame: Any) -> None:
    kinds = {field.name: field.dataType.jsonValue() for field in frame.schema.fields}
    for fault in (fault for name in ("key", "value") for fault in _unreadable(kinds[name], name)):
        raise TopologyError(
            f"column {fault}, which no serde reads",
            code="CS-150",
            where=here(operator),
            next="change it in the DataFrame: rename such fields, and cast(… as string) types that JSON lacks",
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


def _check_types(operator: str, types: dict[str, str]) -> None:
    for column, taken in _TAKEN.items():
        if column in types and types[column] not in taken:
            raise TopologyError(
                f"column {column} is of type {types[column]}",
                code="CS-150",
                where=here(operator),
                next=f"cast it to {' or '.join(taken)}",
            )


def _check_settings(operator: str, consumed: Consumed) -> None:
    refused = {
        "timestamp_extractor": consumed.timestamp_extractor is not None,
        "offset_reset": consumed.offset_reset != "earliest",
    }
    for setting in (name for name, is_set in refused.items() if is_set):
        steps = {
            "timestamp_extractor": "compute the column timestamp in the DataFrame",
            "offset_reset": "set where to begin on spark.readStream, such as startingOffsets",
        }
        raise TopologyError(
            f"Consumed({setting}=…) is for topics, and {operator} reads a DataFrame",
            code="CS-101",
            where=here(operator),
            next=steps[setting],
        )
