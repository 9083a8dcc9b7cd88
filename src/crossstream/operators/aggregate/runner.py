"""Grouping of tables, and aggregation, in a task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.evaluate import Failure
from crossstream.columns.order import by_arrival
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.operators.aggregate.folds import Calls, Count
from crossstream.operators.aggregate.kernel import (
    GROUP,
    SIDE,
    SIGN,
    START,
    Fold,
    Groups,
    look_up,
    put,
    update,
    windows_from,
)
from crossstream.operators.aggregate.windows import closing_time, ends_of, first_open, is_open, windows_of
from crossstream.operators.runner import Emitted, OpenStore, Runner
from crossstream.operators.stateless.kernel import map_records, select_key
from crossstream.planning.steps import AggregateStep, GroupTableStep
from crossstream.serdes.windowed import WindowedSerde
from crossstream.storage.columns import take_or_null

_ROW = "row"
"""Extra column: the number of the change that a half is of."""


class GroupTableRunner(Runner):
    """Makes of each change of a table a row to take away and a row to add, under the keys of their groups."""

    step: GroupTableStep

    def by_key(self) -> bool:
        return True

    def accept(self, flow: str, changes: Changes) -> None:
        self.task.report.count_in(self.step.node, changes.rows)
        assert changes.old is not None, "the table was planned to give old rows"
        parts = []
        for sign, value in ((-1, changes.old), (1, changes.value)):
            rows = np.flatnonzero(~value.missing())
            if len(rows):
                half = replace(changes.take(rows), value=value.take(rows), old=None, lost=None, extra={})
                signs = np.full(len(rows), sign, np.int64)
                parts.append(self._grouped(replace(half, extra={SIGN: signs, _ROW: rows})))
        if not parts:
            return
        both = concat_changes(parts)
        # In order of the changes, of each first the row that is taken away.
        both = both.take(np.lexsort((both.extra[SIGN], both.extra[_ROW])))
        both = replace(both, extra={SIGN: both.extra[SIGN]})
        if both.rows:
            self.emit(both)

    def _grouped(self, half: Changes) -> Changes:
        """Under the keys of their groups; without null keys and values, which belong to none."""
        node: graph.GroupTable = self.task.node(self.step.node)
        made, failures = (select_key if node.selects else map_records)(half, node.mapper)
        if failures:
            self.task.failures.failed(node, half, failures)
        return made.where(~made.key.missing() & ~made.value.missing())


class AggregateRunner(Runner):
    """Aggregates what is grouped, and keeps the table."""

    step: AggregateStep

    def by_key(self) -> bool:
        """Not with windows: which of them are closed depends on the stream time of all keys."""
        node: graph.Aggregate = self.task.node(self.step.node)
        return node.windows is None

    def finish(self) -> Emitted:
        node: graph.Aggregate = self.task.node(self.step.node)
        store = self.task.stores(self.step.store)
        changes = self._records(node, store)
        if node.windows is None:
            if changes is not None and changes.rows:
                yield from self._results(node, store, changes)
            return
        if changes is None or not changes.rows:
            moment = store.moment(self.task.batch.silence)
            if moment is None:
                return
            before, store.stream_time = store.stream_time, moment
            yield from self._closed(node, store, before, None, np.array([moment]))
            self._expire(store)
            return
        store.heard(self.task.batch.silence)
        before = store.stream_time
        times = np.maximum(np.maximum.accumulate(changes.ts), before)
        store.stream_time = int(times[-1])
        yield from self._results(node, store, self._in_windows(node.windows, changes, times))
        if node.emit_final:
            yield from self._closed(node, store, before, changes, times)
        self._expire(store)

    def _records(self, node: graph.Aggregate, store: OpenStore) -> Changes | None:
        """What is grouped, in order of arrival, with keys in the form of the store."""
        parts: list[Changes] = []
        held = {flow: self.gathered(flow) for flow in dict.fromkeys(self.step.inputs)}
        for side, flow in enumerate(self.step.inputs):
            changes = held[flow]
            if changes is None:
                continue
            extra = {SIGN: changes.extra[SIGN]} if SIGN in changes.extra else {}
            if len(self.step.inputs) > 1:
                extra = {SIDE: np.full(changes.rows, side, np.int64)}
            parts.append(replace(changes, old=None, lost=None, extra=extra))
        if not parts:
            return None
        changes = by_arrival(concat_changes(parts))
        self.task.report.count_in(self.step.node, changes.rows)
        changes = self._dropped(changes, changes.key.missing(), self.step.null_key_reason)
        if node.windows is None:
            changes = self._dropped(changes, changes.value.missing(), "null-value")
        changes = self.writable(changes, "key", store.definition.key)
        return replace(changes, key=Values(store.definition.key, wire=changes.key.wire(store.definition.key)))

    def _dropped(self, changes: Changes, lost: np.ndarray, reason: str) -> Changes:
        if not lost.any():
            return changes
        self.task.report.count_dropped(self.step.node, {reason: int(lost.sum())})
        return changes.where(~lost)

    def _in_windows(self, windows: graph.WindowSpec, changes: Changes, times: np.ndarray) -> Changes:
        """The records, once for each of their windows; without windows that are closed for them, which are counted."""
        rows, starts = windows_of(windows, changes.ts)
        there = is_open(windows, starts, times[rows])
        self.task.report.count_dropped(self.step.node, {"late": int((~there).sum())})
        rows, starts = rows[there], starts[there]
        made = changes.take(rows)
        return replace(made, extra={**made.extra, START: starts})

    def _results(self, node: graph.Aggregate, store: OpenStore, changes: Changes) -> Emitted:
        if not changes.rows:
            return
        groups = Groups.of(changes, self.task.batch.bits)
        serde = store.definition.value
        before = look_up(store.view, groups, serde)
        made = update(
            groups,
            before,
            self._fold(node, store),
            want_old=self.step.old,
            every=self.step.changelog is not None,
        )
        self._report_failures(node, groups, made.failures)
        net = self.as_stored(made.net, serde)
        if not net.rows:
            return
        put(store.view, net, groups.hashes[net.extra[GROUP]])
        if node.emit_final:
            return
        self.task.report.count_out(node.name, net.rows)
        yield self.out(), self._keyed(net)
        if self.step.changelog is not None and made.every is not None:
            yield self.step.changelog, self._keyed(self.as_stored(made.every, serde))

    def _report_failures(self, node: graph.Aggregate, groups: Groups, failures: list[Failure]) -> None:
        if failures:
            self.task.failures.failed(node, groups.rows, failures)

    def _fold(self, node: graph.Aggregate, store: OpenStore) -> Fold:
        serde = store.definition.value
        if node.operator == "count":
            return Count(serde)
        return Calls(serde, node.adders, node.subtractor, node.initializer)

    def _keyed(self, changes: Changes) -> Changes:
        """With the keys of the result: those of windows have the window in them."""
        if START not in changes.extra:
            return replace(changes, extra={})
        node: graph.Aggregate = self.task.node(self.step.node)
        serde = node.key
        assert isinstance(serde, WindowedSerde)
        assert node.windows is not None
        starts = np.asarray(changes.extra[START])
        key = serde.joined(changes.key.wire(), starts, ends_of(node.windows, starts))
        return replace(changes, key=Values(serde, wire=key), extra={})

    def _closed(
        self, node: graph.Aggregate, store: OpenStore, before: int, changes: Changes | None, times: np.ndarray
    ) -> Emitted:
        """The windows that have closed since ``before``, in the order in which they closed, then by start and key."""
        assert node.windows is not None
        low = max(first_open(node.windows, before), 0) if before >= 0 else 0
        rows = windows_from(store.view, low, first_open(node.windows, store.stream_time) - 1)
        if rows is None:
            return
        starts = rows["s"]
        trigger = np.searchsorted(times, closing_time(node.windows, starts), "left")
        made = Changes(
            Values(store.definition.key, wire=rows["key"]),
            Values(store.definition.value, wire=rows["value"]),
            rows["ts"],
            times[trigger] if changes is None else changes.major[trigger],
            np.full(len(trigger), -1) if changes is None else changes.minor[trigger],
            None if changes is None or changes.headers is None else take_or_null(changes.headers, trigger),
            extra={START: starts},
        )
        if self.step.old:
            made = replace(made, old=made.value.take(np.full(made.rows, -1)))
        self.task.report.count_out(node.name, made.rows)
        yield self.out(), self._keyed(made)
        if self.step.changelog is not None:
            yield self.step.changelog, self._keyed(made)

    def _expire(self, store: OpenStore) -> None:
        """Windows that began before the retention time are gone."""
        if self.step.retention is not None:
            store.horizon = max(store.horizon, store.stream_time - self.step.retention + 1)
