"""Completes rows in a task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crossstream.columns.changes import Changes, no_changes
from crossstream.columns.evaluate import Failure
from crossstream.graph.nodes import Source
from crossstream.operators.debezium.kernel import POSITION, TRUNCATE, around_truncates, complete, truncated
from crossstream.operators.debezium.snapshots import (
    SEEN,
    Cut,
    around_ends,
    deletes,
    ends_of,
    folded,
    not_shown,
    on_time,
)
from crossstream.planning.steps import CompleteRowsStep
from crossstream.task.runner import Emitted, OpenStore, Runner


class CompleteRowsRunner(Runner):
    """Reads the rows before, completes those of the batch, and remembers them.

    The stream time of the store is the place of the newest truncate; its marks are what is known of snapshots.
    """

    step: CompleteRowsStep

    def by_key(self) -> bool:
        """Not with truncates, which are for all keys."""
        return bool(self.node.unwrap.truncate != "delete")

    def finish(self) -> Emitted:
        arrived = self.arrived(self.step.inputs[0])
        news = self.task.announced(self.step.node)
        if arrived is None and not len(news):
            return
        flow = self.task.flow(self.out())
        changes = no_changes(flow.key, flow.value) if arrived is None else arrived
        store = self.task.stores(self.step.store)
        cut, ends = ends_of(store.marked, news)
        store.marks = folded(store.marked, news)
        for part, end in around_ends(changes, ends):
            for made in self._completed(part, store, cut):
                yield self.out(), made
            if end is not None:
                cut = end.cut
                keys = not_shown(store.view, cut, self.task.hashes()) if cut is not None else ()
                if len(keys):
                    yield self.out(), deletes(changes, keys, end)

    def _completed(self, changes: Changes, store: OpenStore, cut: Cut | None) -> Iterator[Changes]:
        """The whole rows of events. ``cut``: the snapshot from before which there are none any more."""
        node: Source = self.node
        assert node.unwrap is not None
        for part in around_truncates(changes):
            if TRUNCATE in part.extra and part.extra[TRUNCATE][0]:
                store.stream_time = max(store.stream_time, int(part.extra[POSITION][0]))
                gone = truncated(store.view, part, store.stream_time)
                if gone.rows:
                    yield gone
                continue
            part = self._on_time(part, store, cut)
            if not part.rows:
                continue
            made = complete(store.view, part, node.unwrap, self.task.batch.bits, store.stream_time)
            self.task.report.count_dropped(node.name, {"out-of-order-event": made.late})
            if made.failed:
                self.task.failures.failed(node, part, [Failure(row, error) for row, error in made.failed])
            if made.changes.rows:
                yield made.changes

    def _on_time(self, changes: Changes, store: OpenStore, cut: Cut | None) -> Changes:
        """Without events from before a snapshot that has ended."""
        if cut is None or not changes.rows:
            return changes
        places = np.asarray(changes.extra.get(POSITION, changes.extra[SEEN]))
        kept = on_time(store.view, changes, cut, places, self.task.batch.bits)
        if kept is None:
            return changes
        self.task.report.count_dropped(self.node.name, {"event-before-snapshot": int((~kept).sum())})
        return changes.where(kept)
