"""Runs a processor in a task: one object for the state partition, a call for each record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.changes import Changes, no_changes
from crossstream.columns.evaluate import Failure, raised
from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.columns.order import OFFSET_BITS, running_maximum
from crossstream.columns.values import Values
from crossstream.errors import CrossStreamError, ProcessingError, type_and_text
from crossstream.graph import nodes as graph
from crossstream.operators.process.context import ProcessorContext, Record, Timers, load, save, undo_all
from crossstream.operators.process.stores import KeyValueView, ProcessorView, Undo, VersionedView, WindowView
from crossstream.planning.steps import ProcessStep, TransformBatchesStep
from crossstream.records import decode_headers
from crossstream.serdes import serde as calls
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
            if not own.view.rows:  # no timer on the clock
                return
            changes = no_changes(self.step.key, self.step.value)
        self.task.report.count_in(node.name, changes.rows)
        run = _Run(self, node, changes)
        made = run.all()
        if made is not None and made.rows:
            self.task.report.count_out(node.name, made.rows)
            yield self.out(), made


class _Run:
    """A batch of a state partition, through one processor."""

    def __init__(self, runner: ProcessRunner, node: graph.Process, changes: Changes) -> None:
        self.runner, self.node, self.changes = runner, node, changes
        self.task = runner.task
        self.own = self.task.stores(runner.step.timers)
        self.timers = Timers(self.own.stream_time, self.task.batch.clock, load(self.own))
        self.views = views_of(self.task, node.stores, lambda: self.context._now)
        self.undo: Undo | None = None if self.task.settings.processing.action == "fail" else []
        for view in self.views.values():
            view.undo = self.undo
        check = self._check_key if node.keeps_key else None
        self.context = ProcessorContext(self.task.number, self.views, self.timers, check)
        self.wires = self._wires()

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
        self.own.stream_time, self.own.clock = self.context.stream_time, self.timers.next_on_the_clock
        batch = self.task.batch
        save(self.own, self.timers.to_keep(), self.task.number, batch.partitions, batch.bits)
        return self._forwarded()

    def _made(self) -> Any:
        processor = self._called("supplier", self.node.supplier)
        if not callable(getattr(processor, "process", None)):
            raise ProcessingError(
                f"the supplier of {self.node.name} made a {type(processor).__name__}, which has no process(record)",
                code="CS-501",
                where=self._place(),
                next="let it make an object with init(context), process(record) and close()",
            )
        return processor

    def _records(self, processor: Any) -> list[Failure]:
        context, out, timers, undo = self.context, self.context._out, self.timers, self.undo
        process, views = processor.process, [self.views[name] for name in self.wires]
        wires = list(zip(*self.wires.values(), strict=True)) if views else []
        failures: list[Failure] = []
        for row, record in enumerate(self._as_records()):
            time = record.timestamp
            context._record, context._now, context._at = record, time, row
            if time > context.stream_time:
                context.stream_time = time
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
            if timers.next <= context.stream_time:
                self._fire(context.stream_time)
        return failures

    def _fire(self, now: int) -> None:
        self.context._record, self.context._now = None, now
        for timer in self.timers.fire(now):
            self._called("timer", timer.callback, now)

    def _clock(self) -> None:
        """The timers on the clock, after the records."""
        self.context._record, self.context._now = None, self.task.batch.clock
        self.context._at = max(self.changes.rows - 1, 0)
        for timer in self.timers.fire_on_the_clock():
            self._called("timer", timer.callback, self.timers.clock)

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
            raise ProcessingError(
                f"the {role} of {self.node.name} raised {type_and_text(error)}",
                code="CS-501",
                where=self._place(),
                next="fix it: what does not belong to a record cannot be skipped",
            ) from error

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
        raise ProcessingError(
            what, code="CS-501", next="forward the key of the record, or use process, which may change it"
        )

    def _forwarded(self) -> Changes | None:
        out, changes = self.context._out, self.changes
        if not out.rows:
            return None
        rows = np.array(out.rows, np.int64)
        if changes.rows:
            major, minor = changes.major[rows], changes.minor[rows]
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


class TransformBatchesRunner(Runner):
    """Gives the function the records of the state partition in order of arrival, some at a time."""

    step: TransformBatchesStep

    def finish(self) -> Emitted:
        node: graph.TransformBatches = self.task.node(self.step.node)
        changes = self.arrived(self.step.inputs[0])
        if changes is None or not changes.rows:
            return
        own = self.task.stores(self.step.timers)
        self.task.report.count_in(node.name, changes.rows)
        timers = Timers(own.stream_time, self.task.batch.clock, {})
        views = views_of(self.task, node.stores, lambda: context._now)
        context = ProcessorContext(self.task.number, views, timers, None)
        context._timers = None
        for part in changes.chunks(self.task.settings.chunk_rows):
            own.stream_time = int(running_maximum(part.ts, own.stream_time)[-1])
            context.stream_time = context._now = own.stream_time
            made = self._made(node, part, context)
            if made.rows:
                self.task.report.count_out(node.name, made.rows)
                yield self.out(), made
        for view in views.values():
            view.keep()

    def _made(self, node: graph.TransformBatches, part: Changes, context: ProcessorContext) -> Changes:
        try:
            batch = pa.RecordBatch.from_arrays(
                [_column(part.key), _column(part.value), pa.array(part.ts, pa.int64())],
                names=["key", "value", "timestamp"],
            )
            given = node.function(batch, context) if node.with_context else node.function(batch)
            tables = [self._checked(node, one) for one in _batches(given)]
        except BaseException as error:  # which record is at fault is not known
            cause = error if isinstance(error, ProcessingError) else raised(error)
            failure = Failure(part.rows - 1, cause, "function")
            raise self.task.failures.error(node, part, failure) from failure.error.__cause__
        return self._changes(node, part, tables)

    def _checked(self, node: graph.TransformBatches, given: pa.Table) -> pa.Table:
        names = [name for name, _ in node.columns]
        if sorted(given.schema.names) != sorted(names):
            raise TypeError(f"expected the columns {', '.join(names)}, got {', '.join(given.schema.names)}")
        return given.select(names).cast(pa.schema(node.columns))

    def _changes(self, node: graph.TransformBatches, part: Changes, tables: list[pa.Table]) -> Changes:
        whole = pa.concat_tables(tables) if tables else pa.schema(node.columns).empty_table()
        rows = whole.num_rows
        triggers = np.full(rows, part.rows - 1)
        if "timestamp" in whole.schema.names:
            times = whole["timestamp"].combine_chunks()
            ts = np.asarray(times if not isinstance(times, pa.ChunkedArray) else times.chunk(0)).astype(
                np.int64
            )
            if rows and ts.min() < 0:
                raise ProcessingError(
                    f"the function of {node.name} returned the timestamp {ts.min()}",
                    code="CS-507",
                    where=self.task.failures.place(node, part, part.rows - 1),
                    next="return milliseconds since the epoch, 0 or more",
                )
            if rows <= part.rows:  # one record each, so that those of different keys stay in order below
                triggers = np.arange(part.rows - rows, part.rows)
        else:
            ts = np.full(rows, part.ts.max())
        return Changes(
            Values(node.key_type, series=_series(whole["key"])),
            Values(node.value_type, series=_series(whole["value"])),
            ts,
            part.major[triggers],
            part.minor[triggers],
        )


def _column(values: Values) -> pa.Array:
    """As the declared type has it; without one, what the objects give."""
    if values.declared() or values.expressed():
        return values.series().to_arrow()
    try:
        return pa.array(values.objects())
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ProcessingError(
            f"no column of Arrow holds these values: {error}",
            code="CS-501",
            next='declare their type: serdes.json(Order), serdes.json({"price": pl.Float64})',
        ) from error


def _series(column: pa.ChunkedArray) -> pl.Series:
    found = pl.from_arrow(column)
    assert isinstance(found, pl.Series)
    return found


def _batches(given: Any) -> Iterator[pa.Table]:
    """What the function returned: nothing, a record batch, a table, or several of them."""
    if given is None:
        return
    if isinstance(given, pa.Table):
        yield given
    elif isinstance(given, pa.RecordBatch):
        yield pa.Table.from_batches([given])
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | dict):
        for one in given:
            yield from _batches(one)
    else:
        raise TypeError(f"expected a pyarrow.RecordBatch or several, got {type(given).__name__}")
