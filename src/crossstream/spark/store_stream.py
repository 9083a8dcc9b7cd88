"""A store as a stream of Spark: offsets are numbers of batches, rows are what each batch has changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from crossstream.error_codes import refuse
from crossstream.query.feed import Feed, Position, Step
from crossstream.query.table import pieces
from crossstream.spark.store_options import Options
from crossstream.spark.store_output import CHANGE_TYPE, Output, plain_errors
from crossstream.spark.tasks import settle

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow
except ImportError:  # PySpark 4.0 and 4.1 take all there is
    CAN_LIMIT = False

    class SupportsTriggerAvailableNow: ...  # type: ignore[no-redef]
else:
    CAN_LIMIT = True

ROWS = 65_536
"""Rows of a record batch."""


@dataclass
class StepsOf(InputPartition):
    """What a task reads: the changes of one state partition, batch by batch."""

    steps: list[Step]


class StoreStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Begins with the rows there are, then reads what each batch changes. Keeps nothing that is not committed."""

    def __init__(self, options: Options, schema: StructType) -> None:
        table = options.table()
        if options.most is not None and not CAN_LIMIT:
            step = "leave it out, or use PySpark 4.2 or newer"
            raise refuse("CS-201", "maxBatchesPerTrigger needs PySpark 4.2", step, format="crossstream")
        self._options = options
        self._output = Output.of(table, schema, changes=True)
        if CHANGE_TYPE not in schema.fieldNames():
            what = "a stream without the column _change_type does not say which rows are deleted"
            raise refuse("CS-711", what, 'write .option("changes", True)', store=options.store)
        times = any(column.part == "ts" for column in self._output.columns)
        self._feed = Feed(table, options.preimages, times)
        self._last: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        with plain_errors():
            return self._feed.beginning(self._options.batch, self._options.starting)._asdict()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """Without arguments in PySpark 4.0 and 4.1."""
        with plain_errors():
            if start is None:
                return Position(self._feed.newest(), False, self._feed.state())._asdict()
            most = limit.max_files if CAN_LIMIT and isinstance(limit, ReadMaxFiles) else None
            end = self._feed.end(Position(**start), most)
            if self._last is not None and end.batch > self._last >= start["batch"]:
                end = end._replace(batch=self._last)
            return end._asdict()

    def getDefaultReadLimit(self) -> Any:
        most = self._options.most
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:
        with plain_errors():
            self._last = self._feed.newest()

    def reportLatestOffset(self) -> dict[str, Any]:
        with plain_errors():
            return Position(self._feed.newest(), False, self._feed.state())._asdict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with plain_errors():
            return [StepsOf(steps) for steps in self._feed.plan(Position(**start), Position(**end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StepsOf)
        settle()
        with plain_errors():
            for changed in self._feed.read(partition.steps):
                for rows in pieces(changed.rows, ROWS):
                    yield self._output.batch(self._feed.table, rows, changed)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept for a reader."""
