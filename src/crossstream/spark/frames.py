"""Streaming DataFrames in, a DataFrame per batch out.

Structured Streaming makes the micro-batches of DataFrame sources and hands each to `foreachBatch`; the engine runs
it as a batch of its own, together with what the topics hold. An epoch that was committed is not run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from crossstream.api.frames import COLUMNS
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import (
    CrossStreamError,
    SerdeError,
    type_and_text,
)
from crossstream.graph.nodes import FrameSink, FrameSource, Graph
from crossstream.once import BatchMark
from crossstream.records import RECORDS, encode_headers
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.spark.errors import with_packed_errors
from crossstream.storage.log_entries import SourceRange
from crossstream.storage.root import StateRoot
from crossstream.task.batch import FRAME_RANK, rank_of
from crossstream.task.shuffle_codec import Block, unpack

ROWS = "source string, key binary, value binary, timestamp bigint, headers binary"
"""Columns that all DataFrame sources are brought to; the timestamp is null where a source has none."""
_ARROW = pa.schema(
    [
        ("source", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", pa.binary()),
    ]
)
_blocks, _decoder = msgspec.msgpack.Encoder(enc_hook=bytes), msgspec.msgpack.Decoder(list[Block])
"""Blobs are bytes, whatever they lie in."""
LONGEST_PAUSE = 1 << 42
"""The longest time from batch to batch in ms, 139 years: Spark counts it in microseconds, from 1970 on."""


def united(topology: Graph, order: Sequence[str], token: str) -> DataFrame | None:
    """All DataFrame sources, in an order, as one streaming DataFrame in wire form; None if there are none.

    ``token``: as in `errors.with_packed_errors`.
    """
    nodes = [topology[name] for name in order if name in topology.frames]
    whole: DataFrame | None = None
    for node in nodes:
        frame: DataFrame = topology.frames[node.name]
        frame = frame.select(*[name for name in COLUMNS if name in frame.columns])
        rows = frame.mapInArrow(Encode(node.name, node.key, node.value, token), ROWS)
        whole = rows if whole is None else whole.unionByName(rows)
    return whole


def read_by(frame: DataFrame) -> list[Any]:
    """What Spark reads for a streaming DataFrame, place by place of its plan; equals are read once for all of them."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    return [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]


def check_frames(topology: Graph, state: StateRoot) -> None:
    """Raises `ConfigError` CS-201 if the checkpoint of DataFrame sources, which Spark keeps, has no folder.

    Raises `TopologyError` CS-150 for sources whose rows Spark does not append.
    """
    sources = list(topology.each(FrameSource))
    if state.is_remote and sources:
        what = "DataFrame sources need state in a folder: Spark keeps a checkpoint of its own for them there"
        step = "give a state_dir that is a path, or read topics instead of DataFrames"
        raise refuse("CS-201", what, step, folder=str(state))
    for node in sources:
        frame = topology.frames[node.name]
        if frame.sparkSession.conf.get("spark.sql.streaming.unsupportedOperationCheck") == "true":
            _check_appends(node, frame)


def _check_appends(node: FrameSource, frame: DataFrame) -> None:
    """By the check that a query of the DataFrame begins with."""
    jvm = frame.sparkSession.sparkContext._jvm
    assert jvm is not None
    append = jvm.org.apache.spark.sql.streaming.OutputMode.Append()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), append)
    except AnalysisException as error:
        what = f"Spark does not append rows of this DataFrame: {str(error).splitlines()[0]}"
        step = "aggregate in windows, with a watermark, and leave sorting out"
        raise refuse("CS-150", what, step, **node.where) from error


@dataclass(frozen=True, slots=True)
class Encode:
    """Brings the rows of one source to wire form, a column at a time."""

    name: str
    key: EngineSerde | None
    value: EngineSerde | None
    token: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return with_packed_errors(lambda: map(self._encoded, batches), self.token)

    def _encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            pa.array([self.name] * batch.num_rows, pa.string()),
            self._wire(batch, "key", self.key).cast(pa.binary()),
            self._wire(batch, "value", self.value).cast(pa.binary()),
            self._milliseconds(batch),
            self._headers(batch),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_ARROW)

    def _wire(self, batch: pa.RecordBatch, name: str, serde: EngineSerde | None) -> pa.Array:
        column = batch.column(name)
        if serde is None or pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            return column
        series = pl.from_arrow(column)
        assert isinstance(series, pl.Series)
        try:
            return calls.encode_series(serde, series)
        except SerdeError as error:
            raise error.at(operator=self.name, column=name) from error

    def _milliseconds(self, batch: pa.RecordBatch) -> pa.Array:
        if "timestamp" not in batch.schema.names:
            return pa.nulls(batch.num_rows, pa.int64())
        column = batch.column("timestamp")
        if column.null_count:
            what = "a row of a DataFrame has no timestamp"
            step = "filter such rows out, or give them one: F.coalesce('timestamp', F.current_timestamp())"
            raise refuse("CS-507", what, step, operator=self.name, column="timestamp")
        if pa.types.is_timestamp(column.type):
            return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        return column.cast(pa.int64())

    def _headers(self, batch: pa.RecordBatch) -> pa.Array:
        if "headers" not in batch.schema.names:
            return pa.nulls(batch.num_rows, pa.binary())
        column = batch.column("headers")
        if pc.struct_field(column.flatten(), "key").null_count:
            what = "a row of a DataFrame has a header without key"
            step = "leave such headers out: F.filter('headers', lambda header: header['key'].isNotNull())"
            raise refuse("CS-507", what, step, operator=self.name, column="headers")
        cells = column.to_pylist()
        packed = [
            None if cell is None else encode_headers((h["key"], h["value"]) for h in cell) for cell in cells
        ]
        return pa.array(packed, pa.binary())


@dataclass(frozen=True, slots=True)
class FrameInput:
    """Rows of a DataFrame's partition as the engine reads them: one range for each source.

    ``clock`` (ms): the timestamp of rows that have none, which a batch that is repeated gives them again.
    """

    batches: Iterable[pa.RecordBatch]
    spans: Mapping[str, SourceRange]
    clock: int

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        seen = 0
        for batch in self.batches:
            sources = batch.column("source").to_numpy(zero_copy_only=False)
            offsets = np.arange(seen, seen + batch.num_rows)
            seen += batch.num_rows
            for name in dict.fromkeys(sources):
                rows = pa.array(np.flatnonzero(sources == name))
                part = batch.take(rows)
                binary = pa.large_binary()
                columns = [
                    part.column("key").cast(binary),
                    part.column("value").cast(binary),
                    part.column("timestamp").fill_null(self.clock),
                    pa.array(offsets[rows.to_numpy()]),
                    part.column("headers").cast(binary),
                ]
                yield self.spans[name], pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def frame_spans(topology: Graph, names: Sequence[str], share: int) -> dict[str, SourceRange]:
    """A range for each DataFrame source in one partition of a micro-batch, the ``share`` of one task."""
    first = FRAME_RANK + share * len(names)
    ranks = {name: rank_of(topology[name].shape, first + index) for index, name in enumerate(names)}
    return {name: SourceRange(name, name, share, 0, 1 << 40, rank) for name, rank in ranks.items()}


def packed_blocks(sent: Iterable[tuple[int, list[Any]]]) -> Iterator[pa.RecordBatch]:
    """What a task sends, as rows of Spark SQL: (pid, blocks)."""
    for pid, blocks in sent:
        yield pa.RecordBatch.from_arrays(
            [pa.array([pid], pa.int32()), pa.array([_blocks.encode(blocks)], pa.binary())],
            names=["pid", "blocks"],
        )


def unpacked_row(row: Any) -> tuple[int, list[Any]]:
    return row.pid, _decoder.decode(row.blocks)


def complete(frame: DataFrame, checkpoint: Path) -> None:
    """Ends a micro-batch whose rows are not wanted: stateful operators of Spark must have run before it commits."""
    if (checkpoint / "state").is_dir():
        frame.write.format("noop").mode("overwrite").save()


def deliver(spark: SparkSession, topology: Graph, blobs: Mapping[str, list[bytes]], mark: BatchMark) -> None:
    """Calls every `FrameSink` with a DataFrame of its records: key, value, timestamp. ``mark``: which batch it is.

    Raises `ProcessingError` CS-591 if a function does, `SerdeError` CS-404 for records that are not of one type,
    or of a type that Spark does not have; the batch is not committed then.
    """
    for node in topology.each(FrameSink):
        if node.function is not None:
            found = blobs.get(node.name)
            if found:
                batch = mark.batch
                frame = _frame(spark, node, found, batch)
                more = (replace(mark, sink=node.name),) if node.with_mark else ()
                try:
                    node.function(frame, batch, *more)
                except CrossStreamError:
                    raise
                except Exception as error:
                    raise _raised_by(node, batch, error) from error


def _raised_by(node: FrameSink, batch: int, error: Exception) -> CrossStreamError:
    what = f"the function of {node.name} raised {type_and_text(error)}"
    step = "fix the function; the batch is not committed, and comes again at the next start"
    return refuse("CS-591", what, step, **node.where, batch=batch)


def _frame(spark: SparkSession, node: FrameSink, blobs: list[bytes], batch: int) -> DataFrame:
    changes = unpack(blobs, node.key, node.value)
    try:
        columns = {"key": column_of(changes.key), "value": column_of(changes.value)}
        frame = frame_of(spark, {**columns, "ms": pa.array(changes.ts)})
    except SerdeError as error:  # each of the records fits into a column, and all of them do not into one
        raise error.at(**node.where, batch=batch) from error.__cause__
    return frame.withColumn("timestamp", F.timestamp_millis("ms")).drop("ms")


# -- records as columns that Spark takes: it has no integers without a sign

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def column_of(values: Values) -> pa.Array:
    """A column of the values: of the declared type, or the text of JSON and the bytes of others without one.

    Raises `SerdeError`: CS-404 for a type that Arrow does not have.
    """
    if not values.declared():
        is_json = values.serde is not None and values.serde.name.partition("[")[0] == "json"
        return values.wire().cast(pa.string() if is_json else pa.binary())
    series = values.series()
    try:
        array = series.to_arrow()
    except pa.ArrowException as error:
        raise _no_such_type(str(series.dtype)) from error
    return array.cast(pa.string() if pa.types.is_null(array.type) else _signed(array.type))


def frame_of(spark: SparkSession, columns: Mapping[str, pa.Array]) -> DataFrame:
    """A DataFrame of these columns. Raises `SerdeError` CS-404 for a type that Spark does not have."""
    try:
        return spark.createDataFrame(pa.table(dict(columns)))
    except PySparkTypeError as error:
        types = ", ".join(f"{name} {column.type}" for name, column in columns.items())
        raise _no_such_type(types) from error


def _signed(kind: pa.DataType) -> pa.DataType:
    """The type, with the next wider signed integers for those without a sign, in structs and lists too."""
    if isinstance(kind, pa.StructType):
        return pa.struct([field.with_type(_signed(field.type)) for field in kind])
    if isinstance(kind, pa.LargeListType):
        return pa.large_list(kind.value_field.with_type(_signed(kind.value_type)))
    return _WIDER.get(kind, kind)


def _no_such_type(types: str) -> CrossStreamError:
    step = "change the type before: map_values(…), then repartition(cs.Repartitioned(value=serdes.json({…})))"
    return refuse("CS-404", f"Spark has no columns of these types: {types}", step)
