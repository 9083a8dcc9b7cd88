"""Streaming DataFrames in.

Structured Streaming makes the micro-batches of DataFrame sources and hands each to `foreachBatch`; the engine runs
it as a batch of its own, together with what the topics hold. An epoch that was committed is not run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from crossstream.api.frames import COLUMNS
from crossstream.error_codes import refuse
from crossstream.errors import SerdeError
from crossstream.graph.nodes import FrameSource, Graph
from crossstream.records import RECORDS, encode_headers
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.spark.changes import Netting
from crossstream.spark.errors import is_stopped, with_packed_errors
from crossstream.spark.plain_frames import ROWS, WIRE, milliseconds, plain_wire_rows
from crossstream.storage.log_entries import SourceRange
from crossstream.storage.root import StateRoot
from crossstream.task.batch import FRAME_RANK, rank_of
from crossstream.task.shuffle_codec import Block

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
        rows = _wire_rows(node, topology.frames[node.name], token)
        whole = rows if whole is None else whole.unionByName(rows, allowMissingColumns=True)
    return whole


def _wire_rows(node: Any, frame: DataFrame, token: str) -> DataFrame:
    """The rows of one source in wire form; those that are changes with the columns that order them."""
    if node.rows is None:
        frame = frame.select(*[name for name in COLUMNS if name in frame.columns])
        return frame.mapInArrow(Encode(node.name, node.key, node.value, token), ROWS)
    return plain_wire_rows(node, frame, token)


def read_by(frame: DataFrame) -> list[Any]:
    """What Spark reads for a streaming DataFrame, place by place of its plan; equals are read once for all of them."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    return [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]


def check_frames(topology: Graph, state: StateRoot) -> None:
    """Raises `ConfigError` CS-201 if the checkpoint of DataFrame sources, which Spark keeps, has no folder.

    Raises `TopologyError` CS-150 for sources whose rows Spark does not append, CS-232 where their session was stopped.
    """
    sources = list(topology.each(FrameSource))
    if state.is_remote and sources:
        what = "DataFrame sources need state in a folder: Spark keeps a checkpoint of its own for them there"
        step = "give a state_dir that is a path, or read topics instead of DataFrames"
        raise refuse("CS-201", what, step, folder=str(state))
    for node in sources:
        frame = topology.frames[node.name]
        if is_stopped(frame.sparkSession.sparkContext):
            what = f"the session of the DataFrame {node.name} has been stopped"
            step = "make the session, then the DataFrame, then the topology, and stop the session last"
            raise refuse("CS-232", what, step, **node.where)
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
        return pa.RecordBatch.from_arrays(columns, schema=WIRE)

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
        return milliseconds(batch.column("timestamp"), "timestamp", self.name)

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


@dataclass(slots=True)
class FrameInput:
    """Rows of a DataFrame's partition as the engine reads them: one range for each source.

    ``clock`` (ms): the timestamp of rows that have none, which a batch that is repeated gives them again. ``changing``:
    the sources whose rows are changes.
    """

    batches: Iterable[pa.RecordBatch]
    spans: Mapping[str, SourceRange]
    clock: int
    changing: Mapping[str, Netting]

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        seen = 0
        for batch in self.batches:
            numbered = batch.append_column(_OFFSET, pa.array(np.arange(seen, seen + batch.num_rows)))
            seen += batch.num_rows
            sources = batch.column("source").to_numpy(zero_copy_only=False)
            for name in dict.fromkeys(sources):
                part = numbered.filter(pa.array(sources == name))
                netting = self.changing.get(name)
                yield from self._records(name, part if netting is None else netting.taken(part))
        for name, netting in self.changing.items():
            yield from self._records(name, netting.rest())

    def _records(
        self, name: str, rows: pa.RecordBatch | None
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        if rows is not None and rows.num_rows:
            binary = pa.large_binary()
            columns = [
                rows.column("key").cast(binary),
                rows.column("value").cast(binary),
                rows.column("timestamp").fill_null(self.clock),
                rows.column(_OFFSET),
                rows.column("headers").cast(binary),
            ]
            yield self.spans[name], pa.RecordBatch.from_arrays(columns, schema=RECORDS)


_OFFSET = "offset"


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
