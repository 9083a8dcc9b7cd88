"""Which runs to merge, and one bounded step of it.

Runs are ordered by age. Neighbours of about the same size are merged into one (size-tiered), so a store of n
rows has about log n runs. A merge of large runs is done in steps: a step
takes the lowest hashes of all inputs, writes one piece of the output and cuts that range off the inputs.
Between the steps the store is complete: for every hash either the inputs or the output hold its rows. Decision 0006.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np

from crossstream.state.run import Run, merge

FAN_IN = 8
"""Runs that are merged into one."""
_CLASS_BITS = 3
"""Runs are of one class if their sizes differ by less than 2 to this power."""


class Stored(Protocol):
    """A piece of a run that can be cut."""

    @property
    def run(self) -> Run: ...

    @property
    def rows(self) -> int: ...

    def slice(self, start: int, stop: int) -> Stored: ...


P = TypeVar("P", bound=Stored)


@dataclass(frozen=True, slots=True)
class Part(Generic[P]):
    """One sorted run in pieces. ``job``: number of the merge it belongs to (0: none), as ``output`` or input."""

    pieces: tuple[P, ...]
    job: int = 0
    output: bool = False

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)


def next_job(parts: Sequence[Part[P]]) -> list[Part[P]] | None:
    """The parts with one more merge marked, or None if none is due.

    Due are `FAN_IN` neighbours of one size class or smaller ones; small classes go first. So a row is rewritten
    once for each size class, and a store of n rows has at most `FAN_IN` runs in each of log n classes.
    """
    classes = [_size_class(part.rows) for part in parts]
    for largest in sorted(set(classes)):
        start = 0
        while start < len(parts):
            stop = start
            while stop < len(parts) and not parts[stop].job and classes[stop] <= largest:
                stop += 1
            if stop - start >= FAN_IN:
                return _marked(parts, start, stop)
            start = stop + 1
    return None


def _marked(parts: Sequence[Part[P]], start: int, stop: int) -> list[Part[P]]:
    job = 1 + max(part.job for part in parts)
    inputs = [replace(part, job=job) for part in parts[start:stop]]
    return [*parts[:start], *inputs, Part((), job, True), *parts[stop:]]


def _size_class(rows: int) -> int:
    return (max(rows, 1).bit_length() - 1) // _CLASS_BITS


def advance_job(parts: Sequence[Part[P]], job: int, rows: int, save: Callable[[Run], P]) -> list[Part[P]]:
    """One step of a merge: about ``rows`` input rows with the lowest hashes move to its output."""
    inputs = [part for part in parts if part.job == job and not part.output]
    cut = _cut_hash(inputs, rows)
    heads, rests = zip(*(_split(part, cut) for part in inputs), strict=True)
    last = max(i for i, part in enumerate(parts) if part.job == job)
    merged = merge([piece.run for head in heads for piece in head], drop_gone=last == len(parts) - 1)
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


def _cut_hash(inputs: Sequence[Part[P]], rows: int) -> int | None:
    """The hash below which about ``rows`` rows lie; None: all of them do."""
    total = sum(part.rows for part in inputs)
    if rows >= total:
        return None
    largest = max(inputs, key=lambda part: part.rows)
    position = max(1, int(largest.rows * (rows / total)))
    for piece in largest.pieces:
        if position < piece.rows:
            h = piece.run["h"]
            cut = int(h[position])
            if cut > int(largest.pieces[0].run["h"][0]):
                return cut
            above = int(np.searchsorted(h, np.uint64(cut), "right"))
            return int(h[above]) if above < piece.rows else None
        position -= piece.rows
    return None


def _split(part: Part[P], cut: int | None) -> tuple[tuple[P, ...], tuple[P, ...]]:
    """The pieces below the hash ``cut``, and the rest."""
    if cut is None:
        return part.pieces, ()
    head: list[P] = []
    rest: list[P] = []
    for piece in part.pieces:
        at = int(np.searchsorted(piece.run["h"], np.uint64(cut), "left"))
        if at:
            head.append(piece.slice(0, at))  # type: ignore[arg-type]
        if at < piece.rows:
            rest.append(piece.slice(at, piece.rows))  # type: ignore[arg-type]
    return tuple(head), tuple(rest)
