"""Runs a deduplication in a task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, evaluate, written
from crossstream.columns.stream_time import Timeline
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph import nodes as graph
from crossstream.operators.deduplicate.kernel import first_ones
from crossstream.planning.steps import DeduplicateStep, IdentifyStep
from crossstream.task.runner import Emitted, OpenStore, Runner

OWN_KEY = "own key"
"""Extra column: the key of a record that travels by its identity."""


class IdentifyRunner(Runner):
    """Takes the identity of each record, by which it goes to its state partition."""

    step: IdentifyStep

    def by_key(self) -> bool:
        return True

    def accept(self, flow: str, changes: Changes) -> None:
        node: graph.Deduplicate = self.task.node(self.step.node)
        assert node.identity is not None
        taken, sent = self.task.flow(flow), self.task.flow(self.out())
        # From here on records have no key of their own to be reported under.
        changes = self.writable(self.writable(changes, "key", taken.key), "value", sent.value)
        outcome = evaluate(node.identity, changes.key, value=changes.value)
        self.note_field(node.identity, changes)
        identity, wrong = written(outcome.values, sent.key)
        failures = [*outcome.failures, *(Failure(row, _no_identity(error)) for row, error in wrong)]
        own = changes.key.wire(taken.key)
        key = Values(sent.key, wire=identity)
        found = replace(changes, key=key, old=None, extra={OWN_KEY: own})
        if failures:
            self.task.failures.failed(node, changes, failures)
            found = found.without([failure.row for failure in failures])
        if found.rows:
            self.emit(found)


def _no_identity(error: CrossStreamError) -> CrossStreamError:
    what = f"what identifies a record cannot be written: {error.what}"
    return refuse(error.code, what, "let key= return text, a number, or another JSON value")


class DeduplicateRunner(Runner):
    """Leaves out duplicates, in order of arrival. Stream time is that of all records."""

    step: DeduplicateStep

    def finish(self) -> Emitted:
        node: graph.Deduplicate = self.task.node(self.step.node)
        store = self.task.stores(self.step.store)
        records = self.arrived(self.step.inputs[0])
        if records is None or not records.rows:
            self._advance(node, store, store.passes(None))
            return
        self.task.report.count_in(node.name, records.rows)
        records = self.writable(records, "key", store.definition.key)
        if not records.rows:
            self._advance(node, store, store.passes(None))
            return
        identity = Values(store.definition.key, wire=records.key.wire(store.definition.key))
        timeline = store.passes(records)
        clock = timeline.around(records)[1]
        there = np.flatnonzero(~identity.missing())
        keep = np.ones(records.rows, bool)
        if len(there):
            known = replace(records, key=identity, extra={}).take(there)
            found = first_ones(
                store.view, known, clock[there], node.within, store.horizon, self.task.batch.bits
            )
            keep[there] = found.keep
            gone = np.zeros(len(found.times), np.uint8)
            store.view.put({"h": found.hashes, "s": found.times, "key": found.keys, "gone": gone})
        self._advance(node, store, timeline)
        out = self._with_own_keys(records.where(keep))
        if out.rows:
            self.task.report.count_out(node.name, out.rows)
            yield self.out(), out

    def _advance(self, node: graph.Deduplicate, store: OpenStore, timeline: Timeline) -> None:
        store.stream_time = timeline.last
        store.horizon = max(store.horizon, store.stream_time - node.within)

    def _with_own_keys(self, records: Changes) -> Changes:
        own = records.extra.get(OWN_KEY)
        key = records.key if own is None else Values(self.task.flow(self.out()).key, wire=own)
        return replace(records, key=key, extra={})
