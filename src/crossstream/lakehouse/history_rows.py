"""Rows of a history as the records that the topic had: keys in bytes, values as columns of the serde's type."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, SerdeError
from crossstream.graph.history import History
from crossstream.records import AS_ROWS, RECORDS
from crossstream.serdes import arrays, calls
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.plain_columns import PlainRows, plain_rows


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """The records that rows are. ``rows``: which columns are keys and values."""

    history: History
    key: EngineSerde
    value: EngineSerde
    rows: PlainRows

    @classmethod
    def of(cls, history: History, key: EngineSerde, value: EngineSerde) -> HistoryRows:
        table = history.table
        rows = plain_rows(table.schema, table.keys, table.columns, {"topic": table.topic})
        return cls(history, key, value, rows)

    def records(
        self, version: int, offsets: pa.Array, times: pa.Array, batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Records with the columns of `records.RECORDS`; values may be columns instead of bytes.

        Raises `SourceError` CS-631 for a row that is no record of the topic.
        """
        try:
            keys, values = self._keys(batch), self._values(batch)
        except SerdeError as error:
            table = self.history.table
            what = f"a row of {table.table} is no record of the topic: {error.what}"
            raise refuse("CS-631", what, topic=table.topic, version=version) from error
        columns = [keys, values, times, offsets]
        whole = pa.RecordBatch.from_arrays([*columns, arrays.null_rows(batch.num_rows)], names=RECORDS.names)
        return whole if self.history.value_in_bytes else whole.replace_schema_metadata(AS_ROWS)

    def _keys(self, batch: pa.RecordBatch) -> pa.Array:
        """The wire form of the keys. A source decodes those that are beside values in bytes, as it does in topics."""
        if self.rows.key is None:
            return arrays.null_rows(batch.num_rows)
        if not self.history.key_in_bytes:
            return calls.encode_series(self.key, self.rows.key_series(batch))
        wire = batch.column(self.rows.keys[0]).cast(pa.large_binary())
        if self.history.value_in_bytes or not self.key.varied:
            return wire
        return calls.encode_objects(self.key, calls.decode_objects(self.key, wire))

    def _values(self, batch: pa.RecordBatch) -> pa.Array:
        gone = self._gone(batch)
        if gone is None or not gone.any():
            return self._whole(batch)
        there = np.flatnonzero(~gone)
        places = np.full(batch.num_rows, -1)
        places[there] = np.arange(len(there))
        return self._whole(batch.take(pa.array(there))).take(pa.array(places, mask=gone))

    def _whole(self, batch: pa.RecordBatch) -> pa.Array:
        """Values of rows that have them: as columns, if their rows can be checked without their bytes."""
        if self.history.value_in_bytes:
            return batch.column(self.rows.columns[0]).cast(pa.large_binary())
        values = self.rows.value_series(batch)
        if self.is_single:
            values = values.struct.field(self.rows.columns[0])
        fitted = self.value.fitted(values)
        return calls.encode_series(self.value, values) if fitted is None else fitted.rechunk().to_arrow()

    @property
    def is_single(self) -> bool:
        """Whether a value is one column, and no struct."""
        dtype = self.value.dtype
        return dtype is not None and not isinstance(dtype, pl.Struct)

    def _gone(self, batch: pa.RecordBatch) -> np.ndarray | None:
        name = self.history.deleted
        if name is None:
            return None
        return np.asarray(pc.fill_null(batch.column(name), False).to_numpy(zero_copy_only=False), bool)


def other_table(history: History, table_id: str) -> CrossStreamError:
    """The refusal (CS-603) of a table that has taken the place of the one that a history was begun with."""
    table = history.table
    what = f"{table.table} was deleted and made again since the application has begun to read it ({table_id})"
    step = "restore the table, or start with an empty state_dir"
    return refuse("CS-603", what, step, topic=table.topic)
