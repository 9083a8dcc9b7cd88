"""The times of records in a column of a lake table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.graph.lake import LakeTable


def times_of(table: LakeTable, rows: pa.RecordBatch, version: int) -> pa.Array:
    """The times in ms, from the column that the table names. Raises `SerdeError` CS-507 for a null."""
    assert table.timestamp is not None
    column = rows.column(rows.schema.get_field_index(table.timestamp))
    if column.null_count:
        what = f"the column {table.timestamp!r} of {table.table}, the time of its records, has nulls"
        step = "fill in the times, or leave timestamp= out: records have the times of their commits then"
        raise refuse("CS-507", what, step, topic=table.topic, version=version)
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    moments = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)))
    return pa.array(np.floor_divide(moments.cast(pa.int64()).to_numpy(), 1000))
