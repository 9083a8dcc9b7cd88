"""Records of topics that may have made a row, in the order in which they arrived, and runs over some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.order import running_maximum
from crossstream.errors import SerdeError
from crossstream.graph.nodes import Graph, Node
from crossstream.planning.plan import Plan
from crossstream.recompute.replay import FromMemory, Replay
from crossstream.records import RECORDS, concat
from crossstream.runtime.in_process import Span
from crossstream.serdes import calls
from crossstream.serdes.debezium.changes import unwrap
from crossstream.storage.log_entries import BatchEntry
from crossstream.task.batch import Settings, rank_of
from crossstream.topics import OffsetRange, RangeReader

OLDER = -1
"""The batch of records whose batch is not in the log any more."""
PRECISE = 64
"""Up to so many changes from one topic partition to another, records are replayed one partition after the other."""
READ_ROWS = 1 << 18


Picked = tuple[pa.RecordBatch, np.ndarray, np.ndarray]
"""Records, their batches, and the running maxima of the timestamps in these."""


@dataclass(slots=True)
class Wanted:
    """Which records of a source: ``every`` one, those about rows of ``keys`` (None: a null key), those at ``places``.

    ``keys``: as the application has them (`row_keys`). ``places``: offsets, by topic and partition.
    """

    every: bool = False
    keys: set[bytes | None] = field(default_factory=set)
    places: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def add(self, other: Wanted) -> None:
        self.every |= other.every
        self.keys |= other.keys
        for place, offsets in other.places.items():
            self.places.setdefault(place, set()).update(offsets)

    def mask(self, source: Node, place: tuple[str, int], records: pa.RecordBatch) -> np.ndarray | None:
        """Which of the records are wanted; None: all."""
        if self.every:
            return None
        keys, numbers = row_keys(source, records)
        named = pa.array([one for one in self.keys if one is not None], pa.large_binary())
        about = np.asarray(pc.is_in(keys, value_set=named))
        if None in self.keys or _unwraps(source):  # an event without a key empties the table
            about = about | np.asarray(keys.is_null())
        found = np.zeros(records.num_rows, bool)
        found[numbers[about]] = True
        if place in self.places:
            found = found | np.isin(np.asarray(records.column("offset")), list(self.places[place]))
        return found


def row_keys(source: Node, records: pa.RecordBatch) -> tuple[pa.LargeBinaryArray, np.ndarray]:
    """The keys of the rows that records are about, as the application has them, and the record of each.

    A change event has the key of its row in it, and may be about two rows. A serde that may write a key in several ways
    has one form of it.
    """
    keys, numbers = records.column("key"), np.arange(records.num_rows)
    if source.unwrap is not None:
        found = unwrap(source.unwrap, keys, records.column("value"), ()).part
        return found.keys, found.records
    if source.key is None or not source.key.varied:
        return keys, numbers
    texts = keys.dictionary_encode()
    forms = [_in_one_form(source.key, text) for text in texts.dictionary.to_pylist()]
    return pa.array(forms, pa.large_binary()).take(texts.indices), numbers


def _unwraps(source: Node) -> bool:
    return source.unwrap is not None


def _in_one_form(serde: Any, text: bytes) -> bytes | None:
    try:
        found: bytes | None = calls.serialize(serde, calls.deserialize(serde, text))
    except SerdeError:  # a record that the application passed over
        return text
    return found


@dataclass(frozen=True, slots=True)
class Pool:
    """Records in order of arrival: ``part`` and ``row`` say where each is in ``parts``, the records of each span.

    ``batch``: that which read the record, or `OLDER`.
    """

    spans: tuple[Span, ...]
    parts: tuple[pa.RecordBatch, ...]
    part: np.ndarray
    row: np.ndarray
    batch: np.ndarray

    def __len__(self) -> int:
        return len(self.part)

    def replayed(
        self, plan: Plan, partitions: int, settings: Settings, chosen: np.ndarray | None = None
    ) -> Replay:
        """A run over the chosen records alone, in their order."""
        replay = Replay(plan, partitions, settings)
        rows = np.arange(len(self)) if chosen is None else chosen
        if not len(rows):
            replay.run((), FromMemory({}))
            return replay
        part, batch = self.part[rows], self.batch[rows]
        turns = np.flatnonzero(part[1:] != part[:-1]) + 1
        if len(turns) > PRECISE:
            turns = np.flatnonzero(batch[1:] != batch[:-1]) + 1
        for start, end in pairwise([0, *turns.tolist(), len(rows)]):
            replay.run(*self._batch(rows[start:end]))
        return replay

    def _batch(self, rows: np.ndarray) -> tuple[list[Span], FromMemory]:
        spans, records = [], {}
        for number in np.unique(self.part[rows]).tolist():
            node, topic, partition, *_ = self.spans[number]
            taken = self.parts[number].take(pa.array(np.sort(self.row[rows[self.part[rows] == number]])))
            offsets = taken.column("offset")
            spans.append((node, topic, partition, offsets[0].as_py(), offsets[-1].as_py() + 1))
            records[topic, partition] = taken
        return spans, FromMemory(records)


def collect(
    topology: Graph,
    spans: Sequence[Span],
    wanted: Mapping[str, Wanted],
    entries: Sequence[BatchEntry],
    reader: RangeReader,
    known: dict[Any, Picked],
) -> Pool:
    """Reads the wanted records. They arrive batch by batch, and in a batch by semantics 1.2.

    ``known``: what was read before, by partition and keys.
    """
    nodes = list(topology.nodes)
    used = sorted(
        (span for span in spans if span[0] in wanted), key=lambda one: (nodes.index(one[0]), one[1], one[2])
    )
    parts, columns = [], []
    for number, span in enumerate(used):
        asked = wanted[span[0]]
        which = (span, asked.every, frozenset(asked.keys)) if not asked.places else None
        found = known.get(which) or _picked(topology[span[0]], span, asked, _borders(span, entries), reader)
        if which is not None and not asked.every:
            known[which] = found
        records, batch, major = found
        parts.append(records)
        rows = np.arange(records.num_rows)
        ranks = np.full(len(rows), rank_of(topology[span[0]].shape, number))
        columns.append((np.full(len(rows), number), rows, batch, major, ranks))
    if not columns:
        nothing = np.empty(0, np.int64)
        return Pool((), (), nothing, nothing, nothing)
    part, row, batch, major, rank = (np.concatenate(arrays) for arrays in zip(*columns, strict=True))
    order = np.lexsort((row, rank, major, batch))
    return Pool(tuple(used), tuple(parts), part[order], row[order], batch[order])


def _borders(span: Span, entries: Iterable[BatchEntry]) -> list[tuple[int, int]]:
    """Where each known batch begins in a partition, in order: (offset, batch)."""
    return sorted(
        (part.start, entry.id)
        for entry in entries
        for part in entry.ranges
        if (part.topic, part.partition) == span[1:3] and part.start < part.end
    )


def _picked(
    source: Node, span: Span, wanted: Wanted, borders: Sequence[tuple[int, int]], reader: RangeReader
) -> Picked:
    """The wanted records of a partition."""
    _, topic, partition, start, end = span
    starts = np.array([offset for offset, _ in borders], np.int64)
    ids = np.array([OLDER, *(number for _, number in borders)], np.int64)
    parts: list[pa.RecordBatch] = []
    batches: list[np.ndarray] = []
    majors: list[np.ndarray] = []
    last, newest = OLDER, -1
    for records in reader.read(OffsetRange(topic, partition, start, end), READ_ROWS):
        offsets = np.asarray(records.column("offset"))
        times = np.asarray(records.column("timestamp"))
        batch = ids[np.searchsorted(starts, offsets, side="right")]
        major = np.empty(len(times), np.int64)
        cuts = [0, *(np.flatnonzero(batch[1:] != batch[:-1]) + 1).tolist(), len(batch)]
        for low, high in pairwise(cuts):
            newest = newest if batch[low] == last else -1
            major[low:high] = running_maximum(times[low:high], newest)
            last, newest = int(batch[low]), int(major[high - 1])
        mask = wanted.mask(source, (topic, partition), records)
        if mask is not None:
            records, batch, major = records.filter(pa.array(mask)), batch[mask], major[mask]
        if records.num_rows:
            parts.append(records)
            batches.append(batch)
            majors.append(major)
    if not parts:
        nothing = np.empty(0, np.int64)
        return _empty(), nothing, nothing
    return concat(parts), np.concatenate(batches), np.concatenate(majors)


def _empty() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in RECORDS.types], schema=RECORDS)
