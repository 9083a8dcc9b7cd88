"""Keeps global tables, and looks them up for streams and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from crossstream.columns.changes import Changes, LookupCounts, no_changes, some_given
from crossstream.columns.evaluate import Failure
from crossstream.columns.hashing import partition_of
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.operators.foreign_key_join.kernel import resolve
from crossstream.operators.foreign_key_join.runner import LEFT_ROWS
from crossstream.operators.foreign_key_join.subscriptions import (
    INSTRUCTION,
    PRIMARY,
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,
    Subscribed,
)
from crossstream.operators.global_join.kernel import look_up
from crossstream.planning.steps import GlobalResolveStep, GlobalStep, StreamGlobalJoinStep
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column
from crossstream.tables.global_tables import Changed, History
from crossstream.tables.join_spec import Serdes, TableSide
from crossstream.tables.partners import LEFT, RIGHT
from crossstream.tables.rows import TableRows, upsert
from crossstream.task.runner import Emitted, Runner


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
            plain = replace(changes, old=None, extra={})
            upsert(store.view, plain, bits=bits, serde=serde, want_old=False)
            if self.task.batch.recorded:
                self.task.record(self.step.store, History.of(plain, plain.hashes(bits), serde))
        return iter(())


class StreamGlobalJoinRunner(Runner):
    """Looks up the row of each record: a piece in, a piece out."""

    step: StreamGlobalJoinStep

    def by_key(self) -> bool:
        return True

    def accept(self, flow: str, changes: Changes) -> None:
        for piece in changes.chunks(self.task.settings.chunk_rows):
            self._join(piece)

    def _join(self, records: Changes) -> None:
        node: graph.StreamGlobalJoin = self.node
        report, table = self.task.report, self.task.global_tables.open(self.step.store)
        report.count_in(node.name, records.rows)
        spec = self.join_spec(node.kind, headers=node.headers)
        found = look_up(spec, node.key_selector, records, table, both_keys=node.both_keys)
        report.count_dropped(node.name, found.dropped)
        self.note_field(node.key_selector, records)
        self.report_asked(found.counts, partial(some_given, found.keys), table.some_key)
        if found.failures:
            self.task.failures.failed(node, records, found.failures)
        if found.changes.rows:
            report.count_out(node.name, found.changes.rows)
            self.emit(found.changes)


class GlobalResolveRunner(Runner):
    """Answers the left rows of its partition, and again those whose row in the global table changed."""

    step: GlobalResolveStep

    def finish(self) -> Emitted:
        node: graph.ForeignKeyJoin = self.node
        asked, alone = self.step.inputs
        asking, left_key = self.task.flow(asked), self.task.flow(alone).key
        subscriptions, answers = self.arrived(asked), self.arrived(alone)
        table = self.task.global_tables.open(self.step.table)
        changed = self.task.global_tables.changes(self.step.table, self.step.changelog)
        right, unresolved = changed.changes, dict[Any, Failure]()
        if changed.failures:
            self._report_changes(changed)
        if subscriptions is None and answers is None and right is None:
            return

        def right_rows(hashes: np.ndarray, keys: Column) -> TableRows:
            looked = table.before(hashes, keys)
            unresolved.update((keys[failure.row].as_py(), failure) for failure in looked.failures)
            return looked.rows

        spec = self.join_spec(
            LEFT_ROWS[node.kind],
            Serdes(left_key, asking.value),
            headers=node.headers,
            changelog=self.step.changelog,
        )
        left = Subscribed.of(subscriptions, answers, asking.key, spec.serdes)
        side = TableSide(
            no_changes(table.key, table.value) if right is None else right, right_rows, table.value
        )
        store, counts = self.task.stores(self.step.subscriptions), (LookupCounts(), LookupCounts())
        for joined in resolve(spec, store.view, left, side, counts):
            yield from self.joined(joined)
        if unresolved and subscriptions is not None:
            self._report_looked_up(subscriptions, unresolved, left_key)
        # Each partition gets all changes of the global table; those that no left row here refers to do not count.
        lefts = LookupCounts(counts[LEFT].matched + counts[RIGHT].matched, counts[LEFT].unmatched)
        self.report_asked(lefts, store.some_key, table.some_key)

    def _report_changes(self, changed: Changed) -> None:
        """Changes of a view that a function failed on: reported once, by the partition of the key."""
        step = next(one for one in self.task.plan.steps if getattr(one, "table", None) == self.step.table)
        changes = changed.changes
        if changes is None or step is not self.step:
            return
        places = partition_of(changes.hashes(self.task.batch.bits), self.task.batch.partitions)
        mine = [failure for failure in changed.failures if places[failure.row] == self.task.number]
        if mine:
            view = self.task.node(self.task.plan.views[self.step.table].node)
            self.task.failures.failed(view, changes, mine)

    def _report_looked_up(
        self, subscriptions: Changes, unresolved: Mapping[Any, Failure], key: EngineSerde
    ) -> None:
        """Left rows that looked up a row of a view that a function failed on."""
        asks = subscriptions.extra[INSTRUCTION] >= PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE
        left = replace(subscriptions, key=Values(key, wire=subscriptions.extra[PRIMARY])).where(asks)
        wanted = subscriptions.where(asks).key.wire().to_pylist()
        failures = [unresolved[one].at(row) for row, one in enumerate(wanted) if one in unresolved]
        if failures:
            self.task.failures.failed(self.node, left, failures)
