"""Runs a stream–stream join in a task."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, LookupCounts, concat_changes, no_changes, some_given
from crossstream.columns.order import by_arrival
from crossstream.columns.stream_time import Timeline
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.operators.stream_join.kernel import StreamJoin, dropped, expire, join_streams
from crossstream.operators.stream_join.records import Stores, due_until, records_of
from crossstream.planning.steps import StreamStreamJoinStep
from crossstream.tables.join_spec import Serdes
from crossstream.tables.partners import LEFT, RIGHT, SIDES, Times, Window
from crossstream.task.runner import Emitted, OpenStore, Runner


class StreamStreamJoinRunner(Runner):
    """Joins the records of both sides with each other and with those kept, in order of arrival.

    Stream time is that of all keys, so all records of a batch are taken at once.
    """

    step: StreamStreamJoinStep

    def finish(self) -> Emitted:
        left, right = self._sides()
        report, join = self.task.report, self._join()
        waiting = None if self.step.waiting is None else self.task.stores(self.step.waiting)
        sides = self.task.stores(self.step.stores[LEFT]), self.task.stores(self.step.stores[RIGHT])
        stores = Stores(sides, waiting)
        report.count_in(self.step.node, left.rows + (0 if join.itself else right.rows))
        passing = sides[LEFT].passes(None), sides[RIGHT].passes(None)
        time = passing[LEFT] if waiting is None else self._time(waiting)
        passed = self._passed(join, left, right, waiting, time)
        for store, one in zip(sides, passing, strict=True):
            store.stream_time = one.last if waiting is None else min(one.last, time.last)
        if waiting is not None:
            waiting.stream_time = time.last
        if passed.rows:
            left = by_arrival(concat_changes([left, passed]) if left.rows else passed)
            right = left if join.itself else right
        if not left.rows + right.rows:
            expire(join, stores)
            return
        right_first = partial(self.task.batch.came_from, self.step.right_first)
        records = records_of(
            left,
            right,
            itself=join.itself,
            right_first=right_first,
            batch=self.task.batch.id,
            bits=self.task.batch.bits,
        )
        lost = dropped(join, records, self.step.refused)
        if passed.rows:
            lost[self.step.refused[LEFT]] -= passed.rows
        report.count_dropped(self.step.node, lost)
        first = np.where(right_first(records.minor) & (not join.itself), RIGHT, LEFT)
        times = Times.of(records, records.side, first, time, passing)
        if waiting is not None:
            times = times.within_join()
        counts = LookupCounts()
        for joined in join_streams(join, records, stores, times, counts):
            yield from self.joined(joined)
        if waiting is not None:
            ready = due_until(join.window, waiting, time.newest) if time.newest > time.last else None
            self.waits(0 if ready is None else ready.rows)
        self.report_asked(
            counts,
            lambda: some_given(left.key) or sides[LEFT].some_key(),
            lambda: some_given(right.key) or sides[RIGHT].some_key(),
        )

    def _time(self, waiting: OpenStore) -> Timeline:
        """Stream time of the join; it moves with the clock when no input has come for the configured time."""
        time = waiting.passes(None)
        if not time.moved:
            return time.by_clock(waiting.moment(self.task.batch.silence))
        waiting.heard(self.task.batch.silence)
        return time

    def _passed(
        self, join: StreamJoin, left: Changes, right: Changes, waiting: OpenStore | None, time: Timeline
    ) -> Changes:
        """Records that only move stream time, where no other one is that does: there a window closes."""
        nothing = no_changes(left.key.serde, left.value.serde)
        if waiting is None or not len(time.time):
            return nothing
        due = due_until(join.window, waiting, time.last)
        closes = [] if due is None else [join.window.closing_at(due["side"], due["s"])]
        for side, rows in zip(SIDES, (left, right), strict=True):
            if join.outer[side]:
                closes.append(join.window.closes(side, rows.ts))
        rises = np.unique(time.first(np.concatenate(closes) + 1)) if closes else np.empty(0, np.int64)
        rises = time.without_rows(rises[rises < len(time.time)], [left, right])
        null = pa.nulls(len(rises), pa.large_binary())
        return replace(
            nothing,
            key=Values(nothing.key.serde, wire=null),
            value=Values(nothing.value.serde, wire=null),
            ts=time.time[rises],
            major=time.major[rises],
            minor=time.minor[rises],
        )

    def _sides(self) -> tuple[Changes, Changes]:
        """The records of both sides with keys and values in wire form, as the stores hold them."""
        names = self.step.inputs
        sides = []
        for flow, name in zip(dict.fromkeys(names), self.step.stores, strict=False):
            store = self.task.plan.stores[name]
            changes = self.arrived(flow)
            if changes is None:
                sides.append(no_changes(store.key, store.value))
                continue
            kept = self.as_stored(self.writable(changes, "key", store.key), store.value)
            key = Values(store.key, wire=kept.key.wire(store.key))
            sides.append(replace(kept, key=key, extra={}))
        return sides[0], sides[-1]

    def _join(self) -> StreamJoin:
        node: graph.StreamStreamJoin = self.node
        left, right = (self.task.plan.stores[name] for name in self.step.stores)
        serdes = Serdes(left.key, left.value, right.value)
        return StreamJoin(
            self.join_spec(node.kind, serdes, headers=node.headers),
            Window(node.before, node.after, node.grace),
            node.eager,
            self.step.inputs[0] == self.step.inputs[1],
        )
