"""Lake tables as topics that the engine reads: what the driver asks of them, and who reads their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from crossstream.graph.lake import SHARES, LakeTable
from crossstream.graph.node import Node
from crossstream.lakehouse.columns import check_schema
from crossstream.lakehouse.opening import open_versions
from crossstream.lakehouse.reading import LakeReader, not_appended
from crossstream.lakehouse.versions import LakeVersions
from crossstream.runtime.tables_and_topics import TablesAndTopics
from crossstream.topics import (
    CommitRows,
    OffsetAndTimestamp,
    OffsetRange,
    RangeReader,
    TopicConnection,
    TopicPartition,
    partition_of,
)

C = TypeVar("C", bound="TopicConnection | None")


@dataclass(frozen=True, slots=True)
class LakeTables:
    """`Tables` of lakes. ``tables``: by their names as topics.

    ``firsts``: of an application that has read them, where the first range of each ended.
    """

    tables: Mapping[str, LakeTable]
    firsts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> LakeTables:
        """Those that sources read."""
        return cls({node.lake.topic: node.lake for node in nodes if node.lake is not None})

    @property
    def names(self) -> Collection[str]:
        return self.tables.keys()

    def log(self) -> LakeLog:
        return LakeLog(self.tables)

    def reader(self) -> RangeReader:
        return LakeReader(self.tables, self.firsts)


def as_begun(connection: C, firsts: Mapping[str, Mapping[int, int]]) -> C:
    """The connection to read again what an application has read that began with these positions, by topic."""
    if not isinstance(connection, TablesAndTopics):
        return connection
    ends = {topic: at[0] for topic, at in firsts.items() if 0 in at}
    kinds = tuple(
        replace(kind, firsts=ends) if isinstance(kind, LakeTables) else kind for kind in connection.kinds
    )
    return cast("C", replace(connection, kinds=kinds))


@dataclass(slots=True)
class LakeLog:
    """The commits of lake tables: each is an offset."""

    tables: Mapping[str, LakeTable]
    _open: dict[str, LakeVersions] = field(default_factory=dict)

    def topics(self) -> Mapping[str, int]:
        """The tables, which have their shares as partitions."""
        return dict.fromkeys(self.tables, SHARES)

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        return {topic: self._versions(topic).table_id() for topic in topics}

    def begin_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """0: the snapshot."""
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The number after the newest commit, the same for all shares of a table."""
        ends = {topic: self._versions(topic).newest() + 1 for topic in {tp.topic for tp in partitions}}
        return {tp: ends[tp.topic] for tp in partitions}

    def offsets_for_times(
        self, spans: Sequence[OffsetRange], timestamp: int, most: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """The first commit of that time or later."""
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for span in spans:
            late = (one for one in self.commits(span.topic, span.start, span.end) if one.time >= timestamp)
            first = next(late, None)
            found[partition_of(span)] = (
                None if first is None else OffsetAndTimestamp(first.number, first.time)
            )
        return found

    def commits(self, topic: str, start: int, end: int) -> Sequence[CommitRows]:
        """See `CommitLog`. Raises `SourceError`: CS-613 for commits that are gone, CS-616 for one that a stream cannot
        read, CS-617 for one after which a column does not fit any more.
        """
        table, versions = self.tables[topic], self._versions(topic)
        if start == 0:
            found = versions.snapshot_commit(end - 1)
            return [CommitRows(found.number, found.time, found.rows)]
        commits = versions.commits(start, end)
        for commit in commits:
            if commit.schema is not None:
                check_schema(table, commit.schema, commit.number)
            rewrites = commit.changes_data and not commit.appends_only
            if table.appends and rewrites and not table.skip_changes:
                raise not_appended(table, commit.number)
        return [CommitRows(commit.number, commit.time, commit.rows) for commit in commits]

    def close(self) -> None:
        for versions in self._open.values():
            versions.close()
        self._open.clear()

    def _versions(self, topic: str) -> LakeVersions:
        if topic not in self._open:
            self._open[topic] = open_versions(self.tables[topic])
        return self._open[topic]
