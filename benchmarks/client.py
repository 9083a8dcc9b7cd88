"""Kafka's Python client and nothing else: every record of the orders is read and written again as it is.

No application in Python that uses this client can be faster. Run as a program it does so with some partitions;
imported, `Client` runs one for each core, as a side of a benchmark.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from types import TracebackType

import psutil  # type: ignore[import-untyped]
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.generate import Topics
from benchmarks.ours import ROOT
from crossstream.kafka.client import BATCHING, FETCH

CORES = 2
TAKEN = 10_000


class Client:
    """One run, from the begin of the topics."""

    def __init__(self, bootstrap: str, topics: Topics, partitions: int) -> None:
        self.bootstrap, self.topics, self.partitions = bootstrap, topics, partitions
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Client:
        for core in range(CORES):
            mine = [str(partition) for partition in range(core, self.partitions, CORES)]
            words = ["-m", "benchmarks.client", self.bootstrap, self.topics.orders, self.topics.results]
            self._processes.append(subprocess.Popen([sys.executable, *words, *mine], cwd=ROOT))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def cpu_parts(self) -> dict[str, float]:
        """User and system time so far."""
        times = [psutil.Process(process.pid).cpu_times() for process in self._processes]
        return {"workers": float(sum(time.user + time.system for time in times))}

    def check(self) -> None:
        if any(process.poll() is not None for process in self._processes):
            raise RuntimeError("the client died")


def main() -> None:
    """Reads and writes until it is killed."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "source", "results"):
        parser.add_argument(name)
    parser.add_argument("partitions", type=int, nargs="+")
    given = parser.parse_args()
    servers = {"bootstrap.servers": given.bootstrap}
    reading = {"group.id": "client", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({**servers, **FETCH, **reading})
    consumer.assign([TopicPartition(given.source, partition, 0) for partition in given.partitions])
    producer = Producer({**servers, **BATCHING, "enable.idempotence": True, "acks": "all"})
    produce = producer.produce
    while True:
        messages = consumer.consume(TAKEN, 0.01)
        for message in messages:
            if message.error() is None:
                produce(
                    given.results,
                    message.value(),
                    message.key(),
                    message.partition(),
                    None,
                    None,
                    message.timestamp()[1],
                )
        if messages:
            producer.poll(0)
        else:
            producer.flush()


if __name__ == "__main__":
    main()
