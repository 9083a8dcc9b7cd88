"""What makes rows expire: stream time, also of several partitions and without input, and the clock on the wall."""

from __future__ import annotations

import time
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.application.engines import Engine, on_spark_too
from tests.application.waiting import wait_for
from tests.laws.rescaling import rescale_driver
from tests.spark.world import World

TEXT = serdes.string()
IN = cs.Consumed(key=TEXT, value=TEXT)


class Kept:
    """A table whose rows expire after 10 ms, its changes, and a stream that looks it up."""

    def __init__(
        self, partitions: int = 2, ttl: Any = "10 ms", clock: Any = "stream", **settings: Any
    ) -> None:
        builder = cs.StreamsBuilder()
        table = builder.table("in", IN, cs.Materialized(store="kept", ttl=ttl, clock=clock))
        table.to_stream().to("out")
        asked = builder.stream("asked", IN)
        asked.left_join(table, lambda one, row: f"{one}{row}").to("answers", key=TEXT, value=TEXT)
        self.driver = cs.TopologyTestDriver(builder.build(), partitions=partitions, **settings)
        self.topic = self.driver.create_input_topic("in", TEXT, TEXT)
        self.asked = self.driver.create_input_topic("asked", TEXT, TEXT)
        self.out = self.driver.create_output_topic("out", TEXT, TEXT)
        self.answers = self.driver.create_output_topic("answers", TEXT, TEXT)

    def pipe(self, *records: tuple[str, str | None, int], partition: int = 0) -> list[tuple[Any, Any, int]]:
        for key, value, ts in records:
            self.topic.pipe_input(key, value, timestamp=ts, partition=partition)
        return self.changes()

    def changes(self) -> list[tuple[Any, Any, int]]:
        """By key, in order within a key."""
        made = [(record.key, record.value, record.timestamp) for record in self.out.read_records()]
        return sorted(made, key=lambda one: str(one[0]))

    def ask(self, key: str) -> str:
        self.asked.pipe_input(key, "?", timestamp=0)
        return self.answers.read_records()[0].value

    @property
    def rows(self) -> dict[str, str]:
        return dict(self.driver.get_key_value_store("kept").all())

    @property
    def dropped(self) -> dict[str, int]:
        return self.driver.metrics()["dropped"]


# -- stream time


def test_a_row_expires_when_its_time_has_passed_by_the_ttl_and_not_before() -> None:
    kept = Kept()
    assert kept.pipe(("a", "1", 0), ("b", "1", 9)) == [("a", "1", 0), ("b", "1", 9)]
    assert kept.pipe(("b", "2", 10)) == [("a", None, 10), ("b", "2", 10)]
    assert kept.rows == {"b": "2"}


def test_an_equal_value_is_written_again() -> None:
    kept = Kept()
    kept.pipe(("a", "1", 0), ("a", "1", 8), ("b", "1", 17))
    assert kept.rows == {"a": "1", "b": "1"}


def test_a_delete_ends_the_row_once() -> None:
    kept = Kept()
    kept.pipe(("a", "1", 0), ("a", None, 5))
    assert kept.pipe(("b", "1", 50)) == [("b", "1", 50)]


def test_a_record_that_has_expired_is_a_delete_and_counted() -> None:
    kept = Kept()
    kept.pipe(("a", "1", 20), ("b", "1", 50))
    assert kept.pipe(("b", "2", 40)) == [("b", None, 50)]
    assert kept.rows == {}
    assert kept.dropped == {"in: expired-row": 1}
    assert kept.pipe(("b", "2", 41)) == [("b", "2", 41)]  # still in time


def test_a_stream_sees_the_row_until_it_expires_and_moves_no_time() -> None:
    kept = Kept()
    kept.pipe(("a", "1", 0))
    kept.asked.pipe_input("z", "?", timestamp=1_000)
    assert kept.answers.read_records()[0].value == "?None"
    assert kept.ask("a") == "?1"
    kept.pipe(("b", "1", 10))
    assert kept.ask("a") == "?None"


def test_a_partition_that_is_behind_holds_rows_up() -> None:
    kept = Kept()
    kept.pipe(("a", "1", 0))
    kept.pipe(("b", "1", 1), partition=1)
    assert kept.pipe(("c", "1", 100)) == [("c", "1", 100)]
    assert kept.pipe(("b", "2", 12), partition=1) == [("a", None, 10), ("b", "2", 12)]


def test_the_clock_of_a_long_ttl_goes_in_steps() -> None:
    kept = Kept(ttl="10 seconds")
    assert kept.pipe(("a", "1", 5), ("b", "1", 10_009)) == [("a", "1", 5), ("b", "1", 10_009)]
    assert kept.pipe(("b", "2", 10_010)) == [("a", None, 10_005), ("b", "2", 10_010)]


def test_without_input_rows_expire_where_stream_time_follows_the_clock() -> None:
    kept = Kept(ttl="1 hour", idle_after="1 minute")
    kept.driver.advance_wall_clock_time("1 ms")
    kept.pipe(("a", "1", 0))
    for _ in range(59):
        kept.driver.advance_wall_clock_time("1 minute")
    assert kept.changes() == []
    for _ in range(3):
        kept.driver.advance_wall_clock_time("1 minute")
    assert kept.changes() == [("a", None, 3_600_000)]
    assert kept.rows == {}


def test_it_goes_on_after_the_partitions_have_changed() -> None:
    kept = Kept(partitions=3)
    kept.pipe(*((f"k{number}", "1", number) for number in range(8)))
    rescale_driver(kept.driver, 5)
    made = kept.pipe(("z", "1", 13))
    rescale_driver(kept.driver, 2)
    made += kept.pipe(("z", "1", 30))
    assert sorted(one for one in made if one[1] is None) == [(f"k{n}", None, n + 10) for n in range(8)]
    assert kept.rows == {"z": "1"}


def test_the_store_has_what_has_not_expired_and_little_more() -> None:
    builder = cs.StreamsBuilder()
    builder.table("in", IN, cs.Materialized(store="kept", ttl="100 ms"))
    with cs.TopologyTestDriver(builder.build(), commit_every=50) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records([(f"k{n}", "1", n) for n in range(20_000)])
        driver.commit()
        assert driver._stores.versions["kept", 0].rows < 2_000
        assert len(dict(driver.get_key_value_store("kept").all())) == 100


# -- the clock on the wall


def test_the_clock_on_the_wall_needs_no_records() -> None:
    kept = Kept(clock="wall")
    kept.driver.advance_wall_clock_time("1 ms")
    assert kept.pipe(("a", "1", 0), ("b", "1", 5)) == [("a", "1", 0), ("b", "1", 5)]
    kept.driver.advance_wall_clock_time("9 ms")
    assert kept.changes() == [("a", None, 10)]
    assert kept.pipe(("c", "1", 500)) == [("c", "1", 500)]  # moves no clock
    kept.driver.advance_wall_clock_time("5 ms")
    assert kept.changes() == [("b", None, 15)]
    assert kept.rows == {"c": "1"}


def test_by_the_clock_records_that_have_expired_are_deletes() -> None:
    kept = Kept(clock="wall")
    kept.driver.advance_wall_clock_time("100 ms")
    assert kept.pipe(("a", "1", 90), ("a", "1", 91)) == [("a", None, 100), ("a", "1", 91)]
    assert kept.dropped == {"in: expired-row": 1}


def test_what_the_clock_deletes_comes_before_the_records_of_the_batch() -> None:
    kept = Kept(clock="wall", commit_every=10)
    kept.driver.advance_wall_clock_time("1 ms")
    kept.pipe(("a", "1", 0))
    kept.driver.commit()
    kept.changes()
    kept.driver._clock += 20  # no batch before the next records
    kept.asked.pipe_input("a", "?", timestamp=0)
    kept.pipe(("a", "2", 15))
    kept.driver.commit()
    assert [record.value for record in kept.answers.read_records()] == ["?None"]
    assert kept.changes() == [("a", "2", 15)]


def test_a_clock_that_is_set_back_deletes_nothing_twice_and_forgets_nothing() -> None:
    kept = Kept(clock="wall")
    kept.driver.advance_wall_clock_time("100 ms")
    kept.pipe(("a", "1", 95))
    kept.driver.advance_wall_clock_time("10 ms")
    assert kept.changes() == [("a", None, 105)]
    kept.driver._clock -= 50
    assert kept.pipe(("b", "1", 51)) == [("b", "1", 51)]
    kept.driver.advance_wall_clock_time("1 ms")
    assert kept.changes() == [("b", None, 61)]


def test_the_next_row_to_expire_says_when_a_batch_is_due() -> None:
    kept = Kept(clock="wall", partitions=1)

    def due() -> int:
        return kept.driver._stores.versions["kept", 0].clock

    kept.driver.advance_wall_clock_time("1 ms")
    kept.pipe(("a", "1", 0), ("b", "1", 5))
    assert due() == 10
    kept.driver.advance_wall_clock_time("9 ms")
    assert due() == 15
    kept.driver.advance_wall_clock_time("5 ms")
    assert due() == 0


@on_spark_too
def test_an_application_without_input_deletes_rows(engine: Engine, world: World) -> None:
    """With the clock, and again after a restart."""
    builder = cs.StreamsBuilder()
    kept = cs.Materialized(store="kept", ttl="3 seconds", clock="wall")
    builder.table("in", IN, kept).to_stream().to("out")
    topology = builder.build()
    world.create(**{"in": 2, "out": 1})
    now = time.time_ns() // 1_000_000
    world.append("in", [("a", "1", now - 2_000), ("b", "1", now - 60_000), ("c", "1", now + 600_000)])
    with engine.streams(topology, world.config(partitions=2)) as app:
        app.process_available()
        assert set(dict(app.store("kept").all())) <= {"a", "c"}
    with engine.streams(topology, world.config(partitions=2)) as app:
        app.start()
        wait_for(lambda: dict(app.store("kept").all()) == {"c": "1"})
    assert world.table("out") == {"c": "1"}


@on_spark_too
def test_stream_time_deletes_rows_in_all_tasks(engine: Engine, world: World) -> None:
    builder = cs.StreamsBuilder()
    builder.table("in", IN, cs.Materialized(store="kept", ttl="1 minute")).to_stream().to("out")
    world.create(**{"in": 1, "out": 1})
    with engine.streams(builder.build(), world.config(partitions=3)) as app:
        world.append("in", [(f"k{number}", "1", number * 1_000) for number in range(100)])
        app.process_available()
        assert len(dict(app.store("kept").all())) == 60
        world.append("in", [("z", "1", 140_000)])
        app.process_available()
        assert sorted(dict(app.store("kept").all())) == [*(f"k{number}" for number in range(81, 100)), "z"]
    assert world.table("out") == {**{f"k{number}": "1" for number in range(81, 100)}, "z": "1"}


@pytest.mark.parametrize("shorter", [True, False])
def test_another_ttl_holds_from_the_next_record_on(shorter: bool, world: World) -> None:
    """Also none, and one again: rows that are older than it then expire."""

    def rows(ttl: str | None, *records: tuple[str, str, int]) -> list[str]:
        builder = cs.StreamsBuilder()
        builder.table("in", IN, cs.Materialized(store="kept", ttl=ttl))
        world.append("in", records)
        with cs.SparkStreams(builder.build(), world.config(engine="local")) as app:
            app.process_available()
            return sorted(dict(app.store("kept").all()))

    world.create(**{"in": 1})
    assert rows("20 ms", *((f"k{ts:02}", "1", ts) for ts in range(0, 41, 10))) == ["k30", "k40"]
    if shorter:
        assert rows("5 ms", ("k41", "1", 41)) == ["k40", "k41"]
        assert rows("30 ms", ("k15", "1", 15), ("k46", "1", 46)) == ["k40", "k41", "k46"]
        return
    assert rows("40 ms", ("k15", "1", 15), ("k42", "1", 42)) == ["k15", "k30", "k40", "k42"]
    assert rows("40 ms", ("k55", "1", 55)) == ["k30", "k40", "k42", "k55"]
    assert rows(None, ("k01", "1", 1), ("k99", "1", 99)) == ["k01", "k30", "k40", "k42", "k55", "k99"]
    assert rows("60 ms", ("k99", "2", 100)) == ["k42", "k55", "k99"]


# -- where rows do not expire


@pytest.mark.parametrize(
    "make",
    [
        lambda builder, kept: builder.global_table("g", IN, kept),
        lambda builder, kept: builder.stream("s", IN).group_by_key().count(materialized=kept),
        lambda builder, kept: builder.table("t", IN).filter(bool, materialized=kept),
        lambda builder, kept: builder.table("t", IN).map_values(str, materialized=kept),
        lambda builder, kept: builder.table("t", IN).join(
            builder.table("u", IN), lambda one, other: one, materialized=kept
        ),
        lambda builder, kept: builder.table("t", IN, cs.Materialized(ttl=5, history_retention=5)),
        lambda builder, kept: builder.table("t", IN, cs.Materialized(clock="wall")),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_where_rows_do_not_expire_a_ttl_is_refused(make: Any) -> None:
    with pytest.raises(cs.TopologyError) as error:
        make(cs.StreamsBuilder(), cs.Materialized(ttl="5 ms"))
    assert error.value.code == "CS-143"


@pytest.mark.parametrize("ttl", [0, -1, "soon", 1.5])
def test_a_ttl_is_a_duration(ttl: Any) -> None:
    with pytest.raises(cs.TopologyError) as error:
        cs.Materialized(ttl=ttl)
    assert error.value.code == "CS-110"


def test_a_clock_is_one_of_two() -> None:
    with pytest.raises(cs.TopologyError) as error:
        cs.Materialized(ttl="1 hour", clock="sun")  # type: ignore[arg-type]
    assert error.value.code == "CS-101"
