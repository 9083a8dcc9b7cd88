"""The join of many: referring, answering, resolving."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossstream.algebra.change import Changes
from crossstream.algebra.home import Home
from crossstream.algebra.interest import Interest, Right, answer, refer
from crossstream.algebra.join_many import LeftSerdes, resolve_many
from crossstream.algebra.join_many_every import resolve_many_every
from crossstream.engine.runners.base import Emitted, OpenStore, Runner, emit_joined, latest_only, no_changes
from crossstream.engine.runners.foreign_key import failed_column
from crossstream.topology import graph
from crossstream.topology.steps import AnswerManyStep, ReferManyStep, ResolveManyStep

_MADE = 0
"""Stream time of a derived store that has been made from what it is derived from."""


def _is_new(store: OpenStore) -> bool:
    """Whether a derived store has to be made, in this batch; afterwards it is."""
    new, store.stream_time = store.stream_time < _MADE, _MADE
    return new


class ReferManyRunner(Runner):
    """First round: which right rows a partition of left rows wants."""

    step: ReferManyStep

    def finish(self) -> Emitted:
        node: graph.ManyJoin = self.task.node(self.step.node)
        left = self._left()
        references = self.task.stores(self.step.references)
        counts = self.task.stores(self.step.interest)
        anew = _is_new(counts)
        if left is None and not (anew and references.view.rows):
            return
        flow = self.task.flow(self.out())
        if left is None:
            left = no_changes(flow.key, flow.value)
            left = replace(left, extra={column: left.key.wire() for column in self.step.columns})
        self.task.report.count_in(node.name, left.rows)
        interest = Interest(self.task.number, references.view, counts.view, anew)
        bits, every = self.task.batch.bits, self.step.every
        told = refer(node.names, interest, left, self.step.columns, bits=bits, every=every)
        if node.kind == "inner":
            self.task.report.count_dropped(node.name, told.dropped)
        if told.rows.rows:
            yield self.out(), told.rows
        if told.asks.rows:
            yield self.step.asks, told.asks

    def _left(self) -> Changes | None:
        """The left rows, without those that a foreign key could not be taken from."""
        left = latest_only(self, self.gathered(self.step.inputs[0]))
        if left is None:
            return None
        failed = np.zeros(left.rows, np.uint8)
        for column in self.step.columns:
            failed |= np.asarray(left.extra.get(failed_column(column), failed))
        left = left.where(failed == 0)
        extra = {column: left.extra[column] for column in self.step.columns}
        return replace(left, old=None, extra=extra) if left.rows else None


class AnswerManyRunner(Runner):
    """Second round: the right rows, to the partitions that want them."""

    step: AnswerManyStep

    def by_key(self) -> bool:
        return True

    def finish(self) -> Emitted:
        asked_by, *tables = self.step.inputs
        asks = self.gathered(asked_by)
        changes = {name: latest_only(self, self.gathered(name)) for name in dict.fromkeys(tables)}
        interested = self.task.stores(self.step.interested)
        _is_new(interested)
        if asks is None and all(change is None for change in changes.values()):
            return
        rights = []
        for name, table in zip(tables, self.step.right_stores, strict=True):
            store = self.task.stores(table)
            rows = store.before() if self.step.every else store.view
            rights.append(Right(changes[name], store.lookup_in(rows)))
        bits, chunk, every = self.task.batch.bits, self.task.settings.chunk_rows, self.step.every
        for told in answer(interested.view, asks, rights, bits=bits, chunk=chunk, every=every):
            if told.rows:
                yield self.out(), told


class ResolveManyRunner(Runner):
    """Third round: results, where the left rows are."""

    step: ResolveManyStep

    def finish(self) -> Emitted:
        node: graph.ManyJoin = self.task.node(self.step.node)
        rows, answers = (self.gathered(name) for name in self.step.inputs)
        kept, *derived = (
            self.task.stores(name) for name in (self.step.rows, self.step.referrers, self.step.partners)
        )
        new = [_is_new(store) for store in derived]
        anew = any(new)
        if rows is None and answers is None and not (anew and kept.view.rows):
            return
        referrers, partners = (store.view for store in derived)
        values = [self.task.plan.stores[name].value for name in self.step.right_stores]
        home = Home(node.names, values, kept.view, referrers, partners, self.task.batch.bits, anew)
        serdes = LeftSerdes(kept.definition.key, kept.definition.value)
        chunk = self.task.settings.chunk_rows
        resolve = resolve_many_every if self.step.every else resolve_many
        for joined in resolve(node.kind, node.joiner, home, rows, answers, serdes, chunk=chunk):
            yield from emit_joined(self, joined)
