"""A change of an application whose results are in Kafka: one transaction, whatever its batches do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.errors import StateError
from crossstream.evolution.evolve import Evolved, evolve
from crossstream.evolution.revert import revert
from crossstream.kafka import KafkaConnection, transactions
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.storage.commit_log import BatchLog
from tests.faults.crash_points import Arm, Crash, after, before
from tests.faults.one_process import process
from tests.kafka.fixtures import await_end, records, rows_of

pytestmark = pytest.mark.kafka

TEXT = serdes.string()
_names = count()


@dataclass
class World:
    """Words, and what a function makes of them."""

    log: KafkaLog
    connection: KafkaConnection
    state: Path
    name: str
    guarantee: Any

    def append(self, *words: tuple[str, str]) -> None:
        writer = self.connection.writer()
        writer.write(f"{self.name}-words", records(*((key.encode(), value.encode()) for key, value in words)))
        writer.flush()
        writer.close()

    @property
    def config(self) -> cs.StreamsConfig:
        return cs.StreamsConfig(
            application_id=self.name,
            bootstrap_servers=self.connection.bootstrap_servers,
            state_dir=self.state,
            partitions=2,
            processing_guarantee=self.guarantee,
            durable=False,
            broker_patience="20 seconds",
        )

    def topology(self, function: Callable[[str], str]) -> cs.Topology:
        builder = cs.StreamsBuilder()
        words = builder.table(f"{self.name}-words", cs.Consumed(key=TEXT, value=TEXT))
        kept = cs.Materialized(store="shown", key=TEXT, value=TEXT)
        shown = words.map_values(function, materialized=kept)
        shown.to_stream().to(f"{self.name}-shown", cs.Produced(key=TEXT, value=TEXT))
        return builder.build()

    def run(self, function: Callable[[str], str]) -> None:
        process(self.topology(function), self.config)

    def evolve(self, function: Callable[[str], str]) -> Evolved:
        return evolve(self.topology(function), self.config, lambda topology, config: LocalRounds(2))

    def shown(self, reader: KafkaReader, ends: int) -> list[tuple[str, str]]:
        """All results that readers of committed records see, up to the end, marks of transactions included."""
        span = await_end(self.log, f"{self.name}-shown", ends)
        rows = rows_of(list(reader.read(span, 1_000)))
        return [(TEXT.deserialize(key), TEXT.deserialize(value)) for _, key, value, _, _ in rows]


@pytest.fixture(params=["exactly_once", "at_least_once"])
def world(log: KafkaLog, broker: KafkaConnection, tmp_path: Path, request: Any) -> World:
    name = f"changed-{next(_names)}"
    log.create_topic(f"{name}-words", 1)
    log.create_topic(f"{name}-shown", 1)
    made = World(log, broker, tmp_path / "state", name, request.param)
    made.append(("a", "one"), ("b", "two"), ("c", "three"))
    made.run(str.upper)
    return made


NOTED = after(BatchLog, "write_publication")


def short(value: str) -> str:
    return value.upper() if len(value) == 3 else value


FIRST = [("a", "ONE"), ("b", "TWO"), ("c", "THREE")]


def test_what_differs_is_one_transaction(world: World, reader: KafkaReader) -> None:
    ends = 4 if world.guarantee == "exactly_once" else 3
    world.evolve(short)
    assert sorted(world.shown(reader, ends + 2)) == sorted([*FIRST, ("c", "three")])
    world.append(("d", "longer"))
    world.run(short)
    more = 2 if world.guarantee == "exactly_once" else 1
    assert ("d", "longer") in world.shown(reader, ends + 2 + more)
    with pytest.raises(StateError, match="CS-758"):
        revert(world.state)


def test_it_is_taken_back(world: World, reader: KafkaReader) -> None:
    ends = 4 if world.guarantee == "exactly_once" else 3
    world.evolve(short)
    revert(world.state)
    assert world.shown(reader, ends + 4)[-1] == ("c", "THREE")
    world.run(str.upper)
    assert len(world.shown(reader, ends + 4)) == 5


def test_a_batch_that_the_old_code_has_begun(world: World) -> None:
    """Its results are in a transaction that was not committed, or some of them are in the topic."""
    world.append(("d", "four"))
    with pytest.MonkeyPatch.context() as patch:
        after(LocalRounds, "run")(patch)
        with pytest.raises(Crash):
            world.run(str.upper)
    if world.guarantee == "exactly_once":
        world.evolve(short)
        world.run(short)
    else:
        with pytest.raises(StateError, match="CS-757"):
            world.evolve(short)
        world.run(str.upper)
    assert dict(cs.open_store(world.state, "shown").all())["d"] == (
        "four" if world.guarantee == "exactly_once" else "FOUR"
    )


@pytest.mark.parametrize(
    ("arm", "is_new"),
    [
        (after(BatchLog, "write_batch", 2), False),
        (before(transactions._Writer, "open"), False),
        (NOTED, True),
        (before(BatchLog, "write_commit", 2), True),
        (after(BatchLog, "write_commit", 2), True),
    ],
)
def test_killed(world: World, reader: KafkaReader, arm: Arm, is_new: bool) -> None:
    ends = 4 if world.guarantee == "exactly_once" else 3
    with pytest.MonkeyPatch.context() as patch:
        arm(patch)
        with pytest.raises(Crash):
            world.evolve(short)
    world.run(short if is_new else str.upper)
    commit = BatchLog(world.state).last_commit()
    assert commit is not None
    assert commit.id == (1 if is_new else 0)
    assert dict(cs.open_store(world.state, "shown").all())["c"] == ("three" if is_new else "THREE")
    if not is_new:
        world.evolve(short)
    aborted = 2 if arm is NOTED else 0  # a record, and the end of its transaction
    found = [value for key, value in world.shown(reader, ends + 2 + aborted) if key == "c"]
    assert found == ["THREE", "three"]
