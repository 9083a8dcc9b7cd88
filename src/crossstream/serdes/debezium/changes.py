"""What a batch of change events does to the rows of a table: which keys get which rows, which lose theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import UnsetType

from crossstream.errors import SerdeError, type_and_text
from crossstream.serdes import arrays, calls
from crossstream.serdes.debezium.avro import AvroEvents
from crossstream.serdes.debezium.columns import upserted
from crossstream.serdes.debezium.convert import bad, convert
from crossstream.serdes.debezium.envelopes import JsonEvents, Quick
from crossstream.serdes.debezium.events import (
    DELETE,
    NO_POSITION,
    NOT_A_ROW,
    TRUNCATE,
    UPSERTS,
    Events,
    Format,
    Image,
    no_positions,
)
from crossstream.serdes.debezium.settings import Debezium
from crossstream.serdes.debezium.snapshots import generations, no_generations, no_marks
from crossstream.serdes.json.rows import encode_rows
from crossstream.serdes.json.shapes import Field, column
from crossstream.serdes.registry.serde import INTERNAL_ID, put_frames

_OF_ROWS = ("CS-401", "CS-402", "CS-403")
"""The codes of errors about single records; others are about a type, or a registry that is away."""

PIECE = {False: 8192, True: 32_768}
"""Records that are read at once: of JSON, and of Avro."""


class Part(NamedTuple):
    """Some changes. ``records``: the record of each; ``rows``: null for a delete.

    ``unavailable``: a bit for each of the fields that may be unavailable. ``positions``: places in the log.
    ``truncates``: the rows that stand for all keys, whose own key is null. ``snapshot``: how a snapshot shows the
    row, as `snapshot_marks`, and ``generation``: which one does; none where the settings do not read them.
    """

    records: np.ndarray
    keys: pa.LargeBinaryArray
    rows: pa.LargeBinaryArray
    columns: pl.Series
    unavailable: np.ndarray
    positions: np.ndarray
    truncates: np.ndarray
    snapshot: np.ndarray
    generation: np.ndarray


@dataclass(slots=True)
class Unwrapped:
    """The changes of a batch, in order; records that were passed over, by reason; and bad ones, with reasons."""

    part: Part
    passed: Mapping[str, int]
    bad: Sequence[tuple[int, str]]


@dataclass(slots=True)
class _Reading:
    """One batch while it is read."""

    settings: Debezium
    format: Format
    key: pa.LargeBinaryArray
    value: pa.LargeBinaryArray
    needed: Collection[str]
    parts: list[Part] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    bad: list[tuple[int, str]] = field(default_factory=list)


def unwrap(
    settings: Debezium,
    key: pa.LargeBinaryArray,
    value: pa.LargeBinaryArray,
    fields: Collection[str] | None = None,
) -> Unwrapped:
    """Reads the records of a range. ``fields``: those that are needed as columns; None: all."""
    needed = [one.name for one in settings.fields if fields is None or one.name in fields]
    form = JsonEvents(settings) if settings.registry is None else AvroEvents(settings, frozenset(needed))
    reading = _Reading(settings, form, key, value, needed)
    piece = PIECE[settings.registry is not None]
    there = value.is_valid().to_numpy(zero_copy_only=False)
    tombstones = np.flatnonzero(~there)
    if settings.tombstones == "ignore" and len(tombstones):
        reading.passed["tombstone"] += len(tombstones)
        tombstones = tombstones[:0]
    for rows, read in ((np.flatnonzero(there), _events), (tombstones, _tombstones)):
        for start in range(0, len(rows), piece):
            _halved(reading, rows[start : start + piece], read)
    parts = reading.parts or [_no_changes(reading)]
    whole = _together(parts)
    return Unwrapped(whole, dict(reading.passed), sorted(reading.bad))


Read = Callable[[_Reading, np.ndarray], tuple[Sequence[Part], Mapping[str, int]]]


def _halved(reading: _Reading, rows: np.ndarray, read: Read) -> None:
    """Reads records; halves them if that fails, until bad ones stand alone."""
    try:
        parts, passed = read(reading, rows)
    except Exception as error:  # a record may be anything
        if not _is_of_rows(error):
            raise
        if len(rows) > 1:
            middle = len(rows) // 2
            _halved(reading, rows[:middle], read)
            _halved(reading, rows[middle:], read)
        elif _is_other(reading, int(rows[0])):
            reading.passed["no-change-event"] += 1
        else:
            reason = error.what if isinstance(error, SerdeError) else type_and_text(error)
            reading.bad.append((int(rows[0]), reason))
        return
    reading.passed.update(passed)
    reading.parts.extend(parts)


def _is_of_rows(error: Exception) -> bool:
    """Whether an error is about what is in a record."""
    if isinstance(error, SerdeError):
        return error.code in _OF_ROWS
    return not isinstance(error, MemoryError)


def _is_other(reading: _Reading, row: int) -> bool:
    data = reading.value[row].as_py()
    try:
        return data is not None and reading.format.is_other(data)
    except Exception as error:  # as above
        if not _is_of_rows(error):
            raise
        return False


def _tombstones(reading: _Reading, rows: np.ndarray) -> tuple[Sequence[Part], Mapping[str, int]]:
    keyed = rows[reading.key.take(pa.array(rows)).is_valid().to_numpy(zero_copy_only=False)]
    dropped = {"null-key": len(rows) - len(keyed)}
    if not len(keyed):
        return (), dropped
    keys = _record_keys(reading, keyed)
    return (_deletes(reading, keyed, keys, no_positions(len(keyed))),), dropped


def _events(reading: _Reading, rows: np.ndarray) -> tuple[Sequence[Part], Mapping[str, int]]:
    data = _records(reading.value, rows)
    quick = reading.format.quick(data) if isinstance(reading.format, JsonEvents) else None
    if quick is not None and (part := _quickly(reading, rows, quick)) is not None:
        return (part,), {}
    events = reading.format.events(data)
    ops, kinds = np.array(events.ops, dtype=object), set(events.ops)
    passed: dict[str, int] = {}
    if NOT_A_ROW in kinds:
        passed["no-change-event"] = int((ops == NOT_A_ROW).sum())
    if TRUNCATE in kinds:
        if reading.settings.truncate == "refuse":
            raise bad(
                "the table was truncated, and a truncate event reaches one partition of its topic, so that the rows "
                'to delete are not known: set ordered_by="source.lsn" and truncate="delete", or truncate="ignore"'
            )
        if reading.settings.truncate == "ignore":
            passed["truncate"] = int((ops == TRUNCATE).sum())
    if unknown := kinds - {*UPSERTS, DELETE, NOT_A_ROW, TRUNCATE}:
        raise bad(f"an event with op {sorted(unknown)[0]!r}, not one of c, r, u, d, t, m")
    parts = []
    put = (
        np.flatnonzero(np.logical_or.reduce([ops == op for op in UPSERTS]))
        if kinds - set(UPSERTS)
        else np.arange(len(ops))
    )
    if len(put):
        parts.append(_upserts(reading, rows, put, events))
    if DELETE in kinds:
        parts.append(_deleted(reading, rows, np.flatnonzero(ops == DELETE), events))
    if TRUNCATE in kinds and reading.settings.truncate == "delete":
        parts.append(_truncates(reading, rows, np.flatnonzero(ops == TRUNCATE), events))
    return parts, passed


def _records(data: pa.LargeBinaryArray, rows: np.ndarray) -> pa.LargeBinaryArray:
    """Some of the records, none of which is null; no copy, if only empty ones are between them, as tombstones."""
    positions = arrays.offsets(data)
    begins, ends = positions[rows], positions[rows + 1]
    if (begins[1:] == ends[:-1]).all():
        return arrays.binary_array(np.append(begins, ends[-1]), arrays.content(data))
    return data.take(pa.array(rows))


def _quickly(reading: _Reading, rows: np.ndarray, quick: Quick) -> Part | None:
    """The changes of events that are plain; None if one of them is not."""
    settings = reading.settings
    kinds = set(quick.ops)
    if not kinds <= {*UPSERTS, DELETE}:
        return None
    positions = quick.positions
    put, objects = np.arange(len(rows)), quick.rows
    parts = []
    if DELETE in kinds:
        gone = np.array([op == DELETE for op in quick.ops])
        put, deleted = np.flatnonzero(~gone), np.flatnonzero(gone)
        if reading.key.take(pa.array(rows[deleted])).null_count:
            return None
        keys = _record_keys(reading, rows[deleted])
        parts.append(_deletes(reading, rows[deleted], keys, positions[deleted]))
        objects = [objects[row] for row in put.tolist()]
    if len(put):
        if set(map(type, objects)) & {type(None), UnsetType}:
            return None
        columns = {
            name: pl.Series(list(map(attrgetter(one.attribute), objects)), dtype=column(one).dtype)
            for name, one in _fields(settings).items()
            if name in reading.needed or name in settings.keys
        }
        shown = arrays.struct_of(
            {name: made for name, made in columns.items() if name in reading.needed}, len(put)
        )
        keys = _encoded_keys(settings, columns)
        text = encode_rows(objects, settings.row.name)
        left_out = np.zeros(len(put), np.int64)
        parts.append(
            Part(
                rows[put],
                keys,
                text,
                shown,
                left_out,
                positions[put],
                _no_truncates(len(put)),
                *_shown(reading, rows[put], quick.snapshot[put]),
            )
        )
    return _together(parts)


def _shown(reading: _Reading, records: np.ndarray, marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The marks of events, and the snapshots that they are of."""
    if not marks.any():
        return marks, no_generations(len(marks))
    return marks, generations(
        marks, lambda rows: reading.format.sources(reading.value.take(pa.array(records[rows])))
    )


def _fields(settings: Debezium) -> Mapping[str, Field]:
    return {one.name: one for one in settings.fields}


def _upserts(reading: _Reading, rows: np.ndarray, put: np.ndarray, events: Events) -> Part:
    settings = reading.settings
    if not events.after.there()[put].all():
        raise bad(
            "an event without the row after the change; MongoDB's connector writes it with "
            "capture.mode=change_streams_update_full"
        )
    columns, unavailable = {}, np.zeros(len(put), np.int64)
    asked = {*reading.needed, *settings.keys}
    for one in settings.fields:
        if events.rows is not None and one.name not in asked:
            continue
        series, left_out = upserted(settings, put, events, one)
        columns[one.name] = series
        if left_out is not None:
            unavailable |= left_out.astype(np.int64) << settings.unavailable.index(one.name)
    if events.rows is None:
        wire = calls.encode_series(settings.stored, arrays.struct_of(columns, len(put)))
    else:
        wire = put_frames(
            INTERNAL_ID, events.rows.take(pa.array(put)) if len(put) < len(events.rows) else events.rows
        )
    return Part(
        rows[put],
        _encoded_keys(settings, columns),
        wire,
        arrays.struct_of({name: columns[name] for name in reading.needed}, len(put)),
        unavailable,
        events.positions[put],
        _no_truncates(len(put)),
        *_shown(reading, rows[put], events.snapshot[put]),
    )


def _deleted(reading: _Reading, rows: np.ndarray, gone: np.ndarray, events: Events) -> Part:
    records = rows[gone]
    positions = events.positions[gone]
    keyed = reading.key.take(pa.array(records)).is_valid().to_numpy(zero_copy_only=False)
    if keyed.all():
        return _deletes(reading, records, _record_keys(reading, records), positions)
    parts = []
    if keyed.any():
        with_key = _record_keys(reading, records[keyed])
        parts.append(_deletes(reading, records[keyed], with_key, positions[keyed]))
    if not events.before.there()[gone[~keyed]].all():
        raise bad("a delete event without a key and without the row before the change")
    keys = _keys_in(reading.settings, events.before, gone[~keyed])
    parts.append(_deletes(reading, records[~keyed], keys, positions[~keyed]))
    return _together(parts)


def _truncates(reading: _Reading, rows: np.ndarray, all_: np.ndarray, events: Events) -> Part:
    if (events.positions[all_] == NO_POSITION).any():
        raise bad(
            f"a truncate event has no {reading.settings.ordered_by}, so that the rows to delete are not known"
        )
    none = pa.nulls(len(all_), pa.large_binary())
    part = _deletes(reading, rows[all_], none, events.positions[all_])
    return part._replace(truncates=np.ones(len(all_), bool))


def _record_keys(reading: _Reading, records: np.ndarray) -> pa.LargeBinaryArray:
    data = reading.key.take(pa.array(records))
    return _keys_in(reading.settings, reading.format.keys(data), np.arange(len(records)))


def _keys_in(settings: Debezium, image: Image, rows: np.ndarray) -> pa.LargeBinaryArray:
    fields = _fields(settings)
    columns = {}
    for name in settings.keys:
        raw = image.column(rows, fields[name])
        columns[name] = convert(raw.series, column(fields[name]).dtype, raw.logical, name)
    return _encoded_keys(settings, columns)


def _encoded_keys(settings: Debezium, columns: Mapping[str, pl.Series]) -> pa.LargeBinaryArray:
    if len(settings.keys) == 1:
        return calls.encode_series(settings.key, columns[settings.keys[0]])
    parts = {name: columns[name] for name in settings.keys}
    return calls.encode_series(settings.key, arrays.struct_of(parts, len(columns[settings.keys[0]])))


def _deletes(
    reading: _Reading, records: np.ndarray, keys: pa.LargeBinaryArray, positions: np.ndarray
) -> Part:
    count = len(records)
    return Part(
        records,
        keys,
        pa.nulls(count, pa.large_binary()),
        arrays.null_series(count, _columns_type(reading)),
        np.zeros(count, np.int64),
        positions,
        _no_truncates(count),
        no_marks(count),
        no_generations(count),
    )


def _columns_type(reading: _Reading) -> pl.DataType:
    fields = _fields(reading.settings)
    return pl.Struct({name: column(fields[name]).dtype for name in reading.needed})


def _no_changes(reading: _Reading) -> Part:
    none, nothing = np.empty(0, np.int64), pa.nulls(0, pa.large_binary())
    columns = arrays.null_series(0, _columns_type(reading))
    return Part(none, nothing, nothing, columns, none, none, _no_truncates(0), no_marks(0), none)


def _no_truncates(rows: int) -> np.ndarray:
    return np.zeros(rows, bool)


def _together(parts: Sequence[Part]) -> Part:
    """The changes in the order of their records."""
    if len(parts) == 1:
        return parts[0]
    records = np.concatenate([part.records for part in parts])
    order = np.argsort(records, kind="stable")
    keys, rows = (pa.concat_arrays([getattr(part, name) for part in parts]) for name in ("keys", "rows"))
    return Part(
        records[order],
        keys.take(pa.array(order)),
        rows.take(pa.array(order)),
        pl.concat([part.columns for part in parts]).gather(order),
        np.concatenate([part.unavailable for part in parts])[order],
        np.concatenate([part.positions for part in parts])[order],
        np.concatenate([part.truncates for part in parts])[order],
        np.concatenate([part.snapshot for part in parts])[order],
        np.concatenate([part.generation for part in parts])[order],
    )
