"""The format ``crossstream`` of Spark: a store is a table, and its changes are a stream.

Spark pickles these classes by name, plans in one Python process and reads in others. Here is what belongs to
Spark's Python Data Source API; what the rows are is in `query/table.py` and `query/changes.py`.

    PySpark 4.0   reads and streams
    PySpark 4.1   pushes filters
    PySpark 4.2   asks for a part of the batches (``maxBatchesPerTrigger``), stops at the newest (``availableNow``)

No version says to a Python source which columns a query needs: the option ``columns``, or a schema, says it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from crossstream.error_codes import refuse
from crossstream.query.committed import OpenPartition, PartAt
from crossstream.query.key_filter import EVERYTHING
from crossstream.query.pushdown import Condition, look_for
from crossstream.query.table import StoreTable, pieces
from crossstream.spark.store_options import Options
from crossstream.spark.store_output import Output, plain_errors, schema_of
from crossstream.spark.tasks import settle

NAME = "crossstream"
ROWS = 65_536
"""Rows of a record batch."""
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"
"""What plans where filters are pushed: a reader that takes filters is refused where a setting does not allow it."""
_OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "In": "in",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}


class StoreSource(DataSource):
    """The format ``crossstream``; `register` makes it known to a session."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        settle()
        with plain_errors():
            options = Options.of(self.options)
            return schema_of(options.chosen(options.table()), changes=options.changes)

    def reader(self, schema: StructType) -> StoreRows:
        settle()
        with plain_errors():
            options = Options.of(self.options)
            if options.changes:
                step = "leave the option out; changes are a stream: spark.readStream"
                raise refuse("CS-201", "a table has no changes", step, format=NAME)
            reader = FilteringStoreRows if _PUSHING in sys.modules else StoreRows
            return reader(options.table(), schema, options.batch)

    def streamReader(self, schema: StructType) -> Any:
        from crossstream.spark.store_stream import StoreStream

        with plain_errors():
            return StoreStream(Options.of(self.options), schema)


@dataclass
class RowsOf(InputPartition):
    """A state partition to read."""

    part: PartAt


class StoreRows(DataSourceReader):
    """Reads a store after one batch, a Spark partition for each state partition."""

    def __init__(self, table: StoreTable, schema: StructType, batch: int | None) -> None:
        self._table = table
        self._output = Output.of(table, schema)
        self._batch = batch
        self._look = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        with plain_errors():
            commit = self._table.committed.commit(self._batch)
            wanted = set(self._look.partitions(self._table.committed.store, commit.partitions))
            parts = self._table.committed.parts(commit)
        return [RowsOf(part) for part in parts if part.partition in wanted and part.manifest is not None]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        if not isinstance(partition, RowsOf):  # Spark asks for one where there is none
            return
        with plain_errors():
            opened = OpenPartition(self._table.committed, partition.part.partition)
            rows = self._table.rows(opened, partition.part, self._look)
            for piece in pieces(rows, ROWS):
                yield self._output.batch(self._table, piece)


class FilteringStoreRows(StoreRows):
    """The same, from PySpark 4.1 on."""

    def pushFilters(self, filters: Sequence[Any]) -> Sequence[Any]:
        """Keeps what finds rows faster; Spark applies every filter again."""
        with plain_errors():
            self._look = look_for(self._table, [one for one in map(_condition, filters) if one is not None])
        return filters


def _condition(one: Any) -> Condition | None:
    """A filter of Spark, if it may find rows faster."""
    operator = _OPERATORS.get(type(one).__name__)
    return (
        None
        if operator is None or len(one.attribute) > 1
        else Condition(one.attribute[0], operator, one.value)
    )
