"""Completes rows in a task."""

from __future__ import annotations

from crossstream.columns.evaluate import Failure
from crossstream.graph.nodes import Source
from crossstream.operators.debezium.kernel import POSITION, TRUNCATE, around_truncates, complete, truncated
from crossstream.planning.steps import CompleteRowsStep
from crossstream.task.runner import Emitted, Runner


class CompleteRowsRunner(Runner):
    """Reads the rows before, completes those of the batch, and remembers them.

    The stream time of the store is the place of the newest truncate.
    """

    step: CompleteRowsStep

    def by_key(self) -> bool:
        """Not with truncates, which are for all keys."""
        return bool(self.node.unwrap.truncate != "delete")

    def finish(self) -> Emitted:
        changes = self.arrived(self.step.inputs[0])
        if changes is None or not changes.rows:
            return
        node: Source = self.node
        assert node.unwrap is not None
        store = self.task.stores(self.step.store)
        for part in around_truncates(changes):
            if TRUNCATE in part.extra and part.extra[TRUNCATE][0]:
                store.stream_time = max(store.stream_time, int(part.extra[POSITION][0]))
                gone = truncated(store.view, part, store.stream_time)
                if gone.rows:
                    yield self.out(), gone
                continue
            made = complete(store.view, part, node.unwrap, self.task.batch.bits, store.stream_time)
            self.task.report.count_dropped(node.name, {"out-of-order-event": made.late})
            if made.failed:
                self.task.failures.failed(node, part, [Failure(row, error) for row, error in made.failed])
            if made.changes.rows:
                yield self.out(), made.changes
