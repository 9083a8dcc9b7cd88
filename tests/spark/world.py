"""The folders of an application in a test: its file topics and its state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import crossstream as cs
from crossstream import serdes
from crossstream.filetopics import FileTopics
from crossstream.records import decode_headers, encode_headers
from crossstream.serdes import Serde
from crossstream.topics import OffsetRange, TopicPartition
from tests.reference import Output, fold

TEXT = serdes.string()
SPREAD, ALONE = 0, 10_000
"""``single_task_rows``: every batch is spread over all tasks; small ones are done by one task."""

NAMES = ["key", "value", "timestamp", "headers"]

Given = tuple[Any, Any, int] | tuple[Any, Any, int, tuple[tuple[str, bytes | None], ...]]
"""Key, value, timestamp (ms), and perhaps headers."""


@dataclass(frozen=True, slots=True)
class World:
    """``root/topics`` and ``root/state``, with what a test does to them."""

    root: Path
    application_id: str = "app"
    single_task_rows: int = SPREAD

    @property
    def topics_dir(self) -> Path:
        return self.root / "topics"

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def topics(self) -> FileTopics:
        return FileTopics(str(self.topics_dir), durable=False)

    def config(self, **settings: Any) -> cs.StreamsConfig:
        """The settings of an application that lives here; for haste nothing is forced to the disk."""
        here = {
            "topics_dir": self.topics_dir,
            "state_dir": self.state_dir,
            "durable": False,
            "single_task_rows": self.single_task_rows,
        }
        return cs.StreamsConfig(**{"application_id": self.application_id, **here, **settings})

    def create(self, **partitions: int) -> None:
        """Makes topics: name = number of partitions."""
        log = self.topics.log()
        for topic, count in partitions.items():
            log.create_topic(topic, count)

    def append(
        self,
        topic: str,
        given: Iterable[Given],
        key: Serde = TEXT,
        value: Serde = TEXT,
        partitions: Sequence[int] | None = None,
    ) -> None:
        """Stores records; ``partitions``: one for each, None for Kafka's default."""
        self.append_wire(
            topic, [(key.serialize(k), value.serialize(v), *rest) for k, v, *rest in given], partitions
        )

    def append_wire(
        self, topic: str, given: Iterable[Sequence[Any]], partitions: Sequence[int] | None = None
    ) -> None:
        """Stores records whose keys and values are bytes already."""
        writer = self.topics.writer()
        writer.write(topic, record_batch(given), partitions)
        writer.close()

    def wire(self, topic: str) -> list[list[Sequence[Any]]]:
        """Key, value, timestamp and packed headers of every record, by partition in order of offset."""
        log = self.topics.log()
        owners = [TopicPartition(topic, partition) for partition in range(log.topics().get(topic, 0))]
        ends = log.end_offsets(owners)
        reader = self.topics.reader()
        return [
            [
                tuple(row[name] for name in NAMES)
                for batch in reader.read(OffsetRange(topic, owner.partition, 0, ends[owner]), 100_000)
                for row in batch.to_pylist()
            ]
            for owner in owners
        ]

    def read(self, topic: str, key: Serde = TEXT, value: Serde = TEXT) -> list[Output]:
        """Every record, partition after partition."""
        return [
            Output(key.deserialize(k), value.deserialize(v), ts, decode_headers(headers))
            for partition in self.wire(topic)
            for k, v, ts, headers in partition
        ]

    def table(self, topic: str, key: Serde = TEXT, value: Serde = TEXT) -> dict[Any, Any]:
        """What the records of a topic fold to."""
        return {k: v for k, (v, _) in fold(self.read(topic, key, value)).items()}


def record_batch(given: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Records as a writer takes them."""
    rows = list(given)
    headers = [encode_headers(row[3]) if len(row) > 3 else None for row in rows]
    columns = [[row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows], headers]
    types = [pa.large_binary(), pa.large_binary(), pa.int64(), pa.large_binary()]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names=NAMES
    )
