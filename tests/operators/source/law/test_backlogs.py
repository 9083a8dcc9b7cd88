"""A backlog in several topics: what is read together, in which order, and what waits for what."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import crossstream as cs
from crossstream import serdes
from tests.faults.one_process import application
from tests.laws.clock import Clock, batches, out
from tests.spark.world import World

TEXT = serdes.string()
DAY = 86_400_000


def streams() -> cs.Topology:
    builder = cs.StreamsBuilder()
    views, clicks = (
        builder.stream(topic, cs.Consumed(key=TEXT, value=TEXT)) for topic in ("views", "clicks")
    )
    views.join(clicks, lambda view, click: f"{view},{click}", cs.JoinWindows.of("10 seconds")).to(
        "out", cs.Produced(key=TEXT, value=TEXT)
    )
    return builder.build()


def looked_up() -> cs.Topology:
    builder = cs.StreamsBuilder()
    clicks = builder.table("clicks", cs.Consumed(key=TEXT, value=TEXT))
    views = builder.stream("views", cs.Consumed(key=TEXT, value=TEXT))
    views.left_join(clicks, lambda view, click: f"{view},{click}").to(
        "out", cs.Produced(key=TEXT, value=TEXT)
    )
    return builder.build()


def looked_up_as_streams_come_first() -> cs.Topology:
    builder = cs.StreamsBuilder()
    views = builder.stream("views", cs.Consumed(key=TEXT, value=TEXT))
    clicks = builder.table("clicks", cs.Consumed(key=TEXT, value=TEXT))
    views.join(clicks, lambda view, click: f"{view},{click}").to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def tables() -> cs.Topology:
    builder = cs.StreamsBuilder()
    views, clicks = (builder.table(topic, cs.Consumed(key=TEXT, value=TEXT)) for topic in ("views", "clicks"))
    joined = views.left_join(clicks, lambda view, click: f"{view},{click}")
    joined.to_stream().to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create(views=2, clicks=3, out=1)
    return world


def results(
    world: World, topology: cs.Topology, state: str, **settings: object
) -> list[tuple[str, str, int]]:
    """All that comes out, in order, of everything in the topics."""
    before = len(out(world))
    config = world.config(
        application_id=state, state_dir=world.root / state, partitions=2, durable=False, **settings
    )
    with application(topology, config) as engine:
        engine.run_until(engine.inputs.end_offsets())
    return out(world)[before:]


@pytest.mark.parametrize("topology", [streams, looked_up])
def test_a_limit_on_batches_changes_no_result(world: World, topology: object) -> None:
    """One topic has a month of records, the other as many of the last day: the past is not late for its partners."""
    rng = random.Random(3)
    month = sorted(rng.randrange(30 * DAY) for _ in range(300))
    day = sorted(rng.randrange(29 * DAY, 30 * DAY) for _ in range(300))
    partners = [*[moment + 7_000 for moment in month[:100]], *[moment + 700 for moment in day]]
    world.append("views", [(f"k{moment % 7}", f"v{n}", moment) for n, moment in enumerate(month + day)])
    world.append("clicks", [(f"k{moment % 7}", f"c{n}", moment) for n, moment in enumerate(sorted(partners))])
    made = topology()  # type: ignore[operator]
    whole = results(world, made, "whole")
    cut = results(world, made, "cut", max_records_per_batch=50)
    assert sorted(cut) == sorted(whole)
    assert len(whole) >= 100


@pytest.mark.parametrize("topology", [looked_up, looked_up_as_streams_come_first])
@pytest.mark.parametrize("limit", [None, 7])
def test_records_of_one_time_find_their_rows(world: World, topology: object, limit: int | None) -> None:
    for topic in ("views", "clicks"):
        world.append(topic, [(f"k{number}", f"{topic}{number}", 1_000) for number in range(30)])
    found = results(world, topology(), "cut", max_records_per_batch=limit)  # type: ignore[operator]
    assert sorted(found) == sorted((f"k{n}", f"views{n},clicks{n}", 1_000) for n in range(30))


def test_records_wait_for_an_input_that_is_late(world: World, clock: Clock) -> None:
    config = world.config(partitions=2, durable=False, max_task_idle="1 second")
    with application(looked_up(), config) as engine:
        world.append("views", [("k", "v", 2_000)])
        assert not engine.run_next()
        clock.advance(0.9)
        assert not engine.run_next()
        world.append("clicks", [(f"k{n}" if n else "k", "c", 1_000) for n in range(30)])
        world.append("views", [(f"x{n}", "v", 2_000) for n in range(30)])
        assert engine.run_next()
        assert ("k", "v,c", 2_000) in out(world)


def test_an_input_that_stays_empty_is_waited_for_once(world: World, clock: Clock) -> None:
    config = world.config(partitions=2, durable=False, max_task_idle="1 second")
    with application(looked_up(), config) as engine:
        for turn in range(3):
            world.append("views", [(f"k{n}", "v", 2_000) for n in range(30)])
            if turn == 0:
                assert not engine.run_next()
                clock.advance(1)
            assert engine.run_next()
        world.append("views", [(f"k{n}", "v", 2_000) for n in range(30)])
        world.append("clicks", [(f"k{n}", "c", 1_000) for n in range(30)])
        assert engine.run_next()
        world.append("views", [(f"k{n}", "v", 3_000) for n in range(30)])
        assert not engine.run_next()


def test_large_batches_wait_for_a_moment(world: World, clock: Clock) -> None:
    """As when a transaction becomes visible in one topic a moment before the other."""
    with application(streams(), world.config(partitions=2, durable=False)) as engine:
        world.append("views", [(f"k{n}", "v", n) for n in range(1_001)])
        assert not engine.run_next()
        world.append("clicks", [(f"k{n}", "c", n) for n in range(1_001)])
        assert batches(engine) == 1
        assert len(out(world)) == 1_001
        clock.advance(1)
        world.append("views", [("k", "v", 2_000)])
        assert engine.run_next()


def test_a_clock_that_is_set_back_makes_no_wait_longer(world: World, clock: Clock) -> None:
    config = world.config(partitions=2, durable=False, max_task_idle="1 second")
    with application(streams(), config) as engine:
        world.append("views", [("k", "v", 1_000)])
        assert batches(engine) == 0
        clock.advance(-3600)
        assert batches(engine) == 0
        clock.advance(1)
        assert batches(engine) == 1


def test_nothing_is_waited_for_where_all_there_is_is_asked_for(world: World, clock: Clock) -> None:
    config = world.config(partitions=2, durable=False, max_task_idle="1 hour")
    world.append("views", [("k", "v", 2_000)])
    with application(looked_up(), config) as engine:
        assert not engine.run_next()
        engine._life.waiters = 1
        assert engine.run_next()


def test_tables_wait_for_nothing(world: World, clock: Clock) -> None:
    with application(tables(), world.config(partitions=2, durable=False, max_task_idle="1 hour")) as engine:
        world.append("views", [(f"k{n}", "v", n) for n in range(2_000)])
        assert engine.run_next()
