"""Another number of partitions for a store: each new one is a slice of every run, not a replay.

    law    whatever the numbers of partitions before and after, each row is in the partition of its key, and of
           the rows with one identity the newest is found first; of rows that have expired none is left

A partition holds a range of key hashes, and runs are sorted by hash: its rows lie side by side in every old run. Slots
keep their order; those of several old partitions, whose hashes are disjoint, are put together from the oldest on.
Rows that are placed otherwise, such as by a partitioner of the user, are picked one by one, and sorted.

Merges that were under way are forgotten: between two steps their inputs and their output are runs like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from crossstream.storage.columns import concat_all, take_all
from crossstream.storage.compaction import NO_HORIZON, Part, unexpired
from crossstream.storage.sorted_run import Run, sort_rows
from crossstream.storage.store import SEGMENT_ROWS, Segment, Version

Placement = Callable[[Run], np.ndarray]
"""The partition of each row of a run."""
Places = Sequence[Sequence[np.ndarray]]
"""The new partition of every row of a version, by part and segment."""
Save = Callable[[Run], Segment]

_Levels = list[list[Run]]
"""Rows of one old partition: its levels, newest first, each in segments."""


def sliced(sources: Sequence[Version], low: int, high: int, batch: int, save: Save) -> Version:
    """The version of the rows with ``low <= h < high``.

    ``sources``: the old partitions that have hashes in the range, ascending; one at least.
    """
    taken = [
        _without_empty(_between(part, low, high, source.horizon) for part in source.parts)
        for source in sources
    ]
    return _assembled(sources, taken, batch, lambda runs: map(save, _joined(runs)))


def placed(
    sources: Sequence[Version], places: Sequence[Places], partition: int, batch: int, save: Save
) -> Version:
    """The version of the rows whose place, of which there is a list for each old partition, is ``partition``."""
    taken = [
        _without_empty(
            _picked(part, of_part, partition, source.horizon)
            for part, of_part in zip(source.parts, of_source, strict=True)
        )
        for source, of_source in zip(sources, places, strict=True)
    ]
    return _assembled(sources, taken, batch, lambda runs: [save(sort_rows(_together(runs).columns))])


def places_of(source: Version, placement: Placement) -> list[list[np.ndarray]]:
    """Where every row goes."""
    return [[placement(segment.run) for segment in part.segments] for part in source.parts]


def _assembled(
    sources: Sequence[Version],
    taken: Sequence[_Levels],
    batch: int,
    save: Callable[[list[Run]], Iterable[Segment]],
) -> Version:
    """Merging work that was saved up goes along with the rows; stream time never goes back for any of them."""
    return replace(
        sources[0],
        parts=tuple(Part(tuple(save(runs))) for runs in _aligned(taken)),
        batch=batch,
        stream_time=max(source.stream_time for source in sources),
        horizon=min(source.horizon for source in sources),
        clock=max(source.clock for source in sources),
        credit=sum(
            source.credit * _count(levels) // source.rows
            for source, levels in zip(sources, taken, strict=True)
            if source.rows
        ),
        name=None,
    )


def _aligned(taken: Sequence[_Levels]) -> _Levels:
    """One list of levels out of several: their oldest ones meet, for these are the large ones."""
    depth = max(len(levels) for levels in taken)
    return [
        [run for levels in taken if len(levels) >= age for run in levels[-age]] for age in range(depth, 0, -1)
    ]


def _between(part: Part[Segment], low: int, high: int, horizon: int) -> list[Run]:
    found = []
    for segment in part.segments:
        h = segment.run["h"]
        start = int(np.searchsorted(h, np.uint64(low), "left"))
        stop = segment.rows if high >= 1 << 64 else int(np.searchsorted(h, np.uint64(high), "left"))
        rows = segment.run.slice(start, stop) if start < stop else None
        if rows is not None and horizon > NO_HORIZON:
            rows = unexpired(rows, horizon)
        if rows is not None and rows.rows:
            found.append(rows)
    return found


def _picked(part: Part[Segment], places: Sequence[np.ndarray], partition: int, horizon: int) -> list[Run]:
    found = []
    for segment, of_piece in zip(part.segments, places, strict=True):
        wanted = of_piece == partition
        if horizon > NO_HORIZON:
            wanted &= segment.run["s"] >= horizon
        rows = np.flatnonzero(wanted)
        if len(rows):
            found.append(Run(take_all(segment.run.columns, rows)))
    return found


def _joined(runs: Iterable[Run]) -> Iterator[Run]:
    """The same rows in fewer runs: small ones together until they are worth a file."""
    held: list[Run] = []
    for run in runs:
        held.append(run)
        if _count([held]) >= SEGMENT_ROWS:
            yield _together(held)
            held = []
    if held:
        yield _together(held)


def _together(runs: list[Run]) -> Run:
    return runs[0] if len(runs) == 1 else Run(concat_all([run.columns for run in runs]))


def _without_empty(levels: Iterable[list[Run]]) -> _Levels:
    return [runs for runs in levels if runs]


def _count(levels: _Levels) -> int:
    return sum(run.rows for runs in levels for run in runs)
