"""The stream–stream join at work."""

from __future__ import annotations

from dataclasses import replace

from crossstream.algebra.change import Changes
from crossstream.algebra.stream_records import records_of
from crossstream.algebra.stream_results import Maker
from crossstream.algebra.stream_stream import StreamJoin, dropped, join_streams
from crossstream.algebra.values import Values
from crossstream.algebra.windows import Window
from crossstream.engine.runners.base import Emitted, Runner, emit_joined, no_changes
from crossstream.topology import graph
from crossstream.topology.steps import StreamStreamJoinStep


class StreamStreamJoinRunner(Runner):
    """Joins the records of both sides with each other and with those kept, in order of arrival.

    Stream time is that of all keys of the state partition, so all records of a batch are taken at once.
    """

    step: StreamStreamJoinStep

    def finish(self) -> Emitted:
        left, right = self._sides()
        if not left.rows + right.rows:
            return
        report, join = self.task.report, self._join()
        report.count_in(self.step.node, left.rows + (0 if join.itself else right.rows))
        records = records_of(
            left,
            right,
            itself=join.itself,
            right_first=self.step.right_first,
            batch=self.task.batch.id,
            bits=self.task.batch.bits,
        )
        report.count_dropped(self.step.node, dropped(join, records, self.step.refused))
        stores = tuple(self.task.stores(name) for name in self.step.stores)
        waiting = None if self.step.waiting is None else self.task.stores(self.step.waiting)
        chunk = self.task.settings.chunk_rows
        for joined in join_streams(
            join, records, (left, right), (stores[0], stores[1]), waiting, chunk=chunk
        ):
            yield from emit_joined(self, joined)

    def _sides(self) -> tuple[Changes, Changes]:
        """The records of both sides with keys and values in wire form, as the stores hold them."""
        names = self.step.inputs
        sides = []
        for flow, name in zip(dict.fromkeys(names), self.step.stores, strict=False):
            store = self.task.plan.stores[name]
            changes = self.arrived(flow)
            if changes is None:
                changes = no_changes(store.key, store.value)
            key = Values(store.key, wire=self.serialized(changes, "key", store.key))
            value = Values(store.value, wire=self.serialized(changes, "value", store.value))
            sides.append(replace(changes, key=key, value=value, extra={}))
        return sides[0], sides[-1]

    def _join(self) -> StreamJoin:
        node: graph.StreamStreamJoin = self.task.node(self.step.node)
        left, right = (self.task.plan.stores[name] for name in self.step.stores)
        return StreamJoin(
            node.kind,
            Window(node.before, node.after, node.grace),
            Maker(node.joiner, left.key, (left.value, right.value)),
            node.eager,
            self.step.inputs[0] == self.step.inputs[1],
        )
