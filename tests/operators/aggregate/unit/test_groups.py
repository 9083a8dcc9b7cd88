"""Which result comes first, and under which reason null keys are counted."""

from __future__ import annotations

from itertools import permutations

import pytest

import crossstream as cs
from tests.operators.aggregate.groups import GROUPED, IN, NUMBER, TEXT, add, named


@pytest.mark.parametrize(("old", "new"), list(permutations("abcd", 2)))
def test_a_row_leaves_its_old_group_before_it_comes_to_its_new_one(old: str, new: str) -> None:
    builder = cs.StreamsBuilder()
    rows = builder.table("in", IN).group_by(lambda key, value: (value, key), GROUPED)
    rows.count().to_stream().to("out", cs.Produced(key=TEXT, value=NUMBER))
    with cs.TopologyTestDriver(builder.build()) as driver:
        output = driver.create_output_topic("out", TEXT, NUMBER)
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(
            [cs.TestRecord("k", old, 5), cs.TestRecord("k", new, 3)]
        )
        assert output.read_records() == [
            cs.TestRecord(old, 1, 5),
            cs.TestRecord(old, 0, 5),
            cs.TestRecord(new, 1, 3),
        ]


@pytest.mark.parametrize("re_keyed_first", [False, True])
def test_each_stream_of_a_cogroup_counts_its_null_keys_under_its_own_reason(re_keyed_first: bool) -> None:
    """One is removed by the re-keying, as in Kafka; the others by the aggregation."""
    builder = cs.StreamsBuilder()
    re_keyed = builder.stream("re-keyed", IN).group_by(named, GROUPED)
    by_key = builder.stream("by-key", IN).group_by_key(GROUPED)
    first, second = (re_keyed, by_key) if re_keyed_first else (by_key, re_keyed)
    first.cogroup(add).cogroup(second, add).aggregate(str)
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("re-keyed", TEXT, TEXT).pipe_input("k", "-")
        for _ in range(2):
            driver.create_input_topic("by-key", TEXT, TEXT).pipe_input(None, "v")
        assert driver.metrics()["dropped-records-total"] == 2
        assert sorted(driver.metrics()["dropped"].values()) == [1, 2]
