"""Round 0: checks the records of a range, decodes them once (decision 0023) and sets their timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, Outcome, call_of_user, call_rows, evaluate
from crossstream.columns.functions import Function
from crossstream.columns.order import minor_of, running_maximum
from crossstream.columns.values import Values, missing_in
from crossstream.durations import LATEST, to_record_timestamp
from crossstream.error_codes import refuse
from crossstream.errors import ConfigError, CrossStreamError, SerdeError
from crossstream.graph.nodes import FrameSource, Node
from crossstream.operators.debezium.kernel import POSITION, TRUNCATE, UNAVAILABLE, to_all_partitions
from crossstream.operators.debezium.snapshots import GENERATION, MARK, SEEN, news_of
from crossstream.planning.steps import ReadStep
from crossstream.records import is_rows
from crossstream.serdes import arrays, calls
from crossstream.serdes.calls import bisected, find_invalid
from crossstream.serdes.contract import NO_READER, EngineSerde
from crossstream.serdes.debezium.changes import Part as EventPart
from crossstream.serdes.debezium.changes import unwrap
from crossstream.serdes.debezium.events import NO_POSITION, no_positions
from crossstream.serdes.debezium.settings import Debezium
from crossstream.serdes.debezium.snapshots import NO_SNAPSHOT
from crossstream.serdes.errors import OF_REGISTRY, show
from crossstream.serdes.own import columns_in
from crossstream.storage.columns import Column
from crossstream.storage.log_entries import SourceRange

if TYPE_CHECKING:
    from crossstream.task.failures import Failures


_TIMESTAMP = "timestamp"
_SHOWN = "shown"
"""Extra column: whether a snapshot shows the row."""


@dataclass(slots=True)
class Reader:
    """Turns the records of one range into changes of its source's flow, piece by piece in offset order."""

    node: Node
    step: ReadStep
    span: SourceRange
    failures: Failures
    announce: Callable[[str, np.ndarray], None] = lambda node, news: None
    newest: int = np.iinfo(np.int64).min
    last: int = 0
    rows: int = 0
    until: int | None = None

    def changes(self, records: pa.RecordBatch) -> Changes | None:
        """The next piece; None if no record of it is left."""
        changes = self._changes(records)
        if not changes.rows:
            return None
        self.failures.report.count_in(self.step.node, changes.rows)
        decoded = self._decoded(changes, is_rows(records))
        timed = self._timed(decoded) if decoded.rows else decoded
        if not timed.rows:
            return None
        self.failures.report.note_newest(self.step.node, int(timed.ts.max()))
        major = running_maximum(timed.ts, self.newest)
        self.newest = int(major[-1])
        admitted = self._admitted(timed if major is timed.major else replace(timed, major=major))
        if GENERATION in admitted.extra:
            admitted = self._announced(admitted)
        if self.step.snapshots_begin:
            admitted = self._begun(admitted)
        return admitted if admitted.rows else None

    def times(self, records: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """The offsets and timestamps (ms) of the records that `changes` counts in the order of arrival."""
        timed = self._timed(self._decoded(self._changes(records), is_rows(records)))
        return timed.minor - minor_of(self.span.rank, np.zeros(1, np.int64), self.span.start), timed.ts

    def _changes(self, records: pa.RecordBatch) -> Changes:
        node, span = self.node, self.span
        key, value, ts, offset, headers = records.columns
        times = ts.to_numpy(zero_copy_only=False)
        is_decoded = not pa.types.is_large_binary(value.type)
        if is_decoded and (node.past is None or not node.past.positions):
            # All rows of a commit are at one offset: they have the order in which they come.
            offset = pa.array(np.arange(self.rows, self.rows + len(key)) + span.start)
            self.rows += len(key)
        return Changes(
            Values(node.key, wire=key),
            self._columns(value) if is_decoded else Values(node.value, wire=value),
            times,
            times,
            minor_of(span.rank, offset.to_numpy(zero_copy_only=False), span.start),
            headers if headers.null_count < len(headers) else None,
        )

    def _columns(self, value: pa.Array) -> Values:
        """Values that come as columns of the serde's type. Callables get objects of the class, which bytes make."""
        serde = self.node.value
        assert serde is not None
        column = pl.Series(value, dtype=serde.dtype)
        if self.node.past is not None and (self.step.readers.callables or self.step.form == "objects"):
            return Values(serde, wire=calls.encode_series(serde, column))
        return Values(serde, series=column)

    def _decoded(self, changes: Changes, is_row: bool) -> Changes:
        """Decodes keys and values. If bad records stop the batch, later rounds decode values that only they read.

        ``is_row``: the records are no change events where others of the topic are.
        """
        later = self.step.later and self.failures.decoding.action == "fail"
        where = {"topic": self.span.topic, "partition": self.span.partition}
        settings = getattr(self.node, "unwrap", None)
        if settings is not None:
            if not is_row:
                return self._unwrapped(changes, settings)
            changes = replace(changes, extra=self._beside_rows(settings, changes.ts))
        if changes.value.made():
            return changes  # the columns of a lake table
        decoder = Decoder(self.node, self.step, self.failures, where)
        return decoder.decoded(changes, ("key",) if later else ("key", "value"))

    def _unwrapped(self, changes: Changes, settings: Debezium) -> Changes:
        """The rows in change events, and deletes, in the serdes of the table; without what changes no row."""
        fields = self.step.fields if self.step.form == "series" else ()
        found = unwrap(settings, changes.key.wire(), changes.value.wire(), fields)
        if found.bad:
            self.failures.undecodable(self.node, changes, found.bad, "value")
        self.failures.report.count_dropped(self.node.name, found.passed)
        part = found.part
        taken = changes.take(part.records)
        return replace(
            taken,
            key=Values(self.node.key, wire=part.keys),
            value=Values(self.node.value, wire=part.rows, fields=part.columns),
            extra=self._beside(settings, part, taken.ts),
        )

    def _beside(self, settings: Debezium, part: EventPart, times: np.ndarray) -> dict[str, Column]:
        """What completing rows needs to know of each event. ``times``: of the records."""
        extra: dict[str, Column] = {}
        if settings.needs_values:
            extra[UNAVAILABLE] = part.unavailable
        if settings.ordered_by is not None:
            extra[POSITION] = part.positions
        if settings.truncate == "delete":
            extra[TRUNCATE] = part.truncates.astype(np.uint8)
        if settings.follows_snapshots:
            extra[SEEN] = self._seen(times)
            if part.generation.any():
                extra |= {GENERATION: part.generation, MARK: part.snapshot}
        if self.step.snapshots_begin:
            extra[_SHOWN] = part.snapshot != NO_SNAPSHOT
        return extra

    def _beside_rows(self, settings: Debezium, times: np.ndarray) -> dict[str, Column]:
        """The same for rows of a table: nothing is left out, and they are before all events."""
        extra: dict[str, Column] = {}
        if settings.needs_values:
            extra[UNAVAILABLE] = np.zeros(len(times), np.int64)
        if settings.ordered_by is not None:
            extra[POSITION] = no_positions(len(times))
        if settings.truncate == "delete":
            extra[TRUNCATE] = np.zeros(len(times), np.uint8)
        if settings.follows_snapshots:
            extra[SEEN] = self._seen(times)
        return extra

    def _seen(self, times: np.ndarray) -> np.ndarray:
        """The latest time up to each record of the range."""
        seen = running_maximum(times, self.last)
        self.last = int(seen[-1]) if len(seen) else self.last
        return seen

    def _announced(self, changes: Changes) -> Changes:
        """Says which snapshots were seen; rows do not carry it on."""
        positions = changes.extra.get(POSITION, np.full(changes.rows, NO_POSITION))
        self.announce(self.step.node, news_of(changes, np.asarray(positions)))
        left = {name: column for name, column in changes.extra.items() if name not in (GENERATION, MARK)}
        return replace(changes, extra=left)

    def _timed(self, changes: Changes) -> Changes:
        """Sets the timestamps that the source's extractor returns, and drops records with negative ones.

        Raises CS-507 for a record whose own timestamp is negative or later than `LATEST`.
        """
        extractor = getattr(self.node, "timestamp_extractor", None)
        if extractor is not None:
            stamps, failures = extract(extractor, changes)
            timed = replace(changes, ts=stamps)
            if failures:
                self.failures.failed(self.node, changes, failures)
                timed = timed.without([failure.row for failure in failures])
            changes = timed
        wrong = changes.ts.view(np.uint64) > LATEST  # negative ones, too
        if not wrong.any():
            return changes
        if extractor is None:
            row = int(np.flatnonzero(wrong)[0])
            stamp = int(changes.ts[row])
            what = f"a record has the timestamp {stamp}, later than {LATEST} ms: 146 million years from now"
            if stamp < 0:
                what = f"a record has the negative timestamp {stamp}"
            step = "give a timestamp_extractor in Consumed; where it returns a negative number, records are dropped"
            if isinstance(self.node, FrameSource):
                step = "fix the column timestamp in the DataFrame, or filter such rows out"
            raise refuse("CS-507", what, step, **self.failures.place(self.node, changes, row))
        self.failures.report.count_dropped(self.node.name, {"negative-timestamp": int(wrong.sum())})
        return changes.where(~wrong)

    def _begun(self, changes: Changes) -> Changes:
        """Gives rows of a snapshot the time 0 while their topic loads, up to its first change (semantics 3.19).

        They keep their place in the order of arrival. The first change is reported, for batches that follow.
        """
        topic, partition = self.span.topic, self.span.partition
        if self.until is None:
            self.until = self.failures.batch.snapshots.get(topic, {}).get(partition, 0)
        offsets = changes.minor - minor_of(self.span.rank, np.zeros(1, np.int64), self.span.start)
        changed = offsets[~np.asarray(changes.extra[_SHOWN])]
        if len(changed) and changed[0] < self.until:
            self.until = int(changed[0])
            self.failures.report.note_change(topic, partition, self.until)
        extra = {name: column for name, column in changes.extra.items() if name != _SHOWN}
        return replace(changes, ts=np.where(offsets < self.until, 0, changes.ts), extra=extra)

    def _admitted(self, changes: Changes) -> Changes:
        """Drops null keys if the source is a table."""
        if not self.step.table:
            return changes
        if TRUNCATE in changes.extra:
            changes = to_all_partitions(changes, self.failures.batch.partitions, self.failures.batch.bits)
        there = ~changes.key.missing()
        self.failures.report.count_dropped(self.step.node, {"null-key": int((~there).sum())})
        return changes.where(there)


def extract(function: Any, changes: Changes) -> tuple[np.ndarray, list[Failure]]:
    """The timestamps (ms) that an extractor gives: a callable (key, value, timestamp) or an expression."""
    if isinstance(function, pl.Expr):
        return _expressed(Function(expression=function, with_key=True, role="timestamp_extractor"), changes)
    columns = [changes.key.objects(), changes.value.objects(), changes.ts.tolist()]
    found, failures = call_of_user(function, columns, _timestamp, "timestamp_extractor")
    return np.array([0 if stamp is None else stamp for stamp in found], np.int64), failures


def _expressed(function: Function, changes: Changes) -> tuple[np.ndarray, list[Failure]]:
    """The timestamps of an expression; ``timestamp`` is the field of that name, or else the record's own."""
    dtype = columns_in(changes.value.serde)
    has_field = isinstance(dtype, pl.Struct) and _TIMESTAMP in dtype.to_schema()
    own = {} if has_field else {_TIMESTAMP: Values(series=pl.Series(changes.ts))}
    return _stamps(evaluate(function, changes.key, value=changes.value, **own))


def _timestamp(given: Any) -> int:
    try:
        return to_record_timestamp(given)
    except ConfigError:
        raise TypeError(
            f"expected a timestamp, in ms since the epoch or as a datetime, got {show(given)}"
        ) from None


def _stamps(outcome: Outcome) -> tuple[np.ndarray, list[Failure]]:
    """The result of an expression in ms; a null, or a value that is not a timestamp, is a failure."""
    series, failed = outcome.values.series(), {failure.row for failure in outcome.failures}
    if isinstance(series.dtype, pl.Date | pl.Datetime):
        stamps = series.dt.epoch("ms")
    elif series.dtype.is_integer():
        stamps = series.cast(pl.Int64, strict=False)
    else:
        stamps = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(series))
    none = (stamps.is_null() | (stamps > LATEST)).fill_null(True).to_numpy()
    missing = [row for row in np.flatnonzero(none).tolist() if row not in failed]
    found, wrong = call_rows(_timestamp, [series.gather(missing).to_list()])
    result = stamps.fill_null(0).to_numpy().copy()
    result[missing] = [stamp or 0 for stamp in found]
    failures = [*outcome.failures, *(failure.at(missing[failure.row]) for failure in wrong)]
    return result, sorted(failures, key=lambda failure: failure.row)


_FEW = 64
"""Keys up to which decoding, and so checking, one by one is cheaper than as a column."""

Part = Literal["key", "value"]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes records of a source. ``where``: their topic and partition, for faults that are not of single rows."""

    node: Node
    step: ReadStep
    failures: Failures
    where: Mapping[str, object] = field(default_factory=dict)

    def decoded(self, changes: Changes, parts: Sequence[Part]) -> Changes:
        """Decodes keys and values once, in the form of the first reader; without undecodable records."""
        for part in parts:
            serde = getattr(changes, part).serde
            if serde is None or not changes.rows:
                continue
            varied = part == "key" and serde.varied
            by_column = not varied and serde.dtype is not None and changes.rows > _FEW
            series = by_column if part == "key" else self.step.form == "series"
            read = self._in_one_text if varied else partial(self._decoded_part, part=part, series=series)
            changes = self._readable(changes, part, series, read)
        return changes

    def _readable(
        self, changes: Changes, part: Part, series: bool, read: Callable[[Changes], Changes]
    ) -> Changes:
        """The records that ``read`` returns, without those that it fails on; keys are reported alike in any form."""
        while changes.rows:
            try:
                return read(changes)
            except SerdeError as error:
                if error.code in OF_REGISTRY:
                    raise self._at(error) from error.__cause__
                reasons = self._reasons(changes, part, series and part == "value")
                if not reasons and series and part == "key":
                    reasons = self._reasons(changes, part, series)
                if not reasons:
                    raise self._at(error) from error.__cause__
                try:
                    changes = self.failures.undecodable(self.node, changes, reasons, part)
                except SerdeError as refusal:
                    raise refusal from error.__cause__
        return changes

    def _in_one_text(self, changes: Changes) -> Changes:
        """Keys as the serde writes them, in one form for equal keys."""
        serde, read = changes.key.serde, changes.key.wire()
        assert serde is not None
        written = calls.encode_objects(serde, changes.key.objects())
        return changes if written.equals(read) else replace(changes, key=Values(serde, wire=written))

    def _decoded_part(self, changes: Changes, part: Part, series: bool) -> Changes:
        """Replaces bytes that mean null by nulls, as the text ``null`` in JSON."""
        values: Values = getattr(changes, part)
        wire = values.wire()
        fields = self.step.fields if part == "value" else None
        if series:
            nothing = missing_in(values.series(fields, checked=self.step.readers))
        elif (unread := self._unread(values, part)) is not None:
            nothing = np.fromiter(calls.nulls(unread, wire), bool, values.rows)
        else:
            nothing = np.fromiter((value is None for value in values.objects()), bool, values.rows)
        if int(nothing.sum()) == wire.null_count:
            return changes
        plain = Values(values.serde, wire=arrays.nulled(wire, nothing))
        return replace(changes, key=plain) if part == "key" else replace(changes, value=plain)

    def _unread(self, values: Values, part: Part) -> EngineSerde | None:
        """The serde of values without a reader, which are only checked."""
        return values.serde if part == "value" and self.step.readers == NO_READER else None

    def _reasons(self, changes: Changes, part: Part, series: bool) -> list[tuple[int, str]]:
        values: Values = getattr(changes, part)
        way: Literal["objects", "series"] = "series" if series else "objects"
        needed = self.step.fields if series and part == "value" else None
        assert values.serde is not None
        try:
            if needed is not None:
                check = partial(calls.decode_checked, values.serde, fields=needed, readers=self.step.readers)
                return bisected(check, values.wire())
            if (unread := self._unread(values, part)) is not None:
                return bisected(partial(calls.nulls, unread), values.wire())
            return find_invalid(values.serde, values.wire(), None, way)
        except SerdeError as error:
            raise self._at(error) from error.__cause__

    def _at(self, error: SerdeError) -> CrossStreamError:
        return error.at(**self.node.where, **self.where)
