"""Snapshots count as one transaction: results begin when all tables of it are loaded.

A snapshot marks its first and last row, and those of each table (Debezium 1.9; before, only the last one of all). There
is no number of rows to count, so that of a table is whole when its last row is there, or a transaction behind it. A
table without rows is taken for empty when something is there that a connector writes behind the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from crossstream.runtime.transactions.ahead import NOTHING, Ahead, Events
from crossstream.serdes.debezium.boundaries import FIRSTS, INCREMENTAL, LAST, LASTS, NO_SNAPSHOT, TRUE
from crossstream.topics import TopicPartition

NEVER = -1
TOGETHER_MS = 1_000
"""Partitions of a topic may get the last rows of a snapshot in another order, but not much later."""


def of_snapshot(events: Events) -> np.ndarray:
    """Which records are rows of a snapshot; those of an incremental one stand between transactions."""
    rows: np.ndarray = (events.snapshots != NO_SNAPSHOT) & (events.snapshots != INCREMENTAL)
    return rows


def unloaded(parts: Sequence[Ahead], latest: int, *, is_first: bool) -> list[str]:
    """The topics whose rows of the snapshot are not all there. ``latest``: the time of the last transaction record.

    ``is_first``: nothing was taken yet, so that a topic without any record may still get its rows.
    """
    topics: dict[str, list[Events]] = {}
    for ahead in parts:
        topics.setdefault(ahead.tp.topic, []).append(ahead.events)
    over = max(latest, *(_latest(events, (LAST,)) for ahead in parts for events in [ahead.events]), NEVER)
    return sorted(
        topic for topic, events in topics.items() if not _is_loaded(events, over, is_first=is_first)
    )


def _is_loaded(parts: Sequence[Events], over: int, *, is_first: bool) -> bool:
    """``over``: the time of the last row of the whole snapshot, or of something behind it."""
    rows = max((int(events.times[of_snapshot(events)].max(initial=NEVER)) for events in parts), default=NEVER)
    if rows == NEVER:
        is_silent = not any(len(events.offsets) for events in parts)
        return over != NEVER or not (is_first and is_silent)
    last = max(_latest(events, LASTS) for events in parts)
    first = max(_latest(events, FIRSTS) for events in parts)
    if last != NEVER and last >= max(first, rows - TOGETHER_MS):
        return True
    more = max(_latest(events, (TRUE,)) for events in parts)
    if over >= rows and (first == NEVER or (last < first and more < first)):
        return True  # from before these marks; or the only row of a table, which has but the first one
    return all(map(_is_passed, parts))


def _is_passed(events: Events) -> bool:
    """Whether a transaction follows on the rows of the snapshot."""
    rows, later = np.flatnonzero(of_snapshot(events)), np.flatnonzero(events.ranks != NOTHING)
    return not len(rows) or (len(later) > 0 and bool(later[-1] > rows[-1]))


def _latest(events: Events, kinds: Iterable[int]) -> int:
    """The time of the last record of one of these kinds."""
    return int(events.times[np.isin(events.snapshots, list(kinds))].max(initial=NEVER))


def lsn_of(parts: Sequence[Ahead], ends: Mapping[TopicPartition, int]) -> int:
    """The place in the log of the database that the rows of a snapshot have; -1: they have none."""
    found = NEVER
    for ahead in parts:
        rows = of_snapshot(ahead.events) & (ahead.events.offsets < ends.get(ahead.tp, ahead.begin))
        found = max(found, int(ahead.events.lsns[rows].max(initial=NEVER)))
    return found
