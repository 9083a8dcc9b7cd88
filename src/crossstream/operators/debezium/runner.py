"""Completes rows in a task."""

from __future__ import annotations

from crossstream.columns.evaluate import Failure
from crossstream.graph.nodes import Source
from crossstream.operators.debezium.kernel import complete
from crossstream.operators.runner import Emitted, Runner
from crossstream.planning.steps import CompleteRowsStep


class CompleteRowsRunner(Runner):
    """Reads the rows before, completes those of the batch, and remembers them."""

    step: CompleteRowsStep

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        changes = self.arrived(self.step.inputs[0])
        if changes is None or not changes.rows:
            return
        node: Source = self.node
        assert node.unwrap is not None
        store = self.task.stores(self.step.store)
        made = complete(store.view, changes, node.unwrap, self.task.batch.bits)
        self.task.report.count_dropped(node.name, {"out-of-order-event": made.late})
        if made.failed:
            self.task.failures.failed(node, changes, [Failure(row, error) for row, error in made.failed])
        if made.changes.rows:
            yield self.out(), made.changes
