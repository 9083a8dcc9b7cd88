"""Packs a batch into a bundle, on the machine where its state and its topics are; see `bundle_format`."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import msgspec
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.graph.nodes import Graph
from crossstream.recompute.bundle_format import INDEX, Index, InputFiles, ResultFile
from crossstream.recompute.committed_results import committed_results, written_topics
from crossstream.recompute.past_batch import PastBatch, past_batch, retired
from crossstream.records import concat
from crossstream.runtime.delivery import DeliveringConnection
from crossstream.storage.arrow_file import TYPES
from crossstream.storage.commit_log import batch_file, commit_file
from crossstream.storage.files import partition_folder
from crossstream.storage.manifest import read_manifest
from crossstream.storage.root import Place, state_partition
from crossstream.topics import OffsetRange

_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Packed:
    """A bundle that was written. ``files``: of the state, in it; ``size``: its own, in bytes."""

    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Packing:
    """A batch to be packed. ``files``: of the state, which are known before a record is read; ``size``: of the runs."""

    past: PastBatch
    files: tuple[str, ...]
    size: int

    @classmethod
    def of(cls, state_dir: Place, number: int) -> Packing:
        """Raises as `past_batch`."""
        past = past_batch(state_dir, number)
        sizes = dict(_files_of(past))
        return cls(past, tuple(sizes), sum(sizes.values()))

    def write(self, target: Path, connection: DeliveringConnection | None, topology: Graph | None) -> Packed:
        """Writes the bundle, beside its place first.

        ``connection``: to the topics; None: the batch read none. ``topology``: if it is known, for the topics that it
        writes. Raises `StateError`: CS-706 if the disk refuses, CS-714 if the batch is retired meanwhile, CS-715 for
        rows that no bundle holds.
        """
        beside = target.with_name(f"{target.name}.tmp")
        try:
            with zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as archive:
                for name in self.files:
                    archive.writestr(name, self._read(name))
                index = _Records(self.past, archive, connection).index(topology)
                archive.writestr(INDEX, msgspec.json.encode(index))
            os.replace(beside, target)
        except OSError as error:
            raise refuse("CS-706", f"the bundle cannot be written: {error}", file=str(target)) from error
        finally:
            beside.unlink(missing_ok=True)
        return Packed(len(self.files), target.stat().st_size)

    def _read(self, name: str) -> bytes:
        root, (folder, _, file) = self.past.root, name.rpartition("/")
        try:
            return bytes(root.storage(folder).read(file)) if folder.startswith("stores/") else root.read(name)
        except FileNotFoundError:
            raise retired(self.past) from None


@dataclass(frozen=True, slots=True)
class _Records:
    """Writes the records of a batch, and its results, to the archive."""

    past: PastBatch
    archive: zipfile.ZipFile
    connection: DeliveringConnection | None

    def index(self, topology: Graph | None) -> Index:
        """What the bundle says of itself, when they are written."""
        topics = written_topics(topology, self.past)
        inputs, results = self._inputs(), self._results(topics)
        return Index(self.past.number, inputs, self._counts(), results, tuple(sorted(topics)))

    def _inputs(self) -> tuple[InputFiles, ...]:
        if not self.past.entry.ranges:
            return ()
        assert self.connection is not None
        found = []
        with closing(self.connection.reader()) as reader:
            for number, span in enumerate(self.past.entry.ranges):
                offsets = OffsetRange(span.topic, span.partition, span.start, span.end)
                names = []
                for part, records in enumerate(_alike(reader.read(offsets, _ROWS))):
                    names.append(f"inputs/{number}-{part}.arrow")
                    self.archive.writestr(names[-1], _arrow(records, span.topic))
                found.append(InputFiles(span.topic, span.partition, span.start, span.end, tuple(names)))
        return tuple(found)

    def _results(self, topics: frozenset[str]) -> tuple[ResultFile, ...] | None:
        there = committed_results(self.past, self.connection, topics)
        if there is None:
            return None
        found = []
        for number, (owner, records) in enumerate(sorted(there.records.items(), key=itemgetter(0))):
            found.append(ResultFile(owner.topic, owner.partition, f"results/{number}.arrow"))
            self.archive.writestr(found[-1].file, _arrow(records, owner.topic))
        return tuple(found)

    def _counts(self) -> dict[str, int]:
        if self.connection is None:
            return {}
        with closing(self.connection.log()) as log:
            return dict(log.topics())


def _files_of(past: PastBatch) -> Iterator[tuple[str, int]]:
    """The files of the state that the batch needs, and their sizes: all of it before, and what it wrote."""
    yield "application.json", 0
    yield batch_file(past.number), 0
    if past.before.id >= 0:
        yield commit_file(past.before.id), 0
    if past.after is not None:
        yield commit_file(past.after.id), 0
    for commit in (past.before, past.after):
        if commit is None:
            continue
        for store, names in commit.versions.items():
            for partition, name in names.items():
                folder = partition_folder(store, partition)
                with state_partition(past.root, store, partition) as storage:
                    manifest = read_manifest(storage, name)
                yield f"{folder}/{name}", 0
                for ref in manifest.segments():
                    yield f"{folder}/{ref.file}", ref.size


def _alike(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Neighbours of one schema together: rows of a table may stand among change events."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if waiting and not waiting[0].schema.equals(batch.schema, check_metadata=True):
            yield concat(waiting)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield concat(waiting)


def _arrow(records: pa.RecordBatch, topic: str) -> bytes:
    if not set(records.schema.types) <= set(TYPES):
        what = f"a bundle cannot hold rows of {topic}: they are columns of a table, and no records of a topic"
        step = "run the batch again where its state is: crossstream replay app.py STATE_DIR --batch N"
        raise refuse("CS-715", what, step, topic=topic)
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, records.schema) as writer:
        writer.write_batch(records)
    return bytes(file.getvalue())
