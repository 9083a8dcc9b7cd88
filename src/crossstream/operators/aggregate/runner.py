"""Grouping of tables, and aggregation, in a task."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.evaluate import Failure
from crossstream.columns.order import by_arrival
from crossstream.columns.stream_time import Timeline
from crossstream.columns.values import Values
from crossstream.columns.windows import WindowSpec
from crossstream.graph import nodes as graph
from crossstream.operators.aggregate.builtin.columns import BEYOND, BuiltIn
from crossstream.operators.aggregate.builtin.composition import Parts
from crossstream.operators.aggregate.builtin.group_rows import GroupRows
from crossstream.operators.aggregate.calls import Calls
from crossstream.operators.aggregate.counts import Count
from crossstream.operators.aggregate.folding import Fold
from crossstream.operators.aggregate.kernel import (
    END,
    GROUP,
    ROW_KEY,
    SIDE,
    SIGN,
    START,
    Groups,
    in_order,
    look_up,
    put,
    update,
    windows_from,
    with_old,
)
from crossstream.operators.aggregate.refused import NOT_ADDED, RefusedRows
from crossstream.operators.stateless.kernel import map_records, select_key
from crossstream.operators.windowed.sessions import Sessions, put_sessions
from crossstream.operators.windowed.sliding import PLACE, Sliding, held_windows
from crossstream.operators.windowed.windows import (
    BEFORE,
    NOW,
    closing_time,
    ends_of,
    first_open,
    is_open,
    retention_of,
    windows_of,
)
from crossstream.planning.steps import AggregateStep, GroupTableStep
from crossstream.serdes.json.plain import SchemaJson
from crossstream.serdes.windowed import WindowedSerde
from crossstream.storage.columns import take
from crossstream.tables.rows import as_stored
from crossstream.task.runner import Emitted, OpenStore, Runner

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
        wanted = self.step.row_keys or (self.step.row_keys_to_skip and self.task.settings.skips)
        keys = {ROW_KEY: changes.key.wire(self.task.flow(flow).key)} if wanted else {}
        for sign, value in ((-1, changes.old), (1, changes.value)):
            rows = np.flatnonzero(~value.missing())
            if len(rows):
                half = replace(changes.take(rows), value=value.take(rows), old=None, extra={})
                signs = np.full(len(rows), sign, np.int64)
                extra = {name: take(column, rows) for name, column in keys.items()}
                parts.append(self._grouped(replace(half, extra={SIGN: signs, _ROW: rows, **extra})))
        if not parts:
            return
        both = concat_changes(parts)
        # In order of the changes, of each first the row that is taken away.
        both = both.take(np.lexsort((both.extra[SIGN], both.extra[_ROW])))
        both = replace(both, extra={name: both.extra[name] for name in (SIGN, *keys)})
        if both.rows:
            self.emit(both)

    def _grouped(self, half: Changes) -> Changes:
        """Under the keys of their groups; without null keys and values, which belong to none."""
        node: graph.GroupTable = self.node
        made, failures = (select_key if node.selects else map_records)(half, node.mapper)
        self.note_field(node.mapper, half)
        if failures:
            self.task.failures.failed(node, half, failures)
        return made.where(~made.key.missing() & ~made.value.missing())


class AggregateRunner(Runner):
    """Aggregates what is grouped, and keeps the table."""

    step: AggregateStep

    def by_key(self) -> bool:
        """Not with windows: which of them are closed depends on the stream time of all keys.

        Of grouped tables the order among groups may be that of arrival in each range; between keys it is free.
        """
        node: graph.Aggregate = self.node
        return node.windows is None

    def finish(self) -> Emitted:
        node: graph.Aggregate = self.node
        store = self.task.stores(self.step.store)
        changes = self._records(node, store)
        if node.windows is None:
            if changes is not None and changes.rows:
                yield from self._results(node, store, changes)
            return
        timeline = store.passes(changes)
        if timeline.moved:
            store.heard(self.task.batch.silence)
        elif node.emit_final:
            oldest = max(store.horizon, first_open(node.windows, store.stream_time))
            timeline = timeline.by_clock(store.moment(self.task.batch.silence, oldest))
        store.stream_time = timeline.last
        if changes is not None and changes.rows:
            before, now = timeline.around(changes)
            if node.windows.kind in ("session", "sliding"):
                times = {BEFORE: before, NOW: now}
                yield from self._moved(node, store, replace(changes, extra={**changes.extra, **times}))
            else:
                yield from self._results(node, store, self._in_windows(node.windows, changes, now))
        if node.emit_final and len(timeline.time):
            yield from self._closed(node, store, timeline)
        if node.emit_final:
            ready = (first_open(node.windows, time) for time in (timeline.last, timeline.newest))
            self.waits(self._count(store, *ready))
        self._expire(store)

    def _records(self, node: graph.Aggregate, store: OpenStore) -> Changes | None:
        """What is grouped, in order of arrival, with keys in the form of the store."""
        parts: list[Changes] = []
        held = {flow: self.gathered(flow) for flow in dict.fromkeys(self.step.inputs)}
        for side, flow in enumerate(self.step.inputs):
            changes = held[flow]
            if changes is None:
                continue
            extra = {name: changes.extra[name] for name in (SIGN, ROW_KEY) if name in changes.extra}
            if len(self.step.inputs) > 1:
                extra = {SIDE: np.full(changes.rows, side, np.int64)}
            self.task.report.count_in(self.step.node, changes.rows)
            changes = replace(changes, old=None, extra=extra)
            parts.append(self._dropped(changes, changes.key.missing(), self.step.null_key_reasons[side]))
        if not parts:
            return None
        changes = by_arrival(concat_changes(parts))
        if not node.takes_nulls:
            changes = self._dropped(changes, changes.value.missing(), "null-value")
        changes = self.writable(changes, "key", store.definition.key)
        return replace(changes, key=Values(store.definition.key, wire=changes.key.wire(store.definition.key)))

    def _dropped(self, changes: Changes, lost: np.ndarray, reason: str) -> Changes:
        if not lost.any():
            return changes
        self.task.report.count_dropped(self.step.node, {reason: int(lost.sum())})
        return changes.where(~lost)

    def _in_windows(self, windows: WindowSpec, changes: Changes, times: np.ndarray) -> Changes:
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
        every = self.step.changelog is not None
        refused = self._refused_rows(groups)
        made = update(groups, before, self._fold(node, store, groups, refused), every=every)
        self._report_failures(node, groups, made.failures)
        if refused is not None and refused.passed:
            self.task.report.count_dropped(node.name, {NOT_ADDED: refused.passed})

        def stored(changes: Changes) -> Changes:
            kept = self.as_stored(changes, serde)
            return with_old(kept, before) if self.step.old else kept

        net = stored(made.net)
        if net.rows:
            put(store.view, net, groups.hashes[net.extra[GROUP]])
            changelog = None if made.every is None else in_order(stored(made.every))
            yield from self._changed(node, net.rows, in_order(net), changelog)

    def _moved(self, node: graph.Aggregate, store: OpenStore, changes: Changes) -> Emitted:
        """The changes of windows whose bounds depend on the records."""
        assert node.windows is not None
        assert self.step.retention is not None
        serde, sessions = store.definition.value, node.windows.kind == "session"
        changes = replace(changes, extra={**changes.extra, PLACE: np.arange(changes.rows)})
        groups = Groups.of(changes, self.task.batch.bits)
        every = self.step.changelog is not None
        fold = self._fold(node, store, groups, None).in_windows(groups.rows)
        if sessions:
            # Where sessions come out once, one that has come out takes no more records.
            shown = node.windows.size + node.windows.grace if node.emit_final else self.step.retention
            found = Sessions.of(
                store.view,
                groups,
                serde,
                node.windows,
                retention=shown,
                horizon=store.horizon - store.definition.remembered,
                final=node.emit_final,
            )
            made = found.update(fold, every=every, want_old=self.step.old)
        else:
            held = held_windows(store.view, groups, serde, node.windows, store.horizon)
            sliding = Sliding(node.windows, groups, held, fold)
            sliding.run()
            made = sliding.log.moved(groups, held, fold, serde, every=every, want_old=self.step.old)
        self.task.report.count_dropped(self.step.node, {"late": made.late, "closed-session": made.apart})
        self._report_failures(node, groups, made.failures)

        def stored(changes: Changes) -> Changes:
            kept = self.as_stored(changes, serde)
            return kept if kept.old is None else replace(kept, old=as_stored(kept.old, serde))

        net = stored(made.net)
        if net.rows:
            (put_sessions if sessions else put)(store.view, net, groups.hashes[net.extra[GROUP]])
            repeated = made.repeated if self.step.repeats else None
            emitted = net if repeated is None else stored(repeated)
            changelog = None if made.every is None else stored(made.every)
            yield from self._changed(node, net.rows, emitted, changelog)

    def _changed(self, node: graph.Aggregate, rows: int, changes: Changes, every: Changes | None) -> Emitted:
        """Emits the changes of the table, unless windows come out when they close."""
        if not node.emit_final:
            self.task.report.count_out(node.name, rows)
            yield self.out(), self._keyed(changes)
            if self.step.changelog is not None and every is not None:
                yield self.step.changelog, self._keyed(every)

    def _report_failures(self, node: graph.Aggregate, groups: Groups, failures: list[Failure]) -> None:
        beyond = next((failure for failure in failures if failure.role == BEYOND), None)
        if beyond is not None and SIGN in groups.rows.extra:  # it could not be taken away again
            raise self.task.failures.error(node, groups.rows, beyond)
        if failures:
            self.task.failures.failed(node, groups.rows, failures)

    def _fold(
        self, node: graph.Aggregate, store: OpenStore, groups: Groups, refused: RefusedRows | None
    ) -> Fold:
        if node.columns is not None:
            return BuiltIn(Parts.of(node.columns), self._group_rows(groups))
        serde = store.definition.value
        if node.operator == "count":
            return Count(serde)
        skips = self.task.settings.skips
        return Calls(serde, node.adders, node.subtractor, node.initializer, node.merger, skips, refused)

    def _refused_rows(self, groups: Groups) -> RefusedRows | None:
        """The rows of a table that its adder refused, where bad records are skipped."""
        if self.step.refused is None or not self.task.settings.skips:
            return None
        return RefusedRows(self.task.stores(self.step.refused).view, groups, self.task.batch.bits)

    def _group_rows(self, groups: Groups) -> GroupRows | None:
        """The rows of the groups of a table, if they are kept."""
        if self.step.rows is None:
            return None
        store = self.task.stores(self.step.rows)
        serde = store.definition.value
        assert isinstance(serde, SchemaJson)
        return GroupRows(store.view, groups, serde, self.task.batch.id, self.task.batch.bits)

    def _keyed(self, changes: Changes) -> Changes:
        """With the keys of the result: those of windows have the window in them."""
        if START not in changes.extra:
            return replace(changes, extra={})
        node: graph.Aggregate = self.node
        serde = node.key
        assert isinstance(serde, WindowedSerde)
        assert node.windows is not None
        starts = np.asarray(changes.extra[START])
        ends = np.asarray(changes.extra[END]) if END in changes.extra else ends_of(node.windows, starts)
        key = serde.joined(changes.key.wire(), starts, ends)
        return replace(changes, key=Values(serde, wire=key), extra={})

    def _closed(self, node: graph.Aggregate, store: OpenStore, timeline: Timeline) -> Emitted:
        """The windows that have closed in the batch, in the order in which they closed, then by start and key."""
        assert node.windows is not None
        low = first_open(node.windows, timeline.before) if timeline.before >= 0 else 0
        if self._leaves_at_close():
            low = store.horizon
        rows = windows_from(store.view, max(low, 0), first_open(node.windows, store.stream_time) - 1)
        if rows is None:
            return
        positions = np.asarray(rows["s"])
        rises = timeline.first(closing_time(node.windows, positions))
        bounds = {START: rows["start"], END: positions} if "start" in rows else {START: positions}
        made = Changes(
            Values(store.definition.key, wire=rows["key"]),
            Values(store.definition.value, wire=rows["value"]),
            rows["ts"],
            timeline.major[rises],
            timeline.minor[rises],
            timeline.headers_at(rises),
            extra=bounds,
        )
        if self.step.old:
            made = replace(made, old=made.value.take(np.full(made.rows, -1)))
        self.task.report.count_out(node.name, made.rows)
        yield self.out(), self._keyed(made)
        if self.step.changelog is not None:
            yield self.step.changelog, self._keyed(made)

    def _count(self, store: OpenStore, low: int, high: int) -> int:
        """The windows from a position up to another one."""
        return len(store.view.live_between(max(low, 0), high - 1)["h"]) if low < high else 0

    def _expire(self, store: OpenStore) -> None:
        """Windows that began the retention before the newest one are gone, and sessions that ended so long before.

        Those that come out when they close go then, unless they are kept for longer: the store has what is yet to come
        out, wherever rescaling puts it. Sliding windows stay for the retention after their end, and its last moment:
        as long as a record may come in time that is near to them (`retention_of`).
        """
        node: graph.Aggregate = self.node
        retention, windows, now = self.step.retention, node.windows, store.stream_time
        if retention is None or windows is None:
            return
        if self._leaves_at_close():
            oldest = first_open(windows, now)
        elif windows.kind == "sliding":
            oldest = now - windows.size - retention
        else:
            newest = now // windows.advance * windows.advance if windows.kind == "time" else now
            oldest = newest - retention + 1
        store.horizon = max(store.horizon, oldest)

    def _leaves_at_close(self) -> bool:
        """Whether windows leave the store as soon as they have come out."""
        node: graph.Aggregate = self.node
        windows = node.windows
        if windows is None or not node.emit_final or windows.kind == "sliding":
            return False
        return self.step.retention == retention_of(windows, None)
