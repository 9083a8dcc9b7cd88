"""Round 0: records of a range become changes, checked and decoded once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.algebra.change import Changes
from crossstream.algebra.evaluate import Failure, call_rows
from crossstream.algebra.order import minor_of, running_maximum
from crossstream.algebra.values import Values
from crossstream.durations import to_timestamp
from crossstream.engine.batch import SourceRange
from crossstream.engine.steps import Task
from crossstream.errors import ProcessingError, SerdeError
from crossstream.topology.graph import Node
from crossstream.topology.plan import ReadStep


@dataclass(slots=True)
class Reader:
    """Turns the records of one range into changes of its source's flow, piece by piece in offset order."""

    task: Task
    step: ReadStep
    span: SourceRange
    newest: int = np.iinfo(np.int64).min

    def changes(self, records: pa.RecordBatch) -> Changes | None:
        """The next piece; None if nothing of it is left."""
        changes = self._changes(self.span, records)
        if not changes.rows:
            return None
        self.task.report.count_in(self.step.node, changes.rows)
        timed = self._timed(self.span, changes)
        if not timed.rows:
            return None
        major = running_maximum(timed.ts, self.newest)
        self.newest = int(major[-1])
        ordered = Changes(timed.key, timed.value, timed.ts, major, timed.minor, timed.headers)
        checked = self._checked(ordered)
        return checked if checked.rows else None

    def _changes(self, span: SourceRange, records: pa.RecordBatch) -> Changes:
        node: Node = self.task.node(self.step.node)
        key, value, ts, offset, headers = records.columns
        times = ts.to_numpy(zero_copy_only=False)
        return Changes(
            Values(node.key, wire=key),
            Values(node.value, wire=value),
            times,
            times,
            minor_of(span.rank, offset.to_numpy(zero_copy_only=False), span.start),
            headers if headers.null_count < len(headers) else None,
        )

    def _timed(self, span: SourceRange, changes: Changes) -> Changes:
        """With the timestamps that the source's extractor gives; negative ones are refused or dropped."""
        node: Any = self.task.node(self.step.node)
        extractor = getattr(node, "timestamp_extractor", None)
        if extractor is not None:
            changes = self._extracted(node, changes)
        negative = changes.ts < 0
        if not negative.any():
            return changes
        if extractor is None:
            row = int(np.flatnonzero(negative)[0])
            raise ProcessingError(
                f"a record has the negative timestamp {int(changes.ts[row])}",
                code="CS-507",
                where=self.task.failures.place(node, changes, row),
                next="give a timestamp_extractor in Consumed; records for which it returns a negative number are dropped",
            )
        self.task.report.count_dropped(node.name, {"negative-timestamp": int(negative.sum())})
        return changes.where(~negative)

    def _extracted(self, node: Any, changes: Changes) -> Changes:
        """With the timestamps of ``extractor(key, value, timestamp)``."""
        checked = self._checked(changes)
        function = node.timestamp_extractor
        stamps, failures = extract(function, checked)
        if failures:
            return self._extracted(node, self.task.failures.failed(node, checked, failures))
        return Changes(checked.key, checked.value, stamps, checked.major, checked.minor, checked.headers)

    def _checked(self, changes: Changes) -> Changes:
        """Without null keys (tables) and undecodable records."""
        node: Node = self.task.node(self.step.node)
        if self.step.table:
            there = ~changes.key.missing()
            self.task.report.count_dropped(node.name, {"null-key": int((~there).sum())})
            changes = changes.where(there)
        for part in ("key", "value"):
            changes = self._decodable(node, changes, part)
        return changes

    def _decodable(self, node: Node, changes: Changes, part: str) -> Changes:
        values: Values = getattr(changes, part)
        serde = values.serde
        if serde is None or not changes.rows:
            return changes
        try:
            if part == "value" and self.step.form == "series":
                values.series()
            elif part == "value" or serde.dtype is None:
                values.objects()
            else:
                values.series()
        except SerdeError:
            reasons = serde.find_invalid(values.wire())
            if not reasons:
                raise
            return self.task.failures.undecodable(node, changes, reasons, part)
        return changes


def extract(function: Any, changes: Changes) -> tuple[np.ndarray, list[Failure]]:
    """The timestamps (ms) that an extractor gives: a callable (key, value, timestamp) or an expression."""
    expression = function if isinstance(function, pl.Expr) else getattr(function, "expression", None)
    if expression is not None:
        frame = pl.DataFrame({"key": changes.key.series(), "timestamp": pl.Series(changes.ts)})
        value = changes.value.series()
        columns = value.struct.unnest() if isinstance(value.dtype, pl.Struct) else pl.DataFrame({"value": value})
        names = [name for name in columns.columns if name not in frame.columns]
        stamps = frame.with_columns(columns.select(names)).select(expression).to_series()
        if stamps.dtype.is_temporal():
            stamps = stamps.dt.epoch("ms")
        return stamps.cast(pl.Int64).to_numpy(), []
    call = getattr(function, "call", None) or function
    columns_ = [changes.key.objects(), changes.value.objects(), changes.ts.tolist()]
    stamps_, failures = call_rows(lambda k, v, t: to_timestamp(call(k, v, t)), columns_)
    return np.array([0 if stamp is None else stamp for stamp in stamps_], np.int64), failures
