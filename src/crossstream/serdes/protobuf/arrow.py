"""Protobuf messages as columns without an object per message, by `ptars`: where it is installed and has the same types.

Otherwise messages are read one by one, which takes several times longer; the results are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.serdes.protobuf.columns import WRAPPERS, fields_of, is_repeated

_DOUBLE, _FLOAT = 1, 2
"""Numbers of types in `FieldDescriptor`."""


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
