"""Change events in Avro, behind the frame of a schema registry, which has the schema of each record.

Of a record the reader makes columns of the operation, the declared fields of the rows and the place in the log; it
passes over everything else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.serdes import arrays
from crossstream.serdes.avro.read import Record, Union, decoded
from crossstream.serdes.avro.resolve import resolved
from crossstream.serdes.avro.schema import Node, References, parse, record_of, with_fields
from crossstream.serdes.avro.single import Reader
from crossstream.serdes.debezium.convert import DECIMAL, NO_SCHEMA, Logical, bad, is_bytes
from crossstream.serdes.debezium.events import (
    Events,
    Image,
    Raw,
    as_numbers,
    flat_names,
    is_envelope,
    no_event,
    no_positions,
    plain_ops,
)
from crossstream.serdes.debezium.row_bytes import WHOLE, checked_fields, cut_rows
from crossstream.serdes.debezium.settings import Debezium
from crossstream.serdes.debezium.snapshots import (
    FLAT_MARKS,
    PLACE,
    READ,
    TABLE,
    Source,
    flat_source,
    flat_source_names,
    no_marks,
    snapshot_marks,
)
from crossstream.serdes.json.shapes import Field
from crossstream.serdes.json.shapes import column as column_of
from crossstream.serdes.registry.client import RegistrySettings
from crossstream.serdes.registry.serde import check_ids, framed_parts, split_frames

LOGICAL = {
    "date": "io.debezium.time.Date",
    "decimal": DECIMAL,
    "time-millis": "io.debezium.time.Time",
    "time-micros": "io.debezium.time.MicroTime",
    "timestamp-millis": "io.debezium.time.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
}
"""What Avro's logical types mean, where Kafka Connect did not write it into the schema."""

ENVELOPE = ("op", "before", "after", "source", "ts_ms")

OF_SOURCE = frozenset({"the source"})
"""In place of needed fields: a record's source alone. No field of Avro has a space in its name."""


@dataclass(frozen=True, slots=True)
class AvroEvents:
    """Events of a topic in Avro (`Format`). ``needed``: the fields of rows that are asked for as columns."""

    settings: Debezium
    needed: frozenset[str]

    def events(self, data: pa.LargeBinaryArray) -> Events:
        """With the marks of snapshots if any of them is of one: to read these takes a quarter more time."""
        if not self.settings.reads_snapshot:
            return self._events(data)
        plain = replace(self, settings=replace(self.settings, reads_snapshot=False))
        if READ not in plain._events(data.slice(0, 1)).ops:
            found = plain._events(data)
            if READ not in found.ops:
                return found
        return self._events(data)

    def _events(self, data: pa.LargeBinaryArray) -> Events:
        column, reading = self._read(data, is_key=False, needed=self.needed)
        fields, meaning, rows = _parts(column), reading.meaning, None
        if reading.checked is not None:
            rows = cut_rows(fields["after"], reading.checked, self.settings)
            if rows is None:
                column, _ = self._read(data, is_key=False)
                fields = _parts(column)
        path = self.settings.ordered_by
        if "after" in fields and is_envelope(fields, self.settings.keys):
            places = None if path is None else _place(fields, path)
            before, after = (
                Columns(fields.get(name), meaning.inner.get(name, NO_SCHEMA), self.settings)
                for name in ("before", "after")
            )
            ops = fields["op"].cast(pl.String).to_list()
            mark = _place(fields, "source.snapshot") if self.settings.reads_snapshot else None
            positions = _positions(places, path, len(column))
            return Events(ops, before, after, positions, _marks(mark, len(column)), rows)
        rows = Columns(column, meaning, self.settings)
        names = [field.name for field in self.settings.fields]
        if not fields.keys() & set(names):
            raise no_event(names)
        found = [fields[name] for name in flat_names(path) if name in fields]
        given, deleted = (
            fields[name].cast(pl.String).to_list() if name in fields else None
            for name in ("__op", "__deleted")
        )
        ops = plain_ops(len(column), given, deleted)
        flat = next((fields[name] for name in FLAT_MARKS if name in fields), None)
        marks = _marks(flat if self.settings.reads_snapshot else None, len(column))
        return Events(ops, rows, rows, _positions(found[0] if found else None, path, len(column)), marks)

    def keys(self, data: pa.LargeBinaryArray) -> Image:
        column, reading = self._read(data, is_key=True)
        meaning, names = reading.meaning, self.settings.keys
        if not isinstance(column.dtype, pl.Struct):
            if len(names) > 1:
                raise bad("the key of the record is no record")
            column, meaning = (
                column.alias(names[0]).to_frame().to_struct(),
                Logical(inner={names[0]: meaning}),
            )
        if missing := set(names) - set(column.struct.fields):
            raise bad(f"the key of the record has no field {', '.join(sorted(missing))}")
        return Columns(column, meaning, self.settings)

    def sources(self, data: pa.LargeBinaryArray) -> Sequence[Source]:
        column, _ = self._read(data, is_key=False, needed=OF_SOURCE)
        fields = _parts(column)
        if "after" in fields and is_envelope(fields, self.settings.keys):
            return [source or {} for source in fields["source"].to_list()]
        return [flat_source(row) for row in column.to_list()]

    def is_other(self, data: bytes) -> bool:
        """Heartbeats, markers of transactions and changes of schemas, by the names of their schemas."""
        registry = _registry(self.settings)
        frames = split_frames(pa.array([data], pa.large_binary()))
        schemas, _ = check_ids(registry, frames.ids, "AVRO")
        try:
            names = {parse(one.text, one.references).name.rpartition(".")[2] for one in schemas.values()}
        except SerdeError:  # not a schema
            return False
        return bool(names & {"Heartbeat", "TransactionMetadataValue", "SchemaChangeValue"})

    def _read(
        self, data: pa.LargeBinaryArray, *, is_key: bool, needed: frozenset[str] | None = None
    ) -> tuple[pl.Series, _Reading]:
        """The columns of records that have one schema. ``needed``: of rows that can be cut out; None: all fields."""
        (ids, payload, wrong), head = framed_parts(data)
        for reason in wrong.values():
            raise bad(reason)
        schemas, unknown = check_ids(_registry(self.settings), ids, "AVRO")
        if len(schemas) + len(unknown) > 1:
            raise bad("records with several schemas")
        for reason in unknown.values():
            raise bad(reason)
        schema = next(iter(schemas.values()))
        reading = _reading_or_fault(schema.text, schema.references, self.settings, is_key, needed)
        if isinstance(reading, str):
            raise bad(reading)
        column, faults = decoded(reading.reader, payload, head)
        for reason in faults.values():
            raise bad(reason)
        if not isinstance(column, pl.Series):
            raise bad("a type that no column holds, such as a union of several types")
        return column, reading


def _registry(settings: Debezium) -> RegistrySettings:
    assert settings.registry is not None
    return settings.registry


class _Reading(NamedTuple):
    """How records of a schema are read, and what their columns mean. ``checked``: as `checked_fields`; None: all fields
    of rows are columns."""

    reader: Reader
    meaning: Logical
    checked: Mapping[str, str] | None = None


@lru_cache(maxsize=256)
def _reading_or_fault(
    text: str, references: References, settings: Debezium, is_key: bool, needed: frozenset[str] | None
) -> _Reading | str:
    """How records of a schema are read; a text: why they cannot be."""
    try:
        return _reading(text, references, settings, is_key, needed)
    except ValueError as error:
        return str(error)
    except SerdeError as error:
        return error.what


def _reading(
    text: str, references: References, settings: Debezium, is_key: bool, needed: frozenset[str] | None
) -> _Reading:
    node = parse(text, references)
    writer, meaning = _without_logical(node, {}), _meaning(node, {})
    wanted = {field.name for field in settings.fields}
    if is_key:
        return _Reading(resolved(writer, with_fields(writer, set(settings.keys))), meaning)
    fields = {one.name: one.node for one in writer.fields}
    if needed is OF_SOURCE:
        nothing: set[str] = set()
        of_source = {"before": nothing, "after": nothing, "source": {*TABLE, *PLACE}}
        names = {"op", *of_source} if is_envelope(fields, settings.keys) else set(flat_source_names())
        node = with_fields(writer, names, of_source)
        return _Reading(resolved(_without_texts(writer, names, of_source), node), meaning)
    if "after" not in fields or not is_envelope(fields, settings.keys):
        flat = {"__deleted", "__op", *flat_names(settings.ordered_by)}
        node = with_fields(writer, wanted | flat | (set(FLAT_MARKS) if settings.reads_snapshot else set()))
        return _Reading(resolved(writer, node), meaning)
    position = (settings.ordered_by or "").rpartition(".")[2]
    around = {position, "snapshot"} if settings.reads_snapshot else {position}
    inside = {"before": wanted, "after": wanted, "source": around}
    row, checked = record_of(fields["after"]), None
    if needed is not None and row is not None:
        checked = checked_fields(row, meaning.inner.get("after", NO_SCHEMA), settings)
    if checked is None or needed is None:
        node = with_fields(writer, set(ENVELOPE), inside)
        return _Reading(resolved(_without_texts(writer, set(ENVELOPE), inside), node), meaning)
    keys = set(settings.keys)
    node = with_fields(
        writer, set(ENVELOPE), {**inside, "before": keys, "after": keys | needed | set(checked)}
    )
    writer = _without_texts(writer, set(ENVELOPE), {**inside, "before": keys})
    reader = resolved(writer, node)
    _keep_whole(reader, [one.name for one in node.fields].index("after"))
    return _Reading(reader, meaning, checked)


def _keep_whole(events: Reader, after: int) -> None:
    """Makes a reader of events give the bytes of rows, too."""
    assert isinstance(events, Record)
    row = next(step for step, target in events.steps if target == after)
    for one in (row, *(row.branches if isinstance(row, Union) else ())):
        if isinstance(one, Record | Union) and isinstance(one.column, pl.Struct):
            one.column = pl.Struct([*one.column.fields, pl.Field(WHOLE, pl.Binary)])
        if isinstance(one, Record):
            one.whole = WHOLE


def _without_logical(node: Node, known: dict[int, Node]) -> Node:
    """The type with plain types only: what they mean is in `Logical`, as for records in JSON."""
    if id(node) not in known:
        made = known[id(node)] = replace(node, logical="")
        made.parts = [_without_logical(part, known) for part in node.parts]
        made.fields = [replace(one, node=_without_logical(one.node, known)) for one in node.fields]
    return known[id(node)]


def _without_texts(
    node: Node, names: Collection[str], inside: Mapping[str, Collection[str]] | None = None
) -> Node:
    """The type with bytes for texts in fields that are passed over: they need no check."""
    if node.kind == "union":
        return replace(node, parts=[_without_texts(part, names, inside) for part in node.parts])
    if node.kind != "record":
        return node
    fields = []
    for one in node.fields:
        made = one.node
        if one.name not in names:
            made = _as_bytes(made)
        elif inside and one.name in inside:
            made = _without_texts(made, inside[one.name])
        fields.append(replace(one, node=made))
    return replace(node, fields=fields)


def _as_bytes(node: Node) -> Node:
    if node.kind == "union":
        return replace(node, parts=[_as_bytes(part) for part in node.parts])
    return replace(node, kind="bytes") if node.kind == "string" else node


def _meaning(node: Node, known: dict[int, Logical]) -> Logical:
    """What Kafka Connect wrote into a schema about the meaning of its columns. ``known``: of types, looked at once;
    one inside itself has none there."""
    if id(node) not in known:
        known[id(node)] = NO_SCHEMA
        parts = [_meaning(part, known) for part in node.parts]
        if node.kind == "union":
            known[id(node)] = next((one for one in parts if one != NO_SCHEMA), NO_SCHEMA)
        else:
            known[id(node)] = Logical(
                node.connect or LOGICAL.get(node.logical),
                node.scale if node.logical == "decimal" else None,
                {one.name: _meaning(one.node, known) for one in node.fields},
                parts[0] if node.kind == "array" else None,
            )
    return known[id(node)]


def _parts(column: pl.Series) -> dict[str, pl.Series]:
    if not isinstance(column.dtype, pl.Struct):
        raise bad("the record is no record of Avro")
    return {part.name: part for part in column.struct.unnest().get_columns()}


def _place(fields: Mapping[str, pl.Series], path: str) -> pl.Series | None:
    source, _, name = path.rpartition(".")
    if source:
        return _parts(fields[source]).get(name) if source in fields else None
    return fields.get(name)


def _positions(column: pl.Series | None, path: str | None, rows: int) -> np.ndarray:
    return no_positions(rows) if column is None or path is None else as_numbers(column.to_list(), path)


def _marks(column: pl.Series | None, rows: int) -> np.ndarray:
    """The marks of snapshots; most columns have one text in all rows."""
    if column is None:
        return no_marks(rows)
    if column.n_unique() == 1:
        return np.repeat(snapshot_marks(column.head(1).to_list()), rows)
    return snapshot_marks(column.to_list())


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows as columns (`Image`); None: there are none."""

    column_: pl.Series | None
    meaning: Logical
    settings: Debezium

    def there(self) -> np.ndarray:
        assert self.column_ is not None
        return self.column_.is_not_null().to_numpy()

    def column(self, rows: np.ndarray, field: Field) -> Raw:
        assert self.column_ is not None
        if field.name not in self.column_.struct.fields:
            return Raw(arrays.null_series(len(rows), pl.Null()), NO_SCHEMA, np.ones(len(rows), bool))
        column = self.column_.struct.field(field.name)
        if len(rows) < len(column):
            column = column.gather(rows)
        dtype = column_of(field).dtype
        if is_bytes(dtype):  # which may be text
            return Raw(column, self.settings.logical(field.name, dtype))
        return Raw(column, self.meaning.inner.get(field.name, NO_SCHEMA))
