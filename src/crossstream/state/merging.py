"""Which runs to merge, and one bounded step of it.

Runs are ordered by age. Neighbours of about the same size are merged into one (size-tiered), so a store of n
rows has about log n runs. A merge of large runs is done in steps: a step
takes the lowest rows of all inputs, writes one piece of the output and cuts that range off the inputs. Rows are
ordered by hash and, where there is one, the secondary number: a million subscribers of one foreign key, which have
one hash, are cut between two of them. Between the steps the store is complete: for every place in that order either
the inputs or the output hold its rows. Decision 0006.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

import numpy as np

from crossstream.state.run import Run, merge
from crossstream.state.view import Slot

FAN_IN = 8
"""Runs that are merged into one."""
_CLASS_BITS = 3
"""Runs are of one class if their sizes differ by less than 2 to this power."""
_SAMPLES = 33
"""Rows of each input that are looked at to find where to cut."""


Cut: TypeAlias = tuple[int, int]
"""A place in the order of rows: a hash, and the secondary number (0 where there is none)."""


class Stored(Protocol):
    """A piece of a run that can be cut."""

    @property
    def run(self) -> Run: ...

    @property
    def rows(self) -> int: ...

    @property
    def oldest(self) -> int:
        """The smallest timestamp, or less; only of rows by time."""

    @property
    def newest(self) -> int:
        """The largest timestamp, or more; only of rows by time."""

    def slice(self, start: int, stop: int) -> Stored: ...


P = TypeVar("P", bound=Stored)

Keep: TypeAlias = "Callable[[Run, Sequence[Part[P]], int], Run]"
"""Gives those rows of a step of a merge that are to stay; it also gets all parts before the step, and the job."""


@dataclass(frozen=True, slots=True)
class Part(Generic[P]):
    """One sorted run in pieces. ``job``: number of the merge it belongs to (0: none), as ``output`` or input."""

    pieces: tuple[P, ...]
    job: int = 0
    output: bool = False
    slot: Slot = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot", Slot(tuple(piece.run for piece in self.pieces)))

    @property
    def rows(self) -> int:
        return self.slot.rows


def next_job(parts: Sequence[Part[P]], most: int | None = None) -> list[Part[P]] | None:
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
                    return _marked(parts, *group)
            start = stop + 1
    return None


def alone(parts: Sequence[Part[P]], place: int) -> list[Part[P]]:
    """The parts with a merge marked that has one input: it is written anew, without the rows that have expired."""
    return _marked(parts, place, place + 1)


def _fitting(parts: Sequence[Part[P]], start: int, stop: int, most: int) -> tuple[int, int] | None:
    """Neighbours with at most so many rows, none of them with more than all others: work that is worth its while."""
    for end in range(stop, start, -1):
        begin, rows = end, 0
        while begin > start and rows + parts[begin - 1].rows <= most:
            begin -= 1
            rows += parts[begin].rows
        if end - begin > 1 and 2 * max(part.rows for part in parts[begin:end]) <= rows:
            return begin, end
    return None


def _marked(parts: Sequence[Part[P]], start: int, stop: int) -> list[Part[P]]:
    job = 1 + max(part.job for part in parts)
    inputs = [Part(part.pieces, job, part.output) for part in parts[start:stop]]
    return [*parts[:start], *inputs, Part((), job, True), *parts[stop:]]


def _size_class(rows: int) -> int:
    return (max(rows, 1).bit_length() - 1) // _CLASS_BITS


def advance_job(
    parts: Sequence[Part[P]],
    job: int,
    rows: int,
    save: Callable[[Run], P],
    keep: Keep[P] | None = None,
) -> list[Part[P]]:
    """One step of a merge: about ``rows`` input rows, the lowest, move to its output, if ``keep`` keeps them."""
    inputs = [part for part in parts if part.job == job and not part.output]
    cut = _cut(inputs, rows)
    heads, rests = zip(*(_split(part, cut) for part in inputs), strict=True)
    last = max(i for i, part in enumerate(parts) if part.job == job)
    merged = merge([piece.run for head in heads for piece in head], drop_gone=last == len(parts) - 1)
    merged = merged if keep is None or not merged.rows else keep(merged, parts, job)
    written = (save(merged),) if merged.rows else ()
    left = iter(rests)
    done = not any(rests)
    result: list[Part[P]] = []
    for part in parts:
        if part.job != job:
            result.append(part)
        elif part.output:
            output = part.pieces + written
            if output or not done:
                result.append(Part(output) if done else replace(part, pieces=output))
        elif rest := next(left):
            result.append(replace(part, pieces=rest))
    return result


def _cut(inputs: Sequence[Part[P]], rows: int) -> Cut | None:
    """A place that about ``rows`` rows lie below, at least one; None: there is none, or no need of one."""
    if rows >= sum(part.rows for part in inputs):
        return None
    lowest = min(_place(part.pieces[0].run, 0) for part in inputs)
    hashes, seconds, counts = map(
        np.concatenate, zip(*(_samples(part, rows) for part in inputs), strict=True)
    )
    order = np.lexsort((seconds, hashes))
    enough = int(counts[order].cumsum().searchsorted(rows))
    places = ((int(hashes[row]), int(seconds[row])) for row in order[min(enough, len(order) - 1) :])
    return next((place for place in places if place > lowest), None)


def _samples(part: Part[P], rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some of the lowest ``rows`` rows: hash, secondary number, and how many rows there are since the one before."""
    wanted = np.unique(np.linspace(0, min(rows, part.rows - 1), _SAMPLES).astype(np.int64))
    found, first = [], 0
    for piece in part.pieces:
        here = wanted[(wanted >= first) & (wanted < first + piece.rows)] - first
        found.append((piece.run["h"][here], piece.run["s"][here] if "s" in piece.run.columns else here * 0))
        first += piece.rows
        if first > wanted[-1]:
            break
    hashes, seconds = map(np.concatenate, zip(*found, strict=True))
    return hashes, seconds, np.diff(wanted, prepend=0)


def _place(run: Run, row: int) -> Cut:
    return int(run["h"][row]), int(run["s"][row]) if "s" in run.columns else 0


def _rows_below(run: Run, cut: Cut, *, or_there: bool = False) -> int:
    """How many rows come before a place; ``or_there``: those at the place among them."""
    side: Literal["left", "right"] = "right" if or_there else "left"
    h = run["h"]
    if "s" not in run.columns:
        return int(h.searchsorted(np.uint64(cut[0]), side))
    first, last = (int(h.searchsorted(np.uint64(cut[0]), end)) for end in ("left", "right"))
    s = run["s"][first:last]
    return first + int(s.searchsorted(s.dtype.type(cut[1]), side))


def _split(part: Part[P], cut: Cut | None) -> tuple[tuple[P, ...], tuple[P, ...]]:
    """The pieces below a place, and the rest."""
    if cut is None:
        return part.pieces, ()
    head: list[P] = []
    rest: list[P] = []
    for piece in part.pieces:
        at = _rows_below(piece.run, cut)
        if at:
            head.append(piece.slice(0, at))  # type: ignore[arg-type]
        if at < piece.rows:
            rest.append(piece.slice(at, piece.rows))  # type: ignore[arg-type]
    return tuple(head), tuple(rest)
