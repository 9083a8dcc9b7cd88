"""Streaming DataFrames of plain columns as sources: which are the key, the value and the time, and what is refused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crossstream.api.frames import TIMES, check_settings, check_streaming
from crossstream.api.options import Consumed
from crossstream.api.spark_types import arrow_schema
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.serdes.plain_columns import PlainRows, missing_column, plain_rows
from crossstream.serdes.plain_types import Where
from crossstream.serdes.primitives import Bytes

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
OF_CHANGES = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""The columns of a feed of changes: those of Delta's and of Spark's ``changes()``."""

_VERSIONS = ("bigint", "int", "smallint", "tinyint")


@dataclass(frozen=True, slots=True)
class PlainFrame:
    """What is read of a DataFrame: its rows, the column of their times, and whether they are changes of a table."""

    rows: PlainRows
    timestamp: str | None
    changes: bool

    @property
    def settings(self) -> dict[str, Any]:
        """What the node of the source has of it. Rows without a key have null keys, of bytes."""
        serdes = {"key": self.rows.key or Bytes(), "value": self.rows.value}
        return {**serdes, "rows": self.rows, "timestamp": self.timestamp, "changes": self.changes}


def plain_frame(
    operator: str,
    frame: Any,
    consumed: Consumed,
    key: str | Sequence[str],
    columns: Sequence[str] | None,
    timestamp: str | None,
) -> PlainFrame:
    """The rows of a DataFrame whose key is in these columns. ``operator``: ``table_from`` or ``stream_from``.

    Raises `TopologyError`: CS-150 for a DataFrame that does not stream, and for columns that are not there, or of a
    type that is not read there; CS-101 for arguments of another kind, and settings of ``consumed`` that the columns
    give.
    """
    where = caller_location(operator)
    check_streaming(operator, frame)
    check_settings(operator, consumed)
    keys = column_names("key", key, where)
    chosen = None if columns is None else column_names("columns", columns, where)
    _check_arguments(operator, consumed, keys, timestamp, where)
    schema = arrow_schema(frame)
    is_table = operator == "table_from"
    changes = is_table and _has_changes(schema, where)
    if changes:
        _check_changes(frame, {*keys, *(chosen or ())}, timestamp, where)
        timestamp = COMMIT_TIMESTAMP
        schema = pa.schema([field for field in schema if field.name not in OF_CHANGES])
    elif not is_table and timestamp is None and _is_full(schema):
        timestamp = COMMIT_TIMESTAMP
    if timestamp is not None:
        _check_type(frame, "timestamp", timestamp, TIMES, where)
    return PlainFrame(plain_rows(schema, keys, chosen, where), timestamp, changes)


def column_names(argument: str, given: Any, where: Where) -> tuple[str, ...]:
    """The names of columns that an argument holds: one, or several."""
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        what = f"{argument}={given!r} names no columns of the DataFrame"
        step = f'write the name of a column, {argument}="id", or a list of names'
        raise refuse("CS-101", what, step, **where)
    return tuple(given)


def _check_arguments(
    operator: str, consumed: Consumed, keys: Sequence[str], timestamp: Any, where: Where
) -> None:
    if not keys and operator == "table_from":
        what = "key= names no column, and the rows of a table have a key"
        raise refuse("CS-101", what, 'name the columns of its primary key: key="id"', **where)
    if consumed.key is not None or consumed.value is not None:
        what = "with key= the serdes follow from the columns' types, and Consumed names some"
        step = "leave key and value out of Consumed; cast columns in the DataFrame for other types"
        raise refuse("CS-101", what, step, **where)
    if timestamp is not None and not isinstance(timestamp, str):
        what = f"timestamp={timestamp!r} is not the name of a column"
        raise refuse("CS-101", what, 'write timestamp="at", or leave it out', **where)


def _has_changes(schema: pa.Schema, where: Where) -> bool:
    """Whether the rows are changes. Raises CS-150 where some of the columns are there that changes have."""
    found = [name for name in OF_CHANGES if name in schema.names]
    missing = [name for name in OF_CHANGES if name not in schema.names]
    if found and missing:
        what = f"the DataFrame has {' and '.join(found)}, and not {' and '.join(missing)}, as changes of a table have"
        step = (
            f"keep all three: {', '.join(OF_CHANGES)}; or, if the rows are no changes, drop or rename those"
        )
        raise refuse("CS-150", what, step, **where)
    return bool(found)


def _is_full(schema: pa.Schema) -> bool:
    return all(name in schema.names for name in OF_CHANGES)


def _check_changes(frame: Any, named: Collection[str], timestamp: str | None, where: Where) -> None:
    """Checks the columns of changes, and that none is ``named`` as one of the rows."""
    if wrong := [name for name in OF_CHANGES if name in named]:
        what = f"{', '.join(wrong)} says how a row changes, and is no column of it"
        step = "leave it out of key and columns; stream_from(…) reads changes as records, with these columns"
        raise refuse("CS-150", what, step, **where)
    if timestamp is not None:
        what = f"timestamp={timestamp!r}, and the rows of a changing table have the times of its commits"
        raise refuse("CS-101", what, "leave timestamp out", **where)
    _check_type(frame, "changes", CHANGE_TYPE, ("string",), where)
    _check_type(
        frame, "changes", COMMIT_VERSION, _VERSIONS, where, "cast it to bigint, if commits follow its order"
    )


def _check_type(
    frame: Any, role: str, name: str, taken: Sequence[str], where: Where, step: str | None = None
) -> None:
    """Raises CS-150 if the column is not there, or not of a type that is taken."""
    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if name not in types:
        raise missing_column(name, role, list(types), where)
    if types[name] not in taken:
        what = f"{role}: column {name} is of type {types[name]}"
        raise refuse("CS-150", what, step or f"cast it to {' or '.join(taken)}", **where)


def check_without_key(operator: str, **given: Any) -> None:
    """Refuses (CS-101) arguments of plain columns that are given without ``key``."""
    for argument, value in given.items():
        if value is not None:
            what = f"{operator} takes {argument}= with key= only: without it the columns are key, value and timestamp"
            step = 'name the columns of the key: key="id"; for rows of a stream that have none: key=()'
            raise refuse("CS-101", what, step, **caller_location(operator))
