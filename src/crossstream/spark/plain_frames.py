"""DataFrames of plain columns: their rows in wire form, as those of key and value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crossstream.api.plain_frames import CHANGE_TYPE, COMMIT_VERSION
from crossstream.error_codes import refuse
from crossstream.errors import SerdeError
from crossstream.graph.nodes import FrameSource
from crossstream.serdes import arrays
from crossstream.serdes.plain_columns import PlainRows
from crossstream.spark.changes import CHANGE, COLUMNS, UPSERT, VERSION, codes_of, moved
from crossstream.spark.errors import with_packed_errors

ROWS = "source string, key binary, value binary, timestamp bigint, headers binary"
"""Columns that all DataFrame sources are brought to; the timestamp is null where a source has none."""

WIRE = pa.schema(
    [
        ("source", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", pa.binary()),
    ]
)
_OF_CHANGES = WIRE.append(pa.field(VERSION, pa.int64())).append(pa.field(CHANGE, pa.int8()))


def plain_wire_rows(node: FrameSource, frame: DataFrame, token: str) -> DataFrame:
    """The rows of a source in wire form, of no other columns than it reads. ``token``: as in `with_packed_errors`."""
    assert node.rows is not None
    read = [*node.rows.read, *((CHANGE_TYPE, COMMIT_VERSION) if node.changes else ())]
    if node.timestamp is not None:
        read.append(node.timestamp)
    names = tuple(dict.fromkeys(read))
    encode = EncodePlain(node.name, node.rows, node.timestamp, node.changes, names, token)
    # Under names of their own: Spark passes columns on by names, in which it would find a dot or a quote.
    columns = frame.select(*(_column(name).alias(f"c{number}") for number, name in enumerate(names)))
    if not node.changes:
        return columns.mapInArrow(encode, ROWS)
    return moved(columns.mapInArrow(encode, f"{ROWS}, {COLUMNS}"))


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


@dataclass(frozen=True, slots=True)
class EncodePlain:
    """Brings rows of plain columns to wire form, a column at a time. ``names``: those of the columns that come."""

    name: str
    rows: PlainRows
    timestamp: str | None
    changes: bool
    names: tuple[str, ...]
    token: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return with_packed_errors(lambda: map(self._encoded, batches), self.token)

    def _encoded(self, given: pa.RecordBatch) -> pa.RecordBatch:
        batch, count = given.rename_columns(list(self.names)), given.num_rows
        codes = codes_of(batch.column(CHANGE_TYPE), self.name) if self.changes else None
        times = pa.nulls(count, pa.int64())
        if self.timestamp is not None:
            times = milliseconds(batch.column(self.timestamp), self.timestamp, self.name)
        columns = [
            pa.array([self.name] * count, pa.string()),
            self._keys(batch).cast(pa.binary()),
            self._values(batch, codes).cast(pa.binary()),
            times,
            pa.nulls(count, pa.binary()),
        ]
        if codes is None:
            return pa.RecordBatch.from_arrays(columns, schema=WIRE)
        columns += [self._versions(batch), pa.array(codes)]
        return pa.RecordBatch.from_arrays(columns, schema=_OF_CHANGES)

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        try:
            return self.rows.key_wire(batch)
        except SerdeError as error:
            raise error.at(operator=self.name, column=", ".join(self.rows.keys)) from error

    def _values(self, batch: pa.RecordBatch, codes: np.ndarray | None) -> pa.Array:
        """The values; of changes those of rows that are there after them. Of others nothing needs to have a text."""
        there = None if codes is None else codes == UPSERT
        kept = batch if there is None or there.all() else batch.filter(pa.array(there))
        try:
            wire = self.rows.value.encode_series(self.rows.value_series(kept))
        except SerdeError as error:
            raise error.at(operator=self.name) from error
        return wire if there is None else arrays.with_nulls(wire, there)

    def _versions(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(COMMIT_VERSION)
        if column.null_count:
            step = "filter such rows out in the DataFrame"
            what = "a row of changes has no _commit_version"
            raise refuse("CS-507", what, step, operator=self.name, column=COMMIT_VERSION)
        return column.cast(pa.int64())


def milliseconds(column: pa.Array, name: str, operator: str) -> pa.Array:
    """Times in ms since the epoch. Raises CS-507 for a null."""
    if column.null_count:
        what = "a row of a DataFrame has no timestamp"
        step = f"filter such rows out, or give them one: F.coalesce('{name}', F.current_timestamp())"
        raise refuse("CS-507", what, step, operator=operator, column=name)
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return column.cast(pa.int64())
