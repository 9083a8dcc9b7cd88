"""TopologyTestDriver: a topology in this process, through the production operators.

It runs the plan that Spark runs, with the same kernels and the same stores, over any number of state
partitions and any batch size. A batch of one record is record-at-a-time processing. Source: semantics 3.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from crossstream.durations import Duration, to_milliseconds
from crossstream.engine.batch import Batch, Report, SourceRange, unpack_report
from crossstream.engine.policies import policy_of
from crossstream.engine.parcels import REPORT, Parcel
from crossstream.engine.services import Settings
from crossstream.engine.stores import MemoryStores
from crossstream.engine.task import RoundTask, Sent
from crossstream.errors import ConfigError, StateError
from crossstream.query.store import StoreReader
from crossstream.serdes import Serde
from crossstream.state.store import Version
from crossstream.testing.memory import MemoryInput, MemoryOutput, MemoryTopic, Row
from crossstream.testing.topics import TestInputTopic, TestOutputTopic, TestRecord
from crossstream.topology.graph import Source, Topology
from crossstream.topology.plan import Plan

__all__ = ["TestRecord", "TopologyTestDriver"]

_NOT_IN_KAFKAS_TOTAL = ("null-key-repartition",)


class TopologyTestDriver:
    """Runs a topology on records that a test pipes in. A context manager.

    ``partitions``: state partitions, and partitions of the topics. ``commit_every``: records per batch; 1 is
    record-at-a-time; with more, `commit` ends a batch early. ``deserialization_errors``, ``processing_errors``:
    as in `StreamsConfig`. Raises `ConfigError` CS-240 on numbers below 1.

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
        deserialization_errors: Any = "fail",
        processing_errors: Any = "fail",
        hash_bits: int = 64,
    ) -> None:
        if partitions < 1 or commit_every < 1:
            raise ConfigError("partitions and commit_every must be at least 1", code="CS-240")
        self.plan = Plan.of(topology)
        self._partitions = partitions
        self._every = commit_every
        self._bits = hash_bits
        self._settings = Settings(policy_of(deserialization_errors), policy_of(processing_errors))
        self._stores = MemoryStores()
        self._batch = 0
        self._pending = 0
        self._clock = 0
        self._failed = False
        self._totals = Report()
        self._topics: dict[str, MemoryTopic] = {}
        self._output = MemoryOutput(partitions)
        for node in topology:
            if isinstance(node, Source):
                for topic in node.topics:
                    self._topic(topic)

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def create_input_topic(
        self,
        topic: str,
        key_serde: Serde,
        value_serde: Serde,
        start_timestamp: int = 0,
        auto_advance: Duration = 0,
    ) -> TestInputTopic:
        """A topic to pipe records into; `ConfigError` CS-241 if no source of the topology reads it."""
        if not self._readers(topic):
            raise ConfigError(
                f"no source of the topology reads the topic {topic!r}",
                code="CS-241",
                next=f"its topics are: {', '.join(sorted(self._topics)) or 'none'}",
            )
        self._topic(topic)

        def pipe(rows: list[tuple[Row, int | None]]) -> None:
            self._pipe(topic, rows)

        return TestInputTopic(pipe, key_serde, value_serde, start_timestamp, to_milliseconds(auto_advance))

    def create_output_topic(self, topic: str, key_serde: Serde, value_serde: Serde) -> TestOutputTopic:
        """A topic to read results from; it may be any topic, also one that nothing was written to."""
        return TestOutputTopic(self._output, topic, key_serde, value_serde)

    def commit(self) -> None:
        """Ends the batch in hand. A batch that failed is run again, with the records that failed it."""
        while self._pending:
            self._run_batch()

    def advance_wall_clock_time(self, duration: Duration) -> None:
        """Moves the clock of the driver, and ends the batch in hand. No operator here depends on the clock."""
        self._clock += to_milliseconds(duration)
        self.commit()

    def get_key_value_store(self, name: str) -> StoreReader:
        """The store of this name; `StateError` CS-710 if the topology has none."""
        return self._store(name, versioned=False)

    def get_versioned_store(self, name: str) -> StoreReader:
        """The versioned store of this name; `StateError` CS-710 if the topology has none."""
        return self._store(name, versioned=True)

    def metrics(self) -> dict[str, Any]:
        """Totals since the start: rows in and out by operator, dropped rows by operator and reason.

        ``dropped-records-total`` is the sum that Kafka's metric of this name gives (semantics 3.10).
        """
        dropped = dict(self._totals.dropped)
        total = sum(rows for key, rows in dropped.items() if not key.endswith(_NOT_IN_KAFKAS_TOTAL))
        return {
            "dropped-records-total": total,
            "dropped": dropped,
            "rows_in": dict(self._totals.rows_in),
            "rows_out": dict(self._totals.rows_out),
            "batches": self._batch,
        }

    def produced_topic_names(self) -> set[str]:
        """The topics that records have been written to."""
        return set(self._output.written)

    def close(self) -> None:
        """Processes what is waiting, unless a batch has failed: its error has been raised already."""
        if not self._failed:
            self.commit()

    # -- inside ----------------------------------------------------------------------------------------

    def _topic(self, name: str) -> MemoryTopic:
        if name not in self._topics:
            self._topics[name] = MemoryTopic(self._partitions)
            if self._readers(name):
                self._output.fed_back[name] = self._topics[name]
        return self._topics[name]

    def _readers(self, topic: str) -> list[str]:
        return [
            node.name
            for node in self.plan.topology
            if isinstance(node, Source)
            and (topic in node.topics or (node.pattern is not None and node.pattern.fullmatch(topic)))
        ]

    def _pipe(self, topic: str, rows: list[tuple[Row, int | None]]) -> None:
        held = self._topic(topic)
        for row, partition in rows:
            held.append(row, partition)
            self._pending += 1
            if self._pending >= self._every:
                self._run_batch()

    def _run_batch(self) -> None:
        self._failed = True
        self._process()
        self._failed = False

    def _process(self) -> None:
        spans = self._spans()
        batch = Batch(self._batch, tuple(spans), self._partitions, bits=self._bits)
        before = {name: [len(rows) for rows in topic.waiting] for name, topic in self._topics.items()}
        inboxes = self._read(batch, spans)
        self._forget(before)
        for number in range(1, self.plan.rounds):
            sent = [s for pid, inbox in enumerate(inboxes) for s in self._run(batch, number, pid, inbox)]
            inboxes = self._deliver(sent)
        self._batch += 1
        for inbox in inboxes:
            for parcel in inbox:
                if parcel[1] == REPORT:
                    self._totals.add(unpack_report(parcel[4]))
        self._pending = sum(len(rows) for name in self._topics for rows in self._topics[name].waiting)

    def _spans(self) -> list[SourceRange]:
        spans = []
        for name, topic in sorted(self._topics.items()):
            for node in self._readers(name):
                for partition, rows in enumerate(topic.waiting):
                    if rows:
                        start = topic.base[partition]
                        spans.append((node, name, partition, start, start + len(rows)))
        return [SourceRange(*span, rank) for rank, span in enumerate(sorted(spans, key=self._rank))]

    def _rank(self, span: tuple[str, str, int, int, int]) -> tuple[int, str, int]:
        return (list(self.plan.topology.nodes).index(span[0]), span[1], span[2])

    def _read(self, batch: Batch, spans: Sequence[SourceRange]) -> list[list[Parcel]]:
        task = RoundTask(
            self.plan, batch, 0, 0, self._stores, self._output, self._settings, MemoryInput(self._topics)
        )
        return self._deliver(list(task.read(spans)))

    def _forget(self, before: dict[str, list[int]]) -> None:
        """Drops the records that were read; what a sink of round 0 fed back stays."""
        for name, waiting in before.items():
            topic = self._topics[name]
            for partition, count in enumerate(waiting):
                topic.base[partition] += count
                topic.waiting[partition] = topic.waiting[partition][count:]

    def _run(self, batch: Batch, number: int, pid: int, inbox: list[Parcel]) -> list[Sent]:
        task = RoundTask(self.plan, batch, number, pid, self._stores, self._output, self._settings)
        return list(task.run(inbox))

    def _deliver(self, sent: list[Sent]) -> list[list[Parcel]]:
        inboxes: list[list[Parcel]] = [[] for _ in range(self._partitions)]
        for pid, parcels in sent:
            inboxes[pid].extend(parcels)
        return inboxes

    def _store(self, name: str, *, versioned: bool) -> StoreReader:
        found = [store for store in self.plan.stores.values() if store.public == name]
        if not found or (found[0].history is not None) != versioned:
            kind = "versioned" if versioned else "key-value"
            public = sorted(store.public for store in self.plan.stores.values() if store.public is not None)
            raise StateError(
                f"the topology has no {kind} store named {name!r}",
                code="CS-710",
                next=f"name it with Materialized(store=…); its stores are: {', '.join(public) or 'none'}",
            )
        store = found[0]

        def versions() -> list[Version]:
            return [self._stores.open(store, pid, None) for pid in range(self._partitions)]

        return StoreReader(name, store.key, store.value, versions, store.history, self._bits)

