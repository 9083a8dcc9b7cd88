"""What a batch has changed in a state partition of a store: the rows before, and the rows after.

    law    the rows after batch N - 1, with the changes of batch N applied, are the rows after batch N

Files that both versions have hold the same rows in both: only what a file adds or takes away can change a row. That is
what the batch itself has written and merged, so a difference costs in proportion to the work of its batch. In the other
files the rows under the keys of these are looked up. Rows that have expired in between are looked for by their times.

A row that a merge has written again is no change, nor is one whose bytes are what they were. Decision 0042.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.query.committed import OpenPartition, PartAt
from crossstream.query.shown import Shown
from crossstream.storage.columns import Columns, concat_all, take_all, valid
from crossstream.storage.manifest import Manifest, SegmentRef
from crossstream.storage.snapshot import empty_columns
from crossstream.storage.sorted_run import Run, identities, merge, places_of, sort_rows
from crossstream.storage.store import Version

Span = tuple[int, int]
"""Rows of a file, from the first to before the second."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """``inserted``, ``deleted``: rows; ``before``, ``after``: rows that have changed, side by side."""

    inserted: Columns
    before: Columns
    after: Columns
    deleted: Columns

    @property
    def is_empty(self) -> bool:
        return not any(len(rows["key"]) for rows in (self.inserted, self.after, self.deleted))


def changes_of(
    opened: OpenPartition, older: PartAt, newer: PartAt, shown: Shown, *, times: bool = True
) -> RowChanges | None:
    """What differs between two batches of a state partition; None: nothing does. ``times``: those of rows count, too.

    Raises as `OpenPartition.version`.
    """
    if older.manifest == newer.manifest:
        return None
    old, new = opened.manifest(older), opened.manifest(newer)
    versions = opened.version(older, old), opened.version(newer, new)
    before, after = _touched(*versions, only_in(old, new), only_in(new, old))
    rows_before, rows_after = shown.rows(versions[0], before), shown.rows(versions[1], after)
    found = _compared(rows_before, rows_after, times=times)
    return None if found.is_empty else found


def only_in(one: Manifest | None, other: Manifest | None) -> dict[str, list[Span]]:
    """By file the rows that only the first of two versions has."""
    theirs = _spans(other)
    found = {file: _without(spans, theirs.get(file, [])) for file, spans in _spans(one).items()}
    return {file: spans for file, spans in found.items() if spans}


def _spans(manifest: Manifest | None) -> dict[str, list[Span]]:
    spans: dict[str, list[Span]] = {}
    segments: Iterable[SegmentRef] = () if manifest is None else manifest.segments()
    for segment in segments:
        spans.setdefault(segment.file, []).append((segment.start, segment.stop))
    return {file: sorted(found) for file, found in spans.items()}


def _without(spans: list[Span], others: list[Span]) -> list[Span]:
    """What is left of spans without other ones; both sorted.

    >>> _without([(0, 10), (20, 30)], [(5, 8), (20, 30)])
    [(0, 5), (8, 10)]
    """
    left = []
    for start, stop in spans:
        for low, high in others:
            if high <= start or low >= stop:
                continue
            if low > start:
                left.append((start, low))
            start = min(high, stop)
        if start < stop:
            left.append((start, stop))
    return left


def _touched(
    old: Version, new: Version, taken: dict[str, list[Span]], added: dict[str, list[Span]]
) -> tuple[Run, Run]:
    """The live rows of two versions under the keys, and times, that they may differ in."""
    parts = [_queries(run) for run in (*rows_at(old, taken), *rows_at(new, added))]
    if old.horizon < new.horizon and old.layout.expires:
        parts.append(_queries(Run(old.snapshot().live_between(old.horizon, new.horizon - 1))))
    queries = sort_rows(concat_all(parts)).columns if parts else {}
    return _live(old, queries), _live(new, queries)


def rows_at(version: Version, spans: Mapping[str, Sequence[Span]]) -> Iterator[Run]:
    """The rows of a version in these places of its files, as far as it has them."""
    for part in version.parts:
        for segment in part.segments:
            assert segment.ref is not None, "a version in memory has no files"
            first, last = segment.ref.start, segment.ref.stop
            for start, stop in spans.get(segment.ref.file, ()):
                low, high = max(start, first), min(stop, last)
                if low < high:
                    yield segment.run.slice(low - first, high - first)


def _queries(run: Run) -> Columns:
    """What the rows of a key, and of a time, are looked up by; of versions all of a key."""
    names = ("h", "key") if "s" not in run.columns else ("h", "s", "key")
    return {name: run[name] for name in names}


def _live(version: Version, queries: Columns) -> Run:
    if not queries:
        return Run(empty_columns(version.layout))
    hashes, keys = queries["h"], queries["key"]
    parts = []
    for run in version.snapshot().segments():
        if version.layout.expires:
            rows = run.match_range(hashes, keys, queries["s"], queries["s"])[1]
        else:
            rows = run.match(hashes, keys)[1]
        parts.append(Run(take_all(run.columns, np.unique(rows))))
    return merge(parts, drop_gone=True)


def _compared(before: Columns, after: Columns, *, times: bool) -> RowChanges:
    """What differs between rows of two versions, whatever their order."""
    old = len(before["key"])
    both = concat_all([before, after])
    # A session with another start is another session; records of one key and time have numbers.
    names = ("key", "ts", "n") if "n" in both else ("key", "start", "end")
    number = identities([both[name] for name in names if name in both])
    count = int(number.max(initial=-1)) + 1
    place = places_of(number[:old], count)[number[old:]]
    rows = np.flatnonzero(place >= 0)
    one, other = take_all(before, place[rows]), take_all(after, rows)
    differs = ~_same(one["value"], other["value"])
    if times:
        differs |= np.asarray(one["ts"]) != np.asarray(other["ts"])
    changed = np.flatnonzero(differs)
    gone = np.flatnonzero(places_of(number[old:], count)[number[:old]] < 0)
    return RowChanges(
        inserted=take_all(after, np.flatnonzero(place < 0)),
        before=take_all(one, changed),
        after=take_all(other, changed),
        deleted=take_all(before, gone),
    )


def _same(one: pa.LargeBinaryArray, other: pa.LargeBinaryArray) -> np.ndarray:
    """Row by row, whether two values are the same bytes, or both missing."""
    equal = np.asarray(pc.fill_null(pc.equal(one, other), False))
    return np.asarray(equal | ~(valid(one) | valid(other)))
