"""The changes of windows whose bounds depend on the records, in order; what is left of them goes into the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, raised
from crossstream.columns.values import concat_values, nulls
from crossstream.operators.aggregate.folding import Aggregated, HeldWindows, WindowFold, WindowKey
from crossstream.operators.aggregate.kernel import END, GROUP, START, GroupedRows
from crossstream.operators.windowed.windows import Moved
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column
from crossstream.storage.sorted_run import places_of


class WindowChange(NamedTuple):
    """A change of a window. ``row``: the record that made it; ``aggregate`` None: a tombstone, of a session that
    became part of a longer one.
    """

    row: int
    group: int
    start: int
    end: int
    ts: int
    aggregate: Any
    swallowed: bool = False


@dataclass(slots=True)
class Log:
    """Changes of windows, in order."""

    notes: list[WindowChange] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    late: int = 0
    apart: int = 0

    def fail(self, row: int, role: str, error: BaseException) -> bool:
        """Notes a failure; False if no other record may be tried."""
        self.failures.append(Failure(row, raised(error), role))
        return not isinstance(error, KeyboardInterrupt)

    def moved(
        self,
        groups: GroupedRows,
        held: HeldWindows,
        fold: WindowFold,
        serde: EngineSerde,
        *,
        every: bool,
        want_old: bool,
    ) -> Moved:
        """The changes as columns."""
        there, last = held.numbers(), dict[WindowKey, int]()
        windows = [(one.group, one.start, one.end) for one in self.notes]
        # What a window was before: another change, a window of the store, or nothing, in this order of numbers.
        nothing = len(windows) + len(held.group)
        stored = [len(windows) + there[one] if one in there else nothing for one in windows]
        before, changed = list(stored), dict[WindowKey, set[int]]()
        for number, window in enumerate(windows):
            before[number] = last.get(window, stored[number])
            last[window] = number
            changed.setdefault(window, set()).add(self.notes[number].row)
        kept = {
            number for window, number in last.items() if window in there or not self.notes[number].swallowed
        }
        alone = [
            number
            for number, window in enumerate(windows)
            if last[window] in kept and len(changed[window]) == 1
        ]
        # Only the aggregates that are given out are worked out, and of single changes only what is shown.
        shown = kept.union(alone)
        numbers = _numbers(range(len(windows)) if every else sorted(shown))
        place = np.append(places_of(numbers, len(windows)), len(numbers) + np.arange(len(held.group) + 1))
        aggregates = [self.notes[number].aggregate for number in numbers.tolist()]
        net = _numbers(sorted(kept))
        if every:
            changes = self._changes(groups, numbers, Aggregated(fold.shown(aggregates)))
            final = self._changes(
                groups, net, fold.values([self.notes[number].aggregate for number in net.tolist()])
            )
        else:
            changes = self._changes(groups, numbers, fold.values(aggregates))
            final = changes.take(place[net])
        if want_old:
            values = concat_values([changes.value, held.values, nulls(1, serde)])
            changes = replace(changes, old=values.take(place[_numbers(before)[numbers]]))
            final = replace(final, old=values.take(place[_numbers(stored)[net]]))
        repeated = None
        if not kept.issuperset(alone):
            repeated = changes.take(place[_numbers(sorted(shown))])
        return Moved(final, changes if every else None, self.failures, self.late, self.apart, repeated)

    def _changes(self, groups: GroupedRows, numbers: np.ndarray, made: Aggregated) -> Changes:
        notes = [self.notes[number] for number in numbers.tolist()]
        names = ("row", "group", "start", "end", "ts")
        row, group, start, end, ts = (
            np.array([getattr(one, name) for one in notes], np.int64) for name in names
        )
        extra: Mapping[str, Column] = {GROUP: group, START: start, END: end, **made.extra}
        changes = replace(groups.rows, extra={}).take(row)
        return replace(changes, value=made.values, ts=ts, old=None, extra=extra)


def _numbers(found: Iterable[int]) -> np.ndarray:
    return np.fromiter(found, np.int64)
