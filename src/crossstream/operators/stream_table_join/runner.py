"""Runs a stream–table join in a task."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from crossstream.columns.changes import Changes, LookupCounts, no_changes, some_given
from crossstream.columns.values import Values
from crossstream.graph import nodes as graph
from crossstream.operators.stream_table_join.kernel import (
    Buffer,
    TableHistory,
    admit,
    depart,
    depart_while_idle,
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
        if stream is None or not stream.rows:
            looking = self._due_while_idle(table)
        else:
            self.task.report.count_in(node.name, stream.rows)
            looking, dropped = admit(node.kind, stream, self.step.refusal)
            self.task.report.count_dropped(node.name, dropped)
            if self.step.buffer is not None and looking.rows:
                looking = self._leaving(looking, self.step.buffer)
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
        if definition.history is not None:
            puts = store.taken(puts, self.task.batch.bits).changes
        return TableHistory(
            store.before(),
            replace(puts, old=None, extra={}),
            definition.value,
            partial(self.task.batch.came_from, self.step.looking_first),
            definition.history,
            store.began,
        )

    def _due_while_idle(self, table: Changes | None) -> Changes | None:
        """Waiting records that look now, for no input came for the configured time; they see all puts of the batch."""
        if self.step.buffer is None:
            return None
        store = self.task.stores(self.step.buffer)
        now = store.moment(self.task.batch.silence)
        if now is None:
            return None
        last = now if table is None or not table.rows else max(now, int(table.major.max()) + 1)
        departure = depart_while_idle(self._buffer(store), now, last)
        store.stream_time, store.horizon = departure.clock, departure.horizon
        return departure.leaving

    def _buffer(self, store: OpenStore) -> Buffer:
        definition = store.definition
        assert definition.history is not None
        return Buffer(
            store.view, definition.history, store.stream_time, store.horizon, definition.key, definition.value
        )

    def _leaving(self, stream: Changes, name: str) -> Changes:
        """The records that look now; the others go into the buffer."""
        store, bits = self.task.stores(name), self.task.batch.bits
        definition = store.definition
        store.heard(self.task.batch.silence)
        stream = self.as_stored(replace(stream, old=None, extra={}), definition.value)
        departure = depart(stream, self._buffer(store))
        store.stream_time, store.horizon = departure.clock, departure.horizon
        staying = stream.take(departure.staying)
        if staying.rows:
            store.view.put(
                waiting_rows(staying, departure.staying, self.task.batch.id, definition.value, bits)
            )
        return departure.leaving
