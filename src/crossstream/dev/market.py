"""The marketplace at work: writes changes to its topics and reads the results of the running application."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from crossstream import serdes
from crossstream.records import PRODUCER_RECORDS
from crossstream.spark import SparkStreams
from crossstream.topics import TopicConnection, TopicPartition

PARTITIONS = {"products": 2, "merchants": 3, "promotions": 2}
"""The partitions of each topic. A foreign-key join does not need equal numbers."""

Table = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result table before and after some changes, and the figures of the batch."""

    before: Table
    after: Table
    batch: int
    records: int
    results: int
    seconds: float


@dataclass(slots=True)
class Market:
    """The topics and the application; ``suffix`` follows the name of each topic."""

    connection: TopicConnection
    app: SparkStreams
    suffix: str = ""
    _table: Table | None = None

    def open(self) -> None:
        """Makes the topics and starts the application on them."""
        log = self.connection.log()
        for topic, partitions in PARTITIONS.items():
            log.create_topic(topic + self.suffix, partitions)
        log.close()
        self.app.process_available()

    def apply(self, changes: Sequence[Change]) -> Outcome:
        """Writes the changes and lets the application process them."""
        before, first = self._table or {}, self._results()
        self._write(changes)
        started = time.perf_counter()
        self.app.process_available()
        seconds = time.perf_counter() - started
        self._table = dict(self.app.store("promotions").all())
        progress = self.app.progress
        return Outcome(before, self._table, progress.batch, len(changes), self._results() - first, seconds)

    def _write(self, changes: Iterable[Change]) -> None:
        writer = self.connection.writer()
        now = time.time_ns() // 1_000_000
        for change in changes:
            row = {
                "key": serdes.string().serialize(change.key),
                "value": serdes.json().serialize(change.value),
                "timestamp": now,
                "headers": None,
            }
            writer.write(
                change.topic + self.suffix, pa.RecordBatch.from_pylist([row], schema=PRODUCER_RECORDS)
            )
        writer.flush()
        writer.close()

    def _results(self) -> int:
        """How many records were written to the output topic."""
        log = self.connection.log()
        topic = "promotions" + self.suffix
        ends = log.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS["promotions"])])
        log.close()
        return sum(ends.values())


Topic = Literal["products", "merchants"]


@dataclass(frozen=True, slots=True)
class Change:
    """A record: the new row of ``key``, or None to delete it."""

    topic: Topic
    key: str
    value: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Step:
    """Some changes, and what to see in the result."""

    title: str
    remark: str
    changes: tuple[Change, ...]


def _merchant(key: str, display_name: str) -> Change:
    return Change("merchants", key, {"display_name": display_name})


def _product(key: str, price: float, merchant: str) -> Change:
    return Change("products", key, {"name": key.capitalize(), "price": price, "merchant_id": merchant})


STEPS = (
    Step(
        "Merchants and products arrive",
        "The teapot names a merchant who is not there: an inner join leaves it out.",
        (
            _merchant("m1", "Cozy Creations"),
            _merchant("m2", "Northern Knits"),
            _merchant("m3", "Clay & Co"),
            _product("sweater", 15.0, "m1"),
            _product("scarf", 9.5, "m1"),
            _product("mittens", 7.0, "m2"),
            _product("mug", 12.0, "m3"),
            _product("teapot", 34.0, "m4"),
        ),
    ),
    Step(
        "The missing merchant opens a shop",
        "Its product was waiting for it.",
        (_merchant("m4", "Tea House"),),
    ),
    Step(
        "A merchant renames itself",
        "One record changes every product of this merchant: both sides drive the join.",
        (_merchant("m1", "Cosy Corner"),),
    ),
    Step("A product moves to another merchant", "Its foreign key changes.", (_product("scarf", 9.5, "m2"),)),
    Step(
        "Both merchants rename themselves",
        "The scarf follows its new merchant, no longer the old one.",
        (_merchant("m1", "Sweater Weather"), _merchant("m2", "Nordic Knits")),
    ),
    Step(
        "A product gets cheaper, another one is deleted",
        "A record without a value, a tombstone, deletes the row.",
        (_product("sweater", 12.0, "m1"), Change("products", "teapot", None)),
    ),
    Step(
        "A merchant closes",
        "Its product has lost its partner and leaves the result.",
        (Change("merchants", "m3", None),),
    ),
)
