"""The rows of a table that a sink has written, read back as the keys and values that they were.

COPY sends one snapshot of the table, which is turned into bytes a part at a time. The driver reads: a DSN goes nowhere.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator
from contextlib import closing

import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from crossstream.columns.flat import Layout
from crossstream.columns.unflat import Inexact, keys_in, values_in
from crossstream.databases import catalog
from crossstream.databases.catalog import Found, quoted
from crossstream.databases.connection import Session
from crossstream.databases.copying import ROWS
from crossstream.databases.parsing import TEXT, Unread, parsed, text_of
from crossstream.databases.postgres import DSN
from crossstream.databases.types import holds, sql_type
from crossstream.errors import type_and_text
from crossstream.graph.nodes import TableSink
from crossstream.operators.sink.table_rows import layout
from crossstream.records import PRODUCER_RECORDS

BYTES = 8 << 20
"""About as much text is turned into columns at a time, or `ROWS` rows."""
SETTINGS = """
SELECT set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO', true),
    set_config('IntervalStyle', 'postgres', true), set_config('extra_float_digits', '1', true),
    set_config('bytea_output', 'hex', true)
"""
"""Of the transaction: how values are text."""


def rows_in(node: TableSink, time: int) -> Generator[pa.RecordBatch]:
    """All rows of the table of a sink by key, as `PRODUCER_RECORDS` in the bytes of its serdes.

    ``time``: ms, of rows in a table without a column of times. Raises `Unread`.
    """
    with closing(Session(node.options[DSN])) as session:
        try:
            yield from _Reading(node, session, time).records()
        except Inexact as error:
            raise Unread(str(error)) from error
        except psycopg.Error as error:
            raise Unread(f"the database does not give them: {type_and_text(error)}") from error


class _Reading:
    """Reads one table."""

    def __init__(self, node: TableSink, session: Session, time: int) -> None:
        self.node, self.session, self.time = node, session, time
        self.layout: Layout = layout(node)

    def records(self) -> Iterator[pa.RecordBatch]:
        with self.session.reopened().transaction():
            self.session.run("SET TRANSACTION READ ONLY")
            self.session.run(SETTINGS)
            found = catalog.find(self.session.connection, self.node.table)
            if found is None:
                raise Unread("there is no such table")
            for text in copied(self.session, self._statement(found)):
                yield self._parsed(text)

    def _statement(self, found: Found) -> str:
        self._check(found)
        there = {column.name for column in found.columns}
        columns = ", ".join(
            text_of(quoted(field.name), field.type) if field.name in there else "NULL"
            for field in self.layout.schema
        )
        return f"SELECT {columns} FROM {found.name}"

    def _check(self, found: Found) -> None:
        """Every row must be seen, each column have the type that it is written in, and each key one form."""
        for reason in found.refused:
            raise Unread(reason)
        there = {column.name: column.type for column in found.columns}
        for field in self.layout.schema:
            name, wanted = field.name, sql_type(field.type)
            if name not in there and (name in self.layout.keys or not self.node.merges_schema):
                raise Unread(f"it has no column {name!r}")
            if name in there and not holds(there[name], wanted):
                raise Unread(f"the column {name!r} is {there[name]}, and {wanted} is written")
            if name in self.layout.keys and pa.types.is_floating(field.type):
                raise Unread(f"the column {name!r} is a key of floats: 0.0 and -0.0 are one row")

    def _parsed(self, text: bytes) -> pa.RecordBatch:
        columns = read_columns(text, self.layout.schema)
        key, value, timestamp = self.node.key, self.node.value, self.node.timestamp
        assert key is not None
        assert value is not None
        assert key.dtype is not None
        assert value.dtype is not None
        keys = key.encode_series(keys_in(columns, self.layout, key.dtype))
        values = value.encode_series(values_in(columns, value.dtype))
        rows = len(keys)
        times = pa.repeat(pa.scalar(self.time, pa.int64()), rows)
        if timestamp is not None:
            written = columns[timestamp].dt.epoch("ms").to_arrow()
            times = pc.coalesce(written, times)
        whole = [keys, values, times, pa.nulls(rows, pa.large_binary())]
        return pa.RecordBatch.from_arrays(whole, schema=PRODUCER_RECORDS)


def copied(session: Session, query: str) -> Iterator[bytes]:
    """What a query gives, in parts, each of whole lines of CSV."""
    lines: list[bytes] = []
    size = 0
    with session.connection.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT csv)".encode()) as copy:
        for line in map(bytes, copy):  # each is a row
            lines.append(line)
            size += len(line)
            if len(lines) == ROWS or size >= BYTES:
                yield b"".join(lines)
                lines, size = [], 0
    if lines:
        yield b"".join(lines)


def read_columns(text: bytes, schema: pa.Schema) -> dict[str, pl.Series]:
    """The columns of lines of CSV, in which only what is not in quotes is null. Raises `Unread`."""
    names = [str(place) for place in range(len(schema))]
    table = csv.read_csv(
        io.BytesIO(text),
        csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=dict.fromkeys(names, TEXT),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return {
        field.name: parsed(column.combine_chunks(), field.type, field.name)
        for field, column in zip(schema, table.columns, strict=True)
    }
