"""Runs a stream–table join in a task."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from crossstream.columns.changes import Changes, LookupCounts, no_changes, some_given
from crossstream.columns.stream_time import Timeline, counting
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.operators.stream_table_join.kernel import (
    Buffer,
    TableHistory,
    admit,
    depart,
    join_stream_table,
    waiting_rows,
)
from crossstream.planning.steps import StreamTableJoinStep
from crossstream.task.runner import Emitted, OpenStore, Runner


class StreamTableJoinRunner(Runner):
    """Looks each record up in the table as it was when the record arrived, or left the buffer.

    It reads what its table is kept from, beside the step that keeps it: the store knows no order within a batch.
    """

    step: StreamTableJoinStep

    def finish(self) -> Emitted:
        node: graph.StreamTableJoin = self.node
        records, puts = self.step.inputs
        stream = self.arrived(records)
        table = stream if puts == records else self.arrived(puts)
        looking = None
        if stream is not None and stream.rows:
            self.task.report.count_in(node.name, stream.rows)
            looking, dropped = admit(node.kind, stream, self.step.refusal)
            self.task.report.count_dropped(node.name, dropped)
        if self.step.buffer is not None:
            looking = self._leaving(looking, self.step.buffer, table)
        if looking is not None and looking.rows:
            spec, counts = self.join_spec(node.kind, headers=node.headers), LookupCounts()
            joined = join_stream_table(spec, looking, self._table(table), counts)
            self.report_asked(counts, partial(some_given, looking.key), self._some_key)
            yield from self.joined(joined)
        elif table is not None:
            self.report_asked(LookupCounts(), lambda: None, self._some_key)

    def _some_key(self) -> Values | None:
        return self.task.stores(self.step.store).some_key()

    def _table(self, puts: Changes | None) -> TableHistory:
        store = self.task.stores(self.step.store)
        definition = store.definition
        if puts is None:
            puts = no_changes(definition.key, definition.value)
        puts = puts.where(~puts.key.missing())
        timeline = Timeline(store.began)
        if definition.history is not None:
            timeline = store.versions_pass(puts)
            puts = store.taken(puts, self.task.batch.bits).changes
        return TableHistory(
            store.before(),
            replace(puts, old=None, extra={}),
            definition.value,
            partial(self.task.batch.came_from, self.step.looking_first),
            definition.history,
            timeline,
        )

    def _leaving(self, stream: Changes | None, name: str, table: Changes | None) -> Changes | None:
        """The records that look now; the others go into the buffer. None: none do, and stream time stands still.

        Where no record came for the configured time, those that leave see all that the batch puts into the ``table``.
        """
        store, silence = self.task.stores(name), self.task.batch.silence
        definition = store.definition
        assert definition.history is not None
        if stream is None:
            stream = no_changes(definition.key, definition.value)
        stream = self.as_stored(replace(stream, old=None, extra={}), definition.value)
        timeline = store.passes(counting(stream, "whole"))
        if timeline.moved:
            store.heard(silence)
        else:
            since = -1 if table is None or not table.rows else int(table.major.max()) + 1
            timeline = timeline.by_clock(store.moment(silence), since)
        grace, looking = definition.history, None
        if stream.rows or len(timeline.time):
            looking = self._passed(stream, timeline, store, grace)
        held_up = timeline.newest > timeline.last
        waiting = store.view.live_between(store.horizon, timeline.newest - grace) if held_up else {"h": ()}
        self.waits(len(waiting["h"]))
        return looking

    def _passed(self, stream: Changes, timeline: Timeline, store: OpenStore, grace: int) -> Changes:
        definition, batch = store.definition, self.task.batch
        buffer = Buffer(store.view, grace, store.horizon, definition.key, definition.value)
        departure = depart(stream, buffer, timeline)
        store.stream_time, store.horizon = timeline.last, departure.horizon
        staying = stream.take(departure.staying)
        if staying.rows:
            store.view.put(waiting_rows(staying, departure.staying, batch.id, definition.value, batch.bits))
        return departure.leaving
