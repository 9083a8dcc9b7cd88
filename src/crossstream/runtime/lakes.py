"""Which commits of lake tables the next batch takes: a snapshot first, then commits, each of them whole.

The partitions of a lake table are its shares, which are read up to the same commit. One of them stands for all where a
backlog is cut (`backlog.py`), in rows: a commit takes as many offsets as it has rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.history import all_rows, is_past
from crossstream.graph.lake import SHARES
from crossstream.graph.nodes import Source
from crossstream.runtime.backlog import Cutter, Span, Times
from crossstream.storage.log_entries import SourceRange, Starts
from crossstream.topics import (
    CommitLog,
    CommitRows,
    FirstRecords,
    OffsetAndTimestamp,
    OffsetRange,
    TopicLog,
    TopicPartition,
    partition_of,
    passed,
)


@dataclass(frozen=True, slots=True)
class Lakes:
    """The lake tables among the sources of an application. ``topics``: their names as topics, with the source.

    Those before a topic are among them that have no offsets: each is a snapshot alone.
    """

    log: TopicLog | None
    topics: Mapping[str, Source]

    @classmethod
    def of(cls, sources: Iterable[Source], log: TopicLog | None) -> Lakes:
        nodes = list(sources)
        pasts = {topic: node for node in nodes for topic in node.topics if is_past(topic)}
        return cls(log, {node.lake.topic: node for node in nodes if node.lake is not None} | pasts)

    def commits(self, topic: str, start: int, end: int) -> Sequence[CommitRows]:
        return cast("CommitLog", self.log).commits(topic, start, end)

    def counts(self, one: TopicPartition | SourceRange) -> bool:
        """Whether it counts beside others: of the shares of a table, which are at the same commit, one does."""
        return one.topic not in self.topics or one.partition == 0

    def rows(self, span: SourceRange) -> int:
        """About how many records a range has: of a lake table the rows of its commits, of which each share has some."""
        if span.topic not in self.topics:
            return span.end - span.start
        rows = sum(commit.rows for commit in self.commits(span.topic, span.start, span.end))
        return rows // SHARES + (span.partition < rows % SHARES)

    def begun(
        self, node: Source, known: Mapping[str, Mapping[int, int]], starts: Starts, ids: Mapping[str, str]
    ) -> Starts:
        """Notes where the first range of a table that is new ends: after the snapshot asked for, or the newest one."""
        lake = node.lake
        if lake is None or lake.topic in starts.positions or any(known.get(lake.topic, {}).values()):
            return starts
        assert self.log is not None
        first = TopicPartition(lake.topic, 0)
        end = self.log.end_offsets([first])[first]
        end = end if lake.version is None else min(end, lake.version + 1)
        return starts.and_of(node.name, {lake.topic: dict.fromkeys(range(SHARES), end)}, dict(ids))

    def snapshots(
        self, positions: Mapping[str, Mapping[str, Mapping[int, int]]], starts: Starts
    ) -> dict[TopicPartition, int]:
        """Where the snapshots end of tables of which nothing was read yet."""
        return {
            TopicPartition(topic, share): end
            for topic, node in self.topics.items()
            for share, end in (all_rows() if is_past(topic) else starts.positions.get(topic, {})).items()
            if not positions[node.name][topic][share]
        }

    def cut(self, cutter: Cutter, spans: Sequence[Span], most: int) -> list[Span]:
        """The parts of spans to read first, together about ``most`` records, commits whole."""
        if not any(span[1] in self.topics for span in spans):
            return cutter.cut(spans, most)
        rows: dict[str, _Rows] = {}
        standing: list[Span] = []
        for node, topic, partition, start, end in spans:
            if topic not in self.topics:
                standing.append((node, topic, partition, start, end))
            elif topic not in rows:
                rows[topic] = _Rows.of(self.commits(topic, start, end), end)
                standing.append((node, topic, 0, 0, rows[topic].total))
        whole, cutter.log = cutter.log, _InRows(cutter.log, rows)
        try:
            taken = cutter.cut(standing, most)
        finally:
            cutter.log = whole
        ends = {topic: rows[topic].commit_after(end) for _, topic, _, _, end in taken if topic in rows}
        others = [span for span in taken if span[1] not in rows]
        lakes = [(*span[:4], ends[span[1]]) for span in spans if ends.get(span[1], 0) > span[3]]
        order = {span[:3]: place for place, span in enumerate(spans)}
        return sorted([*others, *lakes], key=lambda span: order[span[:3]])

    def moved(
        self, node: Source, known: Mapping[str, Mapping[int, int]], ids: Mapping[str, str]
    ) -> str | None:
        """The name that a table had before it was moved; raises CS-603 where the source has read another one."""
        lake = node.lake
        assert lake is not None
        others = [topic for topic, at in known.items() if topic != lake.topic and any(at.values())]
        if not others or any(known.get(lake.topic, {}).values()):
            return None
        if ids.get(others[0]) != ids.get(lake.topic):
            what = f"{node.name} has read {others[0]}, and would read {lake.topic} now: its rows would stay"
            step = "give this source another name: name=…; or start with an empty state_dir"
            raise refuse("CS-603", what, step, **node.where)
        return others[0]


def made_again(node: Source, topic: str) -> CrossStreamError:
    """The refusal (CS-603) of a table that has taken the place of the one that was read."""
    what = "the table was deleted and made again since it was read: what has been read is of the one before"
    step = "start with a new application_id, or an empty state_dir, which begin with its snapshot"
    return refuse("CS-603", what, step, **node.where, topic=topic)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The commits of a range, counted in rows. ``ends``: after each of them; ``end``: of the range, in commits."""

    commits: Sequence[CommitRows]
    ends: Sequence[int]
    end: int

    @classmethod
    def of(cls, commits: Sequence[CommitRows], end: int) -> _Rows:
        return cls(commits, list(accumulate(max(1, commit.rows) for commit in commits)), end)

    @property
    def total(self) -> int:
        return self.ends[-1] if self.ends else 1

    def first(self, start: int, timestamp: int) -> OffsetAndTimestamp | None:
        """The first row from ``start`` on of a commit of that time or later."""
        for number in range(bisect_left(self.ends, start + 1), len(self.commits)):
            if self.commits[number].time >= timestamp:
                begin = self.ends[number - 1] if number else 0
                return OffsetAndTimestamp(max(begin, start), self.commits[number].time)
        return None

    def commit_after(self, row: int) -> int:
        """The commit to continue with: one that was begun is taken whole."""
        if row <= 0:
            return 0
        number = bisect_left(self.ends, row)
        return self.end if number + 1 >= len(self.commits) else self.commits[number + 1].number


@dataclass(frozen=True, slots=True)
class _InRows:
    """Times of topics, and of lake tables whose offsets are rows."""

    log: Times
    rows: Mapping[str, _Rows]

    def offsets_for_times(self, spans: Sequence[OffsetRange], timestamp: int, most: int) -> FirstRecords:
        """See `TopicLog.offsets_for_times`."""
        found: FirstRecords = {}
        others = []
        for span in spans:
            if span.topic in self.rows:
                found[partition_of(span)] = self.rows[span.topic].first(span.start, timestamp)
                most -= passed(span, found[partition_of(span)])
            else:
                others.append(span)
        return found | dict(self.log.offsets_for_times(others, timestamp, max(0, most))) if others else found
