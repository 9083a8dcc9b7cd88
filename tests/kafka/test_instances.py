"""Instances of one application, and others, in its consumer group."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import crossstream as cs
from crossstream import serdes
from crossstream.application import inputs
from crossstream.application.loop import Loop
from crossstream.dev.broker import BrokerInfo
from crossstream.kafka import KafkaConnection, instance
from crossstream.kafka.instance import Instance, OwnerMark
from crossstream.kafka.log import KafkaLog
from crossstream.storage.commit_log import BatchLog
from crossstream.topics import TopicPartition
from tests.faults.one_process import application
from tests.kafka.fixtures import await_end, guarded, new_topic, records

pytestmark = pytest.mark.kafka

TEXT = serdes.string()


@dataclass(slots=True)
class World:
    """A topic of two partitions that an application copies; ``root`` has its state folders."""

    root: Path
    log: KafkaLog
    broker: KafkaConnection
    source: str
    target: str
    written: int = 0

    @property
    def name(self) -> str:
        return f"app-of-{self.source}"

    @property
    def places(self) -> list[TopicPartition]:
        return [TopicPartition(self.source, partition) for partition in range(2)]

    @property
    def topology(self) -> cs.Topology:
        builder = cs.StreamsBuilder()
        rows = builder.table(self.source, cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
        rows.to_stream().to(self.target, cs.Produced(key=TEXT, value=TEXT))
        return builder.build()

    def config(self, folder: str = "a", **settings: Any) -> cs.StreamsConfig:
        there = {"bootstrap_servers": self.broker.bootstrap_servers, "broker_patience": "20 seconds"}
        return cs.StreamsConfig(
            **{
                "application_id": self.name,
                "state_dir": self.root / folder,
                "partitions": 2,
                **there,
                **settings,
            }
        )

    def write(self) -> None:
        """A record in each partition."""
        writer = self.broker.writer()
        rows = [(f"k{self.written + number}".encode(), b"v") for number in range(2)]
        writer.write(self.source, records(*rows), [0, 1])
        writer.flush()
        writer.close()
        self.written += 2
        for place in self.places:
            await_end(self.log, self.source, self.written // 2, place.partition)

    def process(self, folder: str = "a", **settings: Any) -> None:
        """An instance starts, processes what is there, and stops."""
        with application(self.topology, self.config(folder, **settings)) as running:
            process(running)

    def results(self) -> int:
        """How many records there are in the target."""
        end = TopicPartition(self.target, 0)
        return self.log.end_offsets([end])[end]

    def offsets(self) -> dict[TopicPartition, int]:
        return {place: one.offset for place, one in self.log.committed(self.name, self.places).items()}

    def mark(self, partition: int = 0) -> OwnerMark:
        note = self.log.committed(self.name, self.places)[self.places[partition]].note
        return msgspec.json.decode(note, type=OwnerMark)


def process(running: Loop) -> None:
    running.run_until(running.inputs.end_offsets())


@pytest.fixture
def world(tmp_path: Path, log: KafkaLog, broker: KafkaConnection) -> World:
    made = World(tmp_path, log, broker, new_topic(log, 2), new_topic(log))
    made.write()
    return made


@contextmanager
def killed() -> Iterator[None]:
    """Instances that end inside do not say so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Instance, "end", lambda ended: None)
        yield


@contextmanager
def joined(world: World) -> Iterator[None]:
    """A consumer of somebody else is in the group of the application."""
    settings = {"group.id": world.name, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": world.broker.bootstrap_servers, **settings})
    consumer.subscribe([world.source])
    try:
        while not consumer.assignment():
            consumer.poll(0.1)
        yield
    finally:
        consumer.close()


# -- others in the group ---------------------------------------------------------------------------


def test_a_consumer_of_somebody_else_in_the_group_does_not_stop_the_application(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance, "PAUSE_SECONDS", 0.0)
    with joined(world), application(world.topology, world.config()) as running:
        for _ in range(2):
            process(running)
            world.write()
    assert world.results() == 2 * 2
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "CS-608" in warnings[0]
    assert "Lag tools see no numbers, or wrong ones" in warnings[0]
    assert world.offsets() == {}
    world.process()
    assert world.offsets() == dict.fromkeys(world.places, 3)


def test_a_group_that_has_refused_is_asked_again_later(world: World) -> None:
    with application(world.topology, world.config()) as running:
        with joined(world):
            process(running)
        asked = running.inputs._instance
        assert asked is not None
        world.write()
        process(running)
        assert world.offsets() == dict.fromkeys(world.places, 0)  # as it was at the start
        asked._paused_until = 0.0
        world.write()
        process(running)
    assert world.offsets() == dict.fromkeys(world.places, 3)


def test_a_user_without_rights_to_the_group(
    world: World, broker_info: BrokerInfo, caplog: pytest.LogCaptureFixture
) -> None:
    admin = AdminClient({"bootstrap.servers": broker_info.bootstrap_servers})
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    bindings = [
        AclBinding(ResourceType.TOPIC, topic, literal, "User:alice", "*", AclOperation.ALL, allow)
        for topic in (world.source, world.target)
    ]
    for made in admin.create_acls(bindings).values():
        made.result()
    alice = guarded(broker_info, "right")
    settings = {"bootstrap_servers": alice.bootstrap_servers, "kafka": dict(alice.settings)}
    with application(world.topology, world.config(**settings)) as running:
        process(running)
        world.write()
        process(running)
    assert world.results() == 4
    assert [
        one.getMessage().count("CS-608") for one in caplog.records if one.name == "crossstream.group"
    ] == [1]


# -- two instances ---------------------------------------------------------------------------------


def test_a_second_instance_with_a_state_folder_of_its_own_is_refused(world: World) -> None:
    with application(world.topology, world.config()) as running:
        process(running)
        for settings in ({}, {"on_lost_state": "restart"}):
            with pytest.raises(cs.StateError) as caught:
                world.process("b", **settings)
            assert caught.value.code == "CS-740"
            assert str(world.root / "a") in caught.value.where["other"]
            assert "application_id" in (caught.value.next or "")
        world.write()
        process(running)
    assert world.results() == 4
    world.write()
    world.process()


def test_it_is_refused_before_the_first_batch_of_the_first_one(world: World) -> None:
    with application(world.topology, world.config()), pytest.raises(cs.StateError, match="CS-740"):
        world.process("b")
    world.process()
    assert world.results() == 2


def test_two_that_start_at_the_same_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither sees the other when it looks; the later one is refused when it takes the group."""
    check = Instance.check

    def blind(self: Instance, *arguments: Any, **named: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(KafkaLog, "committed", lambda *asked: {})
            check(self, *arguments, **named)

    with application(world.topology, world.config()) as first:
        with monkeypatch.context() as patched:
            patched.setattr(Instance, "check", blind)
            with pytest.raises(cs.StateError, match="CS-740"):
                world.process("b")
        process(first)
    assert world.results() == 2


def test_a_mark_of_a_topic_that_was_away_at_the_start_is_no_other_instance(world: World) -> None:
    """The instance before has left it there."""
    with killed():
        world.process()
    with application(world.topology, world.config()) as running:
        asked = running.inputs._instance
        assert asked is not None
        asked._seen.clear()
        world.write()
        process(running)
    assert world.results() == 4


def copy_of(world: World) -> str:
    """The state folder, restored from a copy while the application runs."""
    shutil.copytree(world.root / "a", world.root / "copy")
    return "copy"


def test_a_copy_of_the_state_folder_is_started_while_the_application_runs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be the folder of an instance that was killed and moved: the later one stops when the other goes on."""
    world.process()
    with (
        application(world.topology, world.config()) as first,
        application(world.topology, world.config(copy_of(world))) as second,
    ):
        world.write()
        process(first)
        assert "another instance of the application" in caplog.messages[-1]
        with pytest.raises(cs.StateError, match="CS-740"):
            process(second)
        world.write()
        process(first)
    assert len([line for line in caplog.messages if "another instance" in line]) == 1


@dataclass(slots=True)
class LostLease:
    """Another instance holds the lease of the state."""

    lock: Any

    def assure(self, within: float = 0.0) -> None:
        raise cs.StateError("this application no longer holds the lease", code="CS-720")

    def release(self) -> None:
        self.lock.release()


@pytest.mark.parametrize("when", ["idle", "after a commit"])
def test_an_instance_that_lost_its_lease_does_not_stop_its_successor(
    world: World, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It stood still for a while, and another one, on the same state, has taken its place."""
    world.process()
    monkeypatch.setattr(inputs, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(instance, "BEAT_SECONDS", 0.0 if when == "idle" else 1_000.0)
    write_commit = BatchLog.write_commit

    def lose(log: BatchLog) -> None:
        log._lock = LostLease(log._lock)

    def commit_and_lose(log: BatchLog, commit: Any) -> None:
        write_commit(log, commit)
        lose(log)

    with ExitStack() as earlier:
        first = earlier.enter_context(application(world.topology, world.config()))
        with application(world.topology, world.config(copy_of(world))) as second:
            if when == "idle":
                lose(first.log)
                with pytest.raises(cs.StateError, match="CS-720"):
                    first.run_next()
            else:
                world.write()
                with monkeypatch.context() as patch:
                    patch.setattr(BatchLog, "write_commit", commit_and_lose)
                    with pytest.raises(cs.StateError, match="CS-720"):
                        process(first)
            world.write()
            process(second)
            noted = world.mark()
            earlier.close()
            assert world.mark() == noted
            world.write()
            process(second)


def test_an_instance_that_was_killed_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed():
        world.process()
    with pytest.raises(cs.StateError, match="CS-740"):
        world.process("b", on_lost_state="restart")
    monkeypatch.setattr(instance, "LIVE_SECONDS", 0.0)
    world.process("b", on_lost_state="restart")
    assert world.results() == 4


def test_an_instance_that_was_killed_on_the_folder_that_is_emptied_is_not_waited_for(world: World) -> None:
    """The folder is locked: nothing else can run on it."""
    with killed():
        world.process()
    shutil.rmtree(world.root / "a")
    world.process(on_lost_state="restart")
    assert world.results() == 4


def test_an_instance_without_records_renews_its_mark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "REFRESH_SECONDS", 0.0)
    with application(world.topology, world.config()) as running:
        process(running)
        before = world.mark()
        assert not running.run_next()
        assert world.mark() == before
        monkeypatch.setattr(instance, "BEAT_SECONDS", 0.0)
        assert not running.run_next()
        assert world.mark().at > before.at
        assert world.mark(1) == before  # one mark is enough
        assert world.offsets() == dict.fromkeys(world.places, 1)


def test_state_that_is_behind_another_folder_goes_on_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.process()
    world.write()
    world.process("b", on_lost_state="restart")
    world.process("a")
    assert "those of another state folder" in caplog.messages[-1]
    assert str(world.root / "b") in caplog.messages[-1]
    assert world.results() == 2 + 4 + 2


# -- state that is lost ----------------------------------------------------------------------------


def forget_marks(world: World) -> None:
    """The offsets as an earlier version has committed them."""
    world.log.commit_offsets(world.name, world.offsets())


@pytest.mark.parametrize(
    "change", [lambda world: None, forget_marks], ids=["marked", "of an earlier version"]
)
def test_a_state_folder_that_is_gone(
    world: World, caplog: pytest.LogCaptureFixture, change: Callable[[World], None]
) -> None:
    world.process()
    change(world)
    shutil.rmtree(world.root / "a")
    for _ in range(2):
        with pytest.raises(cs.StateError) as caught:
            world.process()
        assert caught.value.code == "CS-741"
        assert caught.value.where["offsets"] == f"{world.source}/0: 1, {world.source}/1: 1"
        assert all(
            step in (caught.value.next or "") for step in ("state_dir", "on_lost_state", "application_id")
        )
    assert world.results() == 2
    world.process(on_lost_state="restart")
    assert "begins again" in caplog.text
    assert world.results() == 4
    world.process()
    assert world.results() == 4


def test_only_the_first_of_many_offsets_are_shown(world: World) -> None:
    many = new_topic(world.log, 9)
    world.log.commit_offsets(many, {TopicPartition(many, partition): 3 for partition in range(9)})
    builder = cs.StreamsBuilder()
    builder.stream(many, cs.Consumed(key=TEXT, value=TEXT)).to(world.target)
    config = world.config(application_id=many)
    with pytest.raises(cs.StateError) as caught, application(builder.build(), config):
        pass
    assert str(caught.value.where["offsets"]).endswith(f"{many}/4: 3, 4 more")


def test_an_application_that_was_killed_before_its_first_commit(world: World) -> None:
    """Its group has offsets already, where it began."""
    with killed(), application(world.topology, world.config()):
        pass
    assert world.offsets() == dict.fromkeys(world.places, 0)
    world.process()
    assert world.results() == 2


def test_a_new_folder_where_nothing_was_committed(world: World) -> None:
    with application(world.topology, world.config()):
        pass
    shutil.rmtree(world.root / "a")
    world.process()
    assert world.results() == 2


def test_a_restart_that_was_killed_before_its_first_commit_needs_no_second_permission(world: World) -> None:
    world.process()
    with application(world.topology, world.config("b", on_lost_state="restart")):
        pass
    world.process("b")
    assert world.results() == 4


def test_a_state_folder_that_was_moved(world: World) -> None:
    world.process()
    (world.root / "a").rename(world.root / "moved")
    world.write()
    world.process("moved")
    assert world.results() == 4


def test_a_state_folder_that_was_moved_after_a_crash(world: World) -> None:
    with killed():
        world.process()
    (world.root / "a").rename(world.root / "moved")
    world.write()
    world.process("moved")
    assert world.results() == 4


def test_state_in_another_number_of_partitions(world: World) -> None:
    world.process()
    noted = BatchLog(world.root / "a").application()
    world.process(partitions=3)
    after = BatchLog(world.root / "a").application()
    assert noted is not None
    assert after is not None
    assert noted.state_id == after.state_id != ""
    world.write()
    world.process()
    assert world.results() == 4


def test_a_group_whose_offsets_have_expired(world: World) -> None:
    world.process()
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap_servers})
    admin.delete_consumer_groups([world.name])[world.name].result()
    world.write()
    world.process()
    assert world.results() == 4
    assert world.offsets() == dict.fromkeys(world.places, 2)


def test_state_of_an_earlier_version(world: World) -> None:
    """Without an id, and its offsets without marks."""
    world.process()
    forget_marks(world)
    log = BatchLog(world.root / "a")
    found = log.application()
    assert found is not None
    log.write_application(msgspec.structs.replace(found, state_id=""))
    world.write()
    world.process()
    assert world.results() == 4
    found = log.application()
    assert found is not None
    assert found.state_id == world.mark().state != ""


# -- topics that are missing -----------------------------------------------------------------------


@pytest.mark.parametrize("setting", [None, "deserialization_errors"])
def test_a_missing_output_topic_is_found_at_the_start(world: World, setting: str | None) -> None:
    if setting is None:
        world.target = "no-such-target"
        settings: dict[str, Any] = {}
    else:
        settings = {setting: cs.DeadLetter("no-such-target")}
    with pytest.raises(cs.SinkError, match="'no-such-target' to write to does not exist") as caught:
        world.process(**settings)
    assert caught.value.code == "CS-652"
    assert world.offsets() == {}
