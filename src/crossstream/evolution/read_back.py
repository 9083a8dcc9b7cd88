"""Rows that a result has had, as a source: of its topic, of its table, or of a store of the old state.

A topic is read under another name, because a source of the user may read it, too.
"""

from __future__ import annotations

from contextlib import closing
from typing import cast

import polars as pl
import pyarrow as pa

from crossstream.columns.flat import layout_of
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.evolution.decision import StoredTable
from crossstream.evolution.reading import PREFIX
from crossstream.graph.lake import LakeFormat, LakeTable
from crossstream.graph.nodes import Node, Source, StoreSpec, TableSink
from crossstream.lakehouse.opening import open_versions
from crossstream.serdes.plain_columns import plain_rows
from crossstream.serdes.primitives import Bytes


def topic_source(sink: Node) -> Source:
    """A source of all that a sink was sent, in the bytes that it has. Its topic is read as `alias_of` the sink."""
    return Source(
        name=sink.name,
        shape="table",
        topics=(alias_of(sink),),
        key=Bytes(),
        value=Bytes(),
        location=sink.location,
        store=StoreSpec(None, Bytes(), Bytes()),
    )


def stored_source(sink: Node, rows: StoredTable) -> Source:
    """A source of rows that an old store has of a sink, which are brought into the serdes of the sink."""
    return Source(
        name=sink.name,
        shape="table",
        topics=(alias_of(sink),),
        key=rows.key,
        value=rows.value,
        location=sink.location,
    )


def alias_of(sink: Node) -> str:
    """The name under which the rows of a sink are read back."""
    return f"{PREFIX}{sink.name}"


def table_source(sink: TableSink) -> Source:
    """A source of the rows in the Delta or Iceberg table of a sink.

    Raises `StateError` CS-755 for a table whose rows are not keys and values of the sink; as `open_versions`.
    """
    if not sink.upserts or sink.key is None or sink.value is None:
        raise unreadable(sink, "its rows have no keys")
    columns = sink.value.dtype
    if not isinstance(columns, pl.Struct):
        raise unreadable(sink, "its values are no structs, whose fields are columns")
    keys = layout_of(sink.form, sink.key.dtype, columns, sink.keys, sink.timestamp).keys
    fields = tuple(field.name for field in columns.fields)
    form = cast("LakeFormat", sink.form)
    with closing(open_versions(LakeTable(form, sink.table, pa.schema([]), (), (), sink.options))) as versions:
        newest, schema = versions.newest(), versions.schema(None)
    missing = [column for column in (*keys, *fields) if column not in schema.names]
    if missing:
        raise unreadable(sink, f"it has no column {missing[0]!r}, which the new values have")
    rows = plain_rows(schema, keys, fields, sink.where)
    read = pa.schema([schema.field(column) for column in rows.read])
    lake = LakeTable(form, sink.table, read, rows.keys, rows.columns, sink.options, newest)
    return Source(
        name=sink.name,
        shape="table",
        topics=(lake.topic,),
        key=rows.key or Bytes(),
        value=rows.value,
        location=sink.location,
        lake=lake,
    )


def unreadable(sink: TableSink, why: str) -> CrossStreamError:
    """The refusal (CS-755) of a table whose rows are not read back."""
    what = f"what {sink.name} was sent cannot be read back out of the table {sink.table}: {why}"
    return refuse("CS-755", what, **sink.where)
