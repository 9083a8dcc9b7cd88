"""Stream time without input, in an application: the batch log says what a batch knew of the clock."""

from __future__ import annotations

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.loop import Loop
from crossstream.storage.commit_log import BatchLog
from tests.faults.one_process import application
from tests.laws.clock import Clock, batches, out
from tests.spark.world import World

TEXT = serdes.string()


def topology(joins: int = 1) -> cs.Topology:
    """The views with their clicks; more than one join: those with clicks again."""
    builder = cs.StreamsBuilder()
    views, clicks = (
        builder.stream(topic, cs.Consumed(key=TEXT, value=TEXT)) for topic in ("views", "clicks")
    )
    windows = cs.JoinWindows.of("10 seconds")
    for number in range(joins):
        joined = cs.StreamJoined(name=f"seen-{number}", value=TEXT)
        views = views.left_join(clicks, lambda view, click: f"{view},{click}", windows, joined)
    views.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def config(world: World, **settings: object) -> cs.StreamsConfig:
    return world.config(partitions=2, idle_after="1 minute", durable=False, **settings)


@pytest.fixture
def stocked(either_world: World) -> World:
    world = either_world
    world.create(views=1, clicks=1, out=1)
    world.append("views", [("k", "v", 1_000)])
    return world


def test_ticks_until_nobody_waits(stocked: World, clock: Clock) -> None:
    with application(topology(), config(stocked)) as engine:
        assert batches(engine) == 1
        clock.advance(59)
        assert batches(engine) == 0
        clock.advance(12)
        assert batches(engine) == 1
        assert out(stocked) == [("k", "v,None", 1_000)]
        clock.advance(3600)
        assert batches(engine) == 0


def test_ticks_end_where_all_have_found_partners(stocked: World, clock: Clock) -> None:
    """One sees that nobody waits, until there is input again; time has not moved."""
    with application(topology(), config(stocked)) as engine:
        assert batches(engine) == 1
        stocked.append("clicks", [("k", "c", 1_000)])
        for _ in range(2):
            assert batches(engine) == 1
            clock.advance(3600)
            assert batches(engine) == 1
            clock.advance(3600)
            assert batches(engine) == 0
            stocked.append("clicks", [("x", "c", 2_000)])
        stocked.append("views", [("k", "w", 30_000)])
        batches(engine)
        stocked.append("clicks", [("k", "d", 31_000)])
        batches(engine)
    assert out(stocked) == [("k", "v,c", 1_000), ("k", "w,d", 31_000)]


def test_ticks_go_on_where_the_row_of_a_join_waits_in_the_next_one(stocked: World, clock: Clock) -> None:
    with application(topology(joins=2), config(stocked)) as engine:
        assert batches(engine) == 1
        ticks = []
        for second in range(0, 300, 3):
            clock.advance(3)
            ticks += [second] * batches(engine)
    assert out(stocked) == [("k", "v,None,None", 1_000)]
    assert 70 + 60 <= ticks[-1] <= 70 + 90


def test_the_time_in_which_nothing_ran_does_not_count(stocked: World, clock: Clock) -> None:
    with application(topology(), config(stocked)) as engine:
        batches(engine)
    clock.advance(24 * 3600)
    with application(topology(), config(stocked)) as engine:
        assert batches(engine) == 0
        clock.advance(60 + 11)
        assert batches(engine) == 1
    assert out(stocked) == [("k", "v,None", 1_000)]


@pytest.mark.parametrize("silent", [0, 60 + 5])
def test_a_clock_that_is_set_back_begins_the_silence_anew(stocked: World, clock: Clock, silent: int) -> None:
    with application(topology(), config(stocked)) as engine:
        batches(engine)
        clock.advance(silent)
        batches(engine)
        clock.advance(-3600)
        assert batches(engine) == 0
        _begins_anew(engine, clock)
    assert out(stocked) == [("k", "v,None", 1_000)]


@pytest.mark.parametrize("silent", [0, 60 + 5])
def test_a_clock_may_be_set_back_between_two_runs(stocked: World, clock: Clock, silent: int) -> None:
    with application(topology(), config(stocked)) as engine:
        batches(engine)
        clock.advance(silent)
        batches(engine)
    clock.advance(-24 * 3600)
    with application(topology(), config(stocked)) as engine:
        _begins_anew(engine, clock)
    assert out(stocked) == [("k", "v,None", 1_000)]


@pytest.mark.parametrize("back", [1, 20, 59, 61])
def test_a_clock_that_is_set_back_a_little_between_two_runs(stocked: World, clock: Clock, back: int) -> None:
    """The last input seems to have come after the start: it is waited for twice the time, at most."""
    with application(topology(), config(stocked)) as engine:
        batches(engine)
    clock.advance(-back)
    with application(topology(), config(stocked)) as engine:
        _ticks(engine, clock, 2 * 60 + 12)
    assert out(stocked) == [("k", "v,None", 1_000)]


def test_a_batch_with_more_to_read_behind_it_is_not_silent(stocked: World, clock: Clock) -> None:
    stocked.append("clicks", [("x", "c", 1_000 + n) for n in range(6)])
    with application(topology(), config(stocked, max_records_per_batch=2)) as engine:
        while engine.sources.lag(engine.inputs.end_offsets()):
            clock.advance(100)
            assert engine.run_next()
    assert out(stocked) == []


def test_a_repeated_batch_decides_alike(
    stocked: World, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is gone before the commit of a tick; the one that repeats it has another clock."""
    with application(topology(), config(stocked)) as engine:
        batches(engine)
        clock.advance(60 + 5)
        monkeypatch.setattr(engine, "_commit", _gone)
        with pytest.raises(KeyboardInterrupt):
            engine.run_next()
    entry = BatchLog(stocked.state_dir).last_batch()
    assert entry is not None
    assert entry.silence is not None
    clock.advance(3600)
    with application(topology(), config(stocked)) as engine:
        assert engine.run_next()
        assert out(stocked) == []  # 1 s + 5 s: as it was decided
        clock.advance(60 + 6)
        batches(engine)
    assert out(stocked) == [("k", "v,None", 1_000)]


def _begins_anew(engine: Loop, clock: Clock) -> None:
    """The silence lasts the whole minute from now on."""
    assert _ticks(engine, clock, 59) == 0
    assert _ticks(engine, clock, 1 + 12) > 0


def _ticks(engine: Loop, clock: Clock, seconds: int) -> int:
    """Batches while so much time goes by."""
    count = 0
    for _ in range(seconds):
        clock.advance(1)
        count += batches(engine)
    return count


def _gone(*_: object) -> None:
    raise KeyboardInterrupt
