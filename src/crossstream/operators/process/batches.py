"""Runs a function of record batches in a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, raised
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import ProcessingError
from crossstream.graph import nodes as graph
from crossstream.operators.process.context import ProcessorContext, Timers
from crossstream.operators.process.runner import views_of
from crossstream.planning.steps import TransformBatchesStep
from crossstream.task.runner import Emitted, Runner


class TransformBatchesRunner(Runner):
    """Gives the function the records of the state partition in order of arrival, some at a time."""

    step: TransformBatchesStep

    def finish(self) -> Emitted:
        node: graph.TransformBatches = self.task.node(self.step.node)
        changes = self.arrived(self.step.inputs[0])
        own = self.task.stores(self.step.timers)
        if changes is None or not changes.rows:
            own.stream_time = own.passes(None).last
            return
        timeline = own.passes(changes)
        self.task.report.count_in(node.name, changes.rows)
        timers = Timers(own.stream_time, self.task.batch.clock, {})
        views = views_of(self.task, node.stores, lambda: context._now)
        context = ProcessorContext(self.task.number, views, timers, None)
        context._timers = None
        for part in changes.chunks(self.task.settings.chunk_rows):
            context.stream_time = int(timeline.beside(part)[1][-1])
            context._now = max(context.stream_time, 0)
            made = self._made(node, part, context)
            if made.rows:
                self.task.report.count_out(node.name, made.rows)
                yield self.out(), made
        own.stream_time = timeline.last
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
                what = f"the function of {node.name} returned the timestamp {ts.min()}"
                step = "return milliseconds since the epoch, 0 or more"
                raise refuse("CS-507", what, step, **self.task.failures.place(node, part, part.rows - 1))
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
        step = 'declare their type: serdes.json(Order), serdes.json({"price": pl.Float64})'
        raise refuse("CS-501", f"no column of Arrow holds these values: {error}", step) from error


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
