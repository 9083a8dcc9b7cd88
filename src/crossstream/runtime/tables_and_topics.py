"""Tables that the engine reads as topics, beside topics of Kafka or of a folder: each call goes to where the topic is.

Such a topic is a table of a lake, or one that is read again (`global_table_from`). Nothing is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, cast

import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.runtime.delivery import AtOnce, DeliveringConnection, Delivery, Place, no_topics
from crossstream.runtime.histories import SeamLog
from crossstream.storage.log_entries import Seam
from crossstream.topics import (
    CommitLog,
    CommitRows,
    OffsetAndTimestamp,
    OffsetRange,
    RangeReader,
    ReadsTogether,
    RecordWriter,
    TopicLog,
    TopicPartition,
)

CONNECT = "StreamsConfig(bootstrap_servers='host:port') for Kafka, topics_dir='folder' for file topics"
"""The next step where no topics are connected (CS-203)."""
Wanted = TypeVar("Wanted")
Key = TypeVar("Key")
Found = TypeVar("Found")


class TableLog(Protocol):
    """For the driver: what there is of tables of one kind. As of a `TopicLog`, for topics of its own alone."""

    def topics(self) -> Mapping[str, int]: ...

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]: ...

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]: ...

    def close(self) -> None: ...


class Tables(Protocol):
    """Tables of one kind, as a value that can be pickled. ``names``: of them, as topics."""

    @property
    def names(self) -> Collection[str]: ...

    def log(self) -> TableLog: ...

    def reader(self) -> RangeReader: ...


def with_tables(connection: DeliveringConnection | None, *kinds: Tables) -> DeliveringConnection | None:
    """The connection to topics, if there is one, and to the tables, if there are any."""
    there = tuple(kind for kind in kinds if kind.names)
    if there and isinstance(connection, TablesAndTopics):
        return TablesAndTopics((*connection.kinds, *there), connection.topics)
    return TablesAndTopics(there, connection) if there else connection


@dataclass(frozen=True, slots=True)
class TablesAndTopics:
    """A `DeliveringConnection`. ``topics``: where all topics are that are no tables; None: there are none."""

    kinds: tuple[Tables, ...]
    topics: DeliveringConnection | None

    def log(self) -> Logs:
        logs = [(kind, kind.log()) for kind in self.kinds]
        of_topics = None if self.topics is None else self.topics.log()
        return Logs(of_topics, {name: log for kind, log in logs for name in kind.names})

    def reader(self) -> RangeReader:
        readers = [(kind, kind.reader()) for kind in self.kinds]
        of_topics = None if self.topics is None else self.topics.reader()
        return _Readers(of_topics, {name: reader for kind, reader in readers for name in kind.names})

    def writer(self) -> RecordWriter:
        return no_topics() if self.topics is None else self.topics.writer()

    def delivery(self, place: Place) -> Delivery:
        return AtOnce(no_topics) if self.topics is None else self.topics.delivery(place)

    def staging_folder(self, name: str) -> Path | None:
        return None if self.topics is None else self.topics.staging_folder(name)


@dataclass(frozen=True, slots=True)
class Logs:
    """`TopicLog` and `CommitLog` of tables, and of the topics beside them."""

    of_topics: TopicLog | None
    of_tables: Mapping[str, TableLog]

    def topics(self) -> Mapping[str, int]:
        found = {} if self.of_topics is None else dict(self.of_topics.topics())
        for log in _distinct(self.of_tables.values()):
            found |= log.topics()
        return found

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return self._each(topics, str, lambda log, mine: log.topic_ids(mine))

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._each(partitions, _topic, lambda log, mine: log.begin_offsets(mine))

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._each(partitions, _topic, lambda log, mine: log.end_offsets(mine))

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        return self._each(spans, _topic, lambda log, mine: log.offsets_for_times(mine, timestamp, most))

    def commits(self, topic: str, start: int, end: int) -> Sequence[CommitRows]:
        return cast("CommitLog", self.of_tables[topic]).commits(topic, start, end)

    def seam(self, topic: str) -> Seam:
        return cast("SeamLog", self.of_tables.get(topic, self.of_topics)).seam(topic)

    def first_held(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return cast("SeamLog", self.of_topics).first_held(partitions)

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        _connected(self.of_topics, topic).create_topic(topic, partitions, config)

    def delete_topic(self, topic: str) -> None:
        _connected(self.of_topics, topic).delete_topic(topic)

    def close(self) -> None:
        for log in _distinct(self.of_tables.values()):
            log.close()
        if self.of_topics is not None:
            self.of_topics.close()

    def _each(
        self,
        wanted: Sequence[Wanted],
        topic_of: Callable[[Wanted], str],
        ask: Callable[[TableLog, Sequence[Wanted]], Mapping[Key, Found]],
    ) -> dict[Key, Found]:
        """What each log says of what is its own."""
        found: dict[Key, Found] = {}
        for log, mine in _by_owner(wanted, topic_of, self.of_tables, self.of_topics):
            found |= ask(log, mine)
        return found


@dataclass(frozen=True, slots=True)
class _Readers(ReadsTogether):
    """`RangeReader` of tables and of topics."""

    of_topics: RangeReader | None
    of_tables: Mapping[str, RangeReader]

    def read_many(
        self, spans: Iterable[OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        for reader, mine in _by_owner(list(spans), _topic, self.of_tables, self.of_topics):
            yield from reader.read_many(mine, max_rows)

    def close(self) -> None:
        for reader in _distinct(self.of_tables.values()):
            reader.close()
        if self.of_topics is not None:
            self.of_topics.close()


Owner = TypeVar("Owner")


def _by_owner(
    wanted: Sequence[Wanted],
    topic_of: Callable[[Wanted], str],
    of_tables: Mapping[str, Owner],
    of_topics: Owner | None,
) -> Iterator[tuple[Owner, list[Wanted]]]:
    """What is wanted of each: of the tables first, and then of the topics."""
    parts: dict[int, tuple[Owner, list[Wanted]]] = {}
    others = []
    for one in wanted:
        owner = of_tables.get(topic_of(one))
        if owner is None:
            others.append(one)
        else:
            parts.setdefault(id(owner), (owner, []))[1].append(one)
    yield from parts.values()
    if others:
        yield _connected(of_topics, topic_of(others[0])), others


def _topic(wanted: TopicPartition | OffsetRange) -> str:
    return wanted.topic


def _distinct(owners: Iterable[Owner]) -> Collection[Owner]:
    return {id(owner): owner for owner in owners}.values()


def _connected(owner: Owner | None, topic: str) -> Owner:
    if owner is None:
        raise unconnected(topic)
    return owner


def unconnected(topic: str) -> CrossStreamError:
    """The refusal (CS-203) of a topic where only tables are known."""
    return refuse("CS-203", f"it is not known where the topic {topic!r} is", CONNECT, topic=topic)
