"""Aggregation in windows, in a task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.stream_time import Timeline
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.operators.aggregate.kernel import END, GROUP, START, GroupedRows
from crossstream.operators.aggregate.runner import GroupedRunner
from crossstream.operators.windowed.closing import Closing
from crossstream.operators.windowed.kinds import logic_of
from crossstream.operators.windowed.store import StoredWindows
from crossstream.operators.windowed.windows import Arrivals, WindowLogic
from crossstream.planning.steps import WindowedAggregateStep
from crossstream.serdes.windowed import WindowedSerde
from crossstream.task.runner import Emitted, OpenStore


class WindowedRunner(GroupedRunner):
    """Aggregates what is grouped in windows, keeps them, and gives their changes or each of them once.

    Ranges of keys are not taken one after the other: which windows are closed depends on the stream time of all keys.
    """

    step: WindowedAggregateStep

    def finish(self) -> Emitted:
        node, kept = self._node, self.task.stores(self.step.store)
        assert node.windows is not None
        logic, records = logic_of(node.windows), self.records(kept)
        store = StoredWindows(
            kept.view, kept.definition.value, kept.horizon, self.step.retention, node.emit_final
        )
        timeline = self._timeline(kept, records, logic.closing)
        if records is not None and records.rows:
            yield from self._moved(logic, store, Arrivals(records, *timeline.around(records)))
        if node.emit_final:
            yield from self._closed(logic.closing, store, timeline)
        self._expire(logic.closing, kept)

    @property
    def _node(self) -> graph.Aggregate:
        node: graph.Aggregate = self.node
        return node

    def _timeline(self, kept: OpenStore, records: Changes | None, closing: Closing) -> Timeline:
        """Stream time in the batch. The clock moves it where windows come out when they close and no input comes."""
        timeline, silence = kept.passes(records), self.task.batch.silence
        if timeline.moved:
            kept.heard(silence)
        elif self._node.emit_final:
            oldest = max(kept.horizon, closing.close(kept.stream_time))
            timeline = timeline.by_clock(kept.moment(silence, oldest))
        kept.stream_time = timeline.last
        return timeline

    def _moved(self, logic: WindowLogic, store: StoredWindows, arrivals: Arrivals) -> Emitted:
        """Keeps what the records change; emits it, unless windows come out when they close."""
        opened = logic.open(arrivals)
        self.task.report.count_dropped(self.step.node, {"late": opened.late})
        if not opened.records.rows:
            return
        groups = GroupedRows.of(opened.records, self.task.batch.bits)
        every = self.step.changelog is not None
        moved = logic.merge(groups, store, self.fold(store.serde), every=every, want_old=self.step.old)
        self.task.report.count_dropped(self.step.node, {"late": moved.late, "closed-session": moved.apart})
        self.report_failures(groups, moved.failures)

        def stored(changes: Changes) -> Changes:
            return moved.with_old(self.as_stored(changes, store.serde), store.serde)

        net = stored(moved.net)
        if not net.rows:
            return
        store.put(net, groups.hashes[net.extra[GROUP]])
        repeated = moved.repeated if self.step.repeats else None
        emitted = net if repeated is None else stored(repeated)
        changelog = None if moved.every is None else stored(moved.every)
        if not store.final:
            yield from self.changed(net.rows, emitted, changelog)

    def _closed(self, closing: Closing, store: StoredWindows, timeline: Timeline) -> Emitted:
        """The windows that have closed in the batch, in the order in which they closed, then by start and key."""
        now = closing.close(timeline.last)
        if len(timeline.time):
            low = closing.close(timeline.before) if timeline.before >= 0 else 0
            if closing.leave(self.step.retention):
                low = store.horizon
            rows = store.between(max(low, 0), now - 1)
            if rows is not None:
                made = closing.closed(rows, self._node.group_key, store.serde, timeline)
                if self.step.old:
                    made = replace(made, old=made.value.take(np.full(made.rows, -1)))
                yield from self.changed(made.rows, made, made)
        self.waits(store.count(now, closing.close(timeline.newest)))

    def _expire(self, closing: Closing, kept: OpenStore) -> None:
        """Old windows are gone; those that come out when they close go then, unless they are kept for longer."""
        retention = self.step.retention
        if retention is None:
            return
        if self._node.emit_final and closing.leave(retention):
            oldest = closing.close(kept.stream_time)
        else:
            oldest = closing.oldest(kept.stream_time, retention)
        kept.horizon = max(kept.horizon, oldest)

    def keyed(self, changes: Changes) -> Changes:
        serde, windows = self._node.key, self._node.windows
        assert isinstance(serde, WindowedSerde)
        assert windows is not None
        starts = np.asarray(changes.extra[START])
        ends = np.asarray(changes.extra[END]) if END in changes.extra else windows.ends_of(starts)
        return replace(
            changes, key=Values(serde, wire=serde.joined(changes.key.wire(), starts, ends)), extra={}
        )
