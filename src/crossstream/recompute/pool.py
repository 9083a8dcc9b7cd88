"""Records of topics that may have made a row, in the order in which they arrived, and runs over some of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.order import running_maximum
from crossstream.errors import SerdeError
from crossstream.graph.nodes import Graph, Node
from crossstream.planning.plan import Plan
from crossstream.recompute.inputs import last_clock
from crossstream.recompute.loads import Loads, Offsets
from crossstream.recompute.replay import FromMemory, Replay
from crossstream.records import RECORDS, concat
from crossstream.runtime.in_process import Span
from crossstream.serdes import calls
from crossstream.serdes.debezium.changes import unwrap
from crossstream.serdes.debezium.snapshots import INCREMENTAL, NO_SNAPSHOT, SHOWN
from crossstream.storage.log_entries import BatchEntry
from crossstream.task.batch import Settings, rank_of
from crossstream.topics import OffsetRange, RangeReader

OLDER = -1
"""The batch of records whose batch is not in the log any more."""
LOADED = -2
"""The same, of records that were read before all others."""
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
        keys, numbers, of_all = row_keys(source, records)
        named = pa.array([one for one in self.keys if one is not None], pa.large_binary())
        about = np.asarray(pc.is_in(keys, value_set=named)) | of_all
        if None in self.keys:
            about = about | np.asarray(keys.is_null())
        found = np.zeros(records.num_rows, bool)
        found[numbers[about]] = True
        if place in self.places:
            found = found | np.isin(np.asarray(records.column("offset")), list(self.places[place]))
        return found


def row_keys(source: Node, records: pa.RecordBatch) -> tuple[pa.LargeBinaryArray, np.ndarray, np.ndarray]:
    """The keys of the rows that records are about, as the application has them, the record of each, and which of them
    are about rows of other keys, too.

    A change event has the key of its row in it, and may be about two rows. One without a key empties the table, and the
    first and the last row of a snapshot delete rows. A serde that may write a key in several ways has one form of it.
    """
    keys, numbers = records.column("key"), np.arange(records.num_rows)
    if source.unwrap is not None:
        found = unwrap(source.unwrap, keys, records.column("value"), ()).part
        borders = ~np.isin(found.snapshot, (NO_SNAPSHOT, SHOWN, INCREMENTAL))
        return found.keys, found.records, borders | np.asarray(found.keys.is_null())
    no_others = np.zeros(len(keys), bool)
    if source.key is None or not source.key.varied:
        return keys, numbers, no_others
    texts = keys.dictionary_encode()
    forms = [_in_one_form(source.key, text) for text in texts.dictionary.to_pylist()]
    return pa.array(forms, pa.large_binary()).take(texts.indices), numbers, no_others


def _in_one_form(serde: Any, text: bytes) -> bytes | None:
    try:
        found: bytes | None = calls.serialize(serde, calls.deserialize(serde, text))
    except SerdeError:  # a record that the application passed over
        return text
    return found


@dataclass(frozen=True, slots=True)
class Pool:
    """Records in order of arrival: ``part`` and ``row`` say where each is in ``parts``, the records of each span.

    ``batch``: that which read the record, or `OLDER`, `LOADED`. ``clock``: what it showed in the last batch, in ms.
    ``snapshots``: as in a `Batch`.
    """

    spans: tuple[Span, ...]
    parts: tuple[pa.RecordBatch, ...]
    part: np.ndarray
    row: np.ndarray
    batch: np.ndarray
    clock: int = 0
    snapshots: Offsets = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.part)

    def replayed(
        self, plan: Plan, partitions: int, settings: Settings, chosen: np.ndarray | None = None
    ) -> Replay:
        """A run over the chosen records alone, in their order."""
        replay = Replay(plan, partitions, settings, clock=self.clock, snapshots=self.snapshots)
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
    loads: Loads,
) -> Pool:
    """Reads the wanted records. They arrive batch by batch, and in a batch by semantics 1.2.

    ``known``: what was read before, by partition and keys. ``loads``: what came before all other records.
    """
    nodes = list(topology.nodes)
    used = sorted(
        (span for span in spans if span[0] in wanted), key=lambda one: (nodes.index(one[0]), one[1], one[2])
    )
    parts, columns = [], []
    for number, span in enumerate(used):
        asked = wanted[span[0]]
        which = (span, asked.every, frozenset(asked.keys)) if not asked.places else None
        found = known.get(which)
        if found is None:
            is_global, loaded = topology[span[0]].shape == "global", loads.end_of(*span[1:3])
            first = span[4] if is_global and loads.ends else loaded
            found = _picked(topology[span[0]], span, asked, _borders(span, entries), first, reader)
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
    clock = last_clock(entries)
    return Pool(tuple(used), tuple(parts), part[order], row[order], batch[order], clock, loads.snapshots)


def _borders(span: Span, entries: Iterable[BatchEntry]) -> list[tuple[int, int]]:
    """Where each known batch begins in a partition, in order: (offset, batch)."""
    return sorted(
        (part.start, entry.id)
        for entry in entries
        for part in entry.ranges
        if (part.topic, part.partition) == span[1:3] and part.start < part.end
    )


def _picked(
    source: Node,
    span: Span,
    wanted: Wanted,
    borders: Sequence[tuple[int, int]],
    loaded: int,
    reader: RangeReader,
) -> Picked:
    """The wanted records of a partition. ``loaded``: up to which offset older ones came before those of others."""
    _, topic, partition, start, end = span
    starts = np.array([offset for offset, _ in borders], np.int64)
    ids = np.array([OLDER, *(number for _, number in borders)], np.int64)
    parts: list[pa.RecordBatch] = []
    batches: list[np.ndarray] = []
    majors: list[np.ndarray] = []
    last, newest = LOADED, -1
    for records in reader.read(OffsetRange(topic, partition, start, end), READ_ROWS):
        if source.unwrap is not None:
            records = _in_bytes(source, records)
        offsets = np.asarray(records.column("offset"))
        times = np.asarray(records.column("timestamp"))
        batch = ids[np.searchsorted(starts, offsets, side="right")]
        batch = np.where((batch == OLDER) & (offsets < loaded), LOADED, batch)
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
            parts.append(_in_bytes(source, records))
            batches.append(batch)
            majors.append(major)
    if not parts:
        nothing = np.empty(0, np.int64)
        return _empty(), nothing, nothing
    return concat(parts), np.concatenate(batches), np.concatenate(majors)


def _in_bytes(source: Node, records: pa.RecordBatch) -> pa.RecordBatch:
    """Records of a history with the values in bytes, as those of its topic have them beside it."""
    serde = source.value if source.unwrap is None else source.unwrap.row  # a row is a change event, too
    if source.past is None or serde is None or records.schema == RECORDS:
        return records
    values = pl.Series(records.column("value"), dtype=serde.dtype)
    columns = [*records.columns]
    columns[1] = calls.encode_series(serde, values)
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


def _empty() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in RECORDS.types], schema=RECORDS)
