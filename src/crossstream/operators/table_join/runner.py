"""The primary-key join in a task."""

from __future__ import annotations

from crossstream.columns.changes import LookupCounts
from crossstream.graph import nodes as graph
from crossstream.operators.table_join.kernel import join_tables
from crossstream.planning.steps import TableJoinStep
from crossstream.task.runner import Emitted, Runner


class TableJoinRunner(Runner):
    """Joins two kept tables by primary key."""

    step: TableJoinStep

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        node: graph.TableJoin = self.node
        names = self.step.inputs
        left = self.latest_only(self.gathered(names[0]))
        right = left if names[0] == names[1] else self.latest_only(self.gathered(names[1]))
        if left is None and right is None:
            return
        stores = [self.task.stores(name) for name in self.step.stores]
        spec = self.join_spec(node.kind, headers=node.headers, changelog=self.step.changelog)
        counts = LookupCounts()
        joined = join_tables(
            spec, stores[0].side(left), stores[1].side(right), counts, want_old=self.step.old
        )
        self.report_asked(counts, stores[0].some_key, stores[1].some_key)
        yield from self.joined(joined, stays=self.step.stored)
