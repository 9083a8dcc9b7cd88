"""Flink SQL gives what the queries of the benchmarks are."""

from __future__ import annotations

import time

import pytest
from benchmarks.data import FOREIGN_KEY, customer_messages, updates_of
from benchmarks.fk_results import of_topic
from benchmarks.generate import Topics, create_more, produce_customers, produce_orders
from benchmarks.nexmark.answers import Answers
from benchmarks.nexmark.events import events
from benchmarks.nexmark.reference import expected
from benchmarks.peers.built import Unavailable
from benchmarks.peers.flink import fk, nexmark, sql
from benchmarks.peers.flink.peer import PROGRAM, Backend, FlinkPeer, PeerError, available
from benchmarks.waiting import PARTITIONS, Waiting

from benchmarks.nexmark import sending, topics
from crossstream.dev.broker import BrokerInfo
from tests.benchmarks.test_kafka_streams_peer import joined, table

kafka = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def bootstrap(broker_info: BrokerInfo) -> str:
    reason = available()
    if reason is None:
        try:
            PROGRAM.build()
        except Unavailable as fault:
            reason = str(fault)
    if reason is not None:
        pytest.skip(reason)
    return broker_info.bootstrap_servers


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("heap", marks=kafka),
        pytest.param("rocksdb", marks=[*kafka, pytest.mark.nightly]),
    ],
)
def test_foreign_key_join(bootstrap: str, backend: Backend) -> None:
    """Customers 80 to 99 are unknown: their orders do not come out."""
    prefix = f"flink-{backend}"
    produce_customers(bootstrap, prefix, customers=80, partitions=PARTITIONS)
    waiting = Waiting(bootstrap, Topics.of(prefix).results)
    statements = fk.statements(bootstrap, Topics.of(prefix))
    with FlinkPeer(statements, backend=backend, heap="512m") as peer:
        sent = produce_orders(bootstrap, prefix, 100, 500, 2_000, PARTITIONS, at_once=True)
        waiting.until(sent.ends, peer.check, patience=120)
        assert peer.cpu_seconds() > 0
    customers = table(customer_messages(range(80), seed=1))
    orders = table(updates_of(500, 2_000, 100, seed=1).messages(0))
    wanted = {
        key: joined(order, customers[order[FOREIGN_KEY].encode()])
        for key, order in orders.items()
        if order[FOREIGN_KEY].encode() in customers
    }
    found = of_topic(bootstrap, Topics.of(prefix).results).to_dicts()
    assert {row.pop("id").encode(): row for row in found} == wanted


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.nightly
def test_nexmark(bootstrap: str) -> None:
    """All queries in one job, over the same events."""
    run, some = topics.Topics.of("flink-nexmark"), events(5_000)
    first, *others = nexmark.QUERIES
    sending.create(bootstrap, run, first)
    create_more(bootstrap, [run.result(query) for query in others], PARTITIONS)
    sending.send_side_input(bootstrap, run)
    statements: dict[str, None] = {}
    for query in nexmark.QUERIES:
        statements |= dict.fromkeys(nexmark.statements(query, bootstrap, run))
    answers = {
        query: Answers(bootstrap, run.result(query), query, expected(query, some))
        for query in nexmark.QUERIES
    }
    with FlinkPeer(list(statements), parallelism=1, heap="1g") as peer:
        time.sleep(2)
        sending.send(bootstrap, run, some, at_once=True)
        for query in nexmark.QUERIES:
            answers[query].until_right(peer.check, patience=120)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.nightly
def test_a_job_that_does_not_start_says_why(bootstrap: str) -> None:
    statements = [
        sql.upsert_table(bootstrap, "t", "t", "k STRING", "k"),
        "INSERT INTO t SELECT nothing FROM t",
    ]
    with pytest.raises(PeerError, match=r"nothing"), FlinkPeer(statements, heap="512m"):
        pass


def test_a_table_over_a_topic() -> None:
    text = sql.upsert_table("here:9092", "orders", "run1-orders", "k STRING, amount DOUBLE", "k")
    assert text.startswith(
        "CREATE TABLE `orders` (k STRING, amount DOUBLE, PRIMARY KEY (`k`) NOT ENFORCED) WITH ("
    )
    assert "'key.format' = 'raw'" in text
    assert "'properties.isolation.level' = 'read_committed'" in text


def test_a_key_of_several_columns_is_json() -> None:
    text = sql.upsert_table("here:9092", "lines", "lines", "o BIGINT, n INT", ("o", "n"))
    assert "PRIMARY KEY (`o`, `n`) NOT ENFORCED" in text
    assert "'key.format' = 'json'" in text


def test_the_queries_of_nexmark_are_those_that_flink_can_say() -> None:
    made = nexmark.statements("q4", "here:9092", topics.Topics.of("a"), topics.Topics.of("b"))
    assert sum(statement.startswith("INSERT") for statement in made) == 2
    assert "q6" not in nexmark.QUERIES
