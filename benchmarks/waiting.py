"""Waits for results in a topic, and notes when they came, without taking time from who makes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from benchmarks.generate import ends_of

PARTITIONS = 4
REST_SECONDS = 1.0
"""Without a result for so long, a side is thought to be done, and the results are looked at."""


class Waiting:
    """Waits until certain keys are among the results, and reads only while no results come."""

    def __init__(self, servers: str, topic: str) -> None:
        self.asking = Consumer({"bootstrap.servers": servers, "group.id": "bench"})
        self.places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        self.consumer = reading_from_end(servers, topic)
        self.consumer.pause(self.places)
        self.seen = self.ends()

    def until(
        self,
        keys: frozenset[bytes],
        check: Callable[[], None],
        patience: float = 900,
        at_rest: Callable[[], None] = lambda: None,
    ) -> float:
        """When the newest result was stamped, in seconds; ``at_rest`` is called before each look at them."""
        left, newest, seen = set(keys), 0, self.seen
        stop = time.monotonic() + patience
        while left:
            ends = self.rest(seen, check, stop)
            at_rest()
            self.consumer.resume(self.places)
            expected, quiet = ends - seen, 0
            while expected > 0 and quiet < 5:  # ends of transactions count, and do not come
                messages = [m for m in self.consumer.consume(10_000, 0.2) if m.error() is None]
                quiet = 0 if messages else quiet + 1
                expected -= len(messages)
                for message in messages:
                    left.discard(message.key())
                newest = max([newest, *(message.timestamp()[1] for message in messages)])
            self.consumer.pause(self.places)
            seen = ends - expected  # what came meanwhile has been read, too
            if time.monotonic() > stop:
                raise RuntimeError(f"{len(left)} last results did not come within {patience} s")
        self.consumer.close()
        self.asking.close()
        return newest / 1000

    def ends(self) -> int:
        """Results there are."""
        return sum(ends_of(self.asking, self.places))

    def rest(self, seen: int, check: Callable[[], None], stop: float) -> int:
        """Returns how many results there are when some came, and then none for a while."""
        ends, since = self.ends(), time.monotonic()
        while ends == seen or time.monotonic() - since < REST_SECONDS:
            time.sleep(0.1)
            check()
            now = self.ends()
            if now != ends:
                ends, since = now, time.monotonic()
            if time.monotonic() > stop:
                raise RuntimeError("the last results did not come in time")
        return ends


class Watch:
    """Notes how late results are: the time they were appended less their timestamp."""

    def __init__(self, servers: str, topic: str) -> None:
        self.consumer = reading_from_end(servers, topic)
        self.delays: list[tuple[float, float]] = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.began = time.time()
        self.thread.start()

    def stop(self, after: float) -> list[float]:
        time.sleep(3)
        self.done.set()
        self.thread.join()
        self.consumer.close()
        return [delay for at, delay in self.delays if at - self.began > after]

    def _run(self) -> None:
        while not self.done.is_set():
            # Small reads: a message waits in here no longer than a few milliseconds.
            messages = self.consumer.consume(200, 0.005)
            now = time.time()
            self.delays.extend((now, now * 1000 - message.timestamp()[1]) for message in messages)


def reading_from_end(servers: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 5,
            "check.crcs": False,
        }
    )
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    for place, end in zip(places, ends_of(consumer, places), strict=True):
        place.offset = end
    consumer.assign(places)
    return consumer
