"""Any table can be suppressed: what comes out does not depend on the batches, whatever made the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases

TEXT, NUMBER = serdes.string(), serdes.int64()
CONSUMED = cs.Consumed(key=TEXT, value=NUMBER)
KEPT = cs.Materialized(store="kept", key=TEXT, value=NUMBER)
Make = Callable[[cs.StreamsBuilder], cs.KTable]


def total(left: int | None, right: int | None) -> int:
    return (left or 0) * 10 + (right or 0)


def grouped(builder: cs.StreamsBuilder) -> cs.KTable:
    groups = builder.table("left", CONSUMED).group_by(
        lambda key, value: (str(value % 2), value), cs.Grouped(key=TEXT, value=NUMBER)
    )
    return groups.reduce(lambda a, b: a + b, lambda a, b: a - b)


MAKES: dict[str, Make] = {
    "filter": lambda b: b.table("left", CONSUMED).filter(lambda value: value > 2),
    "map_values": lambda b: b.table("left", CONSUMED).map_values(lambda value: value * 2, materialized=KEPT),
    "count": lambda b: b.stream("left", CONSUMED).group_by_key().count(),
    "group_by": grouped,
    "join": lambda b: b.table("left", CONSUMED).left_join(b.table("right", CONSUMED), total),
    "foreign_key": lambda b: b.table("left", CONSUMED).left_join(
        b.table("right", CONSUMED), total, foreign_key=lambda value: "abcd"[value % 4]
    ),
    "to_table": lambda b: b.stream("left", CONSUMED).to_table().suppress(cs.Suppressed.until_time_limit(3)),
}

some_records = st.lists(
    st.tuples(
        st.sampled_from(["left", "left", "right"]),
        st.sampled_from("abcd"),
        st.one_of(st.none(), st.integers(0, 7)),
        st.integers(0, 4),
    ),
    max_size=20,
)


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@cases(0.3)
@given(
    given_records=some_records,
    limit=st.integers(0, 10),
    most=st.none() | st.integers(0, 2),
    every=st.sampled_from([2, 5, 50]),
    partitions=st.integers(1, 2),
)
def test_any_table(make, given_records, limit, most, every, partitions):
    def ran(size: int) -> tuple[dict[str, list[tuple[int | None, int]]], dict[str, int]]:
        builder = cs.StreamsBuilder()
        table = make(builder).suppress(cs.Suppressed.until_time_limit(limit, max_records=most))
        table.to_stream().to("out", cs.Produced(key=TEXT, value=NUMBER))
        table.group_by(lambda key, value: ("all", value), cs.Grouped(key=TEXT, value=NUMBER)).reduce(
            lambda a, b: a + b, lambda a, b: a - b
        ).to_stream().to("sum", cs.Produced(key=TEXT, value=NUMBER))
        topology = builder.build()
        with cs.TopologyTestDriver(topology, partitions, size) as driver:
            topics = {
                name: driver.create_input_topic(name, TEXT, NUMBER)
                for name in ("left", "right")
                if name in {topic for node in topology for topic in getattr(node, "topics", ())}
            }
            now = 0
            for topic, key, value, step in given_records:
                now += step + 1
                if topic in topics:
                    topics[topic].pipe_input(key, value, timestamp=now, partition=0)
            driver.commit()
            found: dict[str, list[tuple[int | None, int]]] = {}
            for one in driver.create_output_topic("out", TEXT, NUMBER).read_records():
                found.setdefault(one.key, []).append((one.value, one.timestamp))
            return found, driver.create_output_topic("sum", TEXT, NUMBER).read_key_values_to_map()

    records, sums = ran(1)
    assert ran(every) == (records, sums)
    rows = [changes[-1][0] for changes in records.values()]
    assert sums.get("all", 0) == sum(value for value in rows if value is not None)
