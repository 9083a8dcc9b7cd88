"""When the results of left rows of a star join change, for a changelog.

A left row is the same from one of its changes to the next: that is a *span*. Within it, results come from the changes
of the right rows that it refers to. So each moment is evaluated once, without replaying the batch record by record.

Story: an order refers to shop `a`. In one batch arrive, at 1, a change of shop `a`; at 2, the order moves to shop `b`;
at 3 and 4, changes of shop `a` and `b`. The order has two spans. The first has the result of 1. The second begins with
the result of 2, and has that of 4; the order does not see 3.
Test: `test_every_change_is_there_in_any_batches_where_a_stream_wants_it`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.operators.star_join.right_changes import BEFORE, RightChanges, RightRows, Seen
from crossstream.storage.snapshot import groups_of
from crossstream.storage.sorted_run import expand


@dataclass(frozen=True, slots=True)
class Moments:
    """When results may change, those of a left row in order: in which ``span``, and by which right change.

    ``change``: −1: the left row's own. ``seen``: for each table the right row then.
    """

    span: np.ndarray
    change: np.ndarray
    seen: Sequence[Seen]


@dataclass(frozen=True, slots=True)
class Spans:
    """Left rows from one change to the next, those of a row one after the other: after ``since``, up to ``until``.

    ``row``: number of the left row; ``is_change``: it begins with a change of the batch, not before it.
    """

    changes: Changes
    row: np.ndarray
    is_change: np.ndarray
    there: np.ndarray
    since: np.ndarray
    until: np.ndarray
    rights: Sequence[RightRows]
    changed: RightChanges

    @classmethod
    def of(
        cls,
        changes: Changes,
        row: np.ndarray,
        is_change: np.ndarray,
        rights: Sequence[RightRows],
        changed: RightChanges,
    ) -> Spans:
        begun, with_it = (changed.event_before(changes, or_with=also) for also in (False, True))
        follows = np.append(row[1:] == row[:-1], False)
        until = np.where(follows, np.roll(begun, -1), changed.latest_event)
        since = np.where(is_change, with_it, BEFORE)
        return cls(changes, row, is_change, ~changes.value.missing(), since, until, rights, changed)

    def moments(self, chunk: int) -> Iterator[Moments]:
        """All moments of a left row together, in parts of about ``chunk``."""
        live, own = np.flatnonzero(self.there), np.flatnonzero(self.is_change)
        bounds = [right.between(self.since, self.until) for right in self.rights]
        counts = self.is_change.astype(np.int64)
        for start, stop in bounds:
            counts[live] += (stop - start)[live]
        first = self._firsts()
        ends = np.append(first[1:], len(self.row))
        for low, high in groups_of(np.add.reduceat(counts, first), chunk) if len(first) else ():
            part = first[low], ends[high - 1]
            yield self._moments(_between(own, *part), _between(live, *part), bounds)

    def _moments(
        self, own: np.ndarray, live: np.ndarray, bounds: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> Moments:
        """Of spans that begin with a change (``own``), and of those with a left row (``live``)."""
        spans, events, changes = [own], [self.since[own]], [np.full(len(own), -1)]
        for start, stop in bounds:
            rows, found = expand(start[live], stop[live])
            spans.append(live[rows])
            events.append(self.changed.event[found])
            changes.append(found)
        span, event, change = np.concatenate(spans), np.concatenate(events), np.concatenate(changes)
        order = np.lexsort((event, span))
        differs = (np.diff(span[order]) != 0) | (np.diff(event[order]) != 0)
        kept = order[np.append(True, differs)[: len(order)]]  # what one record changes is one moment
        span, event = span[kept], event[kept]
        return Moments(span, change[kept], [right.at(span, event) for right in self.rights])

    def had_result(self, span: np.ndarray, exists: np.ndarray, before: np.ndarray) -> np.ndarray:
        """Whether there was a result until each moment. ``exists``: from then on; ``before``: before the batch.

        ``before`` is asked for the first span of each left row.
        """
        first = self._firsts()
        before = np.repeat(before[first], np.diff(first, append=len(self.row)))
        begins = np.diff(self.row[span], prepend=-1) != 0
        return np.where(begins, before[span], np.roll(exists, 1))

    def _firsts(self) -> np.ndarray:
        """Where another left row begins."""
        return np.flatnonzero(np.diff(self.row, prepend=-1))


def _between(rows: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Of ascending numbers those from ``start`` to ``stop``."""
    low, high = np.searchsorted(rows, (start, stop))
    return rows[low:high]
