"""Which sorted runs to merge, one bounded step of it (decision 0006), and rows that time has passed by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from msgspec import structs

from crossstream.storage.columns import concat_all, same_rows, take_all
from crossstream.storage.manifest import SegmentRef
from crossstream.storage.snapshot import Level
from crossstream.storage.sorted_run import Run, merge

FAN_IN = 8
"""Runs that are merged into one."""
_CLASS_BITS = 3
"""Runs are of one class if their sizes differ by less than 2 to this power."""
JOINED = 16
"""Segments of a merge's output that are put together into one."""
_MOST_JOINED = 1 << 25
"""Bytes of these, at most."""
_SAMPLES = 33
"""Rows of each input that are looked at to find where to cut."""


Cut: TypeAlias = tuple[int, int]
"""A place in the order of rows: a hash, and the secondary number (0 where there is none)."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run, or rows of one, and where it is stored (None: in memory only). ``fresh``: it is still to be stored."""

    run: Run
    ref: SegmentRef | None = None
    fresh: bool = False

    @property
    def rows(self) -> int:
        return self.run.rows

    @property
    def oldest(self) -> int:
        """The smallest timestamp, or less; only of rows by time."""
        return self.run.times[0]

    @property
    def newest(self) -> int:
        """The largest timestamp, or more; only of rows by time."""
        return self.run.times[1]

    def slice(self, start: int, stop: int) -> Segment:
        if (start, stop) == (0, self.run.rows):
            return self
        ref, h = self.ref, self.run["h"]
        if ref is not None:
            low, high = int(h[start]), int(h[stop - 1])
            ref = structs.replace(ref, start=ref.start + start, stop=ref.start + stop, low=low, high=high)
        return Segment(self.run.slice(start, stop), ref, self.fresh)


Keep: TypeAlias = "Callable[[Run, Sequence[Part], int], Run]"
"""Gives those rows of a step of a merge that are to stay; it also gets all parts before the step, and the job."""


@dataclass(frozen=True, slots=True)
class Part:
    """One sorted run in segments. ``job``: number of the merge it belongs to (0: none), as ``output`` or input."""

    segments: tuple[Segment, ...]
    job: int = 0
    output: bool = False
    level: Level = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", Level(tuple(segment.run for segment in self.segments)))

    @property
    def rows(self) -> int:
        return self.level.rows


def next_job(parts: Sequence[Part], most: int | None = None) -> list[Part] | None:
    """The parts with one more merge marked, or None if none is due.

    Due are `FAN_IN` neighbours of one size class or smaller ones; small classes go first. So a row is rewritten
    once for each size class, and a store of n rows has at most `FAN_IN` runs in each of log n classes. ``most``: rows
    that a run may have; of neighbours with more some are merged, oldest ones first.
    """
    classes = [_size_class(part.rows) for part in parts]
    for largest in sorted(set(classes)):
        if sum([one <= largest for one in classes]) < FAN_IN:
            continue
        start = 0
        while start < len(parts):
            stop = start
            while stop < len(parts) and not parts[stop].job and classes[stop] <= largest:
                stop += 1
            if stop - start >= FAN_IN:
                group = (start, stop) if most is None else _fitting(parts, start, stop, most)
                if group is not None:
                    return marked(parts, *group)
            start = stop + 1
    return None


def _fitting(parts: Sequence[Part], start: int, stop: int, most: int) -> tuple[int, int] | None:
    """Neighbours with at most so many rows, none of them with more than all others: work that is worth its while."""
    for end in range(stop, start, -1):
        begin, rows = end, 0
        while begin > start and rows + parts[begin - 1].rows <= most:
            begin -= 1
            rows += parts[begin].rows
        if end - begin > 1 and 2 * max(part.rows for part in parts[begin:end]) <= rows:
            return begin, end
    return None


def marked(parts: Sequence[Part], start: int, stop: int) -> list[Part]:
    """The parts with a merge of some neighbours marked; of a single one, it is rewritten without expired rows."""
    job = 1 + max(part.job for part in parts)
    inputs = [Part(part.segments, job, part.output) for part in parts[start:stop]]
    return [*parts[:start], *inputs, Part((), job, True), *parts[stop:]]


def _size_class(rows: int) -> int:
    return (max(rows, 1).bit_length() - 1) // _CLASS_BITS


def passes(parts: Sequence[Part]) -> int:
    """How often a row of the newest run will be rewritten on its way to the oldest one: once for each size class."""
    return _size_class(sum(part.rows for part in parts)) - _size_class(parts[0].rows) + 1


def rows_left(parts: Sequence[Part], job: int) -> int:
    """The rows that a merge has not moved yet."""
    return sum(part.rows for part in parts if part.job == job and not part.output)


def smallest_first(parts: Sequence[Part]) -> list[int]:
    """The merges under way. A small one makes few of many runs for little work, so none waits for a large one."""
    return sorted({part.job for part in parts if part.job}, key=lambda job: (rows_left(parts, job), job))


def advance_job(
    parts: Sequence[Part],
    job: int,
    rows: int,
    save: Callable[[Run], Segment],
    keep: Keep | None = None,
) -> list[Part]:
    """One step of a merge: about ``rows`` input rows, the lowest, move to its output, if ``keep`` keeps them."""
    inputs = [part for part in parts if part.job == job and not part.output]
    cut = _cut(inputs, rows)
    heads, rests = zip(*(_split(part, cut) for part in inputs), strict=True)
    last = max(i for i, part in enumerate(parts) if part.job == job)
    merged = merge([segment.run for head in heads for segment in head], drop_gone=last == len(parts) - 1)
    merged = merged if keep is None or not merged.rows else keep(merged, parts, job)
    left = iter(rests)
    done = not any(rests)
    result: list[Part] = []
    for part in parts:
        if part.job != job:
            result.append(part)
        elif part.output:
            output = _appended(part.segments, merged, 2 * rows, save)
            if output or not done:
                result.append(Part(output) if done else replace(part, segments=output))
        elif rest := next(left):
            result.append(replace(part, segments=rest))
    return result


def _appended(
    output: tuple[Segment, ...], rows: Run, few: int, save: Callable[[Run], Segment]
) -> tuple[Segment, ...]:
    """What a merge has written, with the rows of its next step (decision 0054).

    They are put together with the last segments, if these are `JOINED` of at most ``few`` rows: so a large run has few
    files. Rows are copied as they are, which costs a small part of what merging them has. Steps that the next ones may
    be put together with are stored when the batch has done its share, so that it writes no file that it does not need.
    """
    if not rows.rows:
        return output
    if rows.rows > few or JOINED * _size(rows) > _MOST_JOINED:
        return (*output, save(rows))
    last = [*(segment.run for segment in output[1 - JOINED :]), rows]
    if len(last) < JOINED or max(run.rows for run in last) > few or sum(map(_size, last)) > _MOST_JOINED:
        return (*output, Segment(rows, fresh=True))
    return (*output[: 1 - JOINED], save(Run(concat_all([run.columns for run in last]))))


def _size(run: Run) -> int:
    """Bytes of its columns."""
    return sum(column.nbytes for column in run.columns.values())


def _cut(inputs: Sequence[Part], rows: int) -> Cut | None:
    """A place that about ``rows`` rows lie below, at least one; None: there is none, or no need of one."""
    if rows >= sum(part.rows for part in inputs):
        return None
    lowest = min(_place(part.segments[0].run, 0) for part in inputs)
    hashes, seconds, counts = map(
        np.concatenate, zip(*(_samples(part, rows) for part in inputs), strict=True)
    )
    order = np.lexsort((seconds, hashes))
    enough = int(counts[order].cumsum().searchsorted(rows))
    places = ((int(hashes[row]), int(seconds[row])) for row in order[min(enough, len(order) - 1) :])
    return next((place for place in places if place > lowest), None)


def _samples(part: Part, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some of the lowest ``rows`` rows: hash, secondary number, and how many rows there are since the one before."""
    wanted = np.unique(np.linspace(0, min(rows, part.rows - 1), _SAMPLES).astype(np.int64))
    found, first = [], 0
    for segment in part.segments:
        here = wanted[(wanted >= first) & (wanted < first + segment.rows)] - first
        found.append(
            (segment.run["h"][here], segment.run["s"][here] if "s" in segment.run.columns else here * 0)
        )
        first += segment.rows
        if first > wanted[-1]:
            break
    hashes, seconds = map(np.concatenate, zip(*found, strict=True))
    return hashes, seconds, np.diff(wanted, prepend=0)


def _place(run: Run, row: int) -> Cut:
    return int(run["h"][row]), int(run["s"][row]) if "s" in run.columns else 0


def _rows_below(run: Run, cut: Cut) -> int:
    """How many rows come before a place."""
    h, wanted = run["h"], np.uint64(cut[0])
    first = int(h.searchsorted(wanted))
    if "s" not in run.columns:
        return first
    s = run["s"][first : h.searchsorted(wanted, "right")]
    return first + int(s.searchsorted(s.dtype.type(cut[1])))


def _split(part: Part, cut: Cut | None) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """The segments below a place, and the rest."""
    if cut is None:
        return part.segments, ()
    head: list[Segment] = []
    rest: list[Segment] = []
    for segment in part.segments:
        at = _rows_below(segment.run, cut)
        if at:
            head.append(segment.slice(0, at))
        if at < segment.rows:
            rest.append(segment.slice(at, segment.rows))
    return tuple(head), tuple(rest)


NO_HORIZON = 0
"""The horizon of a store whose rows never expire: no record has an older timestamp."""
SHARE = 8
"""A merge makes runs of at most one in so many rows of the store."""
WORN = 3
"""A run is rewritten if more than one in so many of its rows have expired."""
FEW = 512
"""Runs of up to so many rows are merged whatever their share."""


def without_expired(parts: Sequence[Part], horizon: int) -> list[Part]:
    """The parts without segments whose rows are all older than the horizon."""
    if all(segment.newest >= horizon for part in parts for segment in part.segments):
        return list(parts)
    kept = [replace(part, segments=tuple(p for p in part.segments if p.newest >= horizon)) for part in parts]
    at_work = {part.job for part in kept if part.segments and not part.output}
    freed = [part if part.job in at_work else Part(part.segments) for part in kept]
    return [part for part in freed if part.segments or (part.output and part.job)]


def unexpired(run: Run, horizon: int) -> Run:
    """The rows that are not older than the horizon."""
    there = run["s"] >= horizon
    return run if there.all() else Run(take_all(run.columns, np.flatnonzero(there)))


def remembered(run: Run, parts: Sequence[Part], job: int, since: int) -> Run:
    """The versions in a step of a merge that look-ups for times from ``since`` on may see.

    A version that another one replaced until then is not one of these, wherever that other one goes later: it goes only
    for one that replaced it until then, too. A delete says what no version says, unless there is an older one: in
    another run, for what came late lies in newer ones, or in what the merge has done.

    Story: history 4, versions of a key at 1 and 5, at 7 a delete. At stream time 11 look-ups ask for 7 or more: all
    three go. If a version of 6 lies in another run, for it came late, the delete stays, or that would be the newest.
    """
    s, past = run["s"], run["s"] <= since
    if not past.any():
        return run
    h, key = run["h"], run["key"]
    replaced = np.append((h[1:] == h[:-1]) & past[1:], False)
    rows = np.flatnonzero(replaced)
    replaced[rows] = same_rows(key, rows, key, rows + 1)
    rows = np.flatnonzero(~replaced)
    deleted = past[rows] & np.asarray(run["value"].is_null())[rows]
    if deleted.any():
        begins = np.append(int(h[0]) != _last_done(parts, job), h[rows][1:] != h[rows][:-1])
        rows = rows[~(deleted & begins & (s[rows] < _oldest_beside(parts, job)))]
    return run if len(rows) == run.rows else Run(take_all(run.columns, rows))


def _last_done(parts: Sequence[Part], job: int) -> int:
    """The largest hash in the output of a merge; −1 if there is none."""
    done = [part for part in parts if part.job == job and part.output and part.segments]
    return max((int(part.segments[-1].run["h"][-1]) for part in done), default=-1)


def _oldest_beside(parts: Sequence[Part], job: int) -> int:
    """No row that takes no part in a merge has a smaller timestamp."""
    times = (segment.oldest for part in parts if part.job != job for segment in part.segments)
    return min(times, default=np.iinfo(np.int64).max)


def worn_run(parts: Sequence[Part], horizon: int) -> int | None:
    """The place of the oldest run, taking part in no merge, of which so much has expired that the rest is worth it."""
    for place in reversed(range(len(parts))):
        part = parts[place]
        if part.job or part.rows <= FEW:
            continue
        gone = sum(int((p.run["s"] < horizon).sum()) for p in part.segments if p.oldest < horizon)
        if gone * WORN > part.rows:
            return place
    return None


def largest_run(rows: int) -> int:
    """How many rows a merged run may have in a store of ``rows`` rows."""
    return max(rows // SHARE, FEW)
