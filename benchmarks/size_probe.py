"""What `crossstream bench size` asks of a state folder in a process of its own: with the package of the side it is of.

open      opens every state partition, as a start does
merge     a batch of 20,000 rows for each store, with the merging that it pays for; nothing is kept of it
rescale   cuts the state into another number of partitions
rows      rows of a store, and a sum over their keys and values that has no order
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from crossstream.planning.layouts import layout_of
from crossstream.runtime.rescaling import rescale
from crossstream.storage.columns import concat_all
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import partition_folder
from crossstream.storage.manifest import read_manifest
from crossstream.storage.overlay import Overlay
from crossstream.storage.root import root_of
from crossstream.storage.sorted_run import Run, merge, sort_rows
from crossstream.storage.store import StoreUpdate, Version, advance, load_version, saver, store_version

BATCH, BATCHES = 20_000, 25
RANGES = 64
"""Ranges of hashes that rows are read by."""
KEY, VALUE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
"""Odd numbers that keys and values are multiplied with before they are summed."""


def versions(state: Path) -> Iterator[tuple[str, int, Version]]:
    """Store, partition and version of the last commit."""
    root = root_of(state)
    for store, names in BatchLog(root).newest().versions.items():
        for partition, name in names.items():
            storage = root.storage(partition_folder(store, partition))
            layout = layout_of(read_manifest(storage, name).kind)
            assert layout is not None
            yield store, partition, load_version(storage, layout, name)


def opened(state: Path) -> dict[str, Any]:
    """What there is: rows, bytes, sorted runs, files."""
    found = [version for _, _, version in versions(state)]
    return {
        "rows": sum(version.rows for version in found),
        "bytes": sum(version.size for version in found),
        "runs": sum(len(version.parts) for version in found),
        "files": sum(len(version.files()) for version in found),
    }


def merged(state: Path) -> dict[str, Any]:
    """Core-milliseconds of a batch for all partitions of all stores: the mean, and the largest one."""
    root, rng = root_of(state), np.random.default_rng(3)
    seconds, written = np.zeros(BATCHES), 0
    partitions = BatchLog(root).newest().partitions
    for store, partition, version in versions(state):
        storage = Overlay(root.storage(partition_folder(store, partition)))
        for number in range(BATCHES):
            fresh = _some(version, rng, BATCH // partitions)
            began, batch, before = time.process_time(), version.batch + 1, set(storage.written)
            update = StoreUpdate(fresh, version.stream_time, batch, horizon=version.horizon)
            version = advance(version, update, saver(storage, f"{batch:012d}-probe"))
            version = store_version(version, storage, f"{batch:012d}-probe.manifest")
            seconds[number] += time.process_time() - began
            written += sum(len(storage.written[name]) for name in storage.written.keys() - before)
            for name in storage.written.keys() - version.files():
                del storage.written[name]
    return {
        "mean": 1000 * float(seconds.mean()),
        "most": 1000 * float(seconds.max()),
        "bytes": written / BATCHES,
    }


def _some(version: Version, rng: np.random.Generator, rows: int) -> Run:
    """Random rows of a version, to be put again."""
    segments = [segment.run for part in version.parts for segment in part.segments if segment.rows]
    ends = np.cumsum([run.rows for run in segments])
    wanted = np.unique(rng.integers(0, ends[-1], rows))
    parts = []
    for run, end in zip(segments, ends.tolist(), strict=True):
        here = wanted[(wanted >= end - run.rows) & (wanted < end)] - (end - run.rows)
        if len(here):
            parts.append(_taken(run, here))
    return merge([sort_rows(concat_all(parts))], drop_gone=False)


def _taken(run: Run, rows: np.ndarray) -> dict[str, Any]:
    import pyarrow as pa

    return {
        name: column[rows] if isinstance(column, np.ndarray) else column.take(pa.array(rows))
        for name, column in run.columns.items()
    }


def cut(state: Path, partitions: int) -> dict[str, Any]:
    """Rows and bytes of the state in so many partitions."""
    log = BatchLog(root_of(state), durable=True)
    log.lock("bench size")
    try:
        done = rescale(log, partitions, {})
    finally:
        log.unlock()
    return {"rows": done.rows, "bytes": done.size}


def summed(state: Path, kind: str, column: str) -> dict[str, Any]:
    """The live rows of the store of a kind, and a sum over their keys and a column."""
    rows, total = 0, np.uint64(0)
    for _, _, version in versions(state):
        if version.layout.kind.partition("(")[0] != kind:
            continue
        for run in _by_range(version):
            rows += run.rows
            with np.errstate(over="ignore"):
                total += (_numbers(run["key"]) * KEY ^ _numbers(run[column]) * VALUE).sum(dtype=np.uint64)
    return {"rows": rows, "sum": str(total)}


def _by_range(version: Version) -> Iterator[Run]:
    """The live rows, some at a time."""
    segments = [segment.run for part in version.parts for segment in part.segments]
    for number in range(RANGES):
        low, high = (number << 64) // RANGES, ((number + 1) << 64) // RANGES - 1
        cuts = [
            (int(run["h"].searchsorted(np.uint64(low))), int(run["h"].searchsorted(np.uint64(high), "right")))
            for run in segments
        ]
        parts = [run.slice(*cut) for run, cut in zip(segments, cuts, strict=True) if cut[0] < cut[1]]
        if parts:
            yield merge(parts, drop_gone=True)


def _numbers(column: Any) -> np.ndarray:
    """Numbers, or bytes of eight each, as unsigned ones."""
    if isinstance(column, np.ndarray):
        return column.astype(np.uint64)
    ends = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, column.offset * 8)
    assert (np.diff(ends) == 8).all(), "keys and values are numbers of 8 bytes"
    return np.frombuffer(column.buffers()[2], np.uint8)[ends[0] : ends[-1]].view(">u8").astype(np.uint64)


def main() -> None:
    what, state, *rest = sys.argv[1:]
    work: dict[str, Callable[[Path], dict[str, Any]]] = {
        "open": opened,
        "merge": merged,
        "rescale": lambda state: cut(state, int(rest[0])),
        "rows": lambda state: summed(state, *rest),
    }
    used, began = time.process_time(), time.monotonic()
    found = work[what](Path(state))
    cores = time.process_time() - used
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"seconds": time.monotonic() - began, "cores": cores, "resident": resident, **found}))


if __name__ == "__main__":
    main()
