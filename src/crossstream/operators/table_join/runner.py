"""The primary-key join in a task."""

from __future__ import annotations

from crossstream.columns.changes import LookupCounts
from crossstream.graph import nodes as graph
from crossstream.operators.table_join.kernel import join_tables
from crossstream.planning.steps import TableJoinStep
from crossstream.task.runner import Emitted, Runner, no_changes


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
        left_key, right_key = (self.task.flow(name).key for name in names)
        asked = LookupCounts()
        joined = join_tables(
            node.kind,
            node.joiner,
            left if left is not None else no_changes(left_key, stores[0].definition.value),
            right if right is not None else no_changes(right_key, stores[1].definition.value),
            stores[0].lookup_before(),
            stores[1].lookup_before(),
            asked,
            bits=self.task.batch.bits,
            want_old=self.step.old,
            changelog=self.step.changelog,
            wanted=node.headers,
        )
        self.report_asked(asked, stores[0].some_key, stores[1].some_key)
        yield from self.joined(joined, stays=self.step.stored)
