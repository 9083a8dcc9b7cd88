"""`crossstream bench joins`: the joins of tables and streams beside Kafka Streams, same machine, data and broker.

Both sides are warmed up by a first pass over other topics of the same size, which ends before anything is measured.
Then the records of a run become visible at once (a transaction) and the clock runs until the last results can be read.
Sides alternate; the very first run is not counted, for the broker is cold then.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from benchmarks.arguments import parse
from benchmarks.client import CLIENT, LOOP, LOOPS, NATIVE, Client
from benchmarks.data import START_MS, Ends, customer_messages, order_value
from benchmarks.fk import PEER_SETTINGS, SIDES, Bench, Sizes, leaving, machine
from benchmarks.generate import Sending, Sent, Topics, create
from benchmarks.joins_app import OursJoined
from benchmarks.keyed_data import keyed_customers, keyed_orders
from benchmarks.peers.kafka_streams import peer
from benchmarks.waiting import PARTITIONS

LATER = START_MS + 86_400_000
BEATS = 32
"""Last records of a join of streams: so many that one comes to every partition of either side, and closes windows."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A join (``mode``, ``type``) of orders and customers with these keys; records of a run, and rows there before."""

    mode: str
    type: str
    keys: int
    left: int
    right: int = 0
    rows: int = 0

    def scaled(self, scale: float) -> Workload:
        """Less of everything; but as many keys in a join of streams, where they say how many partners there are."""
        names = (
            ("left", "right", "rows") if self.mode == "stream-stream" else ("keys", "left", "right", "rows")
        )
        less: dict[str, Any] = {name: int(getattr(self, name) * scale) for name in names}
        return replace(self, **less)

    def how(self, style: str) -> str:
        return f"{self.mode}/{self.type}/{style}"


WORKLOADS = {
    "table-table": Workload("table-table", "inner", 250_000, 500_000, 500_000),
    "stream-stream": Workload("stream-stream", "inner", 100_000, 1_000_000, 1_000_000),
    "stream-stream-left": Workload("stream-stream", "left", 100_000, 1_000_000, 1_000_000),
    "stream-table": Workload("stream-table", "inner", 100_000, 1_000_000, rows=100_000),
    "stream-global": Workload("stream-global", "inner", 100_000, 1_000_000, rows=100_000),
}


class JoinBench(Bench):
    """One workload after the other, each on both sides in turn."""

    cold = frozenset({CLIENT, NATIVE, LOOP})

    def __init__(self, scale: float, port: int, rounds: int, sides: Sequence[str]) -> None:
        super().__init__(Sizes(), port, rounds, sides)
        self.scale = scale
        self.ends = Ends.of(PARTITIONS).customers
        self.workloads = WORKLOADS
        self.workload = WORKLOADS["table-table"]

    def side(self, name: str, prefix: str, warm: Topics) -> AbstractContextManager[Any]:
        topics, work = Topics.of(prefix), self.workload
        if name in self.cold:
            return Client(work.mode if name == LOOP else name, self.servers, topics, PARTITIONS)
        if not name.startswith("kafka-streams"):
            how = work.how(name.removeprefix("crossstream-"))
            return OursJoined(self.servers, prefix, topics, functions=how, warm_up=warm)
        return peer.KafkaStreamsPeer(
            self.servers,
            prefix,
            topics,
            mode=work.mode,
            type=work.type,
            warm_up=warm,
            settings={"consumer.isolation.level": "read_committed", **PEER_SETTINGS[name]},
        )

    def warm_topics(self) -> Sent:
        """Topics to warm up with. The ends have keys of their own: their results come when all others have."""
        prefix, ends = self.prefix("warm"), Ends.of(PARTITIONS, "warm-end").customers
        self.fill(prefix, self.workload)
        with Sending(self.servers, prefix) as sending:
            self._send_all(sending, 1, ends)
        return self._sent(sending, ends)

    def measure(self, name: str) -> None:
        """Records of both sides per second, and core-seconds per million of them."""
        self.workload = self.workloads[name].scaled(self.scale)
        count = self.workload.left + self.workload.right
        for side in self.turns(without=() if name in LOOPS else self.cold):
            prefix = self.prefix(name)
            fill = partial(self.fill, prefix, self.workload)
            running, manager = self.caught_up(prefix, fill, side)
            with leaving(manager):
                time.sleep(2)
                took = self.timed(running, partial(self.run, prefix), Topics.of(prefix).results)
            self.note(f"{name}: inputs per second", side, count / took["seconds"], **took)
            cores = (took["side_cpu"] + took["broker_cpu"]) * 1_000_000 / count
            self.note(f"{name}: core-seconds per million inputs", side, cores)

    def fill(self, prefix: str, work: Workload) -> Sent:
        """Makes the topics and sends the rows there are before, and the ends of both sides."""
        create(self.servers, Topics.of(prefix), PARTITIONS, append_time=True)
        with Sending(self.servers, prefix) as sending:
            sending.customers(customer_messages(range(work.rows), 1))
            self._send_ends(sending, START_MS + work.rows, self.ends)
        return self._sent(sending, self.ends)

    def run(self, prefix: str) -> Sent:
        """The records of a run and the ends, all visible at once."""
        with Sending(self.servers, prefix, at_once=True) as sending:
            self._send_all(sending, 2, self.ends)
        return self._sent(sending, self.ends)

    def _send_all(self, sending: Sending, seed: int, ends: tuple[bytes, ...]) -> None:
        """Records of both sides, then the ends with these keys."""
        newest = self._records(sending, self.workload, seed)
        self._send_ends(sending, newest + 1_000, ends)
        if self.workload.mode == "stream-stream":
            sending.orders([[self._order(b"beat-%d" % n, newest + 60_000) for n in range(BEATS)]])

    def _records(self, sending: Sending, work: Workload, seed: int) -> int:
        """Both sides side by side; returns the newest timestamp."""
        orders = keyed_orders(work.keys, work.left, seed, LATER)
        customers = keyed_customers(work.keys, work.right, seed, LATER)
        for left, right in zip_longest(orders, customers):
            sending.orders([left or []])
            sending.customers([right or []])
        return LATER + max(work.left, work.right)

    def _send_ends(self, sending: Sending, timestamp: int, ends: tuple[bytes, ...]) -> None:
        rows = Ends(ends, ()).customer_messages(timestamp)
        sending.customers([rows])
        sending.orders([[self._order(key, timestamp + 1) for key in ends]])

    @staticmethod
    def _order(key: bytes, timestamp: int) -> tuple[bytes, bytes, int]:
        return key, order_value(key, 0, 1, 100, 0), timestamp

    def _sent(self, sending: Sending, ends: tuple[bytes, ...]) -> Sent:
        seconds = time.monotonic() - sending.began
        return Sent(sending.topics, 0, 0, frozenset(ends), seconds, sending.visible)


def run(bench: type[JoinBench], arguments: Namespace, names: Sequence[str]) -> int:
    """Measures the workloads that are named."""
    print(json.dumps(machine()), flush=True)
    with closing(bench(arguments.scale, arguments.port, arguments.rounds, arguments.sides)) as running:
        for name in names:
            running.measure(name)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv, "joins", __doc__, "joins", tuple(WORKLOADS), SIDES, 19592)
    return run(JoinBench, arguments, arguments.joins)


if __name__ == "__main__":
    raise SystemExit(main())
