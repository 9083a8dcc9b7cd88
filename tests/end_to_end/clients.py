"""Plain Kafka clients and a plain SQL engine: what crossstream is compared with."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

Row = tuple[str, "dict[str, Any] | None"]


START_MS = 1_700_000_000_000


def produce(servers: str, topic: str, rows: Iterable[Row], start: int = START_MS, **settings: Any) -> None:
    """JSON rows with string keys, one a ms from ``start`` on: a producer that knows nothing of crossstream."""
    producer = Producer(
        {"bootstrap.servers": servers, "partitioner": "murmur2_random", "linger.ms": 20, **settings}
    )
    for number, (key, value) in enumerate(rows):
        if number % 5_000 == 0:
            producer.poll(0)
        data = None if value is None else json.dumps(value)
        try:
            producer.produce(topic, data, key, timestamp=start + number)
        except BufferError:
            producer.flush()
            producer.produce(topic, data, key, timestamp=start + number)
    assert producer.flush(60) == 0


def produce_half_aborted(servers: str, topic: str, rows: list[Row], size: int = 1_000) -> list[Row]:
    """The rows in transactions, each second one aborted; the rows that were committed."""
    producer = Producer(
        {"bootstrap.servers": servers, "partitioner": "murmur2_random", "transactional.id": f"{topic}-half"}
    )
    producer.init_transactions(30)
    kept: list[Row] = []
    for number, start in enumerate(range(0, len(rows), size)):
        part = rows[start : start + size]
        producer.begin_transaction()
        for key, value in part:
            producer.produce(topic, None if value is None else json.dumps(value), key)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            kept.extend(part)
    return kept


def consume_table(servers: str, topic: str) -> dict[str, Any]:
    """The last value of each key in a topic; deleted keys are left out."""
    table: dict[str, Any] = {}
    for message in messages(servers, topic):
        key, value = message.key().decode(), message.value()
        table.pop(key, None)
        if value is not None:
            table[key] = json.loads(value)
    return table


def messages(servers: str, topic: str) -> Iterator[Message]:
    """All records there are in a topic, those of aborted transactions left out."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed"}
    )
    count = len(consumer.list_topics(topic, 10).topics[topic].partitions)
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in range(count)}
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(count)])
    while any(
        p.offset < ends[p.partition]
        for p in consumer.position([TopicPartition(topic, q) for q in ends if ends[q]])
    ):
        yield from consumer.consume(10_000, 0.5)
    consumer.close()


def await_gaps(servers: str, topic: str, least: int) -> None:
    """Waits until compaction has left gaps between the offsets of a topic; at least ``least`` records stay."""
    deadline = time.monotonic() + 60
    while True:
        offsets: dict[int, list[int]] = {}
        for message in messages(servers, topic):
            offsets.setdefault(message.partition(), []).append(message.offset())
        kept = sum(map(len, offsets.values()))
        assert kept >= least
        if all(held[-1] - held[0] >= 2 * len(held) for held in offsets.values()):
            return
        assert time.monotonic() < deadline, f"not compacted: {kept} records"
        time.sleep(0.2)


def fold(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """The final table of a changelog."""
    table: dict[str, dict[str, Any]] = {}
    for key, value in rows:
        table.pop(key, None)
        if value is not None:
            table[key] = value
    return table


def batch_join(query: str, **tables: Mapping[str, dict[str, Any]]) -> list[tuple[Any, ...]]:
    """DuckDB's answer over final tables, whose keys are in the column ``id``."""
    connection = duckdb.connect()
    for name, table in tables.items():
        connection.register(name, pa.Table.from_pylist([{"id": key, **row} for key, row in table.items()]))
    return sorted(connection.execute(query).fetchall())
