"""Global tables kept, and looked up by streams."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from crossstream.algebra.asked import some_given
from crossstream.algebra.change import Changes
from crossstream.algebra.history import History
from crossstream.algebra.stream_global import look_up
from crossstream.algebra.table import upsert
from crossstream.engine.runners.asking import report_asked
from crossstream.engine.runners.base import Emitted, Runner
from crossstream.topology import graph
from crossstream.topology.steps import GlobalStep, StreamGlobalJoinStep


class GlobalRunner(Runner):
    """Keeps a state partition of a global table; where other rounds follow, also its changes."""

    step: GlobalStep

    def by_key(self) -> bool:
        """Not where the changes are kept: they are numbered in order of arrival."""
        return not self.task.batch.recorded

    def finish(self) -> Emitted:
        changes = self.arrived(self.step.inputs[0])
        if changes is not None:
            store, bits = self.task.stores(self.step.store), self.task.batch.bits
            serde = store.definition.value
            plain = replace(changes, old=None, lost=None, extra={})
            upsert(store.view, plain, bits=bits, serde=serde, want_old=False)
            if self.task.batch.recorded:
                self.task.record(self.step.store, History.of(plain, plain.hashes(bits), serde))
        return iter(())


class StreamGlobalJoinRunner(Runner):
    """Looks up the row of each record: a piece in, a piece out."""

    step: StreamGlobalJoinStep

    def by_key(self) -> bool:
        return True

    def accept(self, flow: str, changes: Changes) -> Emitted:
        for piece in changes.chunks(self.task.settings.chunk_rows):
            yield from self._joined(piece)

    def _joined(self, records: Changes) -> Emitted:
        node: graph.StreamGlobalJoin = self.task.node(self.step.node)
        report, table = self.task.report, self.task.wholes.open(self.step.store)
        report.count_in(node.name, records.rows)
        found = look_up(node.kind, node.key_selector, node.joiner, records, table, bits=self.task.batch.bits)
        report.count_dropped(node.name, found.dropped)
        report_asked(self, found.asked, partial(some_given, found.keys), table.some_key)
        if found.failures:
            self.task.failures.failed(node, records, found.failures)
        if found.changes.rows:
            report.count_out(node.name, found.changes.rows)
            yield self.out(), found.changes
