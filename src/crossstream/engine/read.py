"""Round 0: records of a range become changes, checked and decoded once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.algebra.change import Changes
from crossstream.algebra.evaluate import Failure, Outcome, call_rows, evaluate
from crossstream.algebra.functions import Function
from crossstream.algebra.order import minor_of, running_maximum
from crossstream.algebra.values import Values
from crossstream.durations import to_timestamp
from crossstream.engine.batch import SourceRange
from crossstream.engine.runners.base import Task
from crossstream.errors import CrossStreamError, ProcessingError, SerdeError
from crossstream.serdes import Serde
from crossstream.topology.graph import Node
from crossstream.topology.steps import ReadStep

_FEW = 64
"""Rows up to which decoding one by one is cheaper than as a column."""


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
        timed = self._timed(self._decoded(changes))
        if not timed.rows:
            return None
        major = running_maximum(timed.ts, self.newest)
        self.newest = int(major[-1])
        admitted = self._admitted(replace(timed, major=major))
        return admitted if admitted.rows else None

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

    def _timed(self, changes: Changes) -> Changes:
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
                next="give a timestamp_extractor in Consumed; where it returns a negative number, records are dropped",
            )
        self.task.report.count_dropped(node.name, {"negative-timestamp": int(negative.sum())})
        return changes.where(~negative)

    def _extracted(self, node: Any, changes: Changes) -> Changes:
        """With the timestamps of ``extractor(key, value, timestamp)``."""
        stamps, failures = extract(node.timestamp_extractor, changes)
        timed = replace(changes, ts=stamps)
        if not failures:
            return timed
        self.task.failures.failed(node, changes, failures)
        return timed.without([failure.row for failure in failures])

    def _admitted(self, changes: Changes) -> Changes:
        """Without null keys, where the source is a table."""
        if not self.step.table:
            return changes
        there = ~changes.key.missing()
        self.task.report.count_dropped(self.step.node, {"null-key": int((~there).sum())})
        return changes.where(there)

    def _decoded(self, changes: Changes) -> Changes:
        """Without undecodable records; keys and values decoded once, in the form that is wanted first."""
        node: Node = self.task.node(self.step.node)
        for part in ("key", "value"):
            serde = getattr(changes, part).serde
            if serde is None or not changes.rows:
                continue
            series = self._as_series(serde, changes.rows) if part == "key" else self.step.form == "series"
            try:
                changes = self._decoded_part(changes, part, series)
            except SerdeError as error:
                reasons = self._reasons(node, changes, part, series)
                if not reasons:
                    raise self._at(node, error) from None
                changes = self.task.failures.undecodable(node, changes, reasons, part)
        return changes

    def _as_series(self, serde: Serde, rows: int) -> bool:
        """Whether keys are cheaper to decode, and so to check, as a column."""
        return serde.dtype is not None and rows > _FEW

    def _decoded_part(self, changes: Changes, part: str, series: bool) -> Changes:
        """With nulls on the wire where bytes stand for null, as the text ``null`` does in JSON."""
        values: Values = getattr(changes, part)
        wire = values.wire()
        if series:
            nothing = values.series(self._fields(values)).is_null().to_numpy()
        else:
            nothing = np.fromiter((value is None for value in values.objects()), bool, values.rows)
        if int(nothing.sum()) == wire.null_count:
            return changes
        nulled = pc.if_else(pa.array(nothing), pa.scalar(None, wire.type), wire)
        plain = Values(values.serde, wire=nulled)
        return replace(changes, key=plain) if part == "key" else replace(changes, value=plain)

    def _fields(self, values: Values) -> frozenset[str] | None:
        """The fields to look at: all of a declared type, so that a bad one is found; else those that are read."""
        return None if values.serde is None or values.serde.dtype is not None else self.step.fields

    def _reasons(self, node: Node, changes: Changes, part: str, series: bool) -> list[tuple[int, str]]:
        values: Values = getattr(changes, part)
        way: Literal["objects", "series"] = "series" if series else "objects"
        assert values.serde is not None
        try:
            return values.serde.find_invalid(values.wire(), self._fields(values) if series else None, way)
        except SerdeError as error:
            raise self._at(node, error) from None

    def _at(self, node: Node, error: SerdeError) -> CrossStreamError:
        line = None if node.location is None else str(node.location)
        return error.at(operator=node.name, line=line, topic=self.span.topic, partition=self.span.partition)


def extract(function: Any, changes: Changes) -> tuple[np.ndarray, list[Failure]]:
    """The timestamps (ms) that an extractor gives: a callable (key, value, timestamp) or an expression."""
    if isinstance(function, pl.Expr):
        stamps = Values(series=pl.Series(changes.ts))
        outcome = evaluate(Function.of(function), changes.key, value=changes.value, timestamp=stamps)
        return _stamps(outcome)
    columns = [changes.key.objects(), changes.value.objects(), changes.ts.tolist()]
    found, failures = call_rows(lambda k, v, t: to_timestamp(function(k, v, t)), columns)
    return np.array([0 if stamp is None else stamp for stamp in found], np.int64), failures


def _stamps(outcome: Outcome) -> tuple[np.ndarray, list[Failure]]:
    """What an expression gave as ms; a null is a failure, as it is of a callable."""
    series = outcome.values.series()
    if series.dtype.is_temporal():
        series = series.dt.epoch("ms")
    failed = {failure.row for failure in outcome.failures}
    missing = [row for row in np.flatnonzero(series.is_null().to_numpy()).tolist() if row not in failed]
    failures = [*outcome.failures, *(Failure(row, TypeError("no timestamp")) for row in missing)]
    return series.cast(pl.Int64).fill_null(0).to_numpy(), sorted(failures, key=lambda failure: failure.row)
