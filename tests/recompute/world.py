"""Small applications over file topics that run without Spark, and the records that are written for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.filetopics import FileTopics
from crossstream.recompute.reason import Why
from crossstream.recompute.verify import Verified, verify_results
from crossstream.recompute.why import why
from crossstream.records import PRODUCER_RECORDS
from tests.faults.one_process import process

TEXT, JSON = serdes.string(), serdes.json()
BOTH = cs.Consumed(key=TEXT, value=JSON)

Item = tuple[str, str | None, Any, int]
"""Topic, key, value and timestamp of a record."""


@dataclass
class World:
    """Topics and state in a folder, and the application over them."""

    folder: Path
    topology: cs.Topology
    partitions: int = 2
    topic_partitions: int = 2

    def __post_init__(self) -> None:
        self.topics = FileTopics(str(self.folder / "topics"), durable=False)
        log = self.topics.log()
        for node in self.topology:
            for topic in getattr(node, "topics", ()):
                if topic not in log.topics():
                    log.create_topic(topic, self.topic_partitions)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def config(self) -> cs.StreamsConfig:
        return cs.StreamsConfig(
            application_id="shop",
            topics_dir=self.folder / "topics",
            state_dir=self.state,
            partitions=self.partitions,
            durable=False,
        )

    def write(self, items: Iterable[Item]) -> None:
        writer = self.topics.writer()
        for topic, key, value, timestamp in items:
            writer.write(topic, to_batch([(key, value, timestamp)]))
        writer.flush()
        writer.close()

    def process(self, *batches: Sequence[Item]) -> None:
        """Writes and processes one part after the other."""
        for items in batches:
            self.write(items)
            process(self.topology, self.config)

    def why(self, store: str, key: Any, **options: Any) -> Why:
        return why(self.state, plan_topology(self.topology), self.topics, store, key, **options)

    def verify(self, **options: Any) -> Verified:
        return verify_results(self.state, plan_topology(self.topology), self.topics, **options)


def to_batch(rows: Sequence[tuple[str | None, Any, int]]) -> pa.RecordBatch:
    keys = [None if key is None else key.encode() for key, _, _ in rows]
    values = [None if value is None else json.dumps(value).encode() for _, value, _ in rows]
    columns = [keys, values, [timestamp for *_, timestamp in rows], [None] * len(rows)]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, PRODUCER_RECORDS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PRODUCER_RECORDS)


def piped(topology: cs.Topology, partitions: int, records: Iterable[Any]) -> cs.TopologyTestDriver:
    """The test driver after these records alone, one after the other."""
    driver = cs.TopologyTestDriver(topology, partitions=partitions)
    topics: Mapping[str, Any] = {}
    for record in records:
        topic = topics.get(record.topic) or driver.create_input_topic(record.topic, TEXT, JSON)
        topics = {**topics, record.topic: topic}
        partition = record.partition % partitions
        topic.pipe_input(record.key, record.value, record.timestamp, partition=partition)
    return driver


def promotions() -> cs.Topology:
    builder = cs.StreamsBuilder()
    products, merchants = builder.table("products", BOTH), builder.table("merchants", BOTH)
    products.filter(lambda product: product["price"] > 0).join(
        merchants,
        lambda product, merchant: {"price": product["price"], "shop": merchant["name"]},
        foreign_key=lambda product: product["merchant"],
        materialized=cs.Materialized(store="promotions"),
    ).to_stream().to("promotions", cs.Produced(key=TEXT, value=JSON))
    return builder.build()
