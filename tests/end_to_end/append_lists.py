"""Lists that many writers append to, and a judge of what readers saw of them, in the manner of Jepsen.

An element is ``writer.number``; a writer numbers its elements for each key. So every list says by itself whether an
element is lost, doubled or not in its order.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from confluent_kafka import KafkaError, Message, Producer

Lists = dict[str, list[str]]
"""By key: the elements, in their order."""
SECONDS = 240.0


@dataclass
class Writer:
    """Appends to lists until it is stopped; knows which of its elements the broker has acknowledged."""

    name: str
    servers: str
    keys: Sequence[str]
    rng: Random
    each_second: float = 15.0
    acknowledged: Lists = field(default_factory=lambda: defaultdict(list))
    failures: list[KafkaError] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        settings = {
            "bootstrap.servers": self.servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "message.timeout.ms": 600_000,
        }
        producer, numbers = Producer(settings), dict.fromkeys(self.keys, 0)
        while not stop.wait(self.rng.uniform(0, 2 / self.each_second)):
            key = self.rng.choice(self.keys)
            producer.produce("appends", f"{self.name}.{numbers[key]}", key, on_delivery=self._delivered)
            numbers[key] += 1
            producer.poll(0)
        if producer.flush(SECONDS):
            self.failures.append(KafkaError(KafkaError._TIMED_OUT))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        self.acknowledged[str(key, "utf-8")].append(str(value, "utf-8"))


def judge_lists(lists: Mapping[str, Sequence[str]], acknowledged: Iterable[Lists]) -> list[str]:
    """What is wrong with the lists at the end: lost, doubled, reordered and unknown elements."""
    wanted: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for one in acknowledged:
        for key, elements in one.items():
            for element in elements:
                wanted[key].setdefault(element.partition(".")[0], []).append(element)
    problems = []
    for key in sorted(wanted.keys() | lists.keys()):
        found: dict[str, list[str]] = defaultdict(list)
        for element in lists.get(key, ()):
            found[element.partition(".")[0]].append(element)
        for writer in sorted(found.keys() | wanted[key].keys()):
            problems += _compared(f"{key} by {writer}", found[writer], wanted[key].get(writer, []))
    return problems


def _compared(what: str, found: Sequence[str], wanted: Sequence[str]) -> list[str]:
    problems = []
    if lost := [element for element in wanted if element not in set(found)]:
        problems.append(f"{what}: lost {lost}")
    if unknown := [element for element in found if element not in set(wanted)]:
        problems.append(f"{what}: nobody appended {unknown}")
    if len(set(found)) != len(found):
        problems.append(f"{what}: doubled in {list(found)}")
    once = list(dict.fromkeys(found))
    if sorted(once, key=_number) != once:
        problems.append(f"{what}: reordered in {list(found)}")
    return problems


def _number(element: str) -> int:
    return int(element.partition(".")[2])


def judge_growth(key: str, seen: Sequence[str]) -> list[str]:
    """What is wrong with the states of one list, as they were published: each is longer, and begins with the last."""
    problems = []
    for before, after in pairwise(seen):
        if not f"{after} ".startswith(f"{before} ") or after == before:
            problems.append(f"{key}: {after!r} does not continue {before!r}")
    return problems


def judge_reads(reads: Sequence[Mapping[tuple[str, int], Sequence[object]]]) -> list[str]:
    """What is wrong with successive reads of whole partitions: each begins with the one before."""
    problems = []
    for number, (before, after) in enumerate(pairwise(reads)):
        for at, rows in before.items():
            if list(after.get(at, ()))[: len(rows)] != list(rows):
                problems.append(f"read {number + 1} of {at} does not begin with the one before")
    return problems
