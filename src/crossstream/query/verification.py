"""Checking a whole state folder: every file that a kept batch leads to, and what none of them leads to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import hash_keys, partition_bounds, partition_of
from crossstream.errors import StateError
from crossstream.planning.plan import layout_of
from crossstream.query.files import application_of
from crossstream.storage.bucket import AWAY
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import UNFINISHED, partition_folder
from crossstream.storage.log_entries import Application, Commit
from crossstream.storage.manifest import Manifest, SegmentRef, read_manifest, read_run
from crossstream.storage.root import Place, StateRoot, root_of
from crossstream.storage.sorted_run import Layout, Run, newest

T = TypeVar("T")

PASSING = (UNFINISHED, ".history")
"""Files that only a batch reads that runs just now."""
UNREACHED = ("CS-713", "CS-723", AWAY)
"""Codes of errors that say nothing of the files."""
WHOLE = (0, 1 << 64)
"""The hashes of a partition whose rows are not placed by the hash of their key: any."""


@dataclass(frozen=True, slots=True)
class Problem:
    """``batches``: those whose state cannot be trusted, of those that are kept; empty where it is of none of them."""

    what: str
    file: str
    store: str | None = None
    partition: int | None = None
    batches: tuple[int, ...] = ()


@dataclass(slots=True)
class Verified:
    """``files``, ``size``: files checked and their bytes; ``rows``: in runs. ``leftovers``: paths below the folder."""

    batches: tuple[int, ...] = ()
    files: int = 0
    size: int = 0
    rows: int = 0
    problems: list[Problem] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


def verify_state(state_dir: Place) -> Verified:
    """Reads and checks everything in a state folder, while its application runs or after.

    Of a remote one the files themselves, not the copies on this machine. Raises `StateError`: CS-713 if there is no
    state, CS-707, CS-723 if it cannot be reached; all else that is wrong is in the result.
    """
    root = root_of(state_dir, cached=False)
    place = "application.json"
    try:
        application = application_of(root)
        for place in ("batches", "commits"):
            root.names(place)
    except StateError as error:
        if error.code in UNREACHED:
            raise
        return Verified(files=1, problems=[Problem(error.what, place)])
    return _Verification(root, application).run()


@dataclass(slots=True)
class _StatePartition:
    """A state partition of a store: the manifests that kept commits name, each with their ids and partitions."""

    store: str
    partition: int
    manifests: dict[str, list[Commit]] = field(default_factory=dict)


@dataclass(slots=True)
class _Verification:
    root: StateRoot
    application: Application
    found: Verified = field(default_factory=Verified)
    used: set[str] = field(default_factory=set)

    def run(self) -> Verified:
        # What is there is listed before the commits are: what a running application adds later is no leftover.
        there = self._files()
        log, found = BatchLog(self.root), self.found
        commits = list(self._commits(log))
        self._entries(log)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(self._check, self._state_partitions(commits)))
        oldest = min(log.commits(), default=0)
        found.batches = tuple(commit.id for commit in commits if commit.id >= oldest)
        # No batch needs what was retired meanwhile.
        found.problems = sorted(
            (one for one in found.problems if max(one.batches, default=oldest) >= oldest), key=_rank
        )
        left = [name for name in there if name not in self.used and not name.endswith(PASSING)]
        found.leftovers = sorted(set(left).intersection(self._files())) if left else []
        return found

    def _files(self) -> list[str]:
        return [f"{folder}/{name}" for folder, names in self.root.tree("stores").items() for name in names]

    def _report(self, what: str, file: str, commits: Iterable[Commit] = (), **place: Any) -> None:
        batches = tuple(sorted({commit.id for commit in commits}))
        self.found.problems.append(Problem(what, file, batches=batches, **place))

    def _commits(self, log: BatchLog) -> Iterator[Commit]:
        begun = log.batches()  # listed first: all but the last had a commit by then
        ids = log.commits()
        whole = range(ids[0] if ids else max(begun, default=0) - 1, max([*begun, *ids], default=0))
        for gap in sorted(set(whole) - {*ids, -1}):
            self._report("the commit is missing", _log_file("commits", gap), [Commit(gap, 0)])
        if self.application.committed and not (begun or ids):
            self._report("the commits are missing", "commits")
        for id_ in ids:
            file = _log_file("commits", id_)
            commit = self._read(file, partial(log.commit, id_), [Commit(id_, 0)])
            if commit is None:
                continue
            unknown = sorted(commit.versions.keys() - self.application.stores.keys())
            if unknown:
                self._report(
                    f"it names stores that the application has not: {', '.join(unknown)}", file, [commit]
                )
            yield commit

    def _entries(self, log: BatchLog) -> None:
        for number in log.batches():
            self._read(_log_file("batches", number), partial(log.batch, number), ())

    def _read(self, file: str, read: Callable[[], T], commits: Iterable[Commit], **place: Any) -> T | None:
        """What a file holds; None, and the problem noted, if it cannot be read."""
        self.found.files += 1
        try:
            return read()
        except StateError as error:
            if error.code in UNREACHED:
                raise
            self._report(error.what, file, commits, **place)
        except FileNotFoundError:
            pass  # retired between listing and reading
        except (msgspec.MsgspecError, pa.ArrowException, ValueError) as error:
            self._report(f"it cannot be read: {error}", file, commits, **place)
        return None

    def _state_partitions(self, commits: Iterable[Commit]) -> list[_StatePartition]:
        places: dict[tuple[str, int], _StatePartition] = {}
        for commit in commits:
            for store in commit.versions.keys() & self.application.stores.keys():
                for partition, name in commit.versions[store].items():
                    place = places.setdefault((store, partition), _StatePartition(store, partition))
                    place.manifests.setdefault(name, []).append(commit)
        return [places[key] for key in sorted(places)]

    def _check(self, place: _StatePartition) -> None:
        """The manifests of a state partition, and the run files that they name, each once."""
        path = partition_folder(place.store, place.partition)
        storage = self.root.storage(path)
        where = {"store": place.store, "partition": place.partition}
        kind = self.application.stores[place.store].split("/")[0]
        segments: dict[str, list[tuple[SegmentRef, list[Commit]]]] = {}
        for name, commits in place.manifests.items():
            self.used.add(f"{path}/{name}")
            manifest = self._read(
                f"{path}/{name}", partial(read_manifest, storage, name, kind), commits, **where
            )
            for what in () if manifest is None else self._manifest_faults(place, manifest, commits):
                self._report(what, f"{path}/{name}", commits, **where)
            for segment in (
                () if manifest is None else (p for level in manifest.levels for p in level.segments)
            ):
                segments.setdefault(segment.file, []).append((segment, commits))
        for file, refs in segments.items():
            self.used.add(f"{path}/{file}")
            leading = [commit for _, commits in refs for commit in commits]
            run = self._read(f"{path}/{file}", partial(read_run, storage, refs[0][0]), leading, **where)
            for what in () if run is None else self._run_faults(run, kind, [ref for ref, _ in refs]):
                self._report(what, f"{path}/{file}", leading, **where)
            if run is not None and place.store in self.application.by_key2:
                for what in partition_faults(run, place.partition, leading[0].partitions):
                    self._report(what, f"{path}/{file}", leading, **where)
            self.found.size += refs[0][0].size
            self.found.rows += 0 if run is None else run.rows

    def _manifest_faults(
        self, place: _StatePartition, manifest: Manifest, commits: list[Commit]
    ) -> Iterator[str]:
        partitions = commits[0].partitions
        if place.partition >= partitions:
            yield f"there are {partitions} partitions only"
            return
        if manifest.batch > min(commit.id for commit in commits):
            yield f"it was written by batch {manifest.batch}, after a batch that leads to it"
        bounds = partition_bounds(partitions)
        own = (bounds[place.partition], bounds[place.partition + 1])
        found = self.application
        anywhere = (*found.placed, *found.derived, *found.by_key2, *found.anywhere)
        yield from manifest_faults(manifest, *(WHOLE if place.store in anywhere else own))

    def _run_faults(self, run: Run, kind: str, refs: list[SegmentRef]) -> Iterator[str]:
        if len({(ref.size, ref.checksum) for ref in refs}) > 1:
            yield "manifests do not agree on its size or checksum"
        yield from run_faults(run, kind)
        yield from dict.fromkeys(fault for ref in refs for fault in segment_faults(run, ref))


def _log_file(folder: str, number: int) -> str:
    return f"{folder}/{number:012d}.json"


def _rank(problem: Problem) -> tuple[Any, ...]:
    """By store, partition and batch; those of no store first."""
    place = -1 if problem.partition is None else problem.partition
    return (problem.store or "", place, problem.batches, problem.file)


def manifest_faults(manifest: Manifest, low: int, high: int) -> Iterator[str]:
    """What is wrong with a manifest whose rows must have hashes from ``low`` to below ``high``."""
    for number, level in enumerate(manifest.levels):
        above = -1
        for segment in level.segments:
            where = f"rows {segment.start} to {segment.stop} of {segment.file}, in level {number},"
            if not (0 <= segment.start < segment.stop and segment.low <= segment.high):
                yield f"{where} are not a valid range"
            if segment.low < above:
                yield f"{where} overlap the rows before them"
            if segment.low < low or segment.high >= high:
                yield f"{where} belong to another partition"
            above = segment.high


def segment_faults(run: Run, segment: SegmentRef) -> Iterator[str]:
    """Whether a manifest says the truth about a segment of a run."""
    if segment.stop > run.rows:
        yield f"the manifest takes rows up to {segment.stop}, and there are {run.rows}"
    elif (int(run["h"][segment.start]), int(run["h"][segment.stop - 1])) != (segment.low, segment.high):
        yield f"the manifest has other hashes for rows {segment.start} to {segment.stop}"


def partition_faults(run: Run, partition: int, partitions: int) -> Iterator[str]:
    """Whether rows, of a store where the second key decides, are in the right one of so many partitions."""
    if "s" not in run.columns:
        return  # `run_faults` reports that
    elsewhere = int((partition_of(run["s"], partitions) != partition).sum())
    if elsewhere:
        yield f"{elsewhere} rows belong to another partition"


def run_faults(run: Run, kind: str) -> Iterator[str]:
    """What is wrong with the rows of a run of a store of this kind."""
    layout = layout_of(kind)
    if layout is None or Layout.found_in(kind, run.columns) != layout or tuple(run.columns) != layout.names:
        yield f"its columns are not those of a {kind} store"
        return
    if not _is_sorted(run):
        yield "its rows are not sorted"
    elif not newest(run.columns).all():
        yield "it has rows of one identity twice"
    for name in run.columns.keys() & {"key", "key2"}:
        if run[name].null_count:
            yield f"the column {name} has nulls"
    for name, source in _hashed(layout):
        if not np.array_equal(run[name], hash_keys(run[source])):
            yield f"the column {name} is not the hash of the column {source}"
    if (run["gone"] > 1).any():
        yield "the column gone has other values than 0 and 1"


def _is_sorted(run: Run) -> bool:
    h = run["h"]
    ordered = h[1:] >= h[:-1]
    if "s" in run.columns:
        ordered &= (h[1:] > h[:-1]) | (run["s"][1:] >= run["s"][:-1])
    return bool(ordered.all())


def _hashed(layout: Layout) -> list[tuple[str, str]]:
    """The columns of hashes, and the column each is made of."""
    return [("h", "key"), ("s", "key2")] if layout.second_key and layout.sort == "uint64" else [("h", "key")]
