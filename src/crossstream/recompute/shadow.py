"""Compares what an application writes with the output topic of another one, from the same inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.graph import nodes as graph
from crossstream.graph.nodes import Graph, Node, Sink
from crossstream.planning.plan import Plan
from crossstream.recompute.inputs import everything
from crossstream.recompute.loads import Loads
from crossstream.recompute.replay import Replay, Written
from crossstream.recompute.verify import Compared, compared
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.primitives import Bytes
from crossstream.task.batch import Settings, TopicInput
from crossstream.topics import OffsetRange, TopicConnection, all_partitions


@dataclass(frozen=True, slots=True)
class Shadowed:
    """What `compare_topics` found. ``topic``: that of this application; ``against``: that of the other one.

    ``as_table``: the last value of each key was compared, else all records of each key. ``records``: of the inputs.
    ``their_records``, ``our_records``: in the two topics.
    """

    topic: str
    against: str
    as_table: bool
    records: int
    their_records: int
    our_records: int
    found: Compared


def compare_topics(
    plan: Plan,
    connection: TopicConnection,
    against: str,
    topic: str | None = None,
    settings: Settings | None = None,
    *,
    as_table: bool | None = None,
) -> Shadowed:
    """Computes the topic that the application would write, and compares it with the topic ``against``.

    ``topic``: which of the application's topics; None: the one it has, or the one of the same name. ``as_table``: by
    default where the application writes the changes of a table. Raises `ConfigError` CS-281 if it does not say which
    topic, and `SourceError` CS-602 for a topic that does not exist.
    """
    sink = chosen_sink(plan.topology, topic or against, chosen=topic is not None)
    is_table = table_behind(plan.topology, sink) if as_table is None else as_table
    with closing(connection.log()) as log, closing(connection.reader()) as reader:
        counts = log.topics()
        if against not in counts:
            step = "correct the name; `crossstream topics list` shows what is there"
            raise refuse("CS-602", f"the topic {against!r} does not exist", step, topic=against)
        theirs_in = all_partitions([against], counts)
        begins, ends = log.begin_offsets(theirs_in), log.end_offsets(theirs_in)
        spans = everything(plan.topology, log)
        name = sink.topic or ""
        replay = Replay(plan, counts.get(name, 1), settings or Settings(), Written(counts, frozenset({name})))
        loads = Loads.of_all(plan.topology, spans)
        replay.snapshots = loads.snapshots
        for part in loads.batches(plan.topology, spans):
            replay.run(part, TopicInput(reader))
        theirs = [
            records
            for tp in theirs_in
            for records in reader.read(
                OffsetRange(against, tp.partition, begins[tp], ends[tp]), replay.settings.read_rows
            )
        ]
    ours = replay.output.topics.get(name, [])
    key, value = _serdes(plan.topology, sink)
    left, right = _frame(theirs, key, is_table), _frame(ours, key, is_table)
    ids = ["key"] if is_table else ["key", "null", "nth"]
    found = compared(against, left, right, ids, key, value, times=False)
    notes = tuple(
        f"{tp.topic}, partition {tp.partition}: offsets 0 to {begin - 1} are not in the topic any more"
        for tp, begin in begins.items()
        if begin > 0 and not is_table
    )
    if notes:
        found = replace(found, notes=notes)
    return Shadowed(
        name,
        against,
        is_table,
        sum(end - start for *_, start, end in spans),
        sum(records.num_rows for records in theirs),
        sum(records.num_rows for records in ours),
        found,
    )


def chosen_sink(topology: Graph, topic: str, *, chosen: bool) -> Sink:
    """The sink that writes ``topic``; the only one there is, unless the topic was ``chosen``."""
    sinks = {node.topic: node for node in topology.each(Sink) if node.topic is not None}
    if topic in sinks:
        return sinks[topic]
    if len(sinks) == 1 and not chosen:
        return next(iter(sinks.values()))
    raise refuse(
        "CS-281",
        f"the application writes no topic {topic!r}" if chosen else "it is not clear which topic to compare",
        f"name one that it writes, with --topic: {', '.join(sorted(map(str, sinks))) or 'there is none'}",
    )


def table_behind(topology: Graph, sink: Node) -> bool:
    """Whether a sink writes the changes of a table, so that the last record of each key counts."""
    node = topology[sink.parents[0]]
    while isinstance(node, graph.MapValues | graph.Peek) and node.shape == "stream":
        node = topology[node.parents[0]]
    return isinstance(node, graph.ToStream) or node.shape == "table"


def _serdes(topology: Graph, sink: Sink) -> tuple[EngineSerde, EngineSerde]:
    """The serdes of the topic; bytes, where none is known."""
    return sink.key or Bytes(), sink.value or Bytes()


def _frame(batches: Sequence[pa.RecordBatch], key: EngineSerde, as_table: bool) -> pl.DataFrame:
    """The records of a topic, or the rows that they leave, with the keys as this application writes them."""
    if not batches:
        schema: Mapping[str, pl.DataType] = {"key": pl.Binary(), "value": pl.Binary()}
        frame = pl.DataFrame(schema=schema)
        return frame if as_table else frame.with_columns(null=pl.lit(True), nth=pl.lit(0, pl.Int64))
    keys = pa.chunked_array([keys for batch in batches for keys in _respelled(batch.column("key"), key)])
    values = pa.chunked_array([batch.column("value") for batch in batches])
    frame = pl.DataFrame({"key": pl.from_arrow(keys), "value": pl.from_arrow(values)})
    if as_table:
        last = frame.filter(pl.col("key").is_not_null()).unique("key", keep="last", maintain_order=True)
        return last.filter(pl.col("value").is_not_null())
    frame = frame.with_columns(pl.col("key").fill_null(b""), null=pl.col("key").is_null())
    return frame.with_columns(nth=pl.int_range(pl.len()).over("key", "null").cast(pl.Int64))


def _respelled(keys: pa.LargeBinaryArray, serde: EngineSerde) -> Iterator[pa.LargeBinaryArray]:
    """Keys as the serde writes them: another application may write the same JSON in another spelling."""
    if serde.name.startswith("json") and keys.null_count < len(keys):
        yield calls.encode_objects(serde, calls.decode_objects(serde, keys))
    else:
        yield keys
