"""Hot keys: which ones are, and their rows to where they belong (decision 0053).

    law    whichever keys are hot, and from which batch on: each row of a hot key is in the state partition of its
           second key, and every state partition has the same copies of what it refers to

A batch spreads the rows of a key that has just become hot before it does anything else. Each task takes what belongs
to it from the state partition of the key, as that was before the batch; there the rows are deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from crossstream.columns.hashing import partition_of
from crossstream.planning.plan import Plan, StoreDef
from crossstream.storage.columns import concat_all, take_all
from crossstream.storage.compaction import Part, Segment
from crossstream.storage.sorted_run import Run, newest, sort_rows
from crossstream.storage.store import Version
from crossstream.task.batch import Batch, Report
from crossstream.task.stores import FolderStores, MemoryStores

EACH = 500
"""Rows for each state partition that a key has to have, so that it is worth its copies."""
SHARE = 4
"""A key is hot if it alone makes its state partition larger than the mean by one part in so many."""

LOOKS = 8
"""Rows of a run that are looked at for each number that makes a key hot: a quarter of it in one run is seen."""

Hot = Mapping[str, Mapping[int, bool]]
"""As in a `Commit`."""
Other = Callable[[str, int], Version]
"""The version before the batch of a (store, state partition)."""
_Places = Callable[[np.ndarray], np.ndarray]


def crowded(version: Version, least: int, hot: np.ndarray) -> dict[int, int]:
    """The keys with about ``least`` rows or more, deleted ones counted: rows by hash. Those of ``hot`` are left out.

    A key with that many fills a good part of some run: few rows of each run are looked at.
    """
    step = max(1, least // LOOKS)
    runs = [segment.run["h"] for part in version.parts for segment in part.segments]
    found: set[int] = set()
    for h in runs:
        some = h[::step]
        found.update(some[1:][some[1:] == some[:-1]].tolist())
    wanted = np.array(sorted(found.difference(hot.tolist())), np.uint64)
    counts = np.zeros(len(wanted), np.int64)
    for h in runs if len(wanted) else ():
        counts += np.searchsorted(h, wanted, "right") - np.searchsorted(h, wanted, "left")
    there = zip(wanted.tolist(), counts.tolist(), strict=True)
    return {key: rows for key, rows in there if rows >= least}


def hot_after(
    hot: Hot, report: Report, state: Mapping[str, tuple[int, int]], partitions: int
) -> dict[str, dict[int, bool]]:
    """Which keys are hot after a batch; it has spread those that were before.

    ``report``: of the batch; ``state``: as there, of what was held before it. A key that has become hot stays so.
    """
    after = all_spread(hot, hot)
    if not report.crowded:
        return after
    rows = _by_store({**state, **report.state})
    for store, crowd in report.crowded.items():
        for key, count in crowd.items():
            if count >= EACH * partitions and SHARE * count * (partitions - 1) > rows[store]:
                after.setdefault(store, {}).setdefault(key, False)
    return after


def _by_store(state: Mapping[str, tuple[int, int]]) -> Counter[str]:
    rows: Counter[str] = Counter()
    for name, (held, _) in state.items():
        rows[name.rpartition("/")[0]] += held
    return rows


def by_hot_keys(partitions: int, hot: Mapping[int, bool]) -> Callable[[Run], np.ndarray]:
    """Places rows of keys with these hashes by their second key, and all others by their key."""
    hashes = np.array(sorted(hot), np.uint64)

    def places(run: Run) -> np.ndarray:
        deciding = np.asarray(np.where(np.isin(run["h"], hashes), run["s"], run["h"]))
        return partition_of(deciding, partitions)

    return places


def all_spread(hot: Hot, stores: Collection[str]) -> dict[str, dict[int, bool]]:
    """The hot keys when those of these stores are spread."""
    return {
        store: dict.fromkeys(hashes, True) if store in stores else dict(hashes)
        for store, hashes in hot.items()
    }


def before_batch(
    plan: Plan, batch: Batch, stores: MemoryStores | FolderStores, store: str, partition: int
) -> Version:
    """Any state partition as it was before the batch. ``stores``: that nothing is written through."""
    return stores.open(plan.stores[store], partition, batch.versions.get(store, {}).get(partition))


def spread(
    store: StoreDef,
    version: Version,
    batch: Batch,
    number: int,
    other: Other,
    save: Callable[[Run], Segment],
) -> Version:
    """The version that the state partition ``number`` begins the batch with, the rows of hot keys in their places."""
    if store.copies is not None:
        follows, of = store.copies
        is_new = version.batch < 0
        keys = batch.hot_in(follows) if is_new else batch.spreads(follows)
        runs = [live_rows(other(of, home), mine) for home, mine in _homes(keys, batch.partitions)]
        return _with(version, runs, save, is_new=is_new)
    keys = batch.spreads(store.name)
    runs = []
    for home, mine in _homes(keys, batch.partitions):
        rows = live_rows(
            other(store.name, home),
            mine,
            lambda s: partition_of(s, batch.partitions) == number,
            home != number,
        )
        runs.append(rows if home != number else _deleted(rows))
    return _with(version, runs, save)


def _homes(keys: np.ndarray, partitions: int) -> Iterable[tuple[int, np.ndarray]]:
    """The keys by the state partition of their hash."""
    places = partition_of(keys, partitions)
    return [(home, keys[places == home]) for home in np.unique(places).tolist()]


def live_rows(
    version: Version, keys: np.ndarray, places: _Places | None = None, is_there: bool = True
) -> Run | None:
    """The live rows of keys with these hashes; None if there are none.

    ``places``: by the hashes of second keys, which rows are somewhere; those that are, or are not.
    """
    parts = []
    for part in version.parts:
        for segment in part.segments:
            h = segment.run["h"]
            for key in keys:
                first, last = int(np.searchsorted(h, key, "left")), int(np.searchsorted(h, key, "right"))
                run = segment.run.slice(first, last) if first < last else None
                if run is not None and places is not None:
                    run = Run(take_all(run.columns, np.flatnonzero(places(run["s"]) == is_there)))
                if run is not None and run.rows:
                    parts.append(run.columns)
    if not parts:
        return None
    rows = sort_rows(concat_all(parts)).columns
    kept = np.flatnonzero(newest(rows) & (rows["gone"] == 0))
    return Run(take_all(rows, kept)) if len(kept) else None


def _deleted(run: Run | None) -> Run | None:
    """The same rows as deleted ones, without what they had."""
    if run is None:
        return None
    identity = {"h", "s", "key", "key2", "ts"}
    columns = {
        name: column
        if name in identity
        else (np.zeros_like(column) if isinstance(column, np.ndarray) else pa.nulls(run.rows, column.type))
        for name, column in run.columns.items()
    }
    return Run({**columns, "gone": np.ones(run.rows, np.uint8)})


def _with(
    version: Version, runs: Iterable[Run | None], save: Callable[[Run], Segment], *, is_new: bool = False
) -> Version:
    """The version with more rows, newer than all it has. ``is_new``: it is one, even without any."""
    columns = [run.columns for run in runs if run is not None]
    if not columns and not is_new:
        return version
    parts = version.parts
    if columns:
        parts = (Part((save(sort_rows(concat_all(columns))),)), *parts)
    return replace(
        version, parts=parts, stream_time=max(version.stream_time, 0 if is_new else -1), unsaved=True
    )
