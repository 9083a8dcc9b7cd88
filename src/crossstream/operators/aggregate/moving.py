"""What records change in windows whose bounds depend on the records: the changes in order, and what is left of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, raised
from crossstream.columns.values import Values, concat_values, nulls
from crossstream.operators.aggregate.kernel import END, GROUP, START, Groups
from crossstream.operators.aggregate.steps import Steps
from crossstream.serdes import Serde
from crossstream.storage.columns import Column

Window = tuple[int, int, int]
"""The number of a key, the start and the end."""

BEFORE = "before"
"""Extra column: the stream time before a record."""

NOW = "now"
"""Extra column: the stream time with a record."""


@dataclass(frozen=True, slots=True)
class Held:
    """Windows of the store. ``group``: the number of the key of each."""

    group: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    ts: np.ndarray
    values: Values

    def places(self) -> dict[Window, int]:
        """The number of each window: by key, start and end."""
        keys = zip(self.group.tolist(), self.starts.tolist(), self.ends.tolist(), strict=True)
        return {key: number for number, key in enumerate(keys)}


@dataclass(frozen=True, slots=True)
class Moved:
    """What a batch changes. ``net``: the last change of each window; ``every``: each, if it was asked for.

    Both have the columns `GROUP`, `START` and `END`. ``late``: windows that were closed for a record. ``repeated``: the
    net changes, and those before them of windows that only one record changes: it gives a tombstone for a session and
    then its new row, or the same row of a sliding window twice.
    """

    net: Changes
    every: Changes | None
    late: int
    failures: list[Failure]
    repeated: Changes | None = None


@dataclass(slots=True)
class Log:
    """Changes of windows, in order. ``rows``: the record that made each; ``swallowed``: it is the end of a session."""

    rows: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    ts: list[int] = field(default_factory=list)
    aggregates: list[Any] = field(default_factory=list)
    swallowed: list[bool] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    late: int = 0

    def note(
        self, row: int, group: int, start: int, end: int, ts: int, aggregate: Any, *, swallowed: bool = False
    ) -> None:
        """Adds a change; ``aggregate`` None: a tombstone."""
        self.rows.append(row)
        self.groups.append(group)
        self.starts.append(start)
        self.ends.append(end)
        self.ts.append(ts)
        self.aggregates.append(aggregate)
        self.swallowed.append(swallowed)

    def fail(self, row: int, role: str, error: BaseException) -> bool:
        """Notes a failure; False if no other record may be tried."""
        self.failures.append(Failure(row, raised(error), role))
        return not isinstance(error, KeyboardInterrupt)

    def moved(
        self, groups: Groups, held: Held, steps: Steps, serde: Serde, *, every: bool, want_old: bool
    ) -> Moved:
        """The changes as columns."""
        there, last = held.places(), dict[Window, int]()
        windows = list(zip(self.groups, self.starts, self.ends, strict=True))
        # What a window was before: another change, a window of the store, or nothing, in this order of numbers.
        nothing = len(windows) + len(held.group)
        stored = [len(windows) + there[one] if one in there else nothing for one in windows]
        before, changed = list(stored), dict[Window, set[int]]()
        for number, window in enumerate(windows):
            before[number] = last.get(window, stored[number])
            last[window] = number
            changed.setdefault(window, set()).add(self.rows[number])
        kept = {number for window, number in last.items() if window in there or not self.swallowed[number]}
        net = sorted(kept)
        changes = self._changes(groups, steps)
        alone = [
            number
            for number, window in enumerate(windows)
            if last[window] in kept and len(changed[window]) == 1
        ]
        repeats = not kept.issuperset(alone)
        final = changes.take(np.array(net, np.int64))
        if want_old:
            values = concat_values([changes.value, held.values, nulls(1, serde)])
            changes = replace(changes, old=values.take(np.array(before, np.int64)))
            final = replace(final, old=values.take(np.array(stored, np.int64)[net]))
        return Moved(
            final,
            changes if every else None,
            self.late,
            self.failures,
            changes.take(np.array(sorted(kept.union(alone)), np.int64)) if repeats else None,
        )

    def _changes(self, groups: Groups, steps: Steps) -> Changes:
        rows = np.array(self.rows, np.int64)
        extra: Mapping[str, Column] = {
            GROUP: np.array(self.groups, np.int64),
            START: np.array(self.starts, np.int64),
            END: np.array(self.ends, np.int64),
        }
        made = replace(groups.rows, extra={}).take(rows)
        return replace(
            made, value=steps.values(self.aggregates), ts=np.array(self.ts, np.int64), old=None, extra=extra
        )
