"""Reads events and END events ahead, and knows which tables the topics have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.error_codes import refuse
from crossstream.graph.nodes import Source
from crossstream.runtime.transactions.ahead import NOTHING, PENDING, Ahead, Events
from crossstream.runtime.transactions.cutting import Collections
from crossstream.runtime.transactions.ends import Ends
from crossstream.serdes.debezium.boundaries import boundaries_of, is_plain_row, marks_of, remembered_of
from crossstream.serdes.registry.client import RegistrySettings
from crossstream.storage.log_entries import SourceRange
from crossstream.task.batch import Input, Settings
from crossstream.topics import TopicPartition

_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class Reading:
    """``codes``: of the collections that were seen; ``read``: those that each topic has. ``origins``: the connector of
    each topic."""

    tp: TopicPartition
    """The partition of the transaction topic."""
    sources: tuple[Source, ...]
    input: Input
    rows: int = Settings().read_rows
    codes: dict[str, int] = field(default_factory=dict)
    read: dict[str, set[int]] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def ends(self, ends: Ends, until: int, only_of: Sequence[str] | None = None) -> bool:
        """Whether transactions have ended that were not known; reads the transaction topic up to an offset.

        ``only_of``: those that may count tables of these topics.
        """
        before = len(ends.ranks)
        if until <= ends.end:
            return False
        for _, records in self.input.read([_range(self.tp, ends.end, until)], self.rows):
            if only_of is not None:
                records = records.filter(self._may_count(records.column("value"), only_of))
            values = records.column("value")
            there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
            offsets, times = (records.column(name).to_numpy()[there] for name in ("offset", "timestamp"))
            found = boundaries_of(values.drop_null(), self._registry_of(""))
            ends.add(found, offsets, times, int(offsets[-1]) + 1 if len(offsets) else ends.end)
        ends.end = until
        return len(ends.ranks) > before

    def remember(self, ends: Ends, until: int) -> None:
        """Reads which transactions have ended in the transaction topic up to an offset."""
        for _, records in (
            self.input.read([_range(self.tp, ends.end, until)], self.rows) if until > ends.end else ()
        ):
            found = remembered_of(records.column("value"), self._registry_of(""))
            ends.remember(found, records.column("offset").to_numpy(), until)
        ends.end = max(ends.end, until)

    def events(
        self,
        parts: Mapping[TopicPartition, Ahead],
        spans: Mapping[TopicPartition, tuple[int, int]],
        ends: Ends,
    ) -> None:
        """Reads records of partitions, which follow on those that are known."""
        wanted = [_range(tp, start, end) for tp, (start, end) in spans.items() if end > start]
        for span, records in self.input.read(wanted, self.rows):
            events = self._events_of(span.topic, records, ends)
            if len(events.offsets):
                parts[TopicPartition(span.topic, span.partition)].add(events, int(events.offsets[-1]) + 1)
        for tp, (_, end) in spans.items():
            parts[tp].end = max(parts[tp].end, end)

    def is_new(self, ends: Ends, rank: int) -> bool:
        """Whether a transaction has not ended before, as far as the transaction topic was not read."""
        sought = ends.ids[ends.row(rank)]
        pattern = sought if self._registry_of("") is not None else f'"{sought}'
        for _, records in self.input.read([_range(self.tp, ends.position, rank)], self.rows):
            found = pc.match_substring(records.column("value"), pattern)
            rows = records.filter(pc.fill_null(found, fill_value=False)).column("value").drop_null()
            if len(rows) and sought in boundaries_of(rows, self._registry_of("")).short:
                return False
        return True

    def _may_count(self, values: pa.LargeBinaryArray, topics: Sequence[str]) -> pa.BooleanArray:
        """Which END events may count tables of some topics: their names are in them."""
        names = {self.names[code] for topic in topics for code in self.read.get(topic, ())}
        names |= {f".{word}" for topic in topics if topic not in self.read for word in _WORD.findall(topic)}
        found = pa.array(np.zeros(len(values), np.bool_))
        for name in sorted(names):
            found = pc.or_(found, pc.fill_null(pc.match_substring(values, name), fill_value=False))
        return found

    def rank_again(self, ahead: Ahead, ends: Ends) -> None:
        """The ranks of events whose transactions may have ended meanwhile."""
        rows = np.flatnonzero(ahead.events.ranks == PENDING)
        if len(rows):
            names = self.names
            of_rows = [names.get(code) for code in ahead.events.codes[rows].tolist()]
            collections = pl.Series("collection", of_rows, pl.String)
            ids = ahead.events.ids[rows]
            ahead.events.ranks[rows] = ends.ranks_of(ids, collections, one_origin=self._has_one_origin)

    def note(self, topic: str, name: str) -> None:
        """A topic has events of a collection."""
        self.read.setdefault(topic, set()).add(self.codes.setdefault(name, len(self.codes)))

    @property
    def names(self) -> dict[int, str]:
        """The collections, by their codes."""
        return {code: name for name, code in self.codes.items()}

    @property
    def by_topic(self) -> dict[str, tuple[str, ...]]:
        """The collections of each topic."""
        names = self.names
        return {topic: tuple(sorted(names[code] for code in codes)) for topic, codes in self.read.items()}

    def collections(self, topics: Iterable[str], counted: Sequence[str]) -> Collections:
        """What is read of the collections that END events count."""
        codes, read_by = dict(self.codes), dict[int, list[str]]()
        for topic, read in self.read.items():
            for code in read:
                read_by.setdefault(code, []).append(topic)
        silent = set(topics) - self.read.keys()
        for topic in sorted(silent):  # one without any event yet has the table whose name is in its own
            words = set(_WORD.findall(topic))
            for name in sorted({name for name in counted if name.rpartition(".")[2] in words} - codes.keys()):
                codes[name] = len(codes)
                read_by[codes[name]] = [topic]
        return Collections(codes, read_by)

    def _events_of(self, topic: str, records: pa.RecordBatch, ends: Ends) -> Events:
        marks = marks_of(records.column("value"), self._registry_of(topic))
        self._check_origins(topic, marks.origins)
        node = self._source_of(topic)
        if node.unwrap is not None and not marks.is_event.any():
            row = next((one for one in records.column("value").to_pylist() if one is not None), b"")
            if is_plain_row(row, node.unwrap.keys):
                what = (
                    "its records are rows without envelopes, which do not say which transaction they are of"
                )
                step = "let the connector write whole events, or leave transactions out"
                raise refuse("CS-622", what, step, topic=topic)
        names = sorted(marks.collections.unique().drop_nulls().to_list())
        for name in names:
            self.note(topic, name)
        codes = marks.collections.replace_strict(
            {name: self.codes[name] for name in names}, default=-1, return_dtype=pl.Int64
        )
        has_id = marks.ids.is_not_null().to_numpy()
        ranks = np.full(len(has_id), NOTHING, np.int64)
        if has_id.any():
            ids, collections = marks.ids.filter(has_id), marks.collections.filter(has_id)
            ranks[has_id] = ends.ranks_of(ids, collections, one_origin=self._has_one_origin)
        offsets, times = (records.column(name).to_numpy() for name in ("offset", "timestamp"))
        return Events(
            offsets, times, ranks, marks.orders, codes.to_numpy(), marks.snapshots, marks.lsns, marks.ids
        )

    def _check_origins(self, topic: str, origins: Sequence[str]) -> None:
        """Raises `SourceError` CS-622 for a topic with events of several connectors."""
        for origin in origins:
            known = self.origins.setdefault(topic, origin)
            if known != origin:
                what = f"the topic has events of two connectors, {known!r} and {origin!r}, which have no common order"
                raise refuse("CS-622", what, "give each connector topics of its own", topic=topic)

    @property
    def _has_one_origin(self) -> bool:
        return len(set(self.origins.values())) < 2

    def _source_of(self, topic: str) -> Source:
        return next((node for node in self.sources if topic in node.topics), self.sources[0])

    def _registry_of(self, topic: str) -> RegistrySettings | None:
        node = self._source_of(topic)
        return None if node.unwrap is None else node.unwrap.registry


def _range(tp: TopicPartition, start: int, end: int) -> SourceRange:
    return SourceRange("", tp.topic, tp.partition, start, end, 0)
