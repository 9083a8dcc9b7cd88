"""`crossstream bench fk`: the foreign-key join beside Flink and Kafka Streams, same machine, data and broker, in turn.

All sides are warmed up by a first pass over other topics of the same shape, which ends before anything is measured.
Then the records of a run become visible at once (a transaction) and the clock runs until the last results can be read.
Sides alternate; the very first run is not counted, for the broker is cold then. The results of left and fan-out are
compared, whole tables, after the clock. dbsp gets the same records from memory: see `benchmarks.peers.dbsp`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks import fk_results
from benchmarks.arguments import parse
from benchmarks.data import START_MS, Ends
from benchmarks.generate import (
    Sending,
    Sent,
    Topics,
    change_customers,
    produce_customers,
    produce_fk,
    produce_orders,
    produce_paced,
    produce_subscribers,
)
from benchmarks.ours import Ours
from benchmarks.peers import dbsp
from benchmarks.peers.flink import fk as flink_fk
from benchmarks.peers.flink import peer as flink
from benchmarks.peers.kafka_streams import peer
from benchmarks.waiting import PARTITIONS, Waiting, Watch
from crossstream.dev import broker

SIDES = ("kafka-streams", "crossstream-expressions", "crossstream-callables")
SPREAD = "-spread"
"""Ends the name of a side of ours that spreads small batches, too, over all tasks."""
ONCE = "-once"
"""Ends the name of a side that writes its results exactly once."""
WATCHED = "-watched"
"""Ends the name of a side whose page is open, and whose numbers are asked for."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything; the full sizes are those of the published figures."""

    customers: int = 100_000
    orders: int = 500_000
    updates: int = 1_000_000
    warm: int = 600_000
    wide: int = 1_000
    subscribers: int = 1_000
    rate: int = 10_000
    seconds: int = 60
    warm_seconds: int = 30


PEER_SETTINGS: dict[str, dict[str, object]] = {
    "kafka-streams": {},
    "kafka-streams-defaults": {
        "topology.optimization": "none",
        "commit.interval.ms": 30_000,
        "producer.batch.size": 16_384,
        "producer.compression.type": "none",
    },
    "kafka-streams-once": {"processing.guarantee": "exactly_once_v2"},
}
"""Kafka Streams as fast as we can make it, and as it comes (but for the record cache and the threads)."""


class Bench:
    """One broker, and runs against it. ``cold``: sides that nothing is there to warm up of."""

    cold: frozenset[str] = frozenset()

    def __init__(self, sizes: Sizes, port: int, rounds: int, sides: Sequence[str]) -> None:
        self.sizes = sizes
        self.rounds = rounds
        self.sides = sides
        self.info = broker.start(port, Path(tempfile.mkdtemp(prefix="crossstream-bench-broker-")))
        self.servers = self.info.bootstrap_servers
        self.stamp = f"{int(time.time()) % 1_000_000}"
        self.results: list[dict[str, Any]] = []
        self.folder = Path(tempfile.mkdtemp(prefix="crossstream-bench-records-"))
        self._runs = 0
        self._broker_is_warm, self._for_nothing = False, False

    def turns(self, without: Collection[str] = ()) -> Iterator[str]:
        """The sides in turn, ``rounds`` times, but for some.

        Before the first of all, the first one runs once for nothing: in its first run the broker, a JVM like
        any other, takes two or three times the processor time.
        """
        sides = [side for side in self.sides if side not in without]
        through_broker = [side for side in sides if side not in dbsp.SIDES]
        if through_broker and not self._broker_is_warm:
            self._for_nothing = True
            yield through_broker[0]
            self._broker_is_warm, self._for_nothing = True, False
        for _ in range(self.rounds):
            yield from sides

    def prefix(self, name: str) -> str:
        self._runs += 1
        return f"{name}-{self.stamp}-{self._runs}"

    def side(self, name: str, prefix: str, warm: Topics) -> AbstractContextManager[Any]:
        topics = Topics.of(prefix)
        if name.startswith("kafka-streams"):
            return peer.KafkaStreamsPeer(
                self.servers,
                prefix,
                topics,
                warm_up=warm,
                settings={"consumer.isolation.level": "read_committed", **PEER_SETTINGS[name]},
            )
        if name.startswith("flink-"):
            return flink.side(name, flink_fk.statements(self.servers, topics, warm))
        return Ours(
            self.servers,
            prefix,
            topics,
            functions=name.removeprefix("crossstream-")
            .removesuffix(SPREAD)
            .removesuffix(ONCE)
            .removesuffix(WATCHED),
            warm_up=warm,
            guarantee="exactly_once" if name.endswith(ONCE) else "at_least_once",
            watched=name.endswith(WATCHED),
            single_task_rows=0 if name.endswith(SPREAD) else None,
        )

    def broker_cpu(self) -> float:
        times = psutil.Process(self.info.pid).cpu_times()
        return float(times.user + times.system)

    def warm_topics(self) -> Sent:
        """Topics to warm up with. The ends have keys of their own: their results come when all others have."""
        prefix, ends = self.prefix("warm"), Ends.of(PARTITIONS, "warm-end")
        produce_fk(
            self.servers, prefix, self.sizes.customers // 4, self.sizes.warm // 2, self.sizes.warm, PARTITIONS
        )
        with Sending(self.servers, prefix) as sending:
            sending.customers([ends.customer_messages(START_MS)])
            sending.orders([ends.order_messages(START_MS)])
        return sending.sent(ends)

    def caught_up(
        self, prefix: str, produce: Callable[[], Sent], side: str
    ) -> tuple[Any, AbstractContextManager[Any]]:
        """Fills the topics, starts a side on them and waits until it has written the last results.

        And those of the topics it warms up with: Kafka Streams works on both at once.
        """
        sent, warm = produce(), self.warm_topics()
        due = {sent.topics.results: sent.ends}
        if side not in self.cold:
            due[warm.topics.results] = warm.ends
        waiting = {topic: Waiting(self.servers, topic) for topic in due}
        manager = self.side(side, prefix, warm.topics)
        running = manager.__enter__()
        try:
            for topic, ends in due.items():
                waiting[topic].until(ends, running.check)
        except BaseException:
            manager.__exit__(None, None, None)
            raise
        return running, manager

    def timed(self, running: Any, produce: Callable[[], Sent], results: str) -> dict[str, float]:
        """Seconds from the moment the records are visible to the last result; core-seconds of side and broker.

        The broker stamps the results as it appends them, and they are read when no more come: the reading
        takes nothing from either side.
        """
        waiting = Waiting(self.servers, results)
        with held(running):
            sent = produce()
        parts, broker_cpu = running.cpu_parts(), self.broker_cpu()
        spent = {"side_cpu": 0.0, "broker_cpu": 0.0}

        def note_cpu() -> None:
            now = running.cpu_parts()
            spent.update({f"{part}_cpu": now[part] - parts[part] for part in now})
            spent["side_cpu"] = sum(now.values()) - sum(parts.values())
            spent["broker_cpu"] = self.broker_cpu() - broker_cpu

        last = waiting.until(sent.ends, running.check, at_rest=note_cpu)
        return {"seconds": last - sent.visible, **spent}

    def compared(
        self, name: str, records: fk_results.Records, run: Callable[[str, str], dict[str, float]]
    ) -> Iterator[tuple[str, dict[str, float]]]:
        """What each side took in turn: ``run``, or dbsp in memory. Raises if its results are not as they must be."""
        expected = records.expected()
        for side in self.turns():
            if side in dbsp.SIDES:
                rows = self.folder / side
                memory = dbsp.measure("fk", side, records.input, rows, before=records.before)
                took = {"seconds": memory.seconds, "side_cpu": memory.core_seconds, "broker_cpu": 0.0}
                found = fk_results.of_file(rows)
            else:
                prefix = self.prefix(name)
                took = run(side, prefix)
                found = fk_results.of_topic(self.servers, Topics.of(prefix).results)
            difference = fk_results.differs(found, expected)
            if difference is not None:
                raise AssertionError(f"{side} gave wrong results: {difference}")
            yield side, took

    def left_updates(self) -> None:
        """Left updates per second, and core-seconds per million of them."""
        sizes = self.sizes
        records = fk_results.left(self.folder / "left", sizes.customers, sizes.orders, sizes.updates)
        for side, took in self.compared("left", records, self._take_updates):
            million = 1_000_000 / sizes.updates
            cores = (took["side_cpu"] + took["broker_cpu"]) * million
            self.note("left updates per second", side, sizes.updates / took["seconds"], **took)
            self.note("core-seconds per million left updates", side, cores)

    def _take_updates(self, side: str, prefix: str) -> dict[str, float]:
        sizes = self.sizes

        def fill() -> Sent:
            return produce_customers(self.servers, prefix, sizes.customers, PARTITIONS, append_time=True)

        def updates() -> Sent:
            return produce_orders(
                self.servers, prefix, sizes.customers, sizes.orders, sizes.updates, PARTITIONS, at_once=True
            )

        running, manager = self.caught_up(prefix, fill, side)
        with leaving(manager):
            time.sleep(2)
            return self.timed(running, updates, Topics.of(prefix).results)

    def fan_out(self) -> None:
        """Results per second when right rows with many subscribers change, and core-seconds per million of them."""
        sizes = self.sizes
        records = fk_results.fan_out(self.folder / "fan-out", sizes.wide, sizes.subscribers)
        results = sizes.wide * sizes.subscribers
        for side, took in self.compared("wide", records, self._take_changes):
            cores = (took["side_cpu"] + took["broker_cpu"]) * 1_000_000 / results
            self.note("results per second, fan-out", side, results / took["seconds"], **took)
            self.note("core-seconds per million results, fan-out", side, cores)

    def _take_changes(self, side: str, prefix: str) -> dict[str, float]:
        sizes = self.sizes

        def fill() -> Sent:
            return produce_subscribers(
                self.servers, prefix, sizes.wide, sizes.subscribers, PARTITIONS, append_time=True
            )

        def change() -> Sent:
            return change_customers(self.servers, prefix, sizes.wide, partitions=PARTITIONS)

        running, manager = self.caught_up(prefix, fill, side)
        with leaving(manager):
            time.sleep(2)
            return self.timed(running, change, Topics.of(prefix).results)

    def latency(self) -> None:
        """Seconds from the timestamp of an update until its result is read, at a fixed rate.

        Not of Flink: its results do not have the timestamp of the update.
        """
        for side in (side for side in self.sides if not side.startswith("flink-")):
            self._latency(side, self.prefix("paced"))

    def _latency(self, side: str, prefix: str) -> None:
        sizes = self.sizes

        def fill() -> Sent:
            return produce_fk(self.servers, prefix, sizes.customers, sizes.orders, sizes.orders, PARTITIONS)

        running, manager = self.caught_up(prefix, fill, side)
        with leaving(manager):
            watch = Watch(self.servers, Topics.of(prefix).results)
            watch.start()
            seconds = sizes.warm_seconds + sizes.seconds
            produce_paced(self.servers, prefix, sizes.rate, seconds, sizes.customers, sizes.orders)
            running.check()
            delays = watch.stop(after=sizes.warm_seconds)
        for share in (50, 99):
            cut = statistics.quantiles(delays, n=100)[share - 1]
            self.note(f"latency p{share}, seconds", side, cut / 1000, results=len(delays))

    def note(self, figure: str, side: str, value: float, **details: float) -> None:
        """Prints a figure, unless the run is for nothing (`turns`)."""
        if self._for_nothing:
            return
        line = {"figure": figure, "side": side, "value": round(value, 3)}
        line |= {name: round(number, 3) for name, number in details.items()}
        self.results.append(line)
        print(json.dumps(line), flush=True)

    def close(self) -> None:
        broker.stop(self.info.port)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def leaving(manager: AbstractContextManager[Any]) -> Iterator[None]:
    """Leaves a manager that was entered before."""
    try:
        yield
    finally:
        manager.__exit__(None, None, None)


@contextmanager
def held(running: Any) -> Iterator[None]:
    """A side that stands still: what becomes visible in one partition after the other is there at once for it."""
    processes = running.processes()
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import confluent_kafka
    import polars
    import pyarrow
    import pyspark

    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "polars": polars.__version__,
        "pyarrow": pyarrow.__version__,
        "confluent_kafka": confluent_kafka.__version__,
        "kafka_streams": peer.version(),
        "flink": flink.version(),
        "dbsp": dbsp.version(),
    }


FIGURES = {"left": Bench.left_updates, "fan-out": Bench.fan_out, "latency": Bench.latency}


def scaled_sizes(scale: float) -> Sizes:
    """That share of the full sizes."""
    full = asdict(Sizes())
    scaled = {name: max(1, int(number * scale)) for name, number in full.items()}
    return Sizes(**scaled | {name: full[name] for name in ("rate", "seconds", "warm_seconds", "subscribers")})


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv, "fk", __doc__, "figures", tuple(FIGURES), (*flink.SIDES, *SIDES), 19292)
    sizes = scaled_sizes(arguments.scale)
    print(json.dumps(machine()), flush=True)
    with closing(Bench(sizes, arguments.port, arguments.rounds, arguments.sides)) as bench:
        for figure in arguments.figures:
            FIGURES[figure](bench)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
