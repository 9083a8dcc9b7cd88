"""Deduplication gives the records of record-at-a-time processing, however the input is cut into batches."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import law
from tests.operators.suppress.law.test_suppression import (
    CONSUMED,
    NUMBER,
    TEXT,
    by_task,
    ran,
    some_batches,
    some_bits,
    some_partitions,
    tasks,
)
from tests.reference.suppression import deduplicated

some_records = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 4), st.integers(0, 60)), max_size=30
)


@law
@given(some_records, st.integers(0, 25), some_batches, some_partitions, some_bits)
@example(
    [("a", 1, 0), ("a", 1, 8), ("a", 1, 11), ("b", 1, 30), ("a", 1, 25), ("a", 1, 12), ("a", 1, 16)],
    10,
    100,
    1,
    64,
)
def test_duplicates_are_left_out(records, within, every, partitions, bits):
    def build(builder: cs.StreamsBuilder) -> None:
        builder.stream("in", CONSUMED).deduplicate(within).to("out")

    def place(key: str | None) -> int:
        return 0 if key is None else tasks(partitions, bits)(key)

    expected = by_task(deduplicated(records, within), place)
    assert by_task(ran(build, records, every, partitions, bits=bits), place) == expected


@law
@given(some_records, st.integers(0, 25), some_batches, some_partitions)
def test_records_are_known_by_what_a_function_says(records, within, every, partitions):
    def build(builder: cs.StreamsBuilder) -> None:
        stream = builder.stream("in", CONSUMED)
        stream.deduplicate(within, key=lambda value: str(value) if value else None).to("out")

    import pyarrow as pa

    from crossstream.columns.hashing import hash_keys, partition_of
    from crossstream.serdes import calls
    from crossstream.serdes.json.plain import InternalJson

    def place(record: tuple[str | None, int, int]) -> int:
        if not record[1]:
            return 0
        wire = pa.array([calls.serialize(InternalJson(), str(record[1]))], pa.large_binary())
        return int(partition_of(hash_keys(wire), partitions)[0])

    def grouped(rows):
        found: dict[int, list] = {}
        for row in rows:
            found.setdefault(place(row), []).append(row)
        return found

    named = [(value or None, (key, value), ts) for key, value, ts in records]
    expected = grouped([(key, value, ts) for _, (key, value), ts in deduplicated(named, within)])
    assert grouped(ran(build, records, every, partitions)) == expected


def test_the_state_is_what_is_seen():
    builder = cs.StreamsBuilder()
    builder.stream("in", CONSUMED).deduplicate(100).to("out")
    with cs.TopologyTestDriver(builder.build(), commit_every=50) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        topic.pipe_records([(f"k{n}", 1, n) for n in range(4_000)])
        driver.commit()
        assert driver._stores.versions["in.deduplicate.seen", 0].rows < 1_000


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda stream: stream.deduplicate("soon"), "CS-110"),
        (lambda stream: stream.deduplicate(-1), "CS-110"),
        (lambda stream: stream.deduplicate(5, key=7), "CS-104"),
        (lambda stream: stream.deduplicate(5, named="n"), "CS-101"),
        (lambda stream: stream.select_key(lambda v: v).deduplicate(5), "CS-140"),
    ],
)
def test_what_is_refused(make, code):
    with pytest.raises(cs.TopologyError) as error:
        make(cs.StreamsBuilder().stream("in", CONSUMED))
    assert error.value.code == code


def test_a_function_that_fails_is_handled_like_others():
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", CONSUMED)
    stream.deduplicate(5, key=lambda value: 1 // value).to("out", cs.Produced(key=TEXT, value=serdes.int64()))
    with cs.TopologyTestDriver(builder.build(), processing_errors="skip") as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        topic.pipe_records([("a", 0, 1), ("b", 1, 2), ("c", 1, 3)])
        out = driver.create_output_topic("out", TEXT, NUMBER).read_records()
        assert driver.metrics()["dropped"] == {"in.deduplicate: failed": 1}
    assert [record.key for record in out] == ["b"]
