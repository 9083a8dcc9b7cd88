"""Runs a star join in a task: subscribes to right rows, answers, resolves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from crossstream.columns.changes import Changes, LookupCounts, no_changes, reference
from crossstream.columns.evaluate import Failure
from crossstream.columns.functions import WHOLE, columns_of, fields_of
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.operators.foreign_key_join.runner import references_of
from crossstream.operators.source.runner import Decoder
from crossstream.operators.star_join.kernel import PartitionState, resolve
from crossstream.operators.star_join.subscriptions import (
    LeftRows,
    Subscriptions,
    answer,
    incomplete,
    refer,
    some_reference,
)
from crossstream.planning.steps import AnswerManyStep, ReferManyStep, ResolveManyStep
from crossstream.serdes.contract import NO_READER
from crossstream.storage.columns import EMPTY_BYTES, Column
from crossstream.tables.join_spec import JoinSpec
from crossstream.task.runner import Emitted, OpenStore, Runner

_MADE = 0
"""Stream time of a derived store that has been made from what it is derived from."""


def _is_new(store: OpenStore) -> bool:
    """Whether a derived store has to be made, in this batch; afterwards it is."""
    new, store.stream_time = store.stream_time < _MADE, _MADE
    return new


class ReferManyRunner(Runner):
    """First round: which right rows a partition of left rows needs.

    A left row that a foreign key could not be taken from stays in the table for other readers; the join skips it.
    """

    step: ReferManyStep

    def finish(self) -> Emitted:
        node: graph.ManyJoin = self.node
        left = self.latest_only(self.gathered(self.step.inputs[0]))
        references = self.task.stores(self.step.references)
        counts = self.task.stores(self.step.counts)
        rebuilt = _is_new(counts)
        if left is None and not (rebuilt and references.view.rows):
            return
        if left is None:
            flow = self.task.flow(self.out())
            left = no_changes(flow.key, flow.value)
        # What cannot be written must not subscribe.
        left = self.writable(replace(left, old=None, extra={}), "value", self.task.flow(self.out()).value)
        rows = self._rows(node, left)
        subscriptions = Subscriptions(self.task.number, references.view, counts.view, rebuilt)
        changed, asks = refer(self._spec(), node.names, subscriptions, rows)
        if changed.rows:
            yield self.out(), changed
        if asks.rows:
            yield self.step.asks, asks

    def _spec(self) -> JoinSpec:
        return self.join_spec(self.node.kind, changelog=self.step.changelog)

    def _rows(self, node: graph.ManyJoin, left: Changes) -> LeftRows:
        """The left rows with their foreign keys.

        Where a failure stops the batch, no row can be skipped. So it is known before anything is decoded which changes
        later ones supersede; of those only the foreign keys are read, for the counts and for failures.
        """
        spec = self._spec()
        foreign, all_fields = _fields_read(node, left.value)
        if self.task.settings.processing.action == "fail":
            self.task.report.count_in(node.name, left.rows)
            rows = LeftRows.of(spec, left)
            rows = replace(rows, changes=self._keyed(node, rows.changes, all_fields))
            self._count_lacking(node, rows.changes)
            self._count_lacking(node, self._keyed(node, left.take(rows.superseded), foreign))
            return rows
        keyed = self._keyed(node, left, all_fields)
        self.task.report.count_in(node.name, keyed.rows)
        self._count_lacking(node, keyed)
        return LeftRows.of(spec, keyed)

    def _count_lacking(self, node: graph.ManyJoin, keyed: Changes) -> None:
        """Rows that lack a foreign key."""
        if node.kind == "inner":
            self.task.report.count_dropped(node.name, {"null-foreign-key": incomplete(keyed, node.names)})

    def _keyed(self, node: graph.ManyJoin, left: Changes, fields: frozenset[str] | None) -> Changes:
        """With extra columns of foreign keys, and ``fields`` of the values decoded, if functions read columns."""
        if not left.rows:
            return replace(left, extra={reference(name): EMPTY_BYTES for name in node.names})
        left = self._decoded(node, left, fields)
        extra: dict[str, Column] = {}
        failures: list[Failure] = []
        for name, function, parent in zip(node.names, node.foreign_keys, node.parents[1:], strict=True):
            extra[reference(name)], wrong = references_of(function, self.task.node(parent).key, left)
            failures += wrong
            self.note_field(function, left)
        keyed = replace(left, extra=extra)
        if not failures:
            return keyed
        self.task.failures.failed(node, left, failures)
        return keyed.without([failure.row for failure in failures])

    def _decoded(self, node: graph.ManyJoin, left: Changes, fields: frozenset[str] | None) -> Changes:
        source = self.step.undecoded
        if source is not None and self.task.settings.decoding.action == "fail":
            read = replace(source, fields=fields)
            decoder = Decoder(self.task.node(source.node), read, self.task.failures)
            return decoder.decoded(left, ("value",))
        by_columns = any(function.expression is not None for function in node.foreign_keys)
        if by_columns and left.value.declared() and not left.value.made():
            left.value.series(fields, checked=NO_READER)
        return left


def _fields_read(node: graph.ManyJoin, values: Values) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """The fields of a left row that expressions of foreign keys read, and with those of the joiner; None: all."""
    names = frozenset[str]().union(*map(columns_of, node.foreign_keys)) - {"key"}
    if WHOLE in names or not (names or values.declared()):
        return None, None
    joined = fields_of(node.joiner, "left") if values.declared() else frozenset[str]()
    return names, None if joined is None else names | joined


class AnswerManyRunner(Runner):
    """Second round: the right rows, to the partitions that need them."""

    step: AnswerManyStep

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        asked_by, *tables = self.step.inputs
        asks = self.gathered(asked_by)
        changes = {name: self.latest_only(self.gathered(name)) for name in dict.fromkeys(tables)}
        subscribers = self.task.stores(self.step.subscribers)
        _is_new(subscribers)
        if asks is None and all(change is None for change in changes.values()):
            return
        stores = [self.task.stores(name) for name in self.step.right_stores]
        rights = [store.side(changes[name]) for name, store in zip(tables, stores, strict=True)]
        spec = self.join_spec(self.node.kind, changelog=self.step.changelog)
        counts = [LookupCounts() for _ in tables]
        for answers in answer(spec, subscribers.view, asks, rights, counts):
            if answers.rows:
                yield self.out(), answers
        names = self.node.names
        for number, (name, store) in enumerate(zip(names, stores, strict=True)):
            wanted = partial(some_reference, subscribers.view, number, store.definition.key)
            self.report_asked(counts[number], wanted, store.some_key, f"{self.step.node}: {name}")


class ResolveManyRunner(Runner):
    """Third round: results, where the left rows are."""

    step: ResolveManyStep

    def finish(self) -> Emitted:
        node: graph.ManyJoin = self.node
        rows, answers = (self.gathered(name) for name in self.step.inputs)
        kept, *derived = (
            self.task.stores(name) for name in (self.step.rows, self.step.referrers, self.step.right_rows)
        )
        new = [_is_new(store) for store in derived]
        rebuilt = any(new)
        if rows is None and answers is None and not (rebuilt and kept.view.rows):
            return
        index, right_rows = (store.view for store in derived)
        values = [self.task.plan.stores[name].value for name in self.step.right_stores]
        key, value, bits = kept.definition.key, kept.definition.value, self.task.batch.bits
        state = PartitionState(node.names, values, kept.view, index, right_rows, key, value, bits, rebuilt)
        spec = self.join_spec(node.kind, changelog=self.step.changelog)
        counts = [LookupCounts() for _ in node.names]
        for joined in resolve(spec, state, rows, answers, counts):
            yield from self.joined(joined)
        for name, table in zip(node.names, counts, strict=True):
            self.task.report.count_asked(f"{node.name}: {name}", table.matched, table.unmatched)
