"""What windows of each kind have in common: four verbs. Times in ms.

    open        the windows that a record is in, as far as its timestamp says
    merge       what becomes of them with those of the store: they get their records, and those that touch become one
    close       which windows have closed at a stream time
    notify_at   the stream time at which a window closes

`time_windows.py`, `sliding.py`, `sessions.py` open and merge, each in its way. All close by the formula of
`closing.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure
from crossstream.operators.aggregate.folding import Fold
from crossstream.operators.aggregate.kernel import GroupedRows, GroupState, with_old
from crossstream.operators.windowed.closing import Closing
from crossstream.operators.windowed.store import StoredWindows
from crossstream.serdes.contract import EngineSerde
from crossstream.tables.rows import as_stored

BEFORE = "before"
"""Extra column: the stream time before a record."""

NOW = "now"
"""Extra column: the stream time with a record."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Records in order of arrival. ``before``, ``now``: the stream time before each of them, and with it."""

    records: Changes
    before: np.ndarray
    now: np.ndarray

    def timed(self) -> Changes:
        """The records with the columns `BEFORE` and `NOW`."""
        return replace(self.records, extra={**self.records.extra, BEFORE: self.before, NOW: self.now})


@dataclass(frozen=True, slots=True)
class Opened:
    """Records, once for each window that they are in. ``late``: windows that were closed for a record."""

    records: Changes
    late: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """What a batch changes. ``net``: the last change of each window; ``every``: each, if it was asked for.

    Both have the columns `GROUP` and `START`, and `END` where windows move. ``late``: windows that were closed for a
    record; ``apart``: records that began a session beside one that they belong to, for it was closed. ``repeated``: the
    net changes, and those before them of windows that only one record changes: it gives a tombstone for a session and
    then its new row, or the same row of a sliding window twice. ``before``: the aggregates before, where they are asked
    for and the changes do not have them.
    """

    net: Changes
    every: Changes | None
    failures: list[Failure]
    late: int = 0
    apart: int = 0
    repeated: Changes | None = None
    before: GroupState | None = None

    def with_old(self, kept: Changes, serde: EngineSerde) -> Changes:
        """Changes as the store keeps them, each with the aggregate before it if that was asked for."""
        if self.before is not None:
            return with_old(kept, self.before)
        return kept if kept.old is None else replace(kept, old=as_stored(kept.old, serde))


class WindowLogic(Protocol):
    """Windows of one kind at work."""

    @property
    def closing(self) -> Closing:
        """When they close: the verbs ``close`` and ``notify_at``."""

    def open(self, arrivals: Arrivals) -> Opened:
        """The records with the windows that they are in; with `NOW` and `BEFORE`, where they move."""

    def merge(
        self, groups: GroupedRows, store: StoredWindows, fold: Fold, *, every: bool, want_old: bool
    ) -> Moved:
        """The changes that the records make, which are grouped by key and the window that is known.

        ``every``: each change; ``want_old``: with the aggregates before.
        """
