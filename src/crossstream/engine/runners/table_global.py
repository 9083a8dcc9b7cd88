"""The second half of a table's join with a global table."""

from __future__ import annotations

from functools import partial

from crossstream.algebra.asked import Asked, some_key
from crossstream.algebra.change import Changes
from crossstream.algebra.foreign_key import Serdes, resolve
from crossstream.algebra.foreign_key_every import resolve_every
from crossstream.algebra.windows import LEFT, RIGHT
from crossstream.engine.runners.asking import report_asked
from crossstream.engine.runners.base import Emitted, Runner, emit_joined, no_changes
from crossstream.engine.runners.foreign_key import LEFT_ROWS, no_subscriptions
from crossstream.serdes import Serde
from crossstream.topology import graph
from crossstream.topology.steps import GlobalResolveStep


class GlobalResolveRunner(Runner):
    """Answers the left rows of its partition, and again those whose row in the global table changed."""

    step: GlobalResolveStep

    def finish(self) -> Emitted:
        node: graph.ForeignKeyJoin = self.task.node(self.step.node)
        asked, alone = self.step.inputs
        told, left_key = self.task.flow(asked), self.task.flow(alone).key
        subscriptions, answers = (self._as_kept(flow, told.value) for flow in (asked, alone))
        table = self.task.wholes.open(self.step.table)
        right = table.every_change() if self.step.every else self.task.wholes.changes(self.step.table)
        if subscriptions is None and answers is None and right is None:
            return
        store = self.task.stores(self.step.subscriptions)
        looking = Asked(), Asked()
        work = resolve_every if self.step.every else resolve
        chunks = work(
            LEFT_ROWS[node.kind],
            node.joiner,
            store.view,
            no_subscriptions(told, counted=False) if subscriptions is None else subscriptions,
            no_changes(left_key, told.value) if answers is None else answers,
            no_changes(table.key, table.value) if right is None else right,
            table.before if self.step.every else table.after,
            Serdes(left_key, told.value, table.value),
            looking,
            bits=self.task.batch.bits,
            chunk=self.task.settings.chunk_rows,
        )
        for joined in chunks:
            yield from emit_joined(self, joined)
        # Each partition gets all changes of the global table; those that no left row here refers to do not count.
        lefts = Asked(looking[LEFT].matched + looking[RIGHT].matched, looking[LEFT].unmatched)
        report_asked(self, lefts, partial(some_key, store.view, table.key), table.some_key)

    def _as_kept(self, flow: str, serde: Serde) -> Changes | None:
        """Left rows as the store of subscriptions holds them. A function may have made them in this very round."""
        changes = self.arrived(flow)
        return None if changes is None else self.as_stored(changes, serde)
