"""Runs a processor in a task: one object for the state partition, a call for each record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, no_changes
from crossstream.columns.evaluate import Failure, raised
from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.columns.order import OFFSET_BITS, came_before
from crossstream.columns.stream_time import Timeline
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.graph import nodes as graph
from crossstream.operators.process.context import (
    STREAM_TIME,
    ProcessorContext,
    Record,
    Timers,
    load,
    save,
    undo_all,
)
from crossstream.operators.process.stores import KeyValueView, ProcessorView, Undo, VersionedView, WindowView
from crossstream.planning.steps import ProcessStep
from crossstream.records import decode_headers
from crossstream.serdes import calls
from crossstream.task.runner import Emitted, Runner, Task


def views_of(
    task: Task, stores: Sequence[graph.ProcessorStore], now: Callable[[], int]
) -> dict[str, ProcessorView]:
    """The stores of a processor, by name."""
    found: dict[str, ProcessorView] = {}
    for store in stores:
        opened, bits = task.stores(store.name), task.batch.bits
        if store.kind == "key-value":
            found[store.name] = KeyValueView(opened, bits, now)
        else:
            assert store.retention is not None
            kind = WindowView if store.kind == "window" else VersionedView
            found[store.name] = kind(opened, bits, now, store.retention)
    return found


class ProcessRunner(Runner):
    """Calls the processor for each record, in order of arrival, and its timers between them."""

    step: ProcessStep

    def finish(self) -> Emitted:
        node: graph.Process = self.task.node(self.step.node)
        changes = self.arrived(self.step.inputs[0])
        own = self.task.stores(self.step.timers)
        if changes is None or not changes.rows:
            changes = no_changes(self.step.key, self.step.value)
        timeline, kept = own.passes(changes), load(own)
        if not changes.rows and not self._may_fire(node, timeline, kept):
            own.stream_time = timeline.last
            return
        self.task.report.count_in(node.name, changes.rows)
        run = _Run(self, node, changes, timeline, kept)
        made = run.all()
        if made is not None and made.rows:
            self.task.report.count_out(node.name, made.rows)
            yield self.out(), made

    def _may_fire(self, node: graph.Process, timeline: Timeline, kept: Mapping[int, int]) -> bool:
        """Whether a timer may be due though no record came here.

        When the next one in stream time is due, is kept with the first record of a state partition. Where it is not,
        but there are rows, these are of an earlier version, or of another number of state partitions.
        """
        if kept.keys() - {STREAM_TIME}:
            return True
        if not len(timeline.time):
            return False
        if STREAM_TIME in kept:
            return kept[STREAM_TIME] <= timeline.last
        return _has_rows(self.task, node)


def _has_rows(task: Task, node: graph.Process) -> bool:
    return any(task.stores(store.name).view.rows for store in node.stores)


class _Run:
    """A batch of a state partition, through one processor."""

    def __init__(
        self,
        runner: ProcessRunner,
        node: graph.Process,
        changes: Changes,
        timeline: Timeline,
        kept: dict[int, int],
    ) -> None:
        self.runner, self.node, self.changes, self.timeline = runner, node, changes, timeline
        self.task = runner.task
        self.own = self.task.stores(runner.step.timers)
        self.timers = Timers(self._began(kept), self.task.batch.clock, kept, not changes.rows)
        self.views = views_of(self.task, node.stores, lambda: self.context._now)
        self.undo: Undo | None = None if self.task.settings.processing.action == "fail" else []
        for view in self.views.values():
            view.undo = self.undo
        check = self._check_key if node.keeps_key else None
        self.context = ProcessorContext(self.task.number, self.views, self.timers, check)
        self.wires = self._wires()

    def _began(self, kept: Mapping[int, int]) -> int:
        """Stream time when the batch begins; in a state partition that never had a record, with its first one."""
        if not self.changes.rows or STREAM_TIME in kept or _has_rows(self.task, self.node):
            return self.timeline.before
        return int(self.timeline.beside(self.changes)[0][0])

    def all(self) -> Changes | None:
        """Everything that the processor forwards."""
        processor = self._made()
        self._called("init", getattr(processor, "init", None), self.context)
        self.context._timers = None
        failures = self._records(processor)
        if failures:
            self.task.failures.failed(self.node, self.changes, failures)
        self._clock()
        self._called("close", getattr(processor, "close", None))
        for view in self.views.values():
            view.keep()
        self.own.stream_time, self.own.clock = self.timeline.last, self.timers.next_on_the_clock
        batch = self.task.batch
        save(self.own, self.timers.to_keep(), self.task.number, batch.partitions, batch.bits)
        return self._forwarded()

    def _made(self) -> Any:
        processor = self._called("supplier", self.node.supplier)
        if not callable(getattr(processor, "process", None)):
            what = f"the supplier of {self.node.name} made a {type(processor).__name__}, which has no process(record)"
            step = "let it make an object with init(context), process(record) and close()"
            raise refuse("CS-501", what, step, **self._place())
        return processor

    def _records(self, processor: Any) -> list[Failure]:
        context, out, undo = self.context, self.context._out, self.undo
        times = self.timeline.beside(self.changes)[1].tolist()
        rises = came_before(self.changes.major, self.changes.minor, self.timeline, or_with=False).tolist()
        process, views = processor.process, [self.views[name] for name in self.wires]
        wires = list(zip(*self.wires.values(), strict=True)) if views else []
        failures: list[Failure] = []
        for row, record in enumerate(self._as_records()):
            self._pass(rises[row])
            context._record, context._now, context._at = record, record.timestamp, row
            context.stream_time = times[row]
            for view, data in zip(views, wires[row], strict=True) if views else ():
                view.at(record.key, data)
            size = len(out.rows)
            try:
                process(record)
            except BaseException as error:
                failures.append(Failure(row, _own(error), "processor"))
                if undo is None or isinstance(error, KeyboardInterrupt):
                    return failures
                out.cut(size)
                undo_all(undo)
            if undo:
                undo.clear()
        self._pass(len(self.timeline.time))
        return failures

    def _pass(self, rises: int) -> None:
        """Fires the timers that are due with the first ``rises`` of stream time: each after the rows of its record."""
        time = self.timeline.time
        while rises and self.timers.next <= time[rises - 1]:
            self._fire(int(self.timeline.first(np.array([self.timers.next]))[0]))

    def _fire(self, rise: int) -> None:
        now = int(self.timeline.time[rise])
        context = self.context
        context._record, context._now, context._at = None, now, self.changes.rows + rise
        context.stream_time = now
        for timer in self.timers.fire(now):
            self._called("timer", timer.callback, now)

    def _clock(self) -> None:
        """The timers on the clock, after the records."""
        self.context._record, self.context._now = None, self.task.batch.clock
        self.context._at = self._last()
        self.context.stream_time = self.timeline.last
        for timer in self.timers.fire_on_the_clock():
            self._called("timer", timer.callback, self.timers.clock)

    def _last(self) -> int:
        """The place of the last record, or that of the last rise of stream time if it comes later."""
        rows, time = self.changes, self.timeline
        if not len(time.time):
            return max(rows.rows - 1, 0)
        ahead = rows.rows and (rows.major[-1], rows.minor[-1]) > (time.major[-1], time.minor[-1])
        return rows.rows - 1 if ahead else rows.rows + len(time.time) - 1

    def _called(self, role: str, function: Callable[..., Any] | None, *arguments: Any) -> Any:
        """A call that is about no record; what it raises stops the application."""
        if function is None:
            return None
        try:
            return function(*arguments)
        except (CrossStreamError, KeyboardInterrupt) as error:
            if isinstance(error, CrossStreamError):
                raise error.at(**self._place()) from error.__cause__
            raise
        except BaseException as error:
            what = f"the {role} of {self.node.name} raised {type_and_text(error)}"
            step = "fix it: what does not belong to a record cannot be skipped"
            raise refuse("CS-501", what, step, **self._place()) from error

    def _place(self) -> dict[str, object]:
        line = None if self.node.location is None else str(self.node.location)
        return {"operator": self.node.name, "line": line, "partition": self.task.number}

    def _wires(self) -> Mapping[str, list[bytes | None]]:
        """Of the stores whose keys have the serde of the records': these keys, serialised."""
        key = self.runner.step.key
        alike = [name for name, view in self.views.items() if view.store.definition.key == key]
        if not alike:
            return {}
        wire = self.changes.key.wire(key).to_pylist()
        for name in alike:
            self.views[name].begin(wire)
        return dict.fromkeys(alike, wire)

    def _as_records(self) -> Any:
        changes = self.changes
        rows = changes.rows
        columns: list[Any] = [changes.key.objects(), changes.value.own_objects(), changes.ts.tolist()]
        if changes.headers is None:
            columns.append([()] * rows)
        else:
            columns.append(list(map(decode_headers, changes.headers.to_pylist())))
        rank = changes.minor >> OFFSET_BITS
        topic = np.full(rows, None, object)
        partition = np.full(rows, None, object)
        offset = np.full(rows, None, object)
        for number in np.unique(rank).tolist():
            span = self.task.batch.of_rank(number)
            if span is not None:
                mine = rank == number
                topic[mine], partition[mine] = span.topic, span.partition
                offset[mine] = (changes.minor[mine] & ((1 << OFFSET_BITS) - 1)) + span.start
        columns += [topic.tolist(), partition.tolist(), offset.tolist()]
        return map(Record._make, zip(*columns, strict=True))

    def _check_key(self, key: Any, record: Record | None) -> None:
        """Refuses another key than that of the record; in a timer, a key of another state partition."""
        if record is not None:
            if key is record.key or (type(key) is type(record.key) and key == record.key):
                return
            what = f"process_values forwards the key {key!r} for a record with the key {record.key!r}"
        else:
            wire = pa.array([calls.serialize(self.runner.step.key, key)], pa.large_binary())
            batch = self.task.batch
            if partition_of(hash_keys(wire, batch.bits), batch.partitions)[0] == self.task.number:
                return
            what = f"a timer of process_values forwards the key {key!r}, which belongs to another state partition"
        raise refuse("CS-501", what, "forward the key of the record, or use process, which may change it")

    def _forwarded(self) -> Changes | None:
        out, changes = self.context._out, self.changes
        if not out.rows:
            return None
        rows = np.array(out.rows, np.int64)
        if changes.rows or len(self.timeline.time):
            major, minor = (
                np.append(getattr(changes, one), getattr(self.timeline, one))[rows]
                for one in ("major", "minor")
            )
        else:  # by the clock alone
            major = np.full(len(rows), max(self.context.stream_time, 0))
            minor = np.full(len(rows), -1)
        headers = None
        if any(one is not None for one in out.headers):
            headers = pa.array(out.headers, pa.large_binary())
        # Below `process_values` nothing moves records, which would write the keys.
        key = self.runner.step.key if self.node.keeps_key else None
        return Changes(
            Values(key, objects=out.keys),
            Values(objects=out.values),
            np.array(out.times, np.int64),
            major,
            minor,
            headers,
        )


def _own(error: BaseException) -> BaseException:
    """What a processor raised; errors of its context and its stores stay what they are."""
    return error if isinstance(error, CrossStreamError) else raised(error)
