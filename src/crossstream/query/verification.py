"""Checking a whole state folder: every file that a kept batch leads to, and what none of them leads to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import hash_keys, partition_bounds, partition_of
from crossstream.errors import StateError
from crossstream.planning.layouts import KEY_VALUE, layout_of
from crossstream.query.files import application_of
from crossstream.storage.bucket import AWAY
from crossstream.storage.commit_log import BatchLog, batch_file, commit_file
from crossstream.storage.files import UNFINISHED, in_threads, partition_folder
from crossstream.storage.log_entries import SENT, Application, Commit
from crossstream.storage.manifest import Manifest, SegmentRef, overlap_of, read_manifest, read_run
from crossstream.storage.root import Place, StateRoot, root_of
from crossstream.storage.sorted_run import Run, in_order, newest

T = TypeVar("T")

PASSING = (UNFINISHED, ".history")
"""Files that only a batch reads that runs just now."""
MOST_GAPS = 100
"""So many missing commits in a row are named."""
UNREACHED = ("CS-713", "CS-723", AWAY)
"""Codes of errors that say nothing of the files."""


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
    root, file = root_of(state_dir, cached=False), "application.json"
    try:
        application, file = application_of(root), "."
        return _Verification(root, application).run()
    except StateError as error:
        if error.code in UNREACHED:
            raise
        return Verified(files=1, problems=[Problem(error.what, file)])


@dataclass(slots=True)
class _Verification:
    root: StateRoot
    application: Application
    found: Verified = field(default_factory=Verified)
    used: set[str] = field(default_factory=set)
    earlier: dict[int, Application] = field(default_factory=dict)
    """Whose state it was before batches that changed that."""

    def run(self) -> Verified:
        # What is there is listed before the commits are: what a running application adds later is no leftover.
        there = self._files()
        log, found = BatchLog(self.root), self.found
        ids = set(log.commits())
        for number in log.batches():
            entry = self._read(batch_file(number), partial(log.batch, number), ())
            if entry is not None and entry.was is not None and number in ids:
                self.earlier[number] = entry.was
        commits = list(self._commits(log))
        in_threads(self._check, sorted(self._manifests(commits).items()), os.cpu_count())
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
        first, end = ids[0] if ids else max(begun, default=0) - 1, max([*begun, *ids], default=0)
        for before, after in pairwise([max(first, 0) - 1, *ids, end]):
            for gap in range(before + 1, after)[:MOST_GAPS]:
                self._report("the commit is missing", commit_file(gap), [Commit(gap, 0)])
        if self.application.committed and not (begun or ids):
            self._report("the commits are missing", "commits")
        for id_ in ids:
            file = commit_file(id_)
            commit = self._read(file, partial(log.commit, id_), [Commit(id_, 0)])
            if commit is None:
                continue
            unknown = sorted(store for store in commit.versions if self._kind(store, commit) is None)
            if unknown:
                what = f"it names stores that the application has not: {', '.join(unknown)}"
                self._report(what, file, [commit])
            yield commit

    def _whose(self, commit: Commit) -> Application:
        """Whose state it was after a batch."""
        return next((was for number, was in self.earlier.items() if number > commit.id), self.application)

    def _kind(self, store: str, commit: Commit) -> str | None:
        """The kind of a store; None if the application of then had none of this name."""
        if store.startswith(SENT):
            return KEY_VALUE.kind
        known = self._whose(commit).stores.get(store)
        return None if known is None else known.split("/")[0]

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
        except (msgspec.MsgspecError, pa.ArrowException, ValueError, OSError) as error:
            self._report(f"it cannot be read: {error}", file, commits, **place)
        return None

    def _manifests(self, commits: Iterable[Commit]) -> dict[tuple[str, int], dict[str, list[Commit]]]:
        """By store and state partition, the manifests that kept commits name, each with these commits."""
        found: dict[tuple[str, int], dict[str, list[Commit]]] = {}
        for commit in commits:
            for store in commit.versions:
                for partition, name in commit.versions[store].items() if self._kind(store, commit) else ():
                    found.setdefault((store, partition), {}).setdefault(name, []).append(commit)
        return found

    def _check(self, item: tuple[tuple[str, int], dict[str, list[Commit]]]) -> None:
        """The manifests of a state partition, and the run files that they name, each once."""
        (store, partition), manifests = item
        folder, where = partition_folder(store, partition), {"store": store, "partition": partition}
        storage = self.root.storage(folder)
        segments: dict[str, list[tuple[SegmentRef, list[Commit]]]] = {}
        for name, commits in manifests.items():
            path = f"{folder}/{name}"
            self.used.add(path)
            kind = self._kind(store, commits[0])
            manifest = self._read(path, partial(read_manifest, storage, name, kind), commits, **where)
            if manifest is None:
                continue
            for what in self._manifest_faults(store, partition, manifest, commits):
                self._report(what, path, commits, **where)
            for segment in manifest.segments():
                segments.setdefault(segment.file, []).append((segment, commits))
        for file, named in segments.items():
            path, refs = f"{folder}/{file}", [ref for ref, _ in named]
            self.used.add(path)
            leading = [commit for _, commits in named for commit in commits]
            self.found.size += refs[0].size
            run = self._read(path, partial(read_run, storage, refs[0]), leading, **where)
            if run is None:
                continue
            self.found.rows += run.rows
            kind, here = self._kind(store, leading[0]) or "", (partition, leading[0].partitions)
            by_key2 = store in self._whose(leading[0]).by_key2
            for what in run_faults(run, kind, refs, here if by_key2 else None):
                self._report(what, path, leading, **where)
            if hot := hot_in(store, leading):
                others = run["h"][~np.isin(run["h"], np.array(sorted(hot), np.uint64))]
                if elsewhere := int((partition_of(others, here[1]) != here[0]).sum()):
                    self._report(f"{elsewhere} rows belong to another partition", path, leading, **where)

    def _manifest_faults(
        self, store: str, partition: int, manifest: Manifest, commits: list[Commit]
    ) -> Iterator[str]:
        partitions = commits[0].partitions
        if partition >= partitions:
            yield f"there are {partitions} partitions only"
            return
        if manifest.batch > min(commit.id for commit in commits):
            yield f"it was written by batch {manifest.batch}, after a batch that leads to it"
        application, bounds = self._whose(commits[0]), partition_bounds(partitions)
        placed = (*application.placed, *application.derived, *application.by_key2, *application.anywhere)
        anywhere = store in placed or bool(hot_in(store, commits))
        low, high = (0, 1 << 64) if anywhere else (bounds[partition], bounds[partition + 1])
        if twice := overlap_of(manifest):
            yield twice
        for number, level in enumerate(manifest.levels):
            above = -1
            for segment in level.segments:
                which = f"rows {segment.start} to {segment.stop} of {segment.file}, in level {number},"
                if not (0 <= segment.start < segment.stop and segment.low <= segment.high):
                    yield f"{which} are not a valid range"
                if segment.low < above:
                    yield f"{which} overlap the rows before them"
                if segment.low < low or segment.high >= high:
                    yield f"{which} belong to another partition"
                above = segment.high


def _rank(problem: Problem) -> tuple[Any, ...]:
    """By store, partition and batch; those of no store first."""
    place = -1 if problem.partition is None else problem.partition
    return (problem.store or "", place, problem.batches, problem.file)


def segment_faults(run: Run, segment: SegmentRef) -> Iterator[str]:
    """Whether a manifest says the truth about a segment of a run."""
    if segment.stop > run.rows:
        yield f"the manifest takes rows up to {segment.stop}, and there are {run.rows}"
    elif segment.start < segment.stop and (run["h"][segment.start], run["h"][segment.stop - 1]) != (
        segment.low,
        segment.high,
    ):
        yield f"the manifest has other hashes for rows {segment.start} to {segment.stop}"


def hot_in(store: str, commits: Iterable[Commit]) -> set[int]:
    """The hashes of the keys whose rows may be in any state partition of a store (decision 0053)."""
    return {key for commit in commits for key in commit.hot.get(store, ())}


def run_faults(run: Run, kind: str, refs: list[SegmentRef], by_key2: tuple[int, int] | None) -> Iterator[str]:
    """What is wrong with the rows of a run of a store of this kind, and with what manifests say of it.

    ``by_key2``: if the second key decides in which partition a row is, this partition, and how many there are.
    """
    if len({(ref.size, ref.checksum) for ref in refs}) > 1:
        yield "manifests do not agree on its size or checksum"
    layout = layout_of(kind)
    if layout is None or not layout.fits(run.columns):
        yield f"its columns are not those of a {kind} store"
        return
    if not in_order(run.columns):
        yield "its rows are not sorted"
    elif not newest(run.columns).all():
        yield "it has rows of one identity twice"
    for name in run.columns.keys() & {"key", "key2"}:
        if run[name].null_count:
            yield f"the column {name} has nulls"
    hashed = {"h": "key", "s": "key2"} if layout.second_key and layout.sort == "uint64" else {"h": "key"}
    for name, source in hashed.items():
        if not np.array_equal(run[name], hash_keys(run[source])):
            yield f"the column {name} is not the hash of the column {source}"
    if (run["gone"] > 1).any():
        yield "the column gone has other values than 0 and 1"
    yield from dict.fromkeys(fault for ref in refs for fault in segment_faults(run, ref))
    if by_key2 is not None and (elsewhere := int((partition_of(run["s"], by_key2[1]) != by_key2[0]).sum())):
        yield f"{elsewhere} rows belong to another partition"
