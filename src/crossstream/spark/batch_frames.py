"""A DataFrame per batch, for the functions that get one: of records in the driver, or of files that tasks wrote.

Files of a batch are read in the workers, by `ReadFiles`, and the driver knows their names alone. The names come with
what a task reports when it has ended, so nothing that an ended or repeated attempt has left is read. Bytes are read as
they were written, which the checksum in a name says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from crossstream.columns.changes import no_changes
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, SerdeError, StateError, type_and_text
from crossstream.graph.nodes import FrameSink, Graph
from crossstream.once import BatchMark
from crossstream.operators.sink.frame_columns import columns_of, no_such_type
from crossstream.operators.sink.frame_files import rows_of
from crossstream.spark.errors import unpacked, with_packed_errors
from crossstream.storage.commit_log import STAGED
from crossstream.storage.log_entries import StagedRows
from crossstream.storage.manifest import checked_staged
from crossstream.storage.root import root_of
from crossstream.task.shuffle_codec import unpack

_GONE = "CS-701"
"""The code of the error for files that are not there, or not as they were written."""


@dataclass(frozen=True, slots=True)
class StagedFrames:
    """What the tasks of a batch have written for DataFrames. ``address``: of the state, which may hold secrets.

    ``token``: as in `errors.with_packed_errors`.
    """

    address: str
    files: Sequence[StagedRows]
    token: str

    def of(self, sink: str) -> tuple[str, ...]:
        """The names of a sink's files, in order of the tasks."""
        return tuple(name for name, node in self.files if node == sink)


def deliver(
    spark: SparkSession,
    topology: Graph,
    blobs: Mapping[str, list[bytes]],
    mark: BatchMark,
    staged: StagedFrames,
) -> None:
    """Calls every `FrameSink` with a DataFrame of its records: key, value, timestamp. ``mark``: which batch it is.

    Raises `ProcessingError` CS-591 if a function does, `SerdeError` CS-404 for records that are not of one type,
    or of a type that Spark does not have; the batch is not committed then.
    """
    for node in topology.each(FrameSink):
        found, names = blobs.get(node.name), staged.of(node.name)
        if found is not None:
            _call(node, _frame(spark, node, found, mark.batch), mark, staged.token)
        elif names:
            _call(node, _staged(spark, node, names, staged, mark.batch), mark, staged.token)


def _call(node: FrameSink, frame: DataFrame, mark: BatchMark, token: str) -> None:
    more = (replace(mark, sink=node.name),) if node.with_mark else ()
    assert node.function is not None
    try:
        node.function(frame, mark.batch, *more)
    except CrossStreamError:
        raise
    except Exception as error:
        read = unpacked(error, token)
        raise (read if read.code == _GONE else _raised_by(node, mark.batch, error)) from error


def _raised_by(node: FrameSink, batch: int, error: Exception) -> CrossStreamError:
    what = f"the function of {node.name} raised {type_and_text(error)}"
    step = "fix the function; the batch is not committed, and comes again at the next start"
    return refuse("CS-591", what, step, **node.where, batch=batch)


def _frame(spark: SparkSession, node: FrameSink, blobs: list[bytes], batch: int) -> DataFrame:
    """Of records that are here."""
    changes = unpack(blobs, node.key, node.value)
    try:
        return _with_timestamp(frame_of(spark, columns_of(changes)))
    except SerdeError as error:  # each of the records fits into a column, and all of them do not into one
        raise error.at(**node.where, batch=batch) from error.__cause__


def _staged(
    spark: SparkSession, node: FrameSink, names: tuple[str, ...], staged: StagedFrames, batch: int
) -> DataFrame:
    """Of records in files, each a partition. Its types are those of a DataFrame of records that are here.

    A time without zone comes out of a worker without one, and Spark gives it that of the session.
    """
    try:
        given, wanted = _schemas(spark, columns_of(no_changes(node.key, node.value)))
    except SerdeError as error:
        raise error.at(**node.where, batch=batch) from error.__cause__
    read = ReadFiles(staged.address, names, node.name, batch, staged.token)
    frame = spark.range(0, len(names), 1, len(names)).mapInArrow(read, given)
    if given != wanted:
        frame = frame.select([F.col(field.name).cast(field.dataType).alias(field.name) for field in wanted])
    return _with_timestamp(frame)


def _schemas(spark: SparkSession, columns: Mapping[str, pa.Array]) -> tuple[StructType, StructType]:
    """Of columns that come out of a worker, and of the DataFrame that the session makes of such columns.

    Raises `SerdeError` CS-404 for a type that Spark does not have.
    """
    arrow = pa.table(dict(columns)).schema
    has_no_zone = spark.conf.get("spark.sql.timestampType") == "TIMESTAMP_NTZ"
    try:
        return from_arrow_schema(arrow, True), from_arrow_schema(arrow, has_no_zone)
    except PySparkTypeError as error:
        raise _no_such_types(columns) from error


def _with_timestamp(frame: DataFrame) -> DataFrame:
    return frame.withColumn("timestamp", F.timestamp_millis("ms")).drop("ms")


def frame_of(spark: SparkSession, columns: Mapping[str, pa.Array]) -> DataFrame:
    """A DataFrame of these columns. Raises `SerdeError` CS-404 for a type that Spark does not have."""
    try:
        return spark.createDataFrame(pa.table(dict(columns)))
    except PySparkTypeError as error:
        raise _no_such_types(columns) from error


def _no_such_types(columns: Mapping[str, pa.Array]) -> CrossStreamError:
    return no_such_type(", ".join(f"{name} {column.type}" for name, column in columns.items()))


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """What a worker does for a DataFrame of files: numbers come in, and the records of these files go out."""

    address: str
    names: tuple[str, ...]
    sink: str
    batch: int
    token: str

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return with_packed_errors(lambda: self._rows(numbers), self.token)

    def _rows(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = root_of(self.address, cached=False).storage(STAGED)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                try:
                    yield from rows_of(checked_staged(storage, self.names[number]))
                except StateError as error:
                    raise self._gone(error) from error.__cause__

    def _gone(self, error: StateError) -> CrossStreamError:
        """Most likely the function has given the frame away, and returned."""
        what = f"records of {self.sink} for a DataFrame are gone: {error.what}"
        step = "read the DataFrame before the function returns: write it, or collect what you need; then start again"
        return refuse(_GONE, what, step, operator=self.sink, batch=self.batch)
