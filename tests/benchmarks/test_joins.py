"""The joins of the benchmark: both styles give the same, and what they are told to wait for comes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from benchmarks.client import LOOPS, join
from benchmarks.data import START_MS, Ends, Message, customer_messages, order_value
from benchmarks.generate import Topics
from benchmarks.joins import PARTITIONS, WORKLOADS, Workload
from benchmarks.joins_app import joined
from benchmarks.keyed_data import keyed_customers, keyed_orders

import crossstream as cs
from crossstream import serdes

RAW = serdes.bytes()
TOPICS = Topics.of("run")

LATE = START_MS + 1_000_000
"""When the last records come."""


def run(work: Workload, style: str) -> Counter[Any]:
    """Key and value of every result of a small run."""
    ends = Ends.of(PARTITIONS)
    with cs.TopologyTestDriver(joined(TOPICS, work.how(style)), partitions=2, commit_every=500) as driver:
        orders, customers = (
            driver.create_input_topic(topic, RAW, RAW) for topic in (TOPICS.orders, TOPICS.customers)
        )

        def pipe(topic: Any, messages: list[Message]) -> None:
            topic.pipe_records([cs.TestRecord(key, value, ts) for key, value, ts in messages])

        for chunk in customer_messages(range(work.rows), 1):
            pipe(customers, chunk)
        pipe(customers, ends.customer_messages(START_MS))
        driver.commit()
        for chunk in keyed_orders(work.keys, work.left, 2, START_MS):
            pipe(orders, chunk)
        for chunk in keyed_customers(work.keys, work.right, 2, START_MS):
            pipe(customers, chunk)
        pipe(customers, ends.customer_messages(LATE))
        pipe(orders, [(key, order_value(key, 0, 1, 100, 0), LATE + 1) for key in ends.customers])
        driver.commit()
        results = driver.create_output_topic(TOPICS.results, RAW, serdes.json())
        return Counter((record.key, str(record.value)) for record in results.read_records())


@pytest.mark.parametrize("name", WORKLOADS)
def test_both_styles_give_the_same(name: str) -> None:
    work = replace(WORKLOADS[name].scaled(0.001), keys=100)
    expressed, called = (run(work, style) for style in ("expressions", "callables"))
    assert expressed == called
    assert {key for key, _ in expressed} >= set(Ends.of(PARTITIONS).customers)
    assert len(expressed) >= 100


@pytest.mark.parametrize("name", LOOPS)
def test_the_join_by_hand_gives_the_same(name: str) -> None:
    work, ends = replace(WORKLOADS[name].scaled(0.001), keys=100, rows=100), Ends.of(PARTITIONS)
    rows = [*customer_messages(range(work.rows), 1), ends.customer_messages(LATE)]
    by_hand = join(
        ((key, value) for chunk in rows for key, value, _ in chunk), by_key=work.mode == "stream-table"
    )
    last = [(key, order_value(key, 0, 1, 100, 0), 0) for key in ends.customers]
    orders = [*keyed_orders(work.keys, work.left, 2, START_MS), last]
    results = (by_hand(key, value) for chunk in orders for key, value, _ in chunk)
    assert Counter((key, str(msgspec.json.decode(value))) for key, value in results) == run(
        work, "expressions"
    )


def test_scaled_joins_of_streams_keep_their_keys() -> None:
    """So a record has as many partners."""
    assert WORKLOADS["stream-stream"].scaled(0.01).keys == WORKLOADS["stream-stream"].keys
    assert WORKLOADS["stream-table"].scaled(0.01).keys == WORKLOADS["stream-table"].scaled(0.01).rows


def test_the_data_is_the_same_each_time() -> None:
    one, other = (list(keyed_orders(50, 30, 4, 0, chunk=7)) for _ in range(2))
    assert one == other
    assert [message[2] for chunk in one for message in chunk] == list(range(30))
    assert list(keyed_customers(50, 30, 4, 0)) != list(keyed_customers(50, 30, 5, 0))
