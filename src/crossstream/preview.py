"""`preview` of streams and tables: the first records of topics through the test driver, up to one node."""

from __future__ import annotations

import datetime
import decimal
from contextlib import closing
from dataclasses import replace
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.api.draft import Draft, leading_to
from crossstream.api.global_table import GlobalKTable
from crossstream.api.options import Named
from crossstream.api.stream import KStream
from crossstream.api.table import KTable
from crossstream.config import StreamsConfig
from crossstream.error_codes import refuse
from crossstream.filetopics import FileTopics
from crossstream.graph.names import matches
from crossstream.graph.nodes import FrameSource, Source, StoreSpec
from crossstream.operators.process.context import Record
from crossstream.query.store import StoreReader
from crossstream.records import PRODUCER_RECORDS
from crossstream.serdes.windowed import Windowed
from crossstream.testing.driver import TopologyTestDriver
from crossstream.topics import (
    OffsetRange,
    RangeReader,
    TopicConnection,
    TopicLog,
    all_partitions,
    is_elsewhere,
    is_internal,
)

ONE_BATCH = 1 << 40


Previewable = KStream | KTable | GlobalKTable


def preview(handle: Previewable, rows: int, config: StreamsConfig) -> pl.DataFrame:
    """What comes out of a stream or a table if the first ``rows`` records of each topic go in."""
    records: list[Record] = []
    draft, name = _draft_of(handle), handle._node.name
    if isinstance(handle, GlobalKTable):
        if isinstance(handle._node, Source):  # a view can be asked by its name
            draft.nodes[name] = replace(handle._node, store=StoreSpec(name=name))
    else:
        copy: Any = type(handle)(draft, handle._node)
        stream = copy.to_stream(named=Named("preview.changes")) if isinstance(copy, KTable) else copy
        stream.process(lambda: _Collector(records), named=Named("preview.rows"))
    topology = draft.finish()
    connection = _connection_of(config)
    driver = TopologyTestDriver(
        topology,
        commit_every=ONE_BATCH,
        deserialization_errors=config.deserialization_errors,
        processing_errors=config.processing_errors,
    )
    with closing(connection.log()) as log, closing(connection.reader()) as reader:
        known = log.topics()
        for topic in _topics_of(draft, known):
            driver._pipe(topic, _head(topic, known, rows, log, reader), None)
        driver.commit()
        if isinstance(handle, GlobalKTable):
            records = _rows_of(driver.get_key_value_store(name))
    return _frame(_last_of_keys(records) if isinstance(handle, KTable) else records)


class _Collector:
    """A processor that keeps what it gets."""

    def __init__(self, records: list[Record]) -> None:
        self._records = records

    def process(self, record: Record) -> None:
        self._records.append(record)


def _rows_of(store: StoreReader) -> list[Record]:
    columns = store._live()
    rows = zip(store._decoded(columns), columns["ts"].tolist(), strict=True)
    return [Record(key, value, timestamp) for (key, value), timestamp in rows]


def _draft_of(handle: Previewable) -> Draft:
    """A draft of what leads to the handle alone: adding to it leaves the builder unchanged."""
    nodes = leading_to(handle._draft.nodes, handle._node)
    for past in [node for node in nodes.values() if node.past is not None]:  # the topic alone
        nodes[past.name] = replace(past, past=None, topics=past.topics[:1], offset_reset="earliest")  # type: ignore[call-arg]
    for node in nodes.values():
        if isinstance(node, FrameSource) or any(map(is_elsewhere, node.topics)):
            what = f"{node.name} is a DataFrame of Spark: preview reads topics only"
            step = "start the application, or build the stream from a topic to try it"
            raise refuse("CS-201", what, step, **node.where)
        if node.lake is not None:
            what = f"{node.name} is a lake table: preview reads topics only"
            step = "read the table itself, with deltalake, PyIceberg or Polars"
            raise refuse("CS-201", what, step, **node.where)
    stores = {store: name for store, name in handle._draft.stores.items() if name in nodes}
    return Draft(nodes=nodes, stores=stores)


def _connection_of(config: StreamsConfig) -> TopicConnection:
    if config.servers is not None:
        from crossstream.kafka import KafkaConnection

        return KafkaConnection(config.servers, config.kafka, config.broker_patience_ms / 1000)
    assert config.topics_path is not None
    return FileTopics(config.topics_path)


def _topics_of(draft: Draft, known: Any) -> list[str]:
    """The topics that the sources read. Raises `SourceError` CS-602 for one that does not exist."""
    found: dict[str, None] = {}
    for node in draft.nodes.values():
        if isinstance(node, Source):
            for topic in node.topics:
                if topic not in known:
                    step = f"its topics are: {', '.join(name for name in known if not is_internal(name)) or 'none'}"
                    raise refuse("CS-602", f"there is no topic {topic!r}", step, **node.where)
                found[topic] = None
            found |= {
                topic: None for topic in known if node.pattern is not None and matches(node.pattern, topic)
            }
    return list(found)


def _head(topic: str, known: Any, rows: int, log: TopicLog, reader: RangeReader) -> pa.RecordBatch:
    """The first records of a topic: of each partition in the order of its offsets, of several by their timestamps."""
    partitions = all_partitions([topic], known)
    begins, ends = log.begin_offsets(partitions), log.end_offsets(partitions)
    waiting = []
    for one in partitions:
        taken: list[dict[str, Any]] = []
        for batch in reader.read(OffsetRange(topic, one.partition, begins[one], ends[one]), rows):
            taken += batch.to_pylist()
            if len(taken) >= rows:
                break
        waiting.append(taken[:rows])
    chosen: list[dict[str, Any]] = []
    while len(chosen) < rows and (left := [part for part in waiting if part]):
        chosen.append(min(left, key=lambda part: part[0]["timestamp"]).pop(0))
    return pa.RecordBatch.from_pylist(chosen, schema=PRODUCER_RECORDS)


def _last_of_keys(records: list[Record]) -> list[Record]:
    """The rows of a table, from its changes."""
    rows: dict[str, Record] = {}
    for record in records:
        rows.pop(repr(record.key), None)
        if record.value is not None:
            rows[repr(record.key)] = record
    return list(rows.values())


_KEPT = (bytes, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal)


def _frame(records: list[Record]) -> pl.DataFrame:
    columns = [_column(name, [getattr(record, name) for record in records]) for name in ("key", "value")]
    timestamps = pl.Series("timestamp", [record.timestamp for record in records], pl.Int64)
    return pl.DataFrame([*columns, timestamps])


def _column(name: str, values: list[Any]) -> pl.Series:
    """The values as a column, windowed keys as structs; as JSON if they are not of one type."""
    if any(isinstance(value, Windowed) for value in values):
        values = [{"key": value.key, "start": value.start, "end": value.end} for value in values]
    plain = [msgspec.to_builtins(value, builtin_types=_KEPT, str_keys=True, enc_hook=str) for value in values]
    try:
        if not any(value is not None for value in plain):
            return pl.Series(name, plain, pl.String)
        return pl.DataFrame({name: plain}, infer_schema_length=None, strict=True)[name]
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        texts = [
            None if value is None else msgspec.json.encode(value, enc_hook=str).decode() for value in plain
        ]
        return pl.Series(name, texts, pl.String)
