"""Results in Kafka with ``processing_guarantee="exactly_once"``: each once, and all of a batch or nothing of it.

Each test stops an application between two steps of a batch, as a kill would, and starts it again. Readers of committed
records then see what an undisturbed run writes.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.cli import main
from crossstream.dev.broker import BrokerInfo
from crossstream.kafka import KafkaConnection, transactions
from crossstream.kafka import producer as producers
from crossstream.kafka.client import open_producer
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.transactions import TransactionPublisher
from crossstream.lakehouse.delta import DeltaSink
from crossstream.once import BatchMark
from crossstream.runtime.staged_records import StagingWriter
from crossstream.storage.commit_log import BatchLog
from tests.faults.crash_points import Arm, Crash, after, before
from tests.faults.one_process import process
from tests.kafka.committed import ends
from tests.kafka.fixtures import await_end, proxied, records, rows_of
from tests.kafka.proxy import Proxy
from tests.lakehouse.lake import Lake

pytestmark = pytest.mark.kafka

TEXT, NUMBER = serdes.string(), serdes.int64()
_names = count()


@dataclass
class World:
    """Two topics of a test, and an application that counts the words of one into the other."""

    log: KafkaLog
    connection: KafkaConnection
    state: Path
    name: str
    guarantee: Any = "exactly_once"
    settings: dict[str, Any] = field(default_factory=dict)

    def append(self, *words: str) -> None:
        writer = self.connection.writer()
        writer.write(f"{self.name}-words", records(*((word.encode(), b"x") for word in words)))
        writer.flush()
        writer.close()

    def run(self, arm: Arm | None = None) -> None:
        """Processes what is there; with ``arm`` the application must crash in it."""
        config = cs.StreamsConfig(
            application_id=self.name,
            bootstrap_servers=self.connection.bootstrap_servers,
            state_dir=self.state,
            processing_guarantee=self.guarantee,
            single_task_rows=0,
            durable=False,
            broker_patience="20 seconds",
            **self.settings,
        )
        if arm is None:
            process(self.topology(), config)
            return
        with pytest.MonkeyPatch.context() as patch:
            arm(patch)
            with pytest.raises(Crash):
                process(self.topology(), config)

    def topology(self) -> cs.Topology:
        builder = cs.StreamsBuilder()
        words = builder.stream(f"{self.name}-words", cs.Consumed(key=TEXT, value=TEXT))
        counts = words.group_by_key().count()
        counts.to_stream().to(f"{self.name}-counts", cs.Produced(key=TEXT, value=NUMBER))
        return builder.build()

    def counts(self, reader: KafkaReader, ends: int) -> list[tuple[str, int]]:
        """All results that readers of committed records see, up to the end ``ends``, marks of transactions included."""
        span = await_end(self.log, f"{self.name}-counts", ends)
        rows = rows_of(list(reader.read(span, 1_000)))
        return [(TEXT.deserialize(key), NUMBER.deserialize(value)) for _, key, value, _, _ in rows]


@pytest.fixture
def world(log: KafkaLog, broker: KafkaConnection, tmp_path: Path) -> World:
    name = f"once-{next(_names)}"
    log.create_topic(f"{name}-words", 1)
    log.create_topic(f"{name}-counts", 1)
    return World(log, broker, tmp_path / "state", name)


def test_each_batch_is_one_transaction(world: World, reader: KafkaReader) -> None:
    world.append("a", "b", "a")
    world.run()
    world.append("b")
    world.run()
    # Two records and the end of their transaction, then one of each.
    assert sorted(world.counts(reader, 5)) == [("a", 2), ("b", 1), ("b", 2)]
    assert not list((world.state / "staged").iterdir())


def unanswered(patch: pytest.MonkeyPatch) -> None:
    """The end of the transaction arrives; its answer does not, and then the application is killed."""
    commit = transactions._Writer.open

    def opened(writer: Any) -> Any:
        return Unanswering(commit(writer))

    patch.setattr(transactions._Writer, "open", opened)


class Unanswering:
    """A producer whose broker ends transactions without an answer."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def commit_transaction(self, timeout: float) -> None:
        self._producer.commit_transaction(timeout)
        if self._producer in _doubted:
            return
        _doubted.append(self._producer)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


_doubted: list[Producer] = []


@pytest.mark.parametrize(
    ("call", "late"),
    [
        ("init_transactions", 0),
        ("flush", 0),
        ("send_offsets_to_transaction", 0),
        ("send_offsets_to_transaction", 60),
        ("commit_transaction", 0),
    ],
)
def test_another_producer_takes_over_from_one_that_gets_no_answer(
    world: World, reader: KafkaReader, monkeypatch: pytest.MonkeyPatch, call: str, late: int
) -> None:
    """As Kafka's C client may be left by a broker that was killed and starts again: it never asks again."""
    world.append("a", "b")
    world.run()
    opened: list[Silent] = []

    def opening(*arguments: Any, **settings: Any) -> Any:
        producer = open_producer(*arguments, **settings)
        if not settings["transaction"]:
            return producer
        opened.append(Silent(producer, call if not opened else "", late))
        return opened[-1]

    monkeypatch.setattr(producers, "open_producer", opening)
    world.append("a")
    world.run()
    assert len(opened) == 2
    end = world.log.end_offsets([_place(world)])[_place(world)]
    assert sorted(world.counts(reader, end)) == [("a", 1), ("a", 2), ("b", 1)]


class Silent:
    """A producer that gets no answer to one kind of call; ``late``: the seconds for which it overdoes the timeout."""

    def __init__(self, producer: Producer, call: str, late: int) -> None:
        self._producer = producer
        self._call = call
        self._late = late

    def __getattr__(self, name: str) -> Any:
        if name != self._call:
            return getattr(self._producer, name)

        def unanswered(*arguments: Any) -> Any:
            left = len(self._producer)
            sleep(arguments[-1] + self._late)
            if name == "flush":
                return left
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

        return unanswered

    def __len__(self) -> int:
        return len(self._producer)


STEPS: dict[str, Arm] = {
    "while tasks write": before(StagingWriter, "flush"),
    "after a task has staged": after(StagingWriter, "flush"),
    "before the transaction": before(TransactionPublisher, "publish"),
    "in the transaction": after(transactions._Writer, "write"),
    "all is stored": after(transactions._Writer, "store"),
    "before the batch is noted": before(BatchLog, "write_publication"),
    "after it is noted": after(BatchLog, "write_publication"),
    "after the transaction": after(TransactionPublisher, "publish"),
    "before the commit": before(BatchLog, "write_commit"),
    "after the commit": after(BatchLog, "write_commit"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_leaves_each_result_once(world: World, reader: KafkaReader, step: str) -> None:
    world.append("a", "b")
    world.run()
    world.append("a", "c", "a")
    world.run(STEPS[step])
    world.run()
    world.append("c")
    world.run()
    end = world.log.end_offsets([_place(world)])[_place(world)]
    assert sorted(world.counts(reader, end)) == [("a", 1), ("a", 3), ("b", 1), ("c", 1), ("c", 2)]


def _place(world: World) -> Any:
    from crossstream.topics import TopicPartition

    return TopicPartition(f"{world.name}-counts", 0)


def stored_in_transaction(number: int) -> Arm:
    """Crashes when the records of the ``number``-th batch that is published are stored: its transaction is open."""

    def arm(patch: pytest.MonkeyPatch) -> None:
        publish, store, published = TransactionPublisher.publish, transactions._Writer.store, count(1)
        current = [0]

        def publishing(publisher: Any, *arguments: Any) -> None:
            current[0] = next(published)
            publish(publisher, *arguments)

        def storing(writer: Any) -> None:
            store(writer)
            if current[0] == number:
                raise Crash

        patch.setattr(TransactionPublisher, "publish", publishing)
        patch.setattr(transactions._Writer, "store", storing)

    return arm


def test_rescaled_with_an_open_transaction(
    world: World, reader: KafkaReader, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 state partitions, then 5, then 3: each result once, and nothing keeps readers from the end."""
    topic, words = f"{world.name}-counts", [f"w{number}" for number in range(12)]
    for partitions, published in ((2, 1), (5, 2)):
        world.settings = {"partitions": partitions}
        world.append(*words)
        world.run(stored_in_transaction(published))
        servers = world.connection.bootstrap_servers
        assert ends(servers, topic)[0] < ends(servers, topic, "read_uncommitted")[0], "it is open"
        assert main(["state", "rescale", str(world.state), "--partitions", "7"]) == 1
        assert "CS-730" in capsys.readouterr().err
    world.settings = {"partitions": 3}
    world.run()
    assert ends(servers, topic) == ends(servers, topic, "read_uncommitted")
    assert BatchLog(world.state).newest().partitions == 3
    world.append(*words)
    world.run()
    end = world.log.end_offsets([_place(world)])[_place(world)]
    assert sorted(world.counts(reader, end)) == sorted((word, n) for word in words for n in (1, 2, 3))


def test_the_test_bites(world: World, reader: KafkaReader) -> None:
    """At least once, a crash after the results are written writes them again; so it does if the mark is not read."""
    world.guarantee = "at_least_once"
    world.append("a")
    world.run(before(BatchLog, "write_commit"))
    world.run()
    assert world.counts(reader, 2) == [("a", 1), ("a", 1)]


def test_without_the_mark_results_would_come_twice(
    world: World, reader: KafkaReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append("a")
    world.run(before(BatchLog, "write_commit"))
    state = BatchLog(world.state).application()
    assert state is not None
    with monkeypatch.context() as patch:
        patch.setattr(TransactionPublisher, "_read", lambda self: BatchMark("", "", state.state_id, -1))
        world.run()
    assert world.counts(reader, 4) == [("a", 1), ("a", 1)]


def test_a_transaction_whose_end_is_not_answered_is_not_repeated(
    world: World, reader: KafkaReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    unanswered(monkeypatch)
    world.append("a", "b")
    world.run()
    assert sorted(world.counts(reader, 3)) == [("a", 1), ("b", 1)]
    assert len(_doubted) > 1


CALLS = {
    "produce": 0,
    "init producer id": 22,
    "add partitions": 24,
    "add offsets": 25,
    "end transaction": 26,
    "commit offsets": 28,
}


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
def test_a_connection_that_ends_at_any_call_leaves_each_result_once(
    world: World, reader: KafkaReader, broker_info: BrokerInfo, proxy: Proxy, call: str, how: str
) -> None:
    """Before the call arrives, or after, without its answer. The application need not be started again."""
    behind = world.connection
    world.connection = KafkaConnection(f"127.0.0.1:{proxied(broker_info)[0]}")
    world.append("a", "b")
    world.run()
    proxy.cut(CALLS[call], how)
    if call != "produce":  # words are written with other calls than results
        world.append("a")
        assert proxy.has_cut == (call == "init producer id")
        proxy.cut(CALLS[call], how)
    else:
        world.connection = behind
        world.append("a")
        world.connection = KafkaConnection(f"127.0.0.1:{proxied(broker_info)[0]}")
    world.run()
    assert proxy.has_cut
    end = world.log.end_offsets([_place(world)])[_place(world)]
    assert sorted(world.counts(reader, end)) == [("a", 1), ("a", 2), ("b", 1)]


def test_tasks_that_run_twice_count_once(
    world: World, reader: KafkaReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark's speculation does, and a worker that is lost after it has written."""
    run = LocalRounds.run_stage

    def run_twice(rounds: LocalRounds, *arguments: Any) -> Any:
        run(rounds, *arguments)
        return run(rounds, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(LocalRounds, "run_stage", run_twice)
        world.append("a", "b", "a")
        world.run()
    assert len(list((world.state / "staged").iterdir())) == 1
    world.append("b")
    world.run()
    assert sorted(world.counts(reader, 5)) == [("a", 2), ("b", 1), ("b", 2)]
    assert not list((world.state / "staged").iterdir()), "what the other attempt wrote is gone"


def test_an_earlier_run_that_goes_on_writes_nothing(world: World, reader: KafkaReader) -> None:
    """A run that was stopped in its transaction, and goes on after another one has taken over."""
    world.append("a")
    world.run()
    writer = transactions._Writer(world.connection, f"{world.name}-0")
    producer = writer.open()
    producer.begin_transaction()
    writer.write(f"{world.name}-counts", records((b"zombie", (7).to_bytes(8, "big"))))
    producer.flush(10)
    world.append("a")
    world.run()
    with pytest.raises(KafkaException):
        producer.commit_transaction(10)
    end = world.log.end_offsets([_place(world)])[_place(world)]
    assert world.counts(reader, end) == [("a", 1), ("a", 2)]


def test_a_producer_that_is_fenced_gives_way_to_another_one(
    world: World, reader: KafkaReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by an earlier run that continues: its next producer fences that of its successor."""
    world.append("a")
    world.run()
    write, others = transactions._Writer.write, []

    def write_fenced(writer: transactions._Writer, *arguments: Any) -> None:
        if not others:
            others.append(transactions._Writer(world.connection, f"{world.name}-0"))
            others[0].open()
        write(writer, *arguments)

    monkeypatch.setattr(transactions._Writer, "write", write_fenced)
    world.append("a", "b", "c")
    world.run()
    others[0].close()
    end = world.log.end_offsets([_place(world)])[_place(world)]
    assert sorted(world.counts(reader, end)) == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]


def test_other_state_begins_again(world: World, reader: KafkaReader, tmp_path: Path) -> None:
    """The mark of a state that is gone does not count for another one, whose batches have the same numbers."""
    world.append("a")
    world.run()
    world.append("b")
    world.run()
    world.state = tmp_path / "another"
    world.settings = {"on_lost_state": "restart"}
    world.run()
    assert sorted(world.counts(reader, 7)) == [("a", 1), ("a", 1), ("b", 1), ("b", 1)]


def test_a_mark_that_is_lost_is_no_reason_to_guess(world: World) -> None:
    world.append("a")
    world.run(after(BatchLog, "write_publication"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionPublisher, "_read", lambda self: None)
        with pytest.raises(cs.StateError) as caught:
            world.run()
    assert caught.value.code == "CS-743"
    assert "batch 0" in str(caught.value)


def test_a_copy_of_the_state_that_is_older_than_the_results_is_refused(
    world: World, reader: KafkaReader, tmp_path: Path
) -> None:
    """Its next batches have numbers that the mark knows, and other records: they must not be passed over."""
    world.append("a")
    world.run()
    shutil.copytree(world.state, tmp_path / "copy")
    world.append("b")
    world.run()
    world.append("c")
    world.state = tmp_path / "copy"
    with pytest.raises(cs.StateError, match="ends with batch 0") as caught:
        world.run()
    assert caught.value.code == "CS-742"
    world.settings = {"on_lost_state": "restart"}
    world.run()
    end = world.log.end_offsets([_place(world)])[_place(world)]
    assert sorted(world.counts(reader, end)) == [("a", 1), ("b", 1), ("b", 1), ("c", 1)]


def test_a_batch_that_was_noted_is_not_run_again(world: World, reader: KafkaReader) -> None:
    world.append("a")
    world.run(after(BatchLog, "write_publication"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalRounds, "run", lambda *_: pytest.fail("it ran again"))
        world.run()
    # The record of the transaction that was left open and its end, then those of the next one.
    assert world.counts(reader, 4) == [("a", 1)]


def test_a_record_that_is_too_large_says_so(world: World) -> None:
    """The error names the record, as at least once."""
    world.log.create_topic(f"{world.name}-small", 1, {"max.message.bytes": "200"})
    publisher = TransactionPublisher(world.connection, world.name)
    topic = f"{world.name}-small"
    try:
        publisher.begin(topic, "state", -1)
        staging = StagingWriter(_Memory(), "t")
        staging.write(topic, records((b"key", os.urandom(1000))))
        staging.flush()
        with pytest.raises(cs.SinkError) as caught:
            publisher.publish(topic, "state", 0, staging.staged, staging._storage.read)
    finally:
        publisher.close()
    assert caught.value.code == "CS-654"
    assert caught.value.where["topic"] == topic


def test_a_process_that_lost_the_state_does_not_take_over(world: World) -> None:
    """Its producer was fenced by that of its successor; another one of its own would fence that."""
    lost: list[str] = []

    def owns() -> None:
        if lost:
            raise cs.StateError("the lease is lost", code="CS-720", where={}, next="")

    topic = f"{world.name}-counts"
    staging = StagingWriter(_Memory(), "t")
    staging.write(topic, records((b"late", b"x")))
    staging.flush()
    zombie, successor = (
        TransactionPublisher(world.connection, world.name, check) for check in (owns, lambda: None)
    )
    try:
        zombie.begin(topic, "state", -1)
        lost.append("")
        successor.begin(topic, "state", -1)
        with pytest.raises(cs.StateError, match="lost"):
            zombie.publish(topic, "state", 0, staging.staged, staging._storage.read)
        successor.publish(topic, "state", 0, staging.staged, staging._storage.read)
    finally:
        zombie.close()
        successor.close()


def test_a_batch_that_cannot_be_noted_leaves_no_transaction_open(world: World, reader: KafkaReader) -> None:
    """Readers of committed records would wait for its end, and see nothing of what others write meanwhile."""
    topic = f"{world.name}-counts"
    publisher = TransactionPublisher(world.connection, world.name)
    staging = StagingWriter(_Memory(), "t")
    staging.write(topic, records((b"never", b"x")))
    staging.flush()

    def full() -> None:
        raise cs.StateError("the disk is full", code="CS-706", where={}, next="make room")

    try:
        publisher.begin(topic, "state", -1)
        with pytest.raises(cs.StateError, match="full"):
            publisher.publish(topic, "state", 0, staging.staged, staging._storage.read, full)
        writer = world.connection.writer()
        writer.write(topic, records((b"a", (1).to_bytes(8, "big"))))
        writer.flush()
        writer.close()
        assert world.counts(reader, 3) == [("a", 1)]
    finally:
        publisher.close()


def test_a_note_that_failed_is_not_tried_again_by_the_next_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the disk has refused to keep is not forced a second time: the second note would rest on nothing."""
    noted, transactions_begun = [], []

    def full() -> None:
        noted.append(1)
        raise cs.StateError("the disk is full", code="CS-706", where={}, next="make room")

    def transaction(_: Any, mark: Any, staged: Any, read: Any, ready: Any) -> None:
        transactions_begun.append(mark)
        if len(transactions_begun) == 1:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        ready()

    monkeypatch.setattr(TransactionPublisher, "_ready", lambda self, state: BatchMark("", "", state, -1))
    monkeypatch.setattr(TransactionPublisher, "_transaction", transaction)
    publisher = TransactionPublisher(KafkaConnection("nowhere"), "app")
    with pytest.raises(cs.StateError, match="full"):
        publisher.publish("topic", "state", 0, [], bytes, full)  # type: ignore[arg-type]
    assert len(transactions_begun) == 2
    assert noted == [1]


class _Memory(dict[str, Any]):
    """Files in memory."""

    def write(self, name: str, data: Any) -> None:
        self[name] = bytes(data)

    def read(self, name: str, *, original: bool = False) -> Any:
        return self[name]


@pytest.mark.parametrize("step", ["before the table", "after the table"])
def test_a_batch_in_kafka_and_in_a_table(
    world: World, reader: KafkaReader, tmp_path: Path, step: str
) -> None:
    """One batch, one number: each once in both."""
    lake = Lake(tmp_path, "delta")

    def topology() -> cs.Topology:
        builder = cs.StreamsBuilder()
        words = builder.stream(f"{world.name}-words", cs.Consumed(key=TEXT, value=TEXT))
        counts = words.group_by_key().count()
        counts.to_stream().to(f"{world.name}-counts", cs.Produced(key=TEXT, value=NUMBER))
        lake.sink(counts, "counts")
        lake.sink(words, "words")
        return builder.build()

    world.topology = topology  # type: ignore[method-assign]
    world.append("a", "b", "a")
    world.run((before if step == "before the table" else after)(DeltaSink, "write"))
    world.append("b")
    world.run()
    assert sorted(world.counts(reader, 5)) == [("a", 2), ("b", 1), ("b", 2)]
    assert lake.tuples("counts") == [("a", 2), ("b", 2)]
    assert [row[0] for row in lake.tuples("words")] == ["a", "a", "b", "b"]
