"""Suppression gives the records of record-at-a-time processing, however the input is cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.columns.hashing import hash_keys, partition_of
from tests.laws.effort import cases, law
from tests.reference.suppression import Suppression

TEXT, NUMBER = serdes.string(), serdes.int64()
Record = tuple[str, int | None, int]

some_records = st.lists(
    st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 40)),
    max_size=25,
)
some_batches = st.sampled_from([1, 2, 3, 7, 100])
some_partitions = st.integers(1, 3)
some_bits = st.sampled_from([64, 4])


def ran(
    build: Callable[[cs.StreamsBuilder], None],
    records: Sequence[Record],
    every: int,
    partitions: int,
    key: Any = TEXT,
    bits: int = 64,
) -> list[tuple[Any, Any, int]]:
    """The records of the topic `out`."""
    builder = cs.StreamsBuilder()
    build(builder)
    with cs.TopologyTestDriver(builder.build(), partitions, every, hash_bits=bits) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for name, value, ts in records:
            topic.pipe_input(name, value, timestamp=ts, partition=0)
        driver.commit()
        out = driver.create_output_topic("out", key, NUMBER).read_records()
    return [(record.key, record.value, record.timestamp) for record in out]


def tasks(partitions: int, bits: int = 64) -> Callable[[str], int]:
    """The state partition of each key."""

    def place(key: str) -> int:
        return int(partition_of(hash_keys(pa.array([key.encode()], pa.large_binary()), bits), partitions)[0])

    return place


def by_task(records: Sequence[tuple[Any, Any, int]], place: Callable[[Any], int]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for record in records:
        found.setdefault(place(record[0]), []).append(record)
    return found


CONSUMED = cs.Consumed(key=TEXT, value=NUMBER)


@law
@given(some_records, st.integers(0, 15), some_batches, some_partitions, some_bits)
@example([("a", 1, 0), ("a", 2, 4), ("b", 1, 10), ("a", 3, 12), ("c", 1, 30)], 10, 100, 1, 64)
def test_a_later_change_of_the_row_does_not_prolong_its_stay(records, limit, every, partitions, bits):
    def build(builder: cs.StreamsBuilder) -> None:
        table = builder.table("in", CONSUMED)
        table.suppress(cs.Suppressed.until_time_limit(limit)).to_stream().to("out")

    place = tasks(partitions, bits)
    model = Suppression(limit)
    for key, value, ts in records:
        model.process(key, key.encode(), value, ts)
    found = by_task(ran(build, records, every, partitions, bits=bits), place)
    assert found == by_task(model.out, place)


@law
@given(some_records, st.integers(0, 30), st.integers(0, 3), some_batches, some_partitions)
def test_full_buffers_emit_their_oldest_rows(records, limit, most, every, partitions):
    def build(builder: cs.StreamsBuilder) -> None:
        option = cs.Suppressed.until_time_limit(limit, max_records=most)
        builder.table("in", CONSUMED).suppress(option).to_stream().to("out")

    place = tasks(partitions)
    models = [Suppression(limit, max_records=most) for _ in range(partitions)]
    for key, value, ts in records:
        models[place(key)].process(key, key.encode(), value, ts)
        for model in models:
            model.advance(ts)
    found = by_task(ran(build, records, every, partitions), place)
    assert found == {number: model.out for number, model in enumerate(models) if model.out}


@law
@given(some_records, st.integers(0, 60), st.sampled_from([1, 40, 200]), some_batches)
def test_bounds_in_bytes_do_not_depend_on_batches(records, limit, most, every):
    def build(builder: cs.StreamsBuilder) -> None:
        option = cs.Suppressed.until_time_limit(limit, max_bytes=most)
        builder.table("in", CONSUMED).suppress(option).to_stream().to("out")

    assert ran(build, records, every, 1) == ran(build, records, 1, 1)


@law
@given(some_records, st.integers(1, 12), st.integers(1, 12), st.integers(0, 8), some_batches, some_partitions)
def test_a_suppression_until_windows_close_is_an_aggregation_that_emits_on_close(
    records, size, advance, grace, every, partitions
):
    windows = cs.TimeWindows(size=size, advance=min(size, advance), grace=grace)
    key = serdes.windowed(TEXT, size)

    def suppressed(builder: cs.StreamsBuilder) -> None:
        grouped = builder.stream("in", CONSUMED).group_by_key().windowed_by(windows)
        grouped.count().suppress(cs.Suppressed.until_window_closes()).to_stream().to("out")

    def closed(builder: cs.StreamsBuilder) -> None:
        grouped = builder.stream("in", CONSUMED).group_by_key().windowed_by(windows, emit="close")
        grouped.count().to_stream().to("out")

    place = tasks(partitions)
    results = [ran(build, records, every, partitions, key) for build in (suppressed, closed)]
    found, expected = (by_task(result, lambda windowed: place(windowed.key)) for result in results)
    # The aggregation's stream time counts late records too, which give no change here: more may have closed there.
    assert found == {n: expected[n][: len(rows)] for n, rows in found.items()}


@cases(0.5)
@given(some_records, st.integers(0, 15), st.none() | st.integers(0, 2), some_batches)
def test_groups_of_a_suppressed_table_are_those_of_what_came_out(records, limit, most, every):
    """Old rows are those that came out last, so that sums of a grouped table stay exact."""

    def build(builder: cs.StreamsBuilder) -> None:
        table = builder.table("in", CONSUMED).suppress(
            cs.Suppressed.until_time_limit(limit, max_records=most)
        )
        grouped = table.group_by(lambda key, value: ("all", value), cs.Grouped(key=TEXT, value=NUMBER))
        grouped.reduce(lambda total, new: total + new, lambda total, old: total - old).to_stream().to("out")

    model = Suppression(limit, max_records=most)
    for key, value, ts in records:
        model.process(key, key.encode(), value, ts)
    rows: dict[str, int | None] = {key: value for key, value, _ in model.out}
    out = ran(build, records, every, 1)
    assert (out[-1][1] if out else 0) == sum(value for value in rows.values() if value is not None)
