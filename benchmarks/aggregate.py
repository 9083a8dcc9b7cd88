"""`crossstream bench aggregate`: counts and sums beside Kafka Streams, same machine, data and broker.

1,000,000 orders as JSON under 100,000 keys; for the table, 1,000,000 updates of 250,000 orders that move between
100,000 customers. Runs are measured as in `crossstream bench joins`. Windows are of 60 s, hopping ones begin every
10 s, sessions end after 60 s; a record comes each ms of stream time.

``windows``: each built-in aggregate in each window beside Python functions, without a broker (`aggregate_windows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from benchmarks import aggregate_windows
from benchmarks.aggregate_app import ADVANCE_MS, SIZE_MS, OursAggregated
from benchmarks.arguments import parse
from benchmarks.data import START_MS, customer_messages, updates_of
from benchmarks.fk import PEER_SETTINGS
from benchmarks.generate import Sending, Sent, Topics, create
from benchmarks.joins import LATER, JoinBench, Workload, run
from benchmarks.keyed_data import keyed_orders
from benchmarks.peers.kafka_streams import peer
from benchmarks.waiting import PARTITIONS

SIDES = ("kafka-streams", "kafka-streams-defaults", "crossstream")

WORKLOADS = {
    "count": Workload("count", "inner", 100_000, 1_000_000),
    "tumbling": Workload("tumbling", "inner", 100_000, 1_000_000),
    "hopping": Workload("hopping", "inner", 100_000, 1_000_000),
    "session": Workload("session", "inner", 100_000, 1_000_000),
    "table": Workload("table", "inner", 100_000, 1_000_000, rows=250_000),
    "reduce": Workload("reduce", "inner", 100_000, 1_000_000),
}


class AggregateBench(JoinBench):
    """One workload after the other, each on all sides in turn."""

    def __init__(self, scale: float, port: int, rounds: int, sides: Sequence[str]) -> None:
        super().__init__(scale, port, rounds, sides)
        self.workload = WORKLOADS["count"]
        self.workloads = WORKLOADS

    def side(self, name: str, prefix: str, warm: Topics) -> AbstractContextManager[Any]:
        topics, mode = Topics.of(prefix), self.workload.mode
        if not name.startswith("kafka-streams"):
            _, _, checkout = name.partition("@")
            how = f"{mode}@{checkout}" if checkout else mode
            return OursAggregated(self.servers, prefix, topics, functions=how, warm_up=warm)
        return peer.KafkaStreamsPeer(
            self.servers,
            prefix,
            topics,
            mode=f"aggregate-{mode}",
            warm_up=warm,
            window_ms=SIZE_MS,
            settings={"consumer.isolation.level": "read_committed", **PEER_SETTINGS[name]},
            arguments={"advance-ms": str(ADVANCE_MS)},
        )

    def _send_all(self, sending: Sending, seed: int, ends: tuple[bytes, ...]) -> None:
        newest = self._records(sending, self.workload, seed)
        self._send_ends(sending, newest + 1_000, ends)

    def _records(self, sending: Sending, work: Workload, seed: int) -> int:
        if work.mode == "table":
            moves = updates_of(max(1, int(250_000 * self.scale)), work.left, work.keys, seed)
            sending.orders(moves.messages(LATER))
        else:
            sending.orders(keyed_orders(work.keys, work.left, seed, LATER))
        return LATER + work.left

    def fill(self, prefix: str, work: Workload) -> Sent:
        create(self.servers, Topics.of(prefix), PARTITIONS, append_time=True)
        with Sending(self.servers, prefix) as sending:
            sending.customers(customer_messages(range(1), 1))
            self._send_ends(sending, START_MS, self.ends)
        return self._sent_at(sending, self.ends, START_MS)

    def _send_ends(self, sending: Sending, timestamp: int, ends: tuple[bytes, ...]) -> None:
        sending.orders([[self._order(key, timestamp + 1) for key in ends]])
        self._last = timestamp + 1

    def _sent(self, sending: Sending, ends: tuple[bytes, ...]) -> Sent:
        return self._sent_at(sending, ends, self._last - 1)

    def _sent_at(self, sending: Sending, ends: tuple[bytes, ...], timestamp: int) -> Sent:
        """``timestamp``: that of the ends, less 1."""
        sent = super()._sent(sending, ends)
        keys = frozenset(self._result_key(key, timestamp + 1) for key in ends)
        return Sent(sent.topics, sent.customers, sent.orders, keys, sent.seconds, sent.visible)

    def _result_key(self, key: bytes, timestamp: int) -> bytes:
        """The key of a result that the last record of a key gives."""
        mode = self.workload.mode
        if mode in ("tumbling", "hopping"):
            start = (
                timestamp // SIZE_MS * SIZE_MS if mode == "tumbling" else timestamp // ADVANCE_MS * ADVANCE_MS
            )
            return key + start.to_bytes(8, "big")
        return key + 2 * timestamp.to_bytes(8, "big") if mode == "session" else key


def main(argv: Sequence[str] | None = None) -> int:
    names = (*WORKLOADS, "windows")
    arguments = parse(argv, "aggregate", __doc__, "workloads", names, SIDES, 19692)
    beside_kafka = [name for name in arguments.workloads if name in WORKLOADS]
    if beside_kafka:
        run(AggregateBench, arguments, beside_kafka)
    return aggregate_windows.run(arguments.rounds, arguments.scale) if "windows" in arguments.workloads else 0


if __name__ == "__main__":
    raise SystemExit(main())
