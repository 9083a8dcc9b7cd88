"""Protobuf messages as columns: the types of their fields, and both ways between wire bytes, plain values and columns.

`ptars` reads and writes columns without an object per message, where it is installed and has the same types. Otherwise
messages are read one by one, which takes several times longer; the results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

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
_DOUBLE, _FLOAT, _GROUP, _MESSAGE, _ENUM = 1, 2, 10, 11, 14
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


def arrow_type(dtype: pl.DataType) -> pa.DataType:
    """The Arrow type that Polars has for a type."""
    return pl.Series([], dtype=dtype).to_arrow(compat_level=pl.CompatLevel.oldest()).type


class Columnar(NamedTuple):
    """`ptars` for a class of messages. ``canonical``: it writes the bytes that Protobuf writes deterministically."""

    handler: Any
    schema: pa.Schema
    arrow: pa.DataType
    canonical: bool


@lru_cache(maxsize=512)
def columnar(message: Any) -> Columnar | None:
    """None: `ptars` is not installed, or has other types for these messages."""
    fields = fields_of(message)
    files = _files(message.DESCRIPTOR.file)
    if not fields.whole or not fields.fields or any(_syntax(file) != "proto3" for file in files):
        return None
    try:
        import ptars

        handler = _handler(ptars, message)
        schema = handler.schema()
    except Exception:  # not installed, another version, or messages that it does not know
        return None
    arrow = arrow_type(fields.dtype)
    if plain_type(pa.struct(list(schema))) != arrow:
        return None
    return Columnar(
        handler, pa.schema([f.with_nullable(True) for f in schema]), arrow, _canonical(message.DESCRIPTOR)
    )


def _handler(ptars: Any, message: Any) -> Any:
    config = ptars.PtarsConfig(
        timestamp_unit="us",
        duration_unit="us",
        enum_repr="string",
        use_large_string=True,
        use_large_binary=True,
        use_large_list=True,
    )
    pool = ptars.HandlerPool([message.DESCRIPTOR.file], config=config)
    return pool.get_for_message(message.DESCRIPTOR)


def _files(file: Any) -> list[Any]:
    return [file, *(inner for one in file.dependencies for inner in _files(one))]


def _syntax(file: Any) -> str:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]

    return str(FileDescriptorProto.FromString(file.serialized_pb).syntax)


def _canonical(descriptor: Any) -> bool:
    """Whether fields are declared by number, here and in what the message contains."""
    numbers = [field.number for field in descriptor.fields]
    inner = [field.message_type for field in descriptor.fields if field.message_type is not None]
    return numbers == sorted(numbers) and all(_canonical(one) for one in inner)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """An Arrow type as Polars has it: maps as lists of pairs, everything nullable."""
    if pa.types.is_map(kind):
        pair = [pa.field("key", plain_type(kind.key_type)), pa.field("value", plain_type(kind.item_type))]
        return pa.large_list(pa.field("item", pa.struct(pair)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(pa.field("item", plain_type(kind.value_type)))
    return kind


def read_columns(wire: pa.LargeBinaryArray, known: Columnar) -> pl.Series:
    """Messages (no nulls) as a column of structs. Raises `ValueError` if any is not one."""
    rows = _safely(known.handler.array_to_record_batch, wire.cast(pa.binary()))
    return pl.Series("", rows.to_struct_array().cast(known.arrow))


def _safely(call: Callable[[Any], Any], given: Any) -> Any:
    """What `ptars` gives. It panics on some rows, as on a map without a value: that is a `ValueError`, too."""
    try:
        return call(given)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(str(error)) from None


def write_columns(values: pl.Series, known: Columnar) -> pa.LargeBinaryArray:
    """The bytes of structs (no nulls), which have the columns of the message. Raises `ValueError` for null keys."""
    array = values.to_arrow(compat_level=pl.CompatLevel.oldest())
    columns = [
        _as_maps(column, field.type) for column, field in zip(array.flatten(), known.schema, strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=known.schema)
    return _safely(known.handler.record_batch_to_array, rows).cast(pa.large_binary())


def _as_maps(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array with maps where the type has some; null lists become empty."""
    if pa.types.is_map(kind):
        offsets, entries = _items(array)
        keys, items = entries.flatten()
        pairs = _as_maps(keys, kind.key_type), _as_maps(items, kind.item_type)
        return pa.MapArray.from_arrays(offsets.cast(pa.int32()), *pairs, type=kind)
    if pa.types.is_struct(kind):
        children = [_as_maps(child, one.type) for child, one in zip(array.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_large_list(kind):
        offsets, items = _items(array)
        return pa.LargeListArray.from_arrays(offsets, _as_maps(items, kind.value_type), type=kind)
    return array.cast(kind)


def _items(array: pa.LargeListArray) -> tuple[pa.Array, pa.Array]:
    """The offsets from 0, and only the items that the lists have."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return pc.subtract(array.offsets, first), array.values.slice(first, last - first)


def writes_alike(values: pl.Series, descriptor: Any) -> bool:
    """Whether `ptars` writes what Protobuf writes: it drops texts that are no names of an enum, and signs of zeros."""
    return all(
        _field_alike(values.struct.field(one.name), one) for one in descriptor.fields if _to_check(one)
    )


def _field_alike(column: pl.Series, field: Any) -> bool:
    if is_repeated(field):
        column = column.drop_nulls().explode(empty_as_null=False)
    column = column.drop_nulls()
    if field.message_type is not None:
        return writes_alike(column, field.message_type)
    if field.enum_type is not None:
        return bool(column.is_in([one.name for one in field.enum_type.values]).all())
    zeros = column.filter(column == 0)
    return not (1 / zeros < 0).any()


@lru_cache(maxsize=4096)
def _to_check(field: Any) -> bool:
    inner = field.message_type
    if inner is None:
        return field.enum_type is not None or field.type in (_DOUBLE, _FLOAT)
    return inner.full_name not in WRAPPERS and any(map(_to_check, inner.fields))
