"""The Kafka Streams application of the benchmarks gives what the join is, in every mode."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.data import FOREIGN_KEY, START_MS, Message, customer_messages, updates_of
from benchmarks.generate import (
    Sending,
    Topics,
    create,
    create_more,
    produce_customers,
    produce_fk,
    produce_orders,
)
from benchmarks.join_many_app import KEPT, TABLES, TAKEN
from benchmarks.peers.kafka_streams.peer import KafkaStreamsPeer, PeerError, available
from benchmarks.star_data import Star, StarEnds, order_updates, rows_of
from confluent_kafka import Consumer, TopicPartition

from crossstream.dev.broker import BrokerInfo

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 2

Table = dict[bytes, Any]


@pytest.fixture
def bootstrap(broker_info: BrokerInfo) -> str:
    reason = available()
    if reason is not None:
        pytest.skip(reason)
    return broker_info.bootstrap_servers


@pytest.mark.parametrize("type_", [pytest.param("inner", marks=pytest.mark.nightly), "left"])
def test_foreign_key_join(bootstrap: str, type_: str) -> None:
    """Customers 80 to 99 are unknown: their orders come out only in the left join."""
    prefix, warm = f"fk-{type_}", f"fk-{type_}-warm"
    produce_customers(bootstrap, prefix, customers=80, partitions=PARTITIONS)
    produce_fk(bootstrap, warm, 10, 20, 40, PARTITIONS)
    settings = {"consumer.isolation.level": "read_committed"}
    with KafkaStreamsPeer(
        bootstrap, prefix, Topics.of(prefix), type=type_, warm_up=Topics.of(warm), settings=settings
    ) as peer:
        results = Results(bootstrap, Topics.of(prefix))
        sent = produce_orders(bootstrap, prefix, 100, 500, 2_000, PARTITIONS, at_once=True)
        results.read_until(sent.ends, times=2)
        peer.check()
        assert peer.cpu_seconds() > 0
        assert 0 < peer.seconds_to_run < 60
    assert peer.summary["processed"] > 2_000
    customers = table(customer_messages(range(80), seed=1))
    orders = table(updates_of(500, 2_000, 100, seed=1).messages(0))
    expected = {
        key: joined(order, customers.get(order[FOREIGN_KEY].encode()))
        for key, order in orders.items()
        if type_ == "left" or order[FOREIGN_KEY].encode() in customers
    }
    assert {key: row for key, row in results.table.items() if key not in sent.ends} == expected


@pytest.mark.parametrize(
    ("mode", "type_"),
    [
        pytest.param("table-table", "inner", marks=pytest.mark.nightly),
        pytest.param("table-table", "outer", marks=pytest.mark.nightly),
        pytest.param("stream-stream", "inner", marks=pytest.mark.nightly),
        ("stream-stream", "left"),
        pytest.param("stream-table", "inner", marks=pytest.mark.nightly),
        pytest.param("stream-table", "left", marks=pytest.mark.nightly),
        pytest.param("stream-global", "inner", marks=pytest.mark.nightly),
        pytest.param("stream-global", "left", marks=pytest.mark.nightly),
    ],
)
def test_modes(bootstrap: str, mode: str, type_: str) -> None:
    """One customer record with the key that the join looks up, one order, and one order without a partner."""
    prefix = f"{mode}-{type_}"
    key = b"c0000007" if mode == "stream-global" else b"a"
    orders = [m for chunk in updates_of(8, 8, 8, seed=1).messages(START_MS + 10) for m in chunk]
    partnered = next(value for _, value, _ in orders if value and b"c0000007" in value)
    lonely = next(value for _, value, _ in orders if value and b"c0000007" not in value)
    customer = next(iter(customer_messages(range(1), seed=1)))[0][1]
    create(bootstrap, Topics.of(prefix), PARTITIONS)
    with Sending(bootstrap, prefix) as sending:
        sending.customers([[(key, customer, START_MS)]])
    with KafkaStreamsPeer(
        bootstrap, prefix, Topics.of(prefix), mode=mode, type=type_, window_ms=1_000
    ) as peer:
        late = START_MS + 1_000_000  # closes the windows
        with Sending(bootstrap, prefix) as sending:
            sending.orders([[(b"a", partnered, START_MS + 10), (b"b", lonely, START_MS + 10)]])
        results = Results(bootstrap, Topics.of(prefix))
        # Kafka Streams looks for closed windows once a second of its clock, and only when a record comes.
        for step in range(4 if mode == "stream-stream" else 1):
            time.sleep(1.2 if step else 0)
            with Sending(bootstrap, prefix) as sending:
                at = late + 10_000 * step
                sending.orders([[(b"a", lonely, at), (b"b", lonely, at)]])
        wanted = {b"a"} if type_ == "inner" else {b"a", b"b"}
        results.read_until(wanted)
        peer.check()
    both = joined(json.loads(partnered), json.loads(customer or b""))
    alone = joined(json.loads(lonely), None)
    assert both in results.rows[b"a"]
    assert (alone in results.rows.get(b"b", [])) == (type_ != "inner")


def test_a_peer_that_does_not_start_says_why(bootstrap: str) -> None:
    with (
        pytest.raises(PeerError, match=r"MissingSourceTopic"),
        KafkaStreamsPeer(bootstrap, "nothing", Topics.of("nothing"), patience=30),
    ):
        pass


class Results:
    """What has come out: every row of a key, and the last."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        self.rows: dict[bytes, list[Any]] = {}
        self.table: Table = {}
        settings = {"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**settings, "enable.auto.commit": False})
        self.consumer.assign(
            [TopicPartition(topics.results, partition, 0) for partition in range(PARTITIONS)]
        )

    def read_until(self, keys: set[bytes] | frozenset[bytes], times: int = 1, patience: float = 60) -> None:
        """Returns when each of these keys has come ``times`` times."""
        until = time.monotonic() + patience
        while any(len(self.rows.get(key, ())) < times for key in keys):
            assert time.monotonic() < until, f"still missing after {patience} s: {keys - self.rows.keys()}"
            for message in self.consumer.consume(1_000, 0.2):
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                row = None if value is None else json.loads(value)
                self.rows.setdefault(key, []).append(row)
                self.table.pop(key, None)
                if row is not None:
                    self.table[key] = row


def table(chunks: Iterator[list[Message]]) -> Table:
    rows: Table = {}
    for chunk in chunks:
        for key, value, _ in chunk:
            rows.pop(key, None)
            if value is not None:
                rows[key] = json.loads(value)
    return rows


def joined(order: Any, customer: Any) -> Any:
    right = customer or {"name": None, "city": None}
    return {
        "item": order["item"],
        "amount": order["amount"],
        "customer": right["name"],
        "city": right["city"],
    }


@pytest.mark.nightly
def test_three_foreign_key_joins_chained(bootstrap: str) -> None:
    star = Star(orders=300, customers=40, products=20, stores=5)
    ends, topics = StarEnds.of(PARTITIONS), Topics.of("chain")
    create(bootstrap, topics, PARTITIONS)
    create_more(bootstrap, ["chain-products", "chain-stores"], PARTITIONS)
    rights = {name: rows_of(name, range(star.rows(name)), 1) for name in TABLES.values()}
    orders = [m for chunk in order_updates(star, 900, 1, START_MS) for m in chunk]
    with Sending(bootstrap, "chain") as sending:
        for name, rows in rights.items():
            sending.send(f"chain-{name}", [rows, ends.right_messages(name, START_MS)])
        sending.orders([orders, ends.order_messages(START_MS)])
    taken = [",".join(f"{name}={to}" for to, name in TAKEN[side].items()) for side in TABLES]
    words = {
        "right": ",".join(f"chain-{name}" for name in TABLES.values()),
        "kept": ",".join(KEPT),
        "taken": ";".join(taken),
    }
    keys = ",".join(f"{side}_id" for side in TABLES)
    with KafkaStreamsPeer(
        bootstrap, "chain", topics, mode="fk-chain", foreign_key=keys, arguments=words
    ) as peer:
        results = Results(bootstrap, topics)
        results.read_until({key for key, _, _ in orders} | ends.results)
        time.sleep(3)
        results.read_until(ends.results)
        peer.check()
    tables = {name: table(iter([rows])) for name, rows in {**rights, "orders": orders}.items()}
    wanted = {
        key: {name: order[name] for name in KEPT}
        | {
            to: tables[TABLES[side]][order[f"{side}_id"].encode()][name]
            for side, fields in TAKEN.items()
            for to, name in fields.items()
        }
        for key, order in tables["orders"].items()
    }
    assert {key: row for key, row in results.table.items() if key not in ends.results} == wanted
