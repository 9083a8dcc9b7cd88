"""5,000 records a second through joins, aggregations and a suppression, exactly once: nothing grows, nothing is lost.

SOAK_MINUTES=60 makes it long, SOAK_RATE changes the records a second. A run of less than two minutes looks at the
results alone: a quarter of it is a few batches, in which caches still fill and the backlog of the start is read.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from crossstream.dev.broker import BrokerInfo
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.topics import OffsetRange, TopicPartition
from tests.faults.lives import launched
from tests.kafka.fixtures import delete

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(3 * 3600)]

MINUTES = float(os.environ.get("SOAK_MINUTES", "3"))
LONG_ENOUGH = 2.0
"""Minutes from which on the quarters of a run show whether anything grows."""
RATE = int(os.environ.get("SOAK_RATE", "5000"))
CUSTOMERS, ORDERS = 1_000, 50_000
INPUTS = ("customers", "orders", "views", "clicks")
RESULTS = ("named", "enriched", "visits", "counts", "totals")
PARTITIONS = 2
TICK = 0.05


@dataclass
class Feed:
    """Writes at an even rate: 40 % orders, 30 % views and 30 % clicks, and a customer now and then."""

    servers: str
    prefix: str
    orders: int = 0
    clicks: int = 0
    amounts: dict[int, tuple[int, int]] = field(default_factory=dict)
    behind: float = 0.0

    def begin(self) -> None:
        """Writes the customers."""
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        for customer in range(CUSTOMERS):
            self._send(producer, "customers", f"c{customer}", {"name": f"name {customer}"})
        producer.flush()

    def run(self, seconds: float) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 20})
        began, ticks = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            ticks += 1
            self._tick(producer, round(RATE * TICK), ticks)
            producer.poll(0)
            ahead = began + ticks * TICK - time.monotonic()
            self.behind = max(self.behind, -ahead)
            if ahead > 0:
                time.sleep(ahead)
        producer.flush()

    def close(self) -> None:
        """Records that come later end the windows of all others: some for each state partition."""
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        later = round(time.time() * 1000) + 60_000
        for topic in ("views", "clicks"):
            for number in range(20):
                producer.produce(self.prefix + topic, b'{"id":-1}', b"end %d" % number, timestamp=later)
        producer.flush()

    def _tick(self, producer: Producer, records: int, ticks: int) -> None:
        for _ in range(records * 4 // 10):
            id = self.orders
            self.orders += 1
            order, customer, amount = id * 7919 % ORDERS, id * 31 % CUSTOMERS, id % 100
            self.amounts[order] = customer, amount
            self._send(
                producer, "orders", f"o{order}", {"id": id, "customer_id": f"c{customer}", "amount": amount}
            )
        for _ in range(records * 3 // 10):
            id = self.clicks
            self.clicks += 1
            for topic in ("views", "clicks"):
                self._send(producer, topic, f"c{id * 17 % CUSTOMERS}", {"id": id})
        if ticks % 20 == 0:
            customer = ticks // 20 % CUSTOMERS
            self._send(producer, "customers", f"c{customer}", {"name": f"name {customer} at {ticks}"})

    def _send(self, producer: Producer, topic: str, key: str, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        while True:
            try:
                producer.produce(self.prefix + topic, data, key.encode())
                return
            except BufferError:
                producer.poll(0.1)


@dataclass
class Sample:
    driver: int
    workers: int
    jvm: int
    files: int


def test_an_hour_at_an_even_rate(
    broker_info: BrokerInfo, log: KafkaLog, reader: KafkaReader, tmp_path: Path
) -> None:
    servers, prefix = broker_info.bootstrap_servers, f"soak-{os.getpid()}-"
    for topic in (*INPUTS, *RESULTS):
        log.create_topic(prefix + topic, PARTITIONS)
    feed, state = Feed(servers, prefix), tmp_path / "state"
    batches: list[dict[str, Any]] = []
    samples: list[Sample] = []
    feed.begin()
    command = [sys.executable, "-m", "tests.end_to_end.soak_app", servers, prefix, str(state)]
    with launched(command, tmp_path / "log") as process:

        def read() -> None:
            assert process.stdout is not None
            batches.extend(map(json.loads, process.stdout))

        threading.Thread(target=read, daemon=True).start()
        until = time.monotonic() + 180
        while not batches:
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < until
            time.sleep(0.2)
        writing = threading.Thread(target=feed.run, args=[MINUTES * 60])
        writing.start()
        while writing.is_alive():
            writing.join(5)
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
            samples.append(sample(process.pid, state))
        feed.close()
        written = sum(ends(log, prefix, INPUTS).values())
        until = time.monotonic() + 180
        while sum(batch["rows"] for batch in batches) < written:
            assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
            assert time.monotonic() < until, (batches[-1:], written)
            time.sleep(0.5)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
    print(f"{feed.orders} orders, {feed.clicks} views and clicks, at most {feed.behind:.1f} s late")
    check_results(feed, log, reader, prefix)
    if MINUTES >= LONG_ENOUGH:
        report(batches, samples)
        check_flat(batches, samples)
    else:
        print(f"too short to see whether anything grows: that takes SOAK_MINUTES={LONG_ENOUGH:g}")
    for topic in (*INPUTS, *RESULTS):
        delete(servers, prefix + topic)


def sample(pid: int, state: Path) -> Sample:
    found = Sample(0, 0, 0, sum(len(files) for _, _, files in os.walk(state)))
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        try:
            name, bytes = process.name(), process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        part = "driver" if process.pid == pid else "jvm" if "java" in name else "workers"
        setattr(found, part, getattr(found, part) + bytes)
    return found


def ends(log: KafkaLog, prefix: str, topics: tuple[str, ...]) -> dict[TopicPartition, int]:
    return log.end_offsets([TopicPartition(prefix + t, p) for t in topics for p in range(PARTITIONS)])


def report(batches: list[dict[str, Any]], samples: list[Sample]) -> None:
    for name, quarter in (("second quarter", 1), ("last quarter", 3)):
        times = [batch["seconds"] for batch in quarter_of(batches, quarter)]
        middle = {
            part: median(getattr(one, part) for one in quarter_of(samples, quarter))
            for part in vars(samples[0])
        }
        print(
            f"{name}: {len(times)} batches, median {median(times):.2f} s, longest {max(times):.2f} s, {middle}"
        )


def quarter_of(items: list[Any], quarter: int) -> list[Any]:
    size = len(items) // 4
    return items[quarter * size : (quarter + 1) * size]


def check_flat(batches: list[dict[str, Any]], samples: list[Sample]) -> None:
    """The last quarter beside the second: what fills in the first minutes is full then."""
    before, after = quarter_of(samples, 1), quarter_of(samples, 3)
    for part in ("driver", "workers", "jvm"):
        first, last = (median(getattr(one, part) for one in some) for some in (before, after))
        assert last < first * 1.15 + (50 << 20), (part, first, last)
    assert max(one.files for one in after) < 1.5 * max(one.files for one in before) + 50
    first, last = (median(one["seconds"] for one in quarter_of(batches, quarter)) for quarter in (1, 3))
    assert last < 2 * first, (first, last)


def check_results(feed: Feed, log: KafkaLog, reader: KafkaReader, prefix: str) -> None:
    """What readers of committed records see: each click once, in its order; each pair once; right counts and sums."""
    clicks = pl.Series(range(feed.clicks))
    found = results(log, reader, prefix, "enriched")
    ids = found["value"].str.json_path_match("$.id").cast(pl.Int64)
    assert ids.filter(ids >= 0).sort().equals(clicks, check_names=False)
    pairs = results(log, reader, prefix, "visits")["value"]
    made = pl.DataFrame(
        {name: pairs.str.json_path_match(f"$.{name}").cast(pl.Int64) for name in ("view", "click")}
    ).filter(pl.col("view") >= 0)
    assert made.is_unique().all()
    assert made.filter(pl.col("view") == pl.col("click")).height == feed.clicks
    counts = log_values(log, reader, prefix, "counts")
    assert int(counts["value"].sum()) == feed.clicks
    totals = log_values(log, reader, prefix, "totals")
    last = dict(zip(totals["key"].to_list(), totals["value"].to_list(), strict=True))
    expected: dict[bytes, int] = dict.fromkeys((b"c%d" % c for c in range(CUSTOMERS)), 0)
    for customer, amount in feed.amounts.values():
        expected[b"c%d" % customer] += amount
    assert {key: last.get(key, 0) for key in expected} == expected
    named = results(log, reader, prefix, "named")
    assert named["key"].n_unique() == min(ORDERS, feed.orders)


def log_values(log: KafkaLog, reader: KafkaReader, prefix: str, topic: str) -> pl.DataFrame:
    """Records with numbers of 8 bytes."""
    found = read_all(log, reader, prefix + topic)
    numbers = [int.from_bytes(value, "big", signed=True) for value in found.column("value").to_pylist()]
    return pl.DataFrame({"key": found.column("key").to_pylist(), "value": numbers})


def results(log: KafkaLog, reader: KafkaReader, prefix: str, topic: str) -> pl.DataFrame:
    """Records with values in JSON."""
    found = read_all(log, reader, prefix + topic).drop_null()
    return pl.DataFrame(
        {"key": found.column("key").to_pylist(), "value": found.column("value").cast(pa.string()).to_pylist()}
    )


def read_all(log: KafkaLog, reader: KafkaReader, topic: str) -> pa.Table:
    owners = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    last = log.end_offsets(owners)
    spans = [OffsetRange(topic, owner.partition, 0, last[owner]) for owner in owners]
    return pa.Table.from_batches(
        batch.select(["key", "value"]) for span in spans for batch in reader.read(span, 50_000)
    )
