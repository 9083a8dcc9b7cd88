"""Change events in JSON: envelopes and plain rows, each with a schema around it or without one.

msgspec decodes an event as one typed object, of which only the declared columns of the row are read. The first record
of a piece shows its form; a piece whose records have several forms is halved by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import UNSET, UnsetType

from crossstream.errors import SerdeError
from crossstream.serdes import arrays
from crossstream.serdes.debezium.connect_schemas import described_by, schema_in
from crossstream.serdes.debezium.convert import DECIMAL, NO_SCHEMA, Logical, bad
from crossstream.serdes.debezium.events import (
    DELETE,
    Events,
    Image,
    as_numbers,
    flat_names,
    is_envelope,
    no_event,
    no_positions,
    plain_ops,
)
from crossstream.serdes.debezium.raw import LENIENT, Boxed, Rows
from crossstream.serdes.debezium.settings import Debezium, layout_of
from crossstream.serdes.debezium.snapshots import (
    FLAT_MARKS,
    READ,
    Source,
    flat_source,
    no_marks,
    snapshot_marks,
)
from crossstream.serdes.json.rows import Decoder, decode_rows
from crossstream.serdes.json.shapes import NoColumn, column, instance_of

_NAME = "debezium"


def _wire_of(dtype: Any) -> Any:
    """What msgspec decodes for a column: whatever a connector may write for a single value."""
    if isinstance(dtype, pl.Struct):
        return _struct_of([(one.name, instance_of(one.dtype)) for one in dtype.fields]) | None | UnsetType
    if isinstance(dtype, pl.List):
        return list[_wire_of(instance_of(dtype.inner))] | str | None | UnsetType  # type: ignore[misc]
    return str | Boxed | None | UnsetType if dtype in (pl.String, pl.Binary) else LENIENT


def _struct_of(fields: Sequence[tuple[str, Any]], **more: Any) -> Any:
    members = [(f"f{place}", _wire_of(dtype), UNSET) for place, (_, dtype) in enumerate(fields)]
    names = {f"f{place}": name for place, (name, _) in enumerate(fields)}
    for attribute, kind in more.items():
        members.append((attribute, kind[1], UNSET))
        names[attribute] = kind[0]
    return msgspec.defstruct("Row", members, rename=names, gc=False)


_Position = int | str | None | UnsetType
_Mark = str | bool | None | UnsetType


@dataclass(frozen=True, slots=True)
class Decoders:
    """The decoders of a table: of events, by (with a schema, with an envelope), and of keys and documents."""

    events: Mapping[tuple[bool, bool], Decoder]
    document: Decoder
    keys: Mapping[bool, Decoder]


@lru_cache(maxsize=64)
def _decoders(settings: Debezium) -> Decoders:
    fields = [(field.name, column(field).dtype) for field in settings.fields]
    row = _struct_of(fields)
    taken = {name for name, _ in fields}
    marks: dict[str, Any] = {}
    flat = [("deleted", "__deleted"), ("op", "__op")]
    if settings.reads_snapshot:
        flat += zip(("snapshot", "mark"), FLAT_MARKS, strict=True)
    for attribute, name in flat:
        if name not in taken:
            marks[attribute] = (name, _Mark)
    members: list[Any] = [
        ("op", str),
        ("before", row | str | None | UnsetType, UNSET),
        ("after", row | str | None | UnsetType, UNSET),
    ]
    position = settings.ordered_by
    if position is not None:
        own = flat_names(position)[0]
        if own not in taken:
            marks["position"] = (own, _Position)
    members += _around_rows(position, settings.reads_snapshot)
    envelope = msgspec.defstruct("Envelope", members, gc=False)
    plain = _struct_of(fields, **marks)
    kinds = {True: envelope, False: plain}
    dtypes = dict(fields)
    keys = _struct_of(_key_fields(settings, dtypes))
    return Decoders(
        {
            (schema, enveloped): msgspec.json.Decoder(_around(kind) if schema else kind | None)
            for enveloped, kind in kinds.items()
            for schema in (True, False)
        },
        msgspec.json.Decoder(row),
        {True: msgspec.json.Decoder(_around(keys)), False: msgspec.json.Decoder(keys)},
    )


def _around_rows(path: str | None, with_mark: bool) -> list[Any]:
    """The members of an envelope that have the place of the event, and the mark of a snapshot."""
    members: list[Any] = []
    inside: dict[str, dict[str, tuple[str, Any]]] = {}
    if path is not None:
        source, _, name = path.rpartition(".")
        if source:
            inside[source] = {"position": (name, _Position)}
        else:
            members.append((name, _Position, UNSET))
    if with_mark:
        inside.setdefault("source", {})["mark"] = ("snapshot", _Mark)
    for member, fields in inside.items():
        made = msgspec.defstruct(
            "Source",
            [(attribute, kind, UNSET) for attribute, (_, kind) in fields.items()],
            rename={attribute: name for attribute, (name, _) in fields.items()},
            gc=False,
        )
        members.append((member, made | None | UnsetType, UNSET))
    return members


def _key_fields(settings: Debezium, dtypes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The columns of the primary key; MongoDB calls its ``_id`` ``id`` in keys."""
    return [("id" if name == "_id" else name, dtypes[name]) for name in settings.keys]


def _around(kind: Any) -> Any:
    return msgspec.defstruct("Wrapped", [("payload", kind | None), ("schema", msgspec.Raw, UNSET)], gc=False)


class Quick(NamedTuple):
    """Events whose rows are plain JSON of the declared type. ``rows``: the objects of the rows after the changes."""

    ops: list[str]
    rows: list[Any]
    positions: np.ndarray
    snapshot: np.ndarray


@lru_cache(maxsize=64)
def _quick_decoders(settings: Debezium, with_mark: bool) -> tuple[Decoder, Decoder] | None:
    """Decoders of envelopes, alone and in a schema, whose rows need no conversion; None: some field may need one.

    ``with_mark``: the marks of snapshots are read, which takes a fifth more time.
    """
    for field in settings.fields:
        if column(field).wire not in (str, float, bool) and not isinstance(column(field).dtype, pl.Int64):
            return None
    row = layout_of(settings.row).struct()
    assert not isinstance(row, NoColumn)
    members: list[Any] = [
        ("op", str),
        ("after", row.wire | None, UNSET),
        *_around_rows(settings.ordered_by, with_mark),
    ]
    envelope = msgspec.defstruct("Envelope", members, gc=False)
    return msgspec.json.Decoder(envelope), msgspec.json.Decoder(_around(envelope))


@dataclass(frozen=True, slots=True)
class JsonEvents:
    """Events of a topic in JSON (`Format`)."""

    settings: Debezium

    def quick(self, data: pa.LargeBinaryArray) -> Quick | None:
        """The events of records that all have an envelope, with plain rows of the declared type; None of others."""
        if _quick_decoders(self.settings, False) is None or self._may_leave_out(data):
            return None
        try:
            form = _form(data[0].as_py(), self.settings.keys)
            if not form.enveloped:
                return None
            with_mark = self.settings.reads_snapshot and form.op == READ
            quick = self._quick(data, form.schema, with_mark)
            if quick is not None and self.settings.reads_snapshot and not with_mark and READ in quick.ops:
                quick = self._quick(data, form.schema, True)
            return quick
        except (SerdeError, AttributeError):
            return None

    def _quick(self, data: pa.LargeBinaryArray, schema: bool, with_mark: bool) -> Quick | None:
        decoders = _quick_decoders(self.settings, with_mark)
        assert decoders is not None
        objects = decode_rows(data, decoders[schema], _NAME)
        if schema:
            described = described_by([one.schema for one in objects])
            if described is not None and self._has_decimals(described):
                return None
            objects = [one.payload for one in objects]
        ops = list(map(attrgetter("op"), objects))
        rows = list(map(attrgetter("after"), objects))
        marks = _marks_of(objects) if with_mark else no_marks(len(objects))
        return Quick(ops, rows, self._positions(objects, enveloped=True), marks)

    def _may_leave_out(self, data: pa.LargeBinaryArray) -> bool:
        if not self.settings.unavailable:
            return False
        begin, end = arrays.offsets(data)[[0, -1]]
        content = bytes(arrays.content(data)[begin:end])
        return any(mark.encode() in content for mark in self.settings.marks)

    def _has_decimals(self, described: Logical) -> bool:
        row = described.inner.get("after", NO_SCHEMA)
        return any(row.inner.get(field.name, NO_SCHEMA).name == DECIMAL for field in self.settings.fields)

    def events(self, data: pa.LargeBinaryArray) -> Events:
        schema, enveloped, _ = _form(data[0].as_py(), self.settings.keys)
        decoders = _decoders(self.settings)
        objects = decode_rows(data, decoders.events[schema, enveloped], _NAME)
        described: Logical | None = None
        if schema:
            described = described_by([one.schema for one in objects if one is not None])
            objects = [None if one is None else one.payload for one in objects]
        return self._enveloped(objects, described) if enveloped else self._plain(objects, described)

    def _enveloped(self, objects: list[Any], described: Logical | None) -> Events:
        if None in objects:
            raise bad("an event without payload among others")
        ops = list(map(attrgetter("op"), objects))
        inner = {} if described is None else described.inner
        before, after = (
            Rows(
                self.settings,
                self._documents(list(map(attrgetter(name), objects))),
                schema_in(inner, name, described),
            )
            for name in ("before", "after")
        )
        marks = _marks_of(objects) if self.settings.reads_snapshot else no_marks(len(objects))
        return Events(ops, before, after, self._positions(objects, enveloped=True), marks)

    def _documents(self, rows: list[Any]) -> list[Any]:
        """The rows; MongoDB writes each as text."""
        if str not in set(map(type, rows)):
            return rows
        texts = arrays.binary_rows([row.encode() if isinstance(row, str) else None for row in rows])
        return decode_rows(texts, msgspec.json.Decoder(_decoders(self.settings).document.type | None), _NAME)

    def _plain(self, objects: list[Any], described: Logical | None) -> Events:
        if len(objects) == 1 and objects[0] is None:
            nothing = Rows(self.settings, [None], described)
            return Events([DELETE], nothing, nothing, self._positions(objects, enveloped=False), no_marks(1))
        if None in objects:
            raise bad("a record without payload among others")
        rows = Rows(self.settings, objects, described)
        if not rows.have_fields():
            raise no_event(field.name for field in self.settings.fields)
        given, deleted = (
            list(map(attrgetter(name), objects)) if hasattr(type(objects[0]), name) else None
            for name in ("op", "deleted")
        )
        ops = plain_ops(len(objects), given, deleted)
        marks = no_marks(len(objects))
        for name in ("snapshot", "mark"):
            if hasattr(type(objects[0]), name):
                marks = np.maximum(marks, snapshot_marks(list(map(attrgetter(name), objects))))
        return Events(ops, rows, rows, self._positions(objects, enveloped=False), marks)

    def _positions(self, objects: list[Any], *, enveloped: bool) -> np.ndarray:
        path = self.settings.ordered_by
        if path is None:
            return no_positions(len(objects))
        if not enveloped:
            places = [getattr(one, "position", None) for one in objects]
            if objects and not hasattr(objects[0], "position"):
                names = [field.name for field in self.settings.fields]
                if path in names:
                    places = list(map(attrgetter(f"f{names.index(path)}"), objects))
        elif "." in path:
            source = path.rpartition(".")[0]
            places = [getattr(getattr(one, source), "position", None) for one in objects]
        else:
            places = list(map(attrgetter(path), objects))
        return as_numbers(places, path)

    def keys(self, data: pa.LargeBinaryArray) -> Image:
        first = data[0].as_py()
        decoders, single = _decoders(self.settings), len(self.settings.keys) == 1
        if single and not first.lstrip().startswith(b"{"):  # the column itself, as ExtractField leaves it
            return Rows(self.settings, self._bare(data), None, keys=True)
        schema = _has_schema(_fields(first))
        objects = decode_rows(data, decoders.keys[schema], _NAME)
        described = None
        if schema:
            described = described_by([one.schema for one in objects])
            objects = [one.payload for one in objects]
            if single and None in objects:
                raise bad("the key of the record is null")
        rows = Rows(self.settings, objects, described, keys=True)
        for place, name in enumerate(self.settings.keys):
            if UNSET in list(map(attrgetter(f"f{place}"), objects)):
                raise bad(f"the key of the record has no field {name}")
        return rows

    def sources(self, data: pa.LargeBinaryArray) -> Sequence[Source]:
        return [self._source(record) for record in data.to_pylist()]

    def _source(self, record: bytes) -> Source:
        fields = _fields(record)
        if _has_schema(fields):
            fields = _fields(bytes(fields["payload"]))
        if is_envelope(fields, self.settings.keys):
            return _plain(fields["source"]) or {}
        return flat_source({name: _plain(value) for name, value in fields.items() if name.startswith("__")})

    def _bare(self, data: pa.LargeBinaryArray) -> list[Any]:
        kind = _decoders(self.settings).keys[False].type
        return [kind(value) for value in decode_rows(data, msgspec.json.Decoder(LENIENT), _NAME)]

    def is_other(self, data: bytes) -> bool:
        """Heartbeats, markers of transactions and changes of schemas."""
        try:
            fields = _fields(data)
            if _has_schema(fields):
                fields = _fields(bytes(fields["payload"]))
        except msgspec.MsgspecError:
            return False
        names = set(fields)
        if names == {"ts_ms"}:
            return True
        if {"status", "id"} <= names <= {"status", "id", "ts_ms", "event_count", "data_collections"}:
            return bytes(fields["status"]) in (b'"BEGIN"', b'"END"')
        return "source" in names and bool(names & {"ddl", "tableChanges", "historyRecord"})


_Fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _fields(record: bytes) -> dict[str, msgspec.Raw]:
    return _Fields.decode(record)


def _plain(raw: msgspec.Raw) -> Any:
    return msgspec.json.decode(raw)


def _has_schema(fields: Mapping[str, Any]) -> bool:
    return "payload" in fields and set(fields) <= {"schema", "payload"}


class _Form(NamedTuple):
    """Whether a record has a schema around it, and an envelope; and its operation."""

    schema: bool
    enveloped: bool
    op: Any


def _form(record: bytes, keys: Sequence[str]) -> _Form:
    try:
        fields = {} if record == b"null" else _fields(record)
        schema = _has_schema(fields)
        if schema and bytes(fields["payload"]) != b"null":
            fields = _fields(bytes(fields["payload"]))
        op = msgspec.json.decode(fields["op"]) if "op" in fields else None
    except msgspec.MsgspecError as error:
        raise bad(f"the record is not a JSON object ({error})") from error
    return _Form(schema, is_envelope(fields, keys), op)


def _marks_of(objects: list[Any]) -> np.ndarray:
    """The marks of snapshots in the sources of events."""
    try:
        return snapshot_marks(list(map(attrgetter("source.mark"), objects)))
    except AttributeError:  # an event without a source
        return snapshot_marks([getattr(one.source, "mark", None) for one in objects])
