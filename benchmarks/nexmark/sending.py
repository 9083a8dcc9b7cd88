"""Events as records: keys are ids (of a bid: that of its auction), values JSON, timestamps the times of the events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import polars as pl
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.data import Message
from benchmarks.generate import PATIENCE, Sending, ends_of
from benchmarks.nexmark.events import START_MS, Events, closers, side_input
from benchmarks.nexmark.topics import PARTITIONS, SIDE_INPUT, TABLES, Topics

KEYS = {"person": "id", "auction": "id", "bid": "auction", SIDE_INPUT: "key"}
CHUNK_MS = 2_000
"""Milliseconds of events that are sent of one table before the next one's turn."""


def create(servers: str, topics: Topics, query: str) -> None:
    """New topics, for the events and for the results, which the broker stamps as it appends them."""
    kept = {"retention.ms": "-1"}
    stamped = {**kept, "message.timestamp.type": "LogAppendTime"}
    new = [NewTopic(topics.input(table), PARTITIONS, 1, config=kept) for table in (*TABLES, SIDE_INPUT)]
    new.append(NewTopic(topics.result(query), PARTITIONS, 1, config=stamped))
    admin = AdminClient({"bootstrap.servers": servers})  # kept: with it the requests end
    for made in admin.create_topics(new).values():
        made.result()
    _wait_until_led(
        servers, [TopicPartition(topic.topic, number) for topic in new for number in range(PARTITIONS)]
    )


def _wait_until_led(servers: str, places: list[TopicPartition]) -> None:
    """The broker makes a topic first, and leads its partitions a moment later."""
    with closing(Consumer({"bootstrap.servers": servers, "group.id": "ends"})) as consumer:
        ends_in_time(consumer, places)


def ends_in_time(consumer: Consumer, places: list[TopicPartition]) -> list[int]:
    """The ends of partitions; while the broker does not lead them, as a busy one does for seconds, it waits."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return ends_of(consumer, places)
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def send_side_input(servers: str, topics: Topics) -> None:
    """The bounded table of q13, which is there before the events."""
    with Sending(servers, topics.prefix) as sending:
        sending.send(topics.side_input, [messages(SIDE_INPUT, side_input())])


def send(servers: str, topics: Topics, events: Events, at_once: bool = False) -> float:
    """Sends events, then the closers, and returns the time from which all can be read, in seconds.

    ``at_once``: in a transaction, before whose end none can be read.
    """
    with Sending(servers, topics.prefix, at_once) as sending:
        for table, chunk in chunks(events.and_then(closers())):
            sending.send(topics.input(table), [messages(table, chunk)])
    return sending.visible


def chunks(events: Events) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of all tables side by side, in order of time."""
    parts = {
        table: rows.with_columns(chunk=(pl.col("dateTime") - START_MS) // CHUNK_MS).partition_by(
            "chunk", as_dict=True, include_key=False
        )
        for table, rows in events.tables()
    }
    for number in sorted({number for part in parts.values() for number in part}):
        for table, part in parts.items():
            if number in part:
                yield table, part[number]


def lines(rows: pl.DataFrame) -> pl.Series:
    """Rows as JSON."""
    return rows.select(pl.struct(pl.all()).struct.json_encode()).to_series()


def messages(table: str, rows: pl.DataFrame) -> list[Message]:
    """Rows of a table as records."""
    keys = rows[KEYS[table]].cast(pl.String).cast(pl.Binary)
    times = rows["dateTime"] if "dateTime" in rows.columns else [START_MS] * len(rows)
    return list(zip(keys, lines(rows).cast(pl.Binary), times, strict=True))
