"""TopologyTestDriver: runs a topology in this process, with the production operators.

It runs the plan that Spark runs, with the same kernels and stores, for any number of state partitions and any
batch size. A batch of one record is record-at-a-time processing. Source: semantics 3.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from types import TracebackType
from typing import Any
from uuid import uuid4

import pyarrow as pa

from crossstream.api.checks import check_serdes, check_topic
from crossstream.api.topology import Topology, check_topology
from crossstream.api.types import AsSerde, as_serde
from crossstream.catalog.planners import plan_topology
from crossstream.config import OnError, check_on_error
from crossstream.durations import Duration, Timestamp, to_milliseconds, to_timestamp
from crossstream.error_codes import refuse
from crossstream.errors import caller_location
from crossstream.graph.names import check_matched_once, matches
from crossstream.graph.nodes import Node, Sink, Source
from crossstream.lakehouse.tables import Tables
from crossstream.missing_names import PointsToNames
from crossstream.planning.plan import StoreDef
from crossstream.query.store import StoreReader, reader_of, store_named
from crossstream.query.views import view_of
from crossstream.runtime.in_process import Span, ranges_of, run_batch, tables_of
from crossstream.runtime.spreading import hot_after
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.own import known
from crossstream.storage.log_entries import Silence
from crossstream.storage.store import Version
from crossstream.task.batch import Batch, Report, Settings, policy_of
from crossstream.task.counts import by_operator, counts_of
from crossstream.task.stores import GlobalTables, MemoryStores
from crossstream.task.unmatched_joins import UnmatchedJoins
from crossstream.testing.checks import check_count
from crossstream.testing.memory import MemoryInput, MemoryOutput, MemoryTopic
from crossstream.testing.refreshed import RefreshedTables
from crossstream.testing.topics import TestInputTopic, TestOutputTopic, TestRecord

__all__ = ["TestRecord", "TopologyTestDriver"]

_HASH_BITS = 64
_NOT_IN_KAFKAS_TOTAL = ("null-key-repartition", "closed-session")


class TopologyTestDriver(PointsToNames):
    """Runs a topology on records that a test pipes in; a context manager.

    ``partitions``: state partitions, and partitions of the topics. ``commit_every``: records per batch; 1 is
    record-at-a-time; with more, `commit` ends a batch early. ``deserialization_errors``, ``processing_errors``,
    ``idle_after``: as in `StreamsConfig`. ``hash_bits``: size of the hashes of keys; few bits make different keys
    collide. Raises `ConfigError` CS-201 for an argument that is not valid.

    >>> import crossstream as cs
    >>> from crossstream import serdes
    >>> builder = cs.StreamsBuilder()
    >>> names = builder.stream("names", cs.Consumed(key=serdes.string(), value=serdes.string()))
    >>> names.map_values(str.upper).to("loud", cs.Produced(key=serdes.string(), value=serdes.string()))
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     topic = driver.create_input_topic("names", serdes.string(), serdes.string())
    ...     topic.pipe_input("k", "ada", timestamp=5)
    ...     driver.create_output_topic("loud", serdes.string(), serdes.string()).read_records()
    [TestRecord(key='k', value='ADA', timestamp=5, headers=())]
    """

    __test__ = False

    def __init__(
        self,
        topology: Topology,
        partitions: int = 1,
        commit_every: int = 1,
        *,
        deserialization_errors: OnError = "fail",
        processing_errors: OnError = "fail",
        idle_after: Duration | None = None,
        hash_bits: int = _HASH_BITS,
    ) -> None:
        check_topology("TopologyTestDriver", topology)
        check_count("partitions", partitions)
        check_count("commit_every", commit_every)
        check_count("hash_bits", hash_bits, _HASH_BITS)
        check_on_error("deserialization_errors", deserialization_errors)
        check_on_error("processing_errors", processing_errors)
        self.plan = plan_topology(topology)
        self._topology = topology
        self._partitions = partitions
        self._every = commit_every
        self._bits = hash_bits
        self._settings = Settings(policy_of(deserialization_errors), policy_of(processing_errors))
        self._stores = MemoryStores()
        self._hot: dict[str, dict[int, bool]] = {}
        self._batch = self._pending = self._clock = 0
        self._idle_after: int | None = None
        if idle_after is not None:
            self._idle_after = to_milliseconds(idle_after, "idle_after", minimum=1, unclear="take")
        self._failed = False
        self._totals = Report()
        self._unmatched_joins = UnmatchedJoins.of(topology)
        self._topics: dict[str, MemoryTopic] = {}
        self._read_by: dict[str, list[str]] = {}
        self._output = MemoryOutput(partitions, self._fed_back)
        self._lakehouse = Tables(topology, "TopologyTestDriver")
        self._lakehouse.begin(uuid4().hex, -1)
        for topic in (topic for node in topology for topic in node.topics):
            self._topic(topic)
        self._refreshed = RefreshedTables.of(topology)
        for name in self._refreshed.given:
            self.refresh(name)

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._failed = self._failed or kind is not None
        self.close()

    def create_input_topic(
        self,
        topic: str,
        key_serde: AsSerde | None = None,
        value_serde: AsSerde | None = None,
        start_timestamp: Timestamp = 0,
        auto_advance: Duration = 0,
    ) -> TestInputTopic:
        """A topic to pipe records into. Serdes may be types; without them they are those of the topology.

        A record without a timestamp gets the time of the topic's own clock. It starts at ``start_timestamp`` (ms
        since the epoch or a `datetime`), and each such record moves it by ``auto_advance``. A lake table goes by the
        name of its source; what is piped are its changes, and the table itself is not read. Raises `ConfigError`
        CS-241 if no source of the topology reads the topic, `TopologyError` CS-122 if two patterns match it.

        >>> from crossstream import Consumed, Materialized, StreamsBuilder, serdes
        >>> text, builder = serdes.string(), StreamsBuilder()
        >>> names = builder.table("names", Consumed(key=text, value=text), Materialized(store="names"))
        >>> names.to_stream().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("names", str, str, 1000, "1 second").pipe_input("k", "ada")
        ...     driver.create_output_topic("out").read_record().timestamp
        1000
        """
        lakes = {node.name: node.lake.topic for node in self._topology if node.lake is not None}
        if topic in lakes:
            topic = lakes[topic]
        else:
            check_topic("create_input_topic", topic)
        readers = self._readers(topic)
        nodes = [self._topology[name] for name in readers]
        key, value = self._serdes("create_input_topic", key_serde, value_serde, nodes, "serialize")
        if not readers:
            what = f"no source of the topology reads the topic {topic!r}"
            step = f"its topics are: {', '.join(sorted(self._topics)) or 'none'}"
            raise refuse("CS-241", what, step, **caller_location())
        self._topic(topic)

        start = to_timestamp(start_timestamp, "start_timestamp")
        advance = to_milliseconds(auto_advance, "auto_advance", unclear="take")
        key, value = key.written_to(topic, is_key=True), value.written_to(topic, is_key=False)
        return TestInputTopic(partial(self._pipe, topic), key, value, start, advance, self._partitions)

    def create_output_topic(
        self, topic: str, key_serde: AsSerde | None = None, value_serde: AsSerde | None = None
    ) -> TestOutputTopic:
        """A topic to read results from; it may be any topic, also an empty one. Serdes as for an input topic.

        A second one for the same topic continues after the records that were read, with any serdes.
        """
        check_topic("create_output_topic", topic)
        writers = [node for node in self._topology.each(Sink) if node.topic == topic]
        key, value = self._serdes("create_output_topic", key_serde, value_serde, writers, "deserialize")
        key, value = key.read_from(topic, is_key=True), value.read_from(topic, is_key=False)
        return TestOutputTopic(self._output, topic, key, value)

    def _serdes(
        self, operator: str, key: object, value: object, nodes: Sequence[Node], way: str
    ) -> tuple[EngineSerde, EngineSerde]:
        """The serdes that were given, or those of the ``nodes`` that read or write the topic."""
        if nodes and getattr(nodes[0], "unwrap", None) is None:
            key = nodes[0].key if key is None else key
            value = nodes[0].value if value is None else value
        found = {"key_serde": as_serde(key), "value_serde": as_serde(value)}
        check_serdes(operator, optional=False, ways=(way,), **found)
        return known(found["key_serde"]), known(found["value_serde"])

    def refresh(self, name: str) -> None:
        """Reads a table of `StreamsBuilder.global_table_from` again; what differs is a batch of its own.

        Raises `ConfigError` CS-241 for an unknown name, `SourceError` CS-621 for a table that cannot be read.

        >>> import crossstream as cs, polars as pl
        >>> builder, rates = cs.StreamsBuilder(), {"code": ["EUR"], "rate": [1.0]}
        >>> _ = builder.global_table_from(lambda: pl.DataFrame(rates), key="code", name="rates", store="rates")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     rates["rate"] = [1.5]
        ...     driver.refresh("rates")
        ...     driver.get_key_value_store("rates").get("EUR")
        {'rate': 1.5}
        """
        self.commit()
        records = self._refreshed.read(name, self._clock)
        if records.num_rows:
            self._topics[self._refreshed.topics[name]].append(records, None)
            self._pending += records.num_rows
            self._run_batch()

    def commit(self) -> None:
        """Ends the current batch. Runs a batch that failed again, with the records that made it fail."""
        while self._pending:
            self._run_batch()

    def advance_wall_clock_time(self, duration: Duration) -> None:
        """Ends the current batch and moves the driver's clock.

        Timers of processors on the clock fire. And ``idle_after`` depends on the clock: without a record for so long,
        it moves the stream time of operators that wait.
        """
        self.commit()
        self._clock += to_milliseconds(duration, unclear="take")
        if self._idle_after is not None or any(part.timers for part in self.plan.parts):
            self._run_batch()

    def get_key_value_store(self, name: str) -> StoreReader:
        """The store of this name; `StateError` CS-710 if the topology has none.

        >>> from crossstream import Consumed, Materialized, StreamsBuilder, serdes
        >>> text, builder = serdes.string(), StreamsBuilder()
        >>> names = builder.table("names", Consumed(key=text, value=text), Materialized(store="names"))
        >>> names.to_stream().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("names", text, text).pipe_input("k", "ada")
        ...     driver.get_key_value_store("names").get("k")
        'ada'
        """
        return self._store(name, "key-value")

    def get_versioned_store(self, name: str) -> StoreReader:
        """The versioned store of this name; `StateError` CS-710 if the topology has none."""
        return self._store(name, "versioned")

    def get_window_store(self, name: str) -> StoreReader:
        """The store of this name with windows, or with records of a stream join; `StateError` CS-710 without one."""
        return self._store(name, "window")

    def get_session_store(self, name: str) -> StoreReader:
        """The store of sessions of this name; `StateError` CS-710 if the topology has none."""
        return self._store(name, "session")

    def metrics(self) -> dict[str, Any]:
        """Totals since the start: rows in and out by operator, dropped rows by operator and reason.

        ``matched``, ``unmatched``: rows of each join with and without a partner. ``fan_out``: by foreign-key join, the
        most left rows that one change of a right row met. ``waiting``: by operator, rows that
        wait only for a partition of the topics that is behind. ``warnings``: joins whose keys never met.
        ``dropped-records-total`` is the sum that Kafka's metric of this name gives (semantics 3.10).

        >>> from crossstream import Consumed, Materialized, StreamsBuilder, serdes
        >>> text, builder = serdes.string(), StreamsBuilder()
        >>> names = builder.table("names", Consumed(key=text, value=text), Materialized(store="names"))
        >>> names.to_stream().to("out")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("names", text, text).pipe_input(None, "ada")
        ...     driver.metrics()["dropped"]
        {'names: null-key': 1}
        """
        dropped = dict(self._totals.dropped)
        total = sum(rows for key, rows in dropped.items() if not key.endswith(_NOT_IN_KAFKAS_TOTAL))
        return {
            "dropped-records-total": total,
            "dropped": dropped,
            **counts_of(self._totals),
            "waiting": by_operator(self._totals.waiting),
            "warnings": self._unmatched_joins.warnings,
            "batches": self._batch,
        }

    def produced_topic_names(self) -> set[str]:
        """The topics that the topology wrote to."""
        return set(self._output.written)

    def close(self) -> None:
        """Processes the records that wait, unless a batch failed: its error was raised already."""
        with closing(self._lakehouse):
            if not self._failed:
                self.commit()

    def _topic(self, name: str) -> MemoryTopic:
        if name not in self._topics:
            self._topics[name] = MemoryTopic(self._partitions)
        return self._topics[name]

    def _fed_back(self, topic: str) -> MemoryTopic | None:
        """The topic that sinks write, if a source reads it; else None."""
        return self._topic(topic) if self._readers(topic) else None

    def _readers(self, topic: str) -> list[str]:
        if topic not in self._read_by:
            readers = [
                node
                for node in self.plan.topology.each(Source)
                if topic in node.topics or matches(node.pattern, topic)
            ]
            check_matched_once(topic, readers)
            self._read_by[topic] = [node.name for node in readers]
        return self._read_by[topic]

    def _pipe(self, topic: str, records: pa.RecordBatch, partition: int | None) -> None:
        held, start = self._topic(topic), 0
        while start < records.num_rows:
            taken = records.slice(start, max(1, self._every - self._pending))
            held.append(taken, None if partition is None else [partition] * taken.num_rows)
            start += taken.num_rows
            self._pending += taken.num_rows
            # A batch may write records for the next one, to a topic that the topology reads.
            while self._pending >= self._every:
                self._run_batch()

    def _run_batch(self) -> None:
        """Runs one batch. If it fails, stores and topics are unchanged, and the records still wait."""
        self._failed = True
        before = {name: topic.counts() for name, topic in self._topics.items()}
        silence = None if self._idle_after is None else Silence(self._clock, 0, self._idle_after)
        batch = Batch(
            self._batch,
            ranges_of(self.plan.topology, self._spans(before)),
            self._partitions,
            bits=self._bits,
            silence=silence,
            clock=self._clock,
            wants_keys=self._unmatched_joins.wants_keys,
            expected={} if silence is None else self._expected(),
            hot=self._hot,
        )
        mark, versions = self._output.mark(), dict(self._stores.versions)
        try:
            source = MemoryInput(self._topics)
            report, sent = run_batch(self.plan, batch, self._stores, self._output, self._settings, source)
            self._lakehouse.write(self._lakehouse.rows(sent), batch.id)
        except BaseException:
            self._output.rewind(mark)
            self._stores.versions = versions
            self._topics = {name: self._topics[name] for name in before}
            for name, counts in before.items():
                self._topics[name].keep(counts)
            raise
        for name, counts in before.items():
            self._topics[name].drop(counts)
        self._batch += 1
        self._totals.add(report)
        self._hot = hot_after(self._hot, report, self._totals.state, self._partitions)
        self._unmatched_joins.add(report)
        self._pending = sum(sum(topic.counts()) for topic in self._topics.values())
        self._failed = False

    def _expected(self) -> dict[str, tuple[int, ...]]:
        """All partitions of the topics of each source."""
        found: dict[str, tuple[int, ...]] = {}
        for name, topic in self._topics.items():
            for node in self._readers(name):
                found[node] = max(found.get(node, ()), tuple(range(topic.partitions)))
        return found

    def _spans(self, counts: dict[str, list[int]]) -> Iterator[Span]:
        for name, waiting in counts.items():
            for node in self._readers(name) if any(waiting) else ():
                for partition, count in enumerate(waiting):
                    start = self._topics[name].base[partition]
                    if count:
                        yield node, name, partition, start, start + count

    def _tables(self) -> GlobalTables:
        """The global tables as they are now."""
        batch = Batch(self._batch, (), self._partitions, bits=self._bits)
        return tables_of(self.plan, batch, self._stores)

    def _versions(self, store: StoreDef) -> list[Version]:
        return [self._stores.open(store, pid, None) for pid in range(self._partitions)]

    def _store(self, name: str, kind: str) -> StoreReader:
        store = store_named(self.plan, name)
        if store is None and kind == "key-value" and (view := view_of(self.plan, name, self._tables)):
            return view
        if store is None:
            names = ", ".join(sorted(one.public for one in self.plan.stores.values() if one.public)) or "none"
            step = f"name it, with Materialized or StreamJoined; its stores are: {names}"
            raise refuse("CS-710", f"the topology has no store named {name!r}", step, store=name)
        reader = reader_of(store, partial(self._versions, store), self._bits)
        if reader.kind != kind:
            step = f"call get_{reader.kind.replace('-', '_')}_store({name!r})"
            raise refuse("CS-710", f"{name!r} is a {reader.kind} store, not a {kind} store", step, store=name)
        return reader
