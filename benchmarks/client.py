"""Applications in Python without Spark and without us, run as programs: what the client takes, and a join by hand.

`python-client`: Kafka's Python client and nothing else; every record of the orders is read and written again as it
is. No application in Python that uses this client is much faster. `native-client` does the same with crossstream's
native consumer and producer, which make no Python object for a record. `python-loop`: the shortest join of a stream
and a table that one can write with Kafka's client: the customers in a dict, msgspec for JSON. It follows no table that
changes, and nothing of it survives a crash.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, NoReturn

import msgspec
import numpy as np
import psutil  # type: ignore[import-untyped]
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from benchmarks.generate import Topics, ends_of
from benchmarks.ours import ROOT, Customer, Order
from crossstream.kafka import KafkaConnection
from crossstream.kafka.client import BATCHING, FETCH, Complaints, open_consumer, open_producer
from crossstream.kafka.native.consumer import NativeConsumer
from crossstream.kafka.native.producer import NativeProducer

CLIENT, NATIVE, LOOP = "python-client", "native-client", "python-loop"
WORKS = (CLIENT, NATIVE)
CORES = 2
TAKEN = 10_000

LOOPS = ("stream-table", "stream-global")
"""The joins that are there by hand."""

Result = tuple[bytes, bytes]
"""Key and value."""


class Client:
    """One run of ``work``, one of `WORKS` or `LOOPS`, from the begin of the topics, a process for each core.

    Each process takes some partitions of the orders, and the same of the customers, or all of a global table.
    """

    def __init__(self, work: str, bootstrap: str, topics: Topics, partitions: int) -> None:
        self.words = [work, bootstrap, topics.orders, topics.customers, topics.results]
        self.partitions = [str(partition) for partition in range(partitions)]
        self.whole_table = work == "stream-global"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Client:
        for core in range(CORES):
            orders = self.partitions[core::CORES]
            table = self.partitions if self.whole_table else orders
            words = [*self.words, "--partitions", *orders, "--table-partitions", *table]
            program = [sys.executable, "-m", "benchmarks.client", *words]
            self._processes.append(subprocess.Popen(program, cwd=ROOT))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(process.pid) for process in self._processes]

    def cpu_parts(self) -> dict[str, float]:
        """User and system time so far."""
        times = [process.cpu_times() for process in self.processes()]
        return {"workers": float(sum(time.user + time.system for time in times))}

    def check(self) -> None:
        if any(process.poll() is not None for process in self._processes):
            raise RuntimeError("the client died")


class Joined(msgspec.Struct):
    """A result of the join."""

    item: str
    amount: float
    customer: str
    city: str


class Reading:
    """A consumer of these partitions, from their begin."""

    def __init__(self, bootstrap: str, topic: str, partitions: list[int]) -> None:
        reading = {"group.id": "client", "isolation.level": "read_committed", "enable.auto.commit": False}
        self.consumer = Consumer({"bootstrap.servers": bootstrap, **FETCH, **reading})
        self.partitions = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        self.consumer.assign(self.partitions)

    def records(self, patience: float) -> list[Message]:
        return [message for message in self.consumer.consume(TAKEN, patience) if message.error() is None]

    def until_end(self) -> Iterator[Message]:
        """What is there already."""
        found = zip(self.partitions, ends_of(self.consumer, self.partitions), strict=True)
        ends = {place.partition: end for place, end in found if end}
        while ends:
            yield from self.records(0.1)
            for place in self.consumer.position(self.partitions):
                if place.offset >= ends.get(place.partition, sys.maxsize):
                    del ends[place.partition]


def copy(key: bytes, value: bytes) -> Result:
    return key, value


def join(customers: Iterable[tuple[bytes, bytes]], *, by_key: bool) -> Callable[[bytes, bytes], Result]:
    """Orders with name and city of the customer who is their key, or in their value."""
    customer_of = msgspec.json.Decoder(Customer).decode
    order_of = msgspec.json.Decoder(Order).decode
    encode = msgspec.json.Encoder().encode
    table = {key: customer_of(value) for key, value in customers}

    def joined(key: bytes, value: bytes) -> Result:
        order = order_of(value)
        customer = table[key if by_key else order.customer_id.encode()]
        return key, encode(Joined(order.item, order.amount, customer.name, customer.city))

    return joined


def copy_natively(bootstrap: str, orders: str, results: str, partitions: list[int]) -> NoReturn:
    """Reads and writes until it is killed."""
    connection = KafkaConnection(bootstrap)
    consumer = open_consumer(connection, Complaints())
    producer = open_producer(connection, Complaints())
    if not isinstance(consumer, NativeConsumer) or not isinstance(producer, NativeProducer):
        raise SystemExit("crossstream-native is not installed: make setup")
    consumer.incremental_assign([TopicPartition(orders, number, 0) for number in partitions])
    while True:
        taken = consumer.take(TAKEN, 0.01)
        for run in taken.runs:
            goes = np.full(run.records.num_rows, run.tp.partition, np.int32)
            outgoing = producer.outgoing(results, run.records, goes, None)
            while (refusal := outgoing.send()) is not None:
                if refusal.code() != KafkaError._QUEUE_FULL:
                    raise KafkaException(refusal)
                producer.poll(0.01)
        if taken.runs:
            producer.poll(0)
        else:
            producer.flush(10)


def main() -> None:
    """Reads and writes until it is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=(*WORKS, *LOOPS))
    for name in ("bootstrap", "orders", "customers", "results"):
        parser.add_argument(name)
    parser.add_argument("--partitions", type=int, nargs="+")
    parser.add_argument("--table-partitions", type=int, nargs="+")
    given = parser.parse_args()
    if given.work == NATIVE:
        copy_natively(given.bootstrap, given.orders, given.results, given.partitions)
    result_of: Any = copy
    if given.work != CLIENT:
        customers = Reading(given.bootstrap, given.customers, given.table_partitions).until_end()
        rows: Any = ((row.key(), row.value()) for row in customers)
        result_of = join(rows, by_key=given.work == "stream-table")
    orders = Reading(given.bootstrap, given.orders, given.partitions)
    writing = {"enable.idempotence": True, "acks": "all"}
    producer = Producer({"bootstrap.servers": given.bootstrap, **BATCHING, **writing})
    produce: Any = producer.produce
    while True:
        records = orders.records(0.01)
        for record in records:
            key, value = result_of(record.key(), record.value())
            produce(given.results, value, key, record.partition(), None, None, record.timestamp()[1])
        if records:
            producer.poll(0)
        else:
            producer.flush()


if __name__ == "__main__":
    main()
