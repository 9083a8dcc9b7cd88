"""Stream time where a topic has several partitions: the one that is furthest behind counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases
from tests.laws.rescaling import rescale_driver

TEXT, NUMBER = serdes.string(), serdes.int64()


class Run:
    """Counts in windows of 10 ms that come out when they close."""

    def __init__(self, emit: Any = "close", partitions: int = 2, **settings: Any) -> None:
        builder = cs.StreamsBuilder()
        grouped = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key()
        grouped.windowed_by(cs.TimeWindows(size=10), emit=emit).count().to_stream().to("out")
        self.driver = cs.TopologyTestDriver(builder.build(), partitions=partitions, **settings)
        self.topic = self.driver.create_input_topic("in", TEXT, NUMBER)
        self.out = self.driver.create_output_topic("out", serdes.windowed(TEXT, 10), NUMBER)

    def pipe(self, partition: int, *times: int, key: str = "k") -> list[tuple[str, int]]:
        for ts in times:
            self.topic.pipe_input(f"{key}{partition}", 1, timestamp=ts, partition=partition)
        return self.results()

    def results(self) -> list[tuple[str, int]]:
        return [(record.key.key, record.key.start) for record in self.out.read_records()]

    def counted(self, what: str) -> int:
        return sum(self.driver.metrics()[what].values())


def test_a_row_of_another_partition_closes_a_window() -> None:
    """State partitions: `a` is in one, `b` in the other."""
    run = Run()
    assert run.pipe(0, 5, key="a") == []
    assert run.pipe(0, 20, key="b") == [("a0", 0)]


def test_a_partition_that_is_behind_holds_windows_up_and_they_are_counted() -> None:
    run = Run()
    run.pipe(0, 1)
    assert run.pipe(1, 2) == []
    assert run.pipe(0, 11, 25, 31) == []
    assert run.counted("waiting") == 4  # [0, 10) of both, [10, 20) and [20, 30) of the first


def test_no_record_is_late_because_another_partition_is_ahead() -> None:
    run = Run()
    run.pipe(1, 1)
    run.pipe(0, 100)
    assert run.pipe(1, 3, 15) == [("k1", 0)]
    assert run.counted("dropped") == 0


def test_a_partition_that_never_had_a_record_holds_nothing_up() -> None:
    assert Run(partitions=5).pipe(0, 1, 12) == [("k0", 0)]


def test_an_idle_partition_holds_nothing_up() -> None:
    run = Run(idle_after="1 minute")
    run.pipe(1, 1)
    run.pipe(0, 1)
    run.driver.advance_wall_clock_time(50_000)
    assert run.pipe(0, 15) == []
    run.driver.advance_wall_clock_time(20_000)
    assert sorted(run.pipe(0, 16)) == [("k0", 0), ("k1", 0)]
    assert run.counted("waiting") == 0


def test_with_idle_after_a_partition_without_a_record_is_waited_for_so_long() -> None:
    run = Run(idle_after="1 minute")
    assert run.pipe(0, 1, 15) == []
    assert run.pipe(1, 2) == []
    assert run.counted("dropped") == 0
    other = Run(idle_after="1 minute")
    assert other.pipe(0, 1, 15) == []
    other.driver.advance_wall_clock_time(59_000)
    assert other.pipe(0, 16) == []
    other.driver.advance_wall_clock_time(2_000)
    assert other.pipe(0, 17) == [("k0", 0)]


def kafkas_drops(records: Iterable[tuple[int, int]]) -> int:
    """What a task of Kafka for each source partition drops: windows that its own records have closed."""
    now: dict[int, int] = {}
    dropped = 0
    for partition, ts in records:
        now[partition] = max(now.get(partition, -1), ts)
        dropped += ts // 10 * 10 + 10 <= now[partition]
    return dropped


@cases(0.5)
@given(
    st.integers(0, 10**9),
    st.integers(2, 5),
    st.sampled_from([1, 3, 100]),
    st.sampled_from(["update", "close"]),
)
def test_no_record_is_late_that_kafka_takes(seed: int, partitions: int, every: int, emit: Any) -> None:
    random = Random(seed)
    records = [(partition, 0) for partition in range(partitions)]
    records += [(random.randrange(partitions), random.randrange(60)) for _ in range(20)]
    run = Run(emit, partitions, commit_every=every)
    for partition, ts in records:
        run.topic.pipe_input(random.choice("abc"), 1, timestamp=ts, partition=partition)
    run.driver.commit()
    assert run.counted("dropped") <= kafkas_drops(records)
    end = [(partition, 1000) for partition in range(partitions)]
    for partition, ts in end:
        run.topic.pipe_input("a", 1, timestamp=ts, partition=partition)
    run.driver.commit()
    assert run.counted("waiting") == 0


@pytest.mark.parametrize("partitions", [1, 3])
def test_state_from_before_goes_on_from_the_time_of_each_state_partition(partitions: int) -> None:
    """As an earlier version left it: without the times of source partitions."""
    from dataclasses import replace

    run = Run(partitions=partitions)
    run.pipe(0, 1, 15)
    stores = run.driver._stores
    stores.versions = {place: replace(version, sources={}) for place, version in stores.versions.items()}
    assert run.pipe(0, 3) == []
    assert run.counted("dropped") == 1
    assert run.pipe(0, 27) == [("k0", 10)]


class Priced:
    """Orders that look a price up, by name; prices keep versions for 10 ms, and orders wait for ``grace`` ms."""

    def __init__(self, grace: int | None = None, partitions: int = 2, **settings: Any) -> None:
        builder = cs.StreamsBuilder()
        kept = cs.Materialized(store="prices", history_retention="10 ms")
        prices = builder.table("prices", cs.Consumed(key=TEXT, value=TEXT), kept)
        orders = builder.stream("orders", cs.Consumed(key=TEXT, value=TEXT))
        both = cs.Joined(grace=None if grace is None else f"{grace} ms")
        orders.left_join(prices, lambda order, price: f"{order} {price}", both).to(
            "out", key=TEXT, value=TEXT
        )
        self.driver = cs.TopologyTestDriver(builder.build(), partitions=partitions, **settings)
        self.topics = {
            name: self.driver.create_input_topic(name, TEXT, TEXT) for name in ("prices", "orders")
        }
        self.out = self.driver.create_output_topic("out", TEXT, TEXT)

    def pipe(self, topic: str, partition: int, key: str, value: str, ts: int) -> list[str]:
        self.topics[topic].pipe_input(key, value, timestamp=ts, partition=partition)
        self.driver.commit()
        return self.out.read_values()

    def counted(self, what: str) -> int:
        return sum(self.driver.metrics()[what].values())

    def forget(self) -> None:
        """The state as an earlier version left it: without the times of source partitions."""
        from dataclasses import replace

        stores = self.driver._stores
        stores.versions = {place: replace(one, sources={}) for place, one in stores.versions.items()}


def test_a_version_is_late_because_of_a_row_of_another_state_partition() -> None:
    run = Priced()
    run.pipe("prices", 0, "b", "new", 30)
    run.pipe("prices", 0, "a", "late", 19)
    run.pipe("prices", 0, "a", "old", 20)
    assert run.counted("dropped") == 1
    assert run.pipe("orders", 0, "a", "1", 19) == ["1 None"]
    assert run.pipe("orders", 0, "a", "2", 20) == ["2 old"]


def test_no_version_is_late_because_another_source_partition_is_ahead() -> None:
    run = Priced()
    run.pipe("prices", 1, "b", "first", 1)
    run.pipe("prices", 0, "a", "new", 30)
    run.pipe("prices", 1, "b", "second", 5)
    assert run.counted("dropped") == 0
    assert run.pipe("orders", 0, "b", "1", 6) == ["1 second"]


def test_a_replaced_version_is_forgotten_with_a_row_of_another_state_partition() -> None:
    run = Priced()
    run.pipe("prices", 0, "a", "one", 10)
    run.pipe("prices", 0, "a", "two", 20)
    assert run.pipe("orders", 0, "a", "1", 15) == ["1 one"]
    run.pipe("prices", 0, "b", "new", 26)
    assert run.pipe("orders", 0, "a", "2", 15) == ["2 None"]
    assert run.pipe("orders", 0, "a", "3", 20) == ["3 two"]


def test_a_record_leaves_the_buffer_with_one_of_another_state_partition() -> None:
    """It sees what had come of its price by then."""
    run = Priced(grace=5, commit_every=100)
    for topic, key, value, ts in [
        ("orders", "a", "1", 10),
        ("prices", "a", "one", 10),
        ("orders", "b", "2", 15),
        ("prices", "z", "any", 16),
        ("prices", "a", "two", 10),
    ]:
        run.topics[topic].pipe_input(key, value, timestamp=ts, partition=0)
    run.driver.commit()
    assert run.out.read_values() == ["1 one"]


def test_a_source_partition_that_is_behind_holds_records_back_and_they_are_counted() -> None:
    run = Priced(grace=5)
    run.pipe("orders", 1, "b", "1", 2)
    assert run.pipe("orders", 0, "a", "2", 4) == []
    assert run.pipe("orders", 0, "a", "3", 10) == []
    assert run.counted("waiting") == 2
    assert sorted(run.pipe("orders", 1, "b", "4", 9)) == ["1 None", "2 None"]
    assert run.counted("waiting") == 0


def test_records_that_wait_leave_when_a_source_partition_is_idle() -> None:
    run = Priced(grace=5, idle_after="1 minute")
    run.pipe("orders", 0, "a", "1", 2)
    run.pipe("orders", 1, "b", "2", 2)
    run.driver.advance_wall_clock_time(50_000)
    assert run.pipe("orders", 0, "a", "3", 8) == []
    run.driver.advance_wall_clock_time(20_000)
    assert sorted(run.pipe("orders", 0, "a", "4", 9)) == ["1 None", "2 None"]


@pytest.mark.parametrize("partitions", [1, 3])
def test_versions_and_waiting_records_from_before_go_on_from_the_time_of_each_state_partition(
    partitions: int,
) -> None:
    run = Priced(grace=5, partitions=partitions)
    run.pipe("prices", 0, "a", "one", 30)
    run.pipe("orders", 0, "a", "1", 30)
    run.forget()
    run.pipe("prices", 0, "a", "late", 19)
    assert run.counted("dropped") == 1
    assert run.pipe("orders", 0, "a", "2", 24) == ["2 None"]  # it is late
    assert run.pipe("orders", 0, "b", "3", 35) == ["1 one"]


class Held:
    """Every 10 ms the keys that have come."""

    def init(self, context: Any) -> None:
        self.context, self.keys = context, context.store("keys")
        context.schedule("10 ms", "stream-time", self.report)

    def process(self, record: Any) -> None:
        self.keys.put(record.key, record.value)

    def report(self, now: int) -> None:
        for key, _ in self.keys.all():
            self.context.forward(key, f"{now}")


def held(
    partitions: int = 3,
) -> tuple[cs.TopologyTestDriver, Callable[[int, str, int], list[tuple[str, str]]]]:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=TEXT))
    stream.process(Held, stores=[cs.KeyValueStore("keys", key=TEXT, value=TEXT)]).to(
        "out", key=TEXT, value=TEXT
    )
    driver = cs.TopologyTestDriver(builder.build(), partitions=partitions)
    topic, out = driver.create_input_topic("in", TEXT, TEXT), driver.create_output_topic("out", TEXT, TEXT)

    def pipe(partition: int, key: str, ts: int) -> list[tuple[str, str]]:
        topic.pipe_input(key, "x", timestamp=ts, partition=partition)
        return sorted(out.read_key_values())

    return driver, pipe


def test_a_timer_fires_with_a_record_of_another_state_partition() -> None:
    _, pipe = held()
    assert pipe(0, "a", 1) == [("a", "1")]
    assert pipe(0, "b", 4) == []
    assert pipe(0, "c", 12) == [("a", "12"), ("b", "12"), ("c", "12")]
    assert pipe(0, "c", 19) == []


def test_a_timer_waits_for_the_source_partition_that_is_behind() -> None:
    _, pipe = held()
    pipe(0, "a", 1)
    pipe(1, "b", 2)
    assert pipe(0, "a", 15) == []
    assert pipe(1, "b", 11) == [("a", "11"), ("b", "11")]


def test_timers_from_before_fire_where_no_record_comes() -> None:
    """An earlier version did not keep when a timer in stream time is due."""
    driver, pipe = held()
    for key, ts in [("a", 1), ("b", 4), ("c", 5)]:
        pipe(0, key, ts)
    stores = driver._stores
    stores.versions = {place: one for place, one in stores.versions.items() if place[0] == "keys"}
    assert pipe(0, "c", 12) == [("a", "12"), ("b", "12"), ("c", "12")]


def test_timers_fire_in_new_state_partitions() -> None:
    """What a store of one state partition had, is in several of them after `rescale`."""
    driver, pipe = held(partitions=1)
    for key, ts in [("a", 1), ("b", 4), ("c", 5)]:
        pipe(0, key, ts)
    rescale_driver(driver, 4)
    assert pipe(0, "c", 12) == [("a", "12"), ("b", "12"), ("c", "12")]


def test_init_is_not_called_where_no_timer_is_due() -> None:
    calls: list[int] = []

    class Counted:
        def init(self, context: Any) -> None:
            calls.append(context.partition)

        def process(self, record: Any) -> None: ...

    builder = cs.StreamsBuilder()
    builder.stream("in", cs.Consumed(key=TEXT, value=TEXT)).process(Counted).to("out", key=TEXT, value=TEXT)
    with cs.TopologyTestDriver(builder.build(), partitions=4) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for number, key in enumerate("abcdefgh"):
            topic.pipe_input(key, "x", timestamp=number)
    assert len(calls) == 8
    assert len(set(calls)) > 1


@pytest.mark.parametrize("every", [1, 2, 100])
def test_a_view_that_waits_stays_though_all_other_views_are_newer(every: int) -> None:
    """Views come in one partition, up to 1059, clicks in another one, up to 1024: the join's time is 1024.

    The view of 1012 waits, and was dropped without a result, because views alone would not be retained so long.
    """
    builder = cs.StreamsBuilder()
    views, clicks = (builder.stream(name, cs.Consumed(key=TEXT, value=TEXT)) for name in ("views", "clicks"))
    windows = cs.JoinWindows.of("20 ms", grace="5 ms")
    views.left_join(clicks, lambda view, click: [view, click], windows).to(
        "out", key=TEXT, value=serdes.json()
    )
    with cs.TopologyTestDriver(builder.build(), partitions=2, commit_every=every) as driver:
        topics = {name: driver.create_input_topic(name, TEXT, TEXT) for name in ("views", "clicks")}
        for name, key, ts, partition in [
            ("views", "b", 1012, 1),
            ("clicks", "d", 1024, 0),
            ("views", "a", 1059, 1),
            ("clicks", "c", 2000, 0),
            ("views", "c", 2000, 1),
        ]:
            topics[name].pipe_input(key, key, timestamp=ts, partition=partition)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, serdes.json()).read_records()
    assert {("b", 1012), ("a", 1059)} <= {(one.key, one.timestamp) for one in out}
