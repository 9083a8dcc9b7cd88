"""Rows that time has passed by.

A store of records by time has a *horizon*: rows whose timestamp lies before it are not there any more, for
anybody. Their bytes go in passing: a piece that has no other rows is dropped as a whole, and a merge leaves them
out. Merges of such a store join neighbours in age up to a small share of it, so that a piece spans little time and
goes soon; one that has become mostly empty is merged with nobody, which leaves the rest of it.

A versioned store is never asked for a time before its stream time less its history. Of each key the version that was
valid then is the oldest one that counts; merges leave older ones out, and that one too if it is a delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crossstream.state.columns import same_rows, take_all
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


def remembered(run: Run, parts: Sequence[Part[P]], job: int, since: int) -> Run:
    """The versions in a step of a merge that somebody may see who asks for no time before ``since``.

    A version that another one replaced until then is none of these, wherever that other one goes later: it goes only
    for one that replaced it until then, too. A delete says what no version says, unless there is an older one: in
    another run, for what came late lies in newer ones, or in what the merge has done.

    Story: history 4, versions of a key at 1 and 5, at 7 a delete. At stream time 11 nobody asks for less than 7: all
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


def _last_done(parts: Sequence[Part[P]], job: int) -> int:
    """The largest hash in the output of a merge; −1 if there is none."""
    done = [part for part in parts if part.job == job and part.output and part.pieces]
    return max((int(part.pieces[-1].run["h"][-1]) for part in done), default=-1)


def _oldest_beside(parts: Sequence[Part[P]], job: int) -> int:
    """No row that takes no part in a merge has a smaller timestamp."""
    times = (piece.oldest for part in parts if part.job != job for piece in part.pieces)
    return min(times, default=np.iinfo(np.int64).max)


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
