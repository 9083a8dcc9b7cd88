"""Rows that time has passed by.

A store of records by time has a *horizon*: rows whose timestamp lies before it are not there any more, for
anybody. Their bytes go in passing: a piece that has no other rows is dropped as a whole, and a merge leaves them
out. Merges of such a store join neighbours in age up to a small share of it, so that a piece spans little time and
goes soon; one that has become mostly empty is merged with nobody, which leaves the rest of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crossstream.state.columns import take_all
from crossstream.state.merging import P, Part
from crossstream.state.run import Run

NO_HORIZON = 0
"""The horizon of a store whose rows never expire: no record has an older timestamp."""
SHARE = 8
"""A merge makes runs of at most one in so many rows of the store."""
WORN = 3
"""A run is written anew if more than one in so many of its rows have expired."""
FEW = 512
"""Runs of up to so many rows are merged whatever their share."""


def without_expired(parts: Sequence[Part[P]], horizon: int) -> list[Part[P]]:
    """The parts without pieces whose rows are all older than the horizon."""
    if all(piece.newest >= horizon for part in parts for piece in part.pieces):
        return list(parts)
    kept = [replace(part, pieces=tuple(p for p in part.pieces if p.newest >= horizon)) for part in parts]
    at_work = {part.job for part in kept if part.pieces and not part.output}
    freed = [part if part.job in at_work else Part(part.pieces) for part in kept]
    return [part for part in freed if part.pieces or (part.output and part.job)]


def unexpired(run: Run, horizon: int) -> Run:
    """The rows that are not older than the horizon."""
    there = run["s"] >= horizon
    return run if there.all() else Run(take_all(run.columns, np.flatnonzero(there)))


def worn_run(parts: Sequence[Part[P]], horizon: int) -> int | None:
    """The place of the oldest run, taking part in no merge, of which so much has expired that the rest is worth it."""
    for place in reversed(range(len(parts))):
        part = parts[place]
        if part.job or part.rows <= FEW:
            continue
        gone = sum(int((p.run["s"] < horizon).sum()) for p in part.pieces if p.oldest < horizon)
        if gone * WORN > part.rows:
            return place
    return None


def largest_run(rows: int) -> int:
    """How many rows a merged run may have in a store of ``rows`` rows."""
    return max(rows // SHARE, FEW)
