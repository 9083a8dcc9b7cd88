"""Protobuf messages as columns: the types of their fields, and both ways between messages and plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, NamedTuple

import polars as pl

from crossstream.serdes.json.bounds import DEEPEST_COLUMN, is_too_deep

UTC_MICROS = pl.Datetime("us", "UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICRO = timedelta(microseconds=1)
_LIMIT = 2**63 - 1

_SCALARS = {
    1: pl.Float64(),
    2: pl.Float32(),
    3: pl.Int64(),
    4: pl.UInt64(),
    5: pl.Int32(),
    6: pl.UInt64(),
    7: pl.UInt32(),
    8: pl.Boolean(),
    9: pl.String(),
    12: pl.Binary(),
    13: pl.UInt32(),
    15: pl.Int32(),
    16: pl.Int64(),
    17: pl.Int32(),
    18: pl.Int64(),
}
"""By the number of the type in `FieldDescriptor`."""
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class NoColumns(Exception):
    """A message that contains itself has no type of columns, and none that is too deep."""


class Field(NamedTuple):
    """A field as a column. ``plain``, ``proto``: of one item. ``inner``: how items that are messages are made."""

    name: str
    dtype: pl.DataType
    kind: str  # "one", "many", "map"
    presence: bool
    plain: Callable[[Any], Any]
    proto: Callable[[Any], Any]
    message: bool
    key: Callable[[Any], Any]


class Fields(NamedTuple):
    """The fields of a message that have columns. ``whole``: all of them do."""

    fields: tuple[Field, ...]
    whole: bool

    @property
    def dtype(self) -> pl.Struct:
        return pl.Struct({field.name: field.dtype for field in self.fields})


@lru_cache(maxsize=512)
def fields_of(message: Any) -> Fields:
    """The columns of a class of messages; fields that contain themselves are left out."""
    found, whole = [], True
    for descriptor in message.DESCRIPTOR.fields:
        try:
            found.append(_field(descriptor, (message.DESCRIPTOR.full_name,)))
        except NoColumns:
            whole = False
    return Fields(tuple(found), whole)


def _field(descriptor: Any, within: tuple[str, ...]) -> Field:
    entry = descriptor.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = (_item(entry.fields_by_name[name], within) for name in ("key", "value"))
        if is_too_deep(value[0], DEEPEST_COLUMN - 3):
            raise NoColumns(descriptor.full_name)
        dtype: pl.DataType = pl.List(pl.Struct({"key": key[0], "value": value[0]}))
        return Field(descriptor.name, dtype, "map", False, value[1], value[2], value[3], key[2])
    dtype, plain, proto, message = _item(descriptor, within)
    if is_too_deep(dtype, DEEPEST_COLUMN - 2):
        raise NoColumns(descriptor.full_name)
    if is_repeated(descriptor):
        return Field(descriptor.name, pl.List(dtype), "many", False, plain, proto, message, _same)
    presence = bool(descriptor.has_presence)
    return Field(descriptor.name, dtype, "one", presence, plain, proto, message, _same)


def is_repeated(descriptor: Any) -> bool:
    found = getattr(descriptor, "is_repeated", None)  # new versions have no label, old ones only that
    return bool(descriptor.label == descriptor.LABEL_REPEATED if found is None else found)


Item = tuple[pl.DataType, Callable[[Any], Any], Callable[[Any], Any], bool]


def _item(descriptor: Any, within: tuple[str, ...]) -> Item:
    """Type, both conversions, and whether it is a message, of one item of a field."""
    if descriptor.type == _ENUM:
        names = {one.number: one.name for one in reversed(descriptor.enum_type.values)}
        numbers = {one.name: one.number for one in descriptor.enum_type.values}
        return pl.String(), lambda v: names.get(v, str(v)), lambda v: _number(v, numbers), False
    if descriptor.type not in (_MESSAGE, _GROUP):
        return _SCALARS[descriptor.type], _same, _same, False
    inner = descriptor.message_type
    if inner.full_name == "google.protobuf.Timestamp":
        return UTC_MICROS, _micros, lambda v: _set_time(inner, _since_epoch(v)), True
    if inner.full_name == "google.protobuf.Duration":
        return pl.Duration("us"), _micros, lambda v: _set_time(inner, v // _MICRO), True
    if inner.full_name in WRAPPERS:
        scalar = _SCALARS[inner.fields_by_name["value"].type]
        return scalar, lambda v: v.value, lambda v: _class_of(inner)(value=v), True
    if inner.full_name in within:
        raise NoColumns(inner.full_name)
    fields = tuple(_field(one, (*within, inner.full_name)) for one in inner.fields)
    dtype = pl.Struct({field.name: field.dtype for field in fields})
    return dtype, lambda v: _plain(v, fields), lambda v: _message(v, _class_of(inner), fields), True


def _same(value: Any) -> Any:
    return value


def _class_of(descriptor: Any) -> Any:
    from google.protobuf import message_factory  # type: ignore[import-untyped]

    return message_factory.GetMessageClass(descriptor)


def _number(value: Any, numbers: Mapping[str, int]) -> int:
    if isinstance(value, int):
        return value
    if value in numbers:
        return numbers[value]
    if isinstance(value, str) and value.lstrip("-").isdigit():
        return int(value)  # as an unknown value is read
    raise ValueError(f"{value!r} is not one of {', '.join(numbers)}")


def _micros(value: Any) -> int:
    found: int = value.seconds * 1_000_000 + int(value.nanos / 1000)
    return max(-_LIMIT - 1, min(_LIMIT, found))


def _since_epoch(value: datetime) -> int:
    return ((value if value.tzinfo else value.replace(tzinfo=timezone.utc)) - _EPOCH) // _MICRO


def _set_time(descriptor: Any, micros: int) -> Any:
    seconds, rest = divmod(micros, 1_000_000)
    if descriptor.name == "Duration" and seconds < 0 and rest:  # both have one sign
        seconds, rest = seconds + 1, rest - 1_000_000
    return _class_of(descriptor)(seconds=seconds, nanos=rest * 1000)


def plain_of(message: Any) -> dict[str, Any]:
    """A message as a dict of its columns' values."""
    kind: Any = type(message)
    return _plain(message, fields_of(kind).fields)


def _plain(message: Any, fields: tuple[Field, ...]) -> dict[str, Any]:
    return {field.name: _read(message, field) for field in fields}


def _read(message: Any, field: Field) -> Any:
    if field.presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.kind == "one":
        return field.plain(value)
    if field.kind == "many":
        return [field.plain(item) for item in value]
    return [{"key": key, "value": field.plain(value[key])} for key in sorted(value)]


def message_of(value: Mapping[str, Any], message: Any) -> Any:
    """A message of a dict. A null, or a field that is missing, is not set. Raises `ValueError` or `TypeError`."""
    fields = fields_of(message).fields
    unknown = set(value) - {field.name for field in fields}
    if unknown:
        raise ValueError(f"{message.DESCRIPTOR.name} has no field {', '.join(sorted(map(str, unknown)))}")
    return _message(value, message, fields)


def _message(value: Mapping[str, Any], kind: Any, fields: tuple[Field, ...]) -> Any:
    made = kind()
    for field in fields:
        given = value.get(field.name)
        if given is not None:
            _write(made, field, given)
    return made


def _write(made: Any, field: Field, given: Any) -> None:
    if field.kind == "one":
        if not field.message:
            setattr(made, field.name, field.proto(given))
            return
        target = getattr(made, field.name)
        target.SetInParent()
        target.CopyFrom(field.proto(given))
        return
    target = getattr(made, field.name)
    if field.kind == "many":
        for item in given:
            if not field.message:
                target.append(field.proto(_filled(item, field)))
            elif item is None:
                target.add()
            else:
                target.add().CopyFrom(field.proto(item))
        return
    pairs = given.items() if isinstance(given, Mapping) else [(one["key"], one["value"]) for one in given]
    for key, item in pairs:
        if field.message:
            entry = target[key]
            if item is not None:
                entry.CopyFrom(field.proto(item))
        elif item is not None:
            target[key] = field.proto(item)


def _filled(item: Any, field: Field) -> Any:
    """A null in a list is the default of its type, as `ptars` writes it."""
    if item is not None:
        return item
    dtype = field.dtype.inner  # type: ignore[attr-defined]
    if dtype == pl.String:
        return field.plain(0) if field.plain is not _same else ""
    return b"" if dtype == pl.Binary else False if dtype == pl.Boolean else 0


# Columns
