"""A real broker, plain clients on both sides, and the batch join of the final tables as the judge."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.dev.broker import BrokerInfo
from crossstream.kafka.log import KafkaLog
from crossstream.topics import TopicPartition
from tests.end_to_end.clients import (
    START_MS,
    Row,
    await_gaps,
    batch_join,
    consume_table,
    fold,
    produce,
    produce_half_aborted,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

INNER = "select o.id, o.amount, c.name from orders o join customers c on o.customer = c.id"
LEFT = "select o.id, o.amount, c.name from orders o left join customers c on o.customer = c.id"
CUSTOMERS = 20_000


def topology(orders: str, customers: str, inner: str, left: str) -> cs.Topology:
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=serdes.string(), value=serdes.json())
    produced = cs.Produced(key=serdes.string(), value=serdes.json())
    order_table = builder.table(orders, consumed)
    customer_table = builder.table(customers, consumed)

    def joiner(order: Any, customer: Any) -> Any:
        return {"amount": order["amount"], "name": customer and customer["name"]}

    def customer_of(order: Any) -> Any:
        return order["customer"]

    order_table.join(customer_table, joiner, foreign_key=customer_of).to_stream().to(inner, produced)
    order_table.left_join(customer_table, joiner, foreign_key=customer_of).to_stream().to(left, produced)
    return builder.build()


def order(rng: random.Random) -> dict[str, Any]:
    """An order whose customer is known, unknown or missing."""
    kind = rng.random()
    customer = None if kind < 0.03 else f"c{rng.randrange(CUSTOMERS + CUSTOMERS // 10)}"
    return {"customer": customer, "amount": rng.randrange(10_000)}


def order_changes(rng: random.Random, orders: int, changes: int) -> list[Row]:
    """Inserts of all orders, then updates, moves and deletes of some."""
    rows: list[Row] = [(f"o{number}", order(rng)) for number in range(orders)]
    rng.shuffle(rows)
    for _ in range(changes):
        key = f"o{rng.randrange(orders)}"
        rows.append((key, None if rng.random() < 0.2 else order(rng)))
    return rows


def customer_changes(rng: random.Random, changes: int) -> list[Row]:
    rows: list[Row] = [(f"c{number}", {"name": f"name {number}"}) for number in range(CUSTOMERS)]
    for number in range(changes):
        key = f"c{rng.randrange(CUSTOMERS)}"
        rows.append((key, None if rng.random() < 0.2 else {"name": f"renamed {number}"}))
    return rows


def check(info: BrokerInfo, inner: str, left: str, orders: list[Row], customers: list[Row]) -> None:
    tables = {"orders": fold(orders), "customers": fold(customers)}
    for topic, query in ((inner, INNER), (left, LEFT)):
        found = sorted(
            (key, row["amount"], row["name"])
            for key, row in consume_table(info.bootstrap_servers, topic).items()
        )
        assert key_order(found) == key_order(batch_join(query, **tables))


def key_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[0])


@pytest.mark.parametrize("count", [50_000, pytest.param(200_000, marks=pytest.mark.nightly)])
def test_many_orders(spark: Any, broker_info: BrokerInfo, log: KafkaLog, tmp_path: Path, count: int):
    rng = random.Random(7)
    servers = broker_info.bootstrap_servers
    topics = [f"e2e-{count}-{name}" for name in ("orders", "customers", "inner", "left")]
    for topic, partitions in zip(topics, (4, 3, 2, 5), strict=True):
        log.create_topic(topic, partitions)
    order_topic, customer_topic, inner, left = topics
    orders, customers = order_changes(rng, count, count // 5), customer_changes(rng, 4_000)
    config = cs.StreamsConfig(
        application_id=f"e2e-{count}",
        bootstrap_servers=servers,
        state_dir=tmp_path / "state",
        max_records_per_batch=count // 2,
    )
    graph = topology(*topics)
    # Part of the records before the first start, part while it runs, part while it is down.
    first, second = len(orders) // 2, len(orders) * 3 // 4
    produce(servers, customer_topic, customers[:15_000])
    produce(servers, order_topic, orders[:first])
    with cs.SparkStreams(graph, config, spark) as app:
        app.start()
        produce(servers, customer_topic, customers[15_000:22_000])
        produce(servers, order_topic, orders[first:second])
        app.process_available()
    produce(servers, order_topic, orders[second:])
    produce(servers, customer_topic, customers[22_000:])
    with cs.SparkStreams(graph, config, spark) as app:
        app.process_available()
        assert app.progress.lag == 0
    check(broker_info, inner, left, orders, customers)


def test_aborted_transactions_and_compacted_gaps(
    spark: Any, broker_info: BrokerInfo, log: KafkaLog, tmp_path: Path
):
    rng = random.Random(8)
    servers = broker_info.bootstrap_servers
    compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    log.create_topic("gaps-orders", 2)
    log.create_topic("gaps-customers", 3, compacted)
    for topic in ("gaps-inner", "gaps-left"):
        log.create_topic(topic, 2)
    customers = [key for key, _ in customer_changes(rng, 0)[:3_000]]
    last: dict[str, Any] = {}
    for number in range(6):  # fewer every time: what is kept of each lies between what is not
        changes = {key: {"name": f"{key} {number}"} for key in customers[400 * number :]}
        produce(
            servers, "gaps-customers", list(changes.items()), START_MS + 60_000 * number
        )  # segments of their own
        last |= changes
    await_gaps(servers, "gaps-customers", len(customers))
    orders = produce_half_aborted(servers, "gaps-orders", order_changes(rng, 8_000, 2_000))
    config = cs.StreamsConfig(application_id="gaps", bootstrap_servers=servers, state_dir=tmp_path / "state")
    with cs.SparkStreams(
        topology("gaps-orders", "gaps-customers", "gaps-inner", "gaps-left"), config, spark
    ) as app:
        app.process_available()
    check(broker_info, "gaps-inner", "gaps-left", orders, list(last.items()))


def test_offsets_are_committed_to_the_application_s_group(
    spark: Any, broker_info: BrokerInfo, log: KafkaLog, tmp_path: Path
):
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    servers = broker_info.bootstrap_servers
    log.create_topic("group-in", 2)
    log.create_topic("group-out", 1)
    produce(servers, "group-in", [(f"k{number}", {"n": number}) for number in range(100)])
    builder = cs.StreamsBuilder()
    stream = builder.stream("group-in", cs.Consumed(key=serdes.string(), value=serdes.json()))
    stream.to("group-out")
    config = cs.StreamsConfig(
        application_id="group-app", bootstrap_servers=servers, state_dir=tmp_path / "state"
    )
    with cs.SparkStreams(builder.build(), config, spark) as app:
        app.process_available()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "group-app"})
    committed = consumer.committed([KafkaPartition("group-in", p) for p in range(2)], 10)
    consumer.close()
    ends = log.end_offsets([TopicPartition("group-in", p) for p in range(2)])
    assert {place.partition: place.offset for place in committed} == {
        tp.partition: end for tp, end in ends.items()
    }


def test_new_topics_of_a_pattern_and_new_partitions_are_picked_up(
    spark: Any, broker_info: BrokerInfo, log: KafkaLog, tmp_path: Path
):
    from confluent_kafka.admin import AdminClient, NewPartitions

    servers = broker_info.bootstrap_servers
    log.create_topic("pattern-a", 1)
    log.create_topic("out-pattern", 1)
    produce(servers, "pattern-a", [("a", {"n": 1})])
    builder = cs.StreamsBuilder()
    stream = builder.stream(re.compile("pattern-.*"), cs.Consumed(key=serdes.string(), value=serdes.json()))
    stream.to("out-pattern", cs.Produced(key=serdes.string(), value=serdes.json()))
    config = cs.StreamsConfig(
        application_id="pattern", bootstrap_servers=servers, state_dir=tmp_path / "state"
    )
    with cs.SparkStreams(builder.build(), config, spark) as app:
        app.process_available()
        log.create_topic("pattern-b", 2)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_partitions([NewPartitions("pattern-a", 3)])["pattern-a"].result()
        produce(servers, "pattern-b", [("b", {"n": 2})])
        produce(servers, "pattern-a", [(f"a{number}", {"n": number}) for number in range(20)])
        app.process_available()
    found = consume_table(servers, "out-pattern")
    assert found.keys() == {"a", "b", *(f"a{number}" for number in range(20))}
