"""Which columns a table of Postgres may have, beside their types: names, and values that become JSON."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from crossstream import serdes
from crossstream.errors import SerdeError
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.own import known

LONGEST_NAME = 63
"""Bytes of a name. Postgres cuts longer ones, and says so in a notice alone."""
JSON_FIELD = "j"
_OWN = ("ctid", "cmax", "cmin", "tableoid", "xmax", "xmin")
"""Columns that every table has."""


def is_array(kind: pa.DataType) -> bool:
    """Whether a column is an array of Postgres. Arrays in arrays have equal lengths there, so they are JSON."""
    return bool(pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type))


def is_json(kind: pa.DataType) -> bool:
    """Whether a column is JSON."""
    return bool(pa.types.is_nested(kind) and not is_array(kind))


def json_serde(kind: pa.DataType) -> EngineSerde:
    """What writes the values of such a column, each in the field `JSON_FIELD`. Raises `SerdeError`."""
    dtype = pl.Series(pa.array([], kind)).dtype
    return known(serdes.json({JSON_FIELD: dtype}, decimals="number"))


def refused(schema: pa.Schema) -> Iterator[str]:
    """Why the columns cannot be those of a table."""
    for field in schema:
        name = field.name
        if name in _OWN or "\0" in name or len(name.encode()) > LONGEST_NAME:
            yield f"Postgres has no column of the name {name!r}"
        if is_json(field.type):
            try:
                json_serde(field.type)
            except SerdeError as error:
                yield f"the column {name!r} is JSON in Postgres: {error.what}"
