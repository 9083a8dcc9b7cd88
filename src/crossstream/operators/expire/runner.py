"""Lets the rows of a table expire, in a task."""

from __future__ import annotations

import numpy as np

from crossstream.columns.changes import Changes, no_changes
from crossstream.columns.stream_time import Timeline, counting
from crossstream.operators.expire.kernel import Due, clock_of_batch, with_deletes
from crossstream.planning.steps import ExpireStep
from crossstream.task.runner import Emitted, OpenStore, Runner


class ExpireRunner(Runner):
    """Passes on the records of a table, with the deletes of rows that expire.

    The store is that of the step that keeps the table, and is only read here. Its horizon is the least timestamp that
    has not expired, so each row is looked at once. With the clock on the wall, its clock is when the next row may
    expire.
    """

    step: ExpireStep

    def finish(self) -> Emitted:
        step, store = self.step, self.task.stores(self.step.store)
        records = self.arrived(step.inputs[0])
        timeline = self._timeline(store, records)
        horizon = max(timeline.last - step.ttl + 1, 0)
        if records is None:
            records = no_changes(store.definition.key, store.definition.value)
        due = self._due(store, timeline, horizon)
        found = with_deletes(records, due, timeline, step.ttl, self.task.batch.bits)
        self.task.report.count_dropped(self.node.name, {"expired-row": found.late})
        if step.by_clock:
            store.clock = self._next(store, records, horizon)
        else:
            store.stream_time = timeline.last
        if found.changes.rows:
            yield self.out(), found.changes

    def _timeline(self, store: OpenStore, records: Changes | None) -> Timeline:
        batch = self.task.batch
        if self.step.by_clock:
            return clock_of_batch(batch.clock // self.step.tick * self.step.tick)
        timeline = store.passes(None if records is None else counting(records, "keyed"))
        if timeline.moved:
            store.heard(batch.silence)
            return timeline
        return timeline.by_clock(store.moment(batch.silence))

    def _due(self, store: OpenStore, timeline: Timeline, horizon: int) -> Due:
        """The rows before the horizon that have not expired before.

        With a longer ttl than at the last start the horizon goes back: rows since then may expire again.
        """
        low, high = (store.horizon, horizon - 1) if len(timeline.time) else (0, -1)
        found = store.view.written_between(low, high)
        if store.view.written_in(low, high) or store.horizon > horizon:
            store.horizon = horizon
        return Due(found["h"], found["key"], np.asarray(found["ts"]))

    def _next(self, store: OpenStore, records: Changes, horizon: int) -> int:
        """When the clock has something to do, in ms; 0: never. A row may expire so much later if nothing else comes."""
        stay = records.ts[~records.value.missing() & (records.ts >= horizon)]
        oldest = store.view.oldest_written_from(horizon)
        times = [int(stay.min())] if len(stay) else []
        times += [] if oldest is None else [oldest]
        if not times:
            return 0
        return -(-(min(times) + self.step.ttl) // self.step.tick) * self.step.tick
