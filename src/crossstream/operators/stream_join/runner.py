"""Runs a stream–stream join in a task."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Asked, Changes, some_given
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.operators.runner import Emitted, OpenStore, Runner, no_changes
from crossstream.operators.stream_join.kernel import StreamJoin, dropped, join_streams
from crossstream.operators.stream_join.partners import Window
from crossstream.operators.stream_join.records import Maker, records_of
from crossstream.planning.steps import StreamStreamJoinStep


class StreamStreamJoinRunner(Runner):
    """Joins the records of both sides with each other and with those kept, in order of arrival.

    Stream time is that of all keys of the state partition, so all records of a batch are taken at once.
    """

    step: StreamStreamJoinStep

    def finish(self) -> Emitted:
        left, right = self._sides()
        report, join = self.task.report, self._join()
        waiting = None if self.step.waiting is None else self.task.stores(self.step.waiting)
        idle = not left.rows + right.rows
        if idle:
            left = self._clock_record(left, waiting)
            right = left if join.itself else right
            if not left.rows:
                return
        else:
            report.count_in(self.step.node, left.rows + (0 if join.itself else right.rows))
            if waiting is not None:
                waiting.heard(self.task.batch.silence)
        records = records_of(
            left,
            right,
            itself=join.itself,
            right_first=partial(self.task.batch.came_from, self.step.right_first),
            batch=self.task.batch.id,
            bits=self.task.batch.bits,
        )
        if not idle:
            report.count_dropped(self.step.node, dropped(join, records, self.step.refused))
        stores = tuple(self.task.stores(name) for name in self.step.stores)
        chunk, asked = self.task.settings.chunk_rows, Asked()
        for joined in join_streams(
            join, records, (left, right), (stores[0], stores[1]), waiting, asked, chunk=chunk
        ):
            yield from self.joined(joined)
        self.report_asked(
            asked,
            lambda: some_given(left.key) or stores[0].some_key(),
            lambda: some_given(right.key) or stores[1].some_key(),
        )

    def _clock_record(self, nothing: Changes, waiting: OpenStore | None) -> Changes:
        """A record that only moves stream time: when records wait, and no input has come for the configured time."""
        moment = None if waiting is None else waiting.moment(self.task.batch.silence)
        if moment is None:
            return nothing
        now, null = np.array([moment]), pa.nulls(1, pa.large_binary())
        key, value = Values(nothing.key.serde, wire=null), Values(nothing.value.serde, wire=null)
        return replace(nothing, key=key, value=value, ts=now, major=now, minor=np.array([-1]))

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
        return StreamJoin(
            node.kind,
            Window(node.before, node.after, node.grace),
            Maker(node.joiner, left.key, (left.value, right.value), node.headers),
            node.eager,
            self.step.inputs[0] == self.step.inputs[1],
        )
