"""`crossstream bench formats`: the foreign-key join on Avro in a registry's frame, beside JSON and Kafka Streams.

The records are those of `crossstream bench fk`: as typed JSON, as rows in Avro, and as Debezium's events in Avro, with
expressions. Results have the format of the rows. Kafka Streams reads and writes Avro with Apicurio's serde, its values
are generic records. All share a broker and a registry, and run in turn as in `crossstream bench fk`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import Any

from benchmarks.arguments import parse
from benchmarks.data import START_MS, Ends, Message, customer_messages, updates_of
from benchmarks.fk import PEER_SETTINGS, Bench, Sizes, leaving, machine
from benchmarks.formats_app import OursInFormat
from benchmarks.formats_data import Format
from benchmarks.generate import QUEUED, Sending, Sent, Topics, create, refuse
from benchmarks.peers.kafka_streams import peer
from benchmarks.waiting import PARTITIONS
from crossstream.dev import servers
from crossstream.dev.background import free_port

PEER = "kafka-streams-avro"
SIDES = ("crossstream-json", "crossstream-avro", "crossstream-debezium", PEER)
PAIRS = (
    ("crossstream-avro", "crossstream-json"),
    ("crossstream-avro", PEER),
    ("crossstream-debezium", "crossstream-avro"),
)
"""Sides that are compared, a round at a time."""
MEASURES = ("seconds", "core-seconds of the side", "core-seconds with the broker")


class FormatBench(Bench):
    """One workload, on each side in turn."""

    def __init__(self, sizes: Sizes, port: int, rounds: int, sides: Sequence[str]) -> None:
        super().__init__(sizes, port, rounds, sides)
        self.registry = servers.start_registry(self.info, free_port())
        self.format = "json"
        self.taken: dict[str, list[tuple[float, ...]]] = {side: [] for side in sides}

    def side(self, name: str, prefix: str, warm: Topics) -> AbstractContextManager[Any]:
        topics = Topics.of(prefix)
        if name != PEER:
            functions = name.removeprefix("crossstream-").replace(self.format, f"{self.format}+{self.url}", 1)
            return OursInFormat(self.servers, prefix, topics, functions=functions, warm_up=warm)
        return peer.KafkaStreamsPeer(
            self.servers,
            prefix,
            topics,
            mode="fk-avro",
            warm_up=warm,
            arguments={"registry": f"http://127.0.0.1:{self.registry.port}/apis/registry/v2"},
            settings={"consumer.isolation.level": "read_committed", **PEER_SETTINGS["kafka-streams"]},
        )

    @property
    def url(self) -> str:
        return self.registry.url

    def warm_topics(self) -> Sent:
        """As in `Bench`."""
        prefix, ends, sizes = self.prefix("warm"), Ends.of(PARTITIONS, "warm-end"), self.sizes
        sent = self.fill(prefix, sizes.customers // 4)
        with Sending(self.servers, prefix) as sending:
            updates = updates_of(sizes.warm // 2, sizes.warm, sizes.customers // 4, 1)
            send, topics = partial(self._send, sending), sent.topics
            send(topics.orders, updates.messages(START_MS + sizes.customers))
            send(topics.customers, [ends.customer_messages(START_MS)])
            send(topics.orders, [ends.order_messages(START_MS)])
        return sending.sent(ends)

    def fill(self, prefix: str, customers: int) -> Sent:
        """Makes the topics and sends the customers."""
        ends, topics = Ends.of(PARTITIONS), Topics.of(prefix)
        create(self.servers, topics, PARTITIONS, append_time=True)
        with Sending(self.servers, prefix) as sending:
            self._send(sending, topics.customers, customer_messages(range(customers), 1))
            self._send(sending, topics.customers, [ends.customer_messages(START_MS + customers)])
            self._send(sending, topics.orders, [ends.order_messages(START_MS + customers)])
        return sending.sent(ends)

    def run(self, prefix: str) -> Sent:
        """The updates of orders and the ends, all visible at once."""
        sizes, ends, topics = self.sizes, Ends.of(PARTITIONS), Topics.of(prefix)
        start = START_MS + sizes.customers
        updates = updates_of(sizes.orders, sizes.updates, sizes.customers, 1).messages(start)
        with Sending(self.servers, prefix, at_once=True) as sending:
            self._send(sending, topics.orders, updates)
            self._send(sending, topics.orders, [ends.order_messages(start + sizes.updates)])
        return sending.sent(ends)

    def _send(self, sending: Sending, topic: str, chunks: Iterable[list[Message]]) -> None:
        form = Format(self.format, sending.topics, self.url, PARTITIONS)
        produce = sending.producer.produce
        for records in form.records(topic, chunks):
            for partition, key, value, timestamp in records:
                produce(topic, value, key, partition, on_delivery=refuse, timestamp=timestamp)
            sending.counts[topic] += len(records)
            sending.producer.poll(0)
            while len(sending.producer) > QUEUED:
                sending.producer.poll(0.05)

    def left_updates(self) -> None:
        """Left updates per second, and core-seconds per million of them."""
        for side in self.turns():
            self.format = "avro" if side == PEER else side.partition("@")[0].removeprefix("crossstream-")
            prefix = self.prefix("formats")
            running, manager = self.caught_up(prefix, partial(self.fill, prefix, self.sizes.customers), side)
            with leaving(manager):
                time.sleep(2)
                took = self.timed(running, partial(self.run, prefix), Topics.of(prefix).results)
            self.note("left updates per second", side, self.sizes.updates / took["seconds"], **took)
            million = 1_000_000 / self.sizes.updates
            cores = (took["side_cpu"] + took["broker_cpu"]) * million
            self.note("core-seconds per million left updates", side, cores)
            if not self._for_nothing:
                self.taken[side].append((took["seconds"], took["side_cpu"], cores))

    def compare(self) -> None:
        """How many times as fast a side is as another, and with how little of a processor: the median of the rounds."""
        for side, other in PAIRS:
            pairs = list(zip(self.taken.get(side, ()), self.taken.get(other, ()), strict=False))
            for at, measure in enumerate(MEASURES):
                if times := [theirs[at] / ours[at] for ours, theirs in pairs]:
                    low, high = min(times), max(times)
                    self.note(
                        f"times as fast as {other}, by {measure}",
                        side,
                        statistics.median(times),
                        lowest=low,
                        highest=high,
                    )

    def close(self) -> None:
        servers.stop_companions(self.info.port)
        super().close()


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv, "formats", __doc__, "figures", ("left",), SIDES, 19692)
    scale = arguments.scale
    full = Sizes()
    sizes = Sizes(
        *(max(1, int(number * scale)) for number in (full.customers, full.orders, full.updates, full.warm))
    )
    print(json.dumps(machine()), flush=True)
    with closing(FormatBench(sizes, arguments.port, arguments.rounds, arguments.sides)) as bench:
        bench.left_updates()
        bench.compare()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
