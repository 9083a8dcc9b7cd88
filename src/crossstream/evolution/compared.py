"""Old and new rows of a result, side by side: which differ, in bounded memory.

    law    for each key, whatever runs and state partitions its rows are in: the new bytes if they are not the old
           ones, null if there is no row any more, and nothing if they are equal

Runs are sorted by the hash of the key. So both sides are read in ranges of the hash that have about `CHUNK_ROWS` rows,
in all runs together, and only these are in memory. The bytes of the keys decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import partition_bounds
from crossstream.columns.values import Values
from crossstream.planning.layouts import layout_of
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.own import alike
from crossstream.storage.columns import Column, Columns, concat_all, equal, take, take_all
from crossstream.storage.files import Storage, in_threads
from crossstream.storage.manifest import Manifest, lost, overlap_of, read_manifest, read_run
from crossstream.storage.root import root_of, state_partition
from crossstream.storage.sorted_run import Run, merge, newest

CHUNK_ROWS = 65_536
"""Rows of both sides that are compared at a time, about."""
END = 1 << 64
"""Behind the last hash."""
_TIMES = ("seen", "ts", "s")
"""Columns with the time of a row, of which the first that a store has counts."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table in a store, as a value that can be pickled. ``state``: the address of its root.

    ``versions``: names of its manifests by state partition, of which there are ``partitions``. ``placed``: rows are not
    where their hash says. ``value``: the serde of its bytes.
    """

    state: str
    store: str
    versions: Mapping[int, str]
    partitions: int
    value: EngineSerde
    placed: bool = False

    def between(self, low: int, high: int) -> Held:
        """The runs that may have rows with ``low <= h < high``, newest first in each state partition.

        Raises `StateError` CS-701 for files that are missing or damaged.
        """
        bounds, root, runs = partition_bounds(self.partitions), root_of(self.state), list[Run]()
        for partition in sorted(self.versions):
            if not self.placed and not (bounds[partition] < high and low < bounds[partition + 1]):
                continue
            with state_partition(root, self.store, partition) as storage:
                for ref in self._manifest(storage, partition).segments():
                    if ref.low < high and low <= ref.high:
                        runs.append(read_run(storage, ref).slice(ref.start, ref.stop))
        return Held(tuple(runs), self.value)

    def manifests(self) -> list[Manifest]:
        """Those of all state partitions. Raises as `between`."""
        root = root_of(self.state)

        def one(partition: int) -> Manifest:
            with state_partition(root, self.store, partition) as storage:
                return self._manifest(storage, partition)

        return in_threads(one, self.versions)

    def _manifest(self, storage: Storage, partition: int) -> Manifest:
        name = self.versions[partition]
        manifest = read_manifest(storage, name)
        layout, twice = layout_of(manifest.kind), overlap_of(manifest)
        if layout is None or layout.second_key or layout.expires or twice:
            why = twice or f"a {manifest.kind} store has no rows of a table"
            raise lost(f"the manifest {name} cannot be compared: {why}")
        return manifest


@dataclass(frozen=True, slots=True)
class Held:
    """Opened runs of one side; those of the same state partition newest first."""

    runs: Sequence[Run]
    value: EngineSerde
    bounds: Sequence[tuple[int, int]] = field(init=False, compare=False)
    """The first and the last hash of each run."""

    def __post_init__(self) -> None:
        bounds = tuple((int(run["h"][0]), int(run["h"][-1])) if run.rows else (END, -1) for run in self.runs)
        object.__setattr__(self, "bounds", bounds)

    def count(self, low: int, high: int) -> int:
        """The rows of a range of the hash in all runs, replaced ones among them."""
        return sum(stop - start for _, start, stop in self._spans(low, high))

    def _spans(self, low: int, high: int) -> Iterator[tuple[Run, int, int]]:
        """The runs with rows of a range, and which rows these are."""
        for run, (first, last) in zip(self.runs, self.bounds, strict=True):
            if first < high and low <= last:
                h = run["h"]
                start = int(np.searchsorted(h, np.uint64(low))) if first < low else 0
                yield run, start, run.rows if last < high else int(np.searchsorted(h, np.uint64(high)))

    def rows(self, low: int, high: int) -> Columns | None:
        """The live rows of a range, one for each key: ``h``, ``key``, ``value``, ``ts``, and perhaps ``headers``."""
        found = [run.slice(start, stop) for run, start, stop in self._spans(low, high) if start < stop]
        if not found:
            return None
        if "s" in found[0].columns:
            return _last_versions(merge(found, drop_gone=False).columns)
        return _timed(merge(found, drop_gone=True).columns)


def _last_versions(columns: Columns) -> Columns:
    """Of rows with versions the last one of each key, where it is no tombstone."""
    order = np.lexsort((-columns["s"], columns["h"]))
    names = [name for name in columns if name != "s"]
    latest = order[newest({name: columns[name] for name in ("h", "key")}, order)]
    rows = latest[columns["gone"][latest] == 0]
    return _timed(take_all({name: columns[name] for name in (*names, "s")}, rows))


def _timed(columns: Columns) -> Columns:
    time = next(name for name in _TIMES if name in columns)
    kept = {name: columns[name] for name in ("h", "key", "value", "headers") if name in columns}
    return {**kept, "ts": columns[time]}


@dataclass(frozen=True, slots=True)
class Differing:
    """Keys whose rows differ in one range of the hash. ``after``, ``before``: null where there is no row.

    ``ts``, ``headers``: of the new row; of one that is gone the old time, and none. ``ts_before``: of the old row, −1
    where there was none.
    """

    key: Column
    after: Column
    before: Column
    ts: np.ndarray
    ts_before: np.ndarray
    headers: Column


def differing(
    after: Held, before: Held | None, low: int, high: int, *, by_value: bool = False
) -> Iterator[Differing]:
    """Which rows with ``low <= h < high`` differ, range by range; ``by_value``: not those with equal values in other
    bytes, as other programs write JSON.
    """
    for start, stop in _ranges([after] if before is None else [after, before], low, high):
        found = _compared(
            after.rows(start, stop),
            None if before is None else before.rows(start, stop),
            after.value,
            None if before is None else before.value,
            by_value=by_value,
        )
        if found is not None:
            yield found


def _ranges(sides: Sequence[Held], low: int, high: int) -> Iterator[tuple[int, int]]:
    """Cuts a range of the hash into parts of at most `CHUNK_ROWS` rows, and mostly half as many; no hash is cut."""
    width = high - low
    while low < high:
        stop = _cut(sides, low, high, width)
        yield low, stop
        low, width = stop, stop - low


def _cut(sides: Sequence[Held], low: int, high: int, width: int) -> int:
    """Where a part ends that begins at ``low``; ``width``: of the part before, for hashes lie evenly."""
    stop = min(high, low + width)
    while (rows := _count(sides, low, stop)) <= CHUNK_ROWS and stop < high:
        stop = min(high, low + 2 * (stop - low))
    if rows <= CHUNK_ROWS:
        return stop
    least, most = low + 1, stop
    while least < most:
        middle = (least + most + 1) // 2
        rows = _count(sides, low, middle)
        if CHUNK_ROWS // 2 < rows <= CHUNK_ROWS:
            return middle
        if rows <= CHUNK_ROWS:
            least = middle
        else:
            most = middle - 1
    return least


def _count(sides: Sequence[Held], low: int, high: int) -> int:
    return sum(side.count(low, high) for side in sides)


def _compared(
    after: Columns | None,
    before: Columns | None,
    serde: EngineSerde,
    old: EngineSerde | None,
    *,
    by_value: bool,
) -> Differing | None:
    """The rows that differ, the new ones before those that are gone; None if there are none."""
    was = None if before is None else _written(before["value"], old, serde)
    new, rows, gone = _matched(after, before)
    if after is not None and was is not None:
        both = np.flatnonzero(rows >= 0)
        left = np.ones(len(new), bool)
        left[both[equal(take(after["value"], new[both]), take(was, rows[both]))]] = False
        if by_value:
            both = both[left[both]]
            values = serde.encode_series(serde.decode_series(take(after["value"], new[both])))
            left[both[equal(values, take(was, rows[both]))]] = False
        new, rows = new[left], rows[left]
    parts = []
    if after is not None and len(new):
        parts.append(_of_new(after, before, was, new, rows))
    if before is not None and len(gone):
        assert was is not None
        parts.append(_of_gone(before, was, gone))
    if not parts:
        return None
    columns = concat_all(parts)
    return Differing(**columns)


def _matched(after: Columns | None, before: Columns | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of ``after``, for each the row of ``before`` with its key or −1; and the rows of ``before`` without one."""
    nothing = np.empty(0, np.int64)
    if after is None:
        return nothing, nothing, nothing if before is None else np.arange(len(before["h"]))
    new = np.arange(len(after["h"]))
    if before is None:
        return new, np.full(len(new), -1), nothing
    queries, found = Run(dict(before)).match(after["h"], after["key"])
    rows = np.full(len(new), -1)
    rows[queries] = found
    left = np.ones(len(before["h"]), bool)
    left[found] = False
    return new, rows, np.flatnonzero(left)


def _written(values: Column, old: EngineSerde | None, serde: EngineSerde) -> Column:
    """The old values in the serde of the new ones. Raises `SerdeError`."""
    return values if old is None or alike(old, serde) else Values(old, wire=values).wire(serde)


def _of_new(
    after: Columns, before: Columns | None, was: Column | None, new: np.ndarray, rows: np.ndarray
) -> Columns:
    there = rows >= 0
    old = pa.nulls(len(new), pa.large_binary())
    ts_before = np.full(len(new), -1, np.int64)
    if before is not None and was is not None and there.any():
        old = was.take(pa.array(rows, mask=~there))
        ts_before[there] = before["ts"][rows[there]]
    headers = take(after["headers"], new) if "headers" in after else pa.nulls(len(new), pa.large_binary())
    return {
        "key": take(after["key"], new),
        "after": take(after["value"], new),
        "before": old,
        "ts": after["ts"][new],
        "ts_before": ts_before,
        "headers": headers,
    }


def _of_gone(before: Columns, was: Column, gone: np.ndarray) -> Columns:
    nulls = pa.nulls(len(gone), pa.large_binary())
    return {
        "key": take(before["key"], gone),
        "after": nulls,
        "before": take(was, gone),
        "ts": before["ts"][gone],
        "ts_before": before["ts"][gone],
        "headers": nulls,
    }
