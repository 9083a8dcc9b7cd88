"""A refused record is counted once, however many stores its table has."""

from __future__ import annotations

import crossstream as cs
from crossstream import serdes


def test_a_refused_version_is_counted_once_where_the_table_has_two_stores():
    text = serdes.string()
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=text, value=text)
    left = builder.table("left", consumed)
    right = builder.table("right", consumed, cs.Materialized(store="versions", history_retention=4))
    joined = left.join(right, lambda a, b: a + b, foreign_key=lambda a: a)
    joined.to_stream().to("out", cs.Produced(key=text, value=text))
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("right", text, text)
        topic.pipe_input("1", None, 5)
        topic.pipe_input("1", None, 0)
        assert driver.metrics()["dropped"] == {"right: expired-version": 1}
