"""Benchmark data into Kafka.

    produce_fk("localhost:9092", "run1")    # fills run1-customers and run1-orders, makes run1-results

The same arguments give the same records. Everything goes through one idempotent producer, so each partition
has its records in order, and keys are in Kafka's default partitions (murmur2).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from types import TracebackType
from typing import final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.data import START_MS, Ends, Message, customer_messages, subscribers_of, updates_of

PRODUCER = {
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 50,
    "batch.size": 262_144,
    "batch.num.messages": 10_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 524_288,
    "delivery.report.only.error": True,
}
QUEUED = 200_000
"""Records that may wait in the producer before the next chunk is made."""
PATIENCE = 120
"""Seconds for the broker to take what is left at the end."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one run."""

    orders: str
    customers: str
    results: str

    @classmethod
    def of(cls, prefix: str) -> Topics:
        return cls(f"{prefix}-orders", f"{prefix}-customers", f"{prefix}-results")

    @property
    def prefix(self) -> str:
        """What the names of the run's topics begin with."""
        return self.orders.removesuffix("-orders")


@dataclass(frozen=True, slots=True)
class Sent:
    """What went into the topics.

    ``ends``: the keys of the last results, one each per call that sent ends. ``seconds``: what it took.
    ``visible``: `time.time()` when all could be read; with ``at_once``, none could be read before.
    """

    topics: Topics
    customers: int
    orders: int
    ends: frozenset[bytes]
    seconds: float
    visible: float


def produce_fk(
    bootstrap: str,
    prefix: str,
    customers: int = 100_000,
    orders: int = 500_000,
    updates: int = 1_000_000,
    partitions: int = 4,
    seed: int = 1,
) -> Sent:
    """Makes the topics and fills them: all customers, then ``updates`` of ``orders``, then the ends.

    10 % of an order's later updates move it to another customer, 1 % of all updates are tombstones.
    """
    first = produce_customers(bootstrap, prefix, customers, partitions, seed)
    then = produce_orders(bootstrap, prefix, customers, orders, updates, partitions, seed)
    return replace(then, customers=customers, seconds=first.seconds + then.seconds)


def produce_customers(
    bootstrap: str,
    prefix: str,
    customers: int = 100_000,
    partitions: int = 4,
    seed: int = 1,
    append_time: bool = False,
) -> Sent:
    """Makes the topics and sends all customers, then ends: their results tell that the customers are in."""
    ends = Ends.of(partitions)
    create(bootstrap, Topics.of(prefix), partitions, append_time)
    with Sending(bootstrap, prefix) as sending:
        sending.customers(customer_messages(range(customers), seed))
        sending.customers([ends.customer_messages(START_MS)])
        sending.orders([ends.order_messages(START_MS + customers)])
    return sending.sent(ends)


def produce_orders(
    bootstrap: str,
    prefix: str,
    customers: int = 100_000,
    orders: int = 500_000,
    updates: int = 1_000_000,
    partitions: int = 4,
    seed: int = 1,
    at_once: bool = False,
) -> Sent:
    """Sends the updates of orders, then ends, to topics that `produce_customers` has made.

    ``at_once``: in a transaction. When it returns, all can be read, and before its end none could be; so a
    measurement can begin there, with the generator at rest.
    """
    ends = Ends.of(partitions)
    with Sending(bootstrap, prefix, at_once) as sending:
        sending.orders(updates_of(orders, updates, customers, seed).messages(START_MS + customers))
        sending.orders([ends.order_messages(START_MS + customers + updates)])
    return sending.sent(ends)


def produce_subscribers(
    bootstrap: str,
    prefix: str,
    customers: int = 1_000,
    subscribers: int = 1_000,
    partitions: int = 4,
    seed: int = 1,
    append_time: bool = False,
) -> Sent:
    """Makes the topics and fills them: customers with ``subscribers`` orders each, for `change_customers`."""
    ends, orders = Ends.of(partitions), customers * subscribers
    updates = subscribers_of(customers, subscribers, seed)
    create(bootstrap, Topics.of(prefix), partitions, append_time)
    with Sending(bootstrap, prefix) as sending:
        sending.customers(customer_messages(range(customers), seed))
        sending.customers([ends.customer_messages(START_MS)])
        sending.orders(updates.messages(START_MS + customers))
        sending.orders([ends.order_messages(START_MS + customers + orders)])
    return sending.sent(ends)


def change_customers(
    bootstrap: str,
    prefix: str,
    customers: int = 1_000,
    start_ms: int = START_MS + 86_400_000,
    partitions: int = 4,
    seed: int = 2,
) -> Sent:
    """One new row for each customer, then for the ends: they appear once more when all results are out."""
    ends = Ends.of(partitions)
    with Sending(bootstrap, prefix, at_once=True) as sending:
        sending.customers(customer_messages(range(customers), seed, start_ms))
        sending.customers([ends.customer_messages(start_ms + customers)])
    return sending.sent(ends)


def produce_paced(
    bootstrap: str,
    prefix: str,
    rate: int,
    seconds: float,
    customers: int = 100_000,
    orders: int = 500_000,
    seed: int = 3,
) -> Sent:
    """Updates of orders at ``rate`` records a second into topics that exist, stamped with the send time.

    Records go out every 5 ms; if the machine cannot keep up, fewer than ``rate`` do. No ends.
    """
    chunks = updates_of(orders, round(rate * seconds), customers, seed).messages(0)
    messages = [message for chunk in chunks for message in chunk]
    with Sending(bootstrap, prefix, settings={"linger.ms": 0, "compression.type": "none"}) as sending:
        started, sent = time.monotonic(), 0
        while sent < len(messages):
            due = min(round((time.monotonic() - started) * rate), len(messages))
            now = round(time.time() * 1000)
            sending.orders([[(key, value, now) for key, value, _ in messages[sent:due]]])
            sent = due
            time.sleep(0.005)
    return sending.sent()


# -- producing


def create(bootstrap: str, topics: Topics, partitions: int, append_time: bool = False) -> None:
    """New topics that nothing is deleted from: the timestamps are in the past.

    ``append_time``: results are stamped by the broker as it appends them.
    """
    create_more(bootstrap, (topics.orders, topics.customers), partitions)
    create_more(bootstrap, (topics.results,), partitions, append_time)


def create_more(bootstrap: str, topics: Sequence[str], partitions: int, append_time: bool = False) -> None:
    """Topics as `create` makes them; ``append_time``: all are stamped by the broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"retention.ms": "-1"}
    if append_time:
        config["message.timestamp.type"] = "LogAppendTime"
    new = [NewTopic(name, partitions, 1, config=config) for name in topics]
    for made in admin.create_topics(new).values():
        made.result()


@final
class Sending:
    """One producer for both topics of a run; leaving the block delivers everything, or raises."""

    def __init__(
        self, bootstrap: str, prefix: str, at_once: bool = False, settings: Mapping[str, object] | None = None
    ) -> None:
        own = {"transactional.id": f"{prefix}-generator"} if at_once else {}
        self.servers = bootstrap
        self.producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER, **own, **(settings or {})})
        self.topics = Topics.of(prefix)
        self.at_once = at_once
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Sending:
        self.began = time.monotonic()
        if self.at_once:
            self.producer.init_transactions(PATIENCE)
            self.producer.begin_transaction()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.producer.purge()
            return
        left = self.producer.flush(PATIENCE)
        if left:
            raise RuntimeError(f"{left} records were not delivered within {PATIENCE} s")
        if self.at_once:
            self.producer.commit_transaction(PATIENCE)
            self._wait_until_all_can_be_read()
        self.visible = time.time()

    def _wait_until_all_can_be_read(self) -> None:
        """The broker ends a transaction in one partition after the other, when it has told us already that it is."""
        until = time.monotonic() + PATIENCE
        common = {"bootstrap.servers": self.servers, "group.id": "ends"}
        with (
            closing(Consumer({**common, "isolation.level": "read_uncommitted"})) as of_all,
            closing(Consumer({**common, "isolation.level": "read_committed"})) as of_committed,
        ):
            found = of_all.list_topics(timeout=10).topics
            places = [
                TopicPartition(topic, number) for topic in self.counts for number in found[topic].partitions
            ]
            while ends_of(of_all, places) != ends_of(of_committed, places):
                if time.monotonic() > until:
                    raise RuntimeError(f"the transaction did not end within {PATIENCE} s")

    def customers(self, chunks: Iterable[list[Message]]) -> None:
        self.send(self.topics.customers, chunks)

    def orders(self, chunks: Iterable[list[Message]]) -> None:
        self.send(self.topics.orders, chunks)

    def send(self, topic: str, chunks: Iterable[list[Message]]) -> None:
        produce = self.producer.produce  # produce_batch takes no timestamps
        for chunk in chunks:
            for key, value, timestamp in chunk:
                produce(topic, value, key, on_delivery=refuse, timestamp=timestamp)
            self.counts[topic] += len(chunk)
            self.producer.poll(0)
            while len(self.producer) > QUEUED:
                self.producer.poll(0.05)

    def sent(self, ends: Ends | None = None) -> Sent:
        return Sent(
            self.topics,
            self.counts[self.topics.customers],
            self.counts[self.topics.orders],
            ends.keys if ends else frozenset(),
            time.monotonic() - self.began,
            self.visible,
        )


def ends_of(consumer: Consumer, places: Iterable[TopicPartition]) -> list[int]:
    """The ends of partitions, as the consumer's isolation lets it see them."""
    return [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]


def refuse(error: KafkaError | None, _message: object) -> None:
    if error is not None:
        raise RuntimeError(f"a record was not delivered: {error}")
