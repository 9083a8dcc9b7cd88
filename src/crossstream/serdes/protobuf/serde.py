"""Protobuf behind the frame of a schema registry: the id of the schema, then the place of the message in its file."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.error_codes import refuse
from crossstream.serdes import arrays, errors
from crossstream.serdes.avro.rows import number_at, varint
from crossstream.serdes.contract import Serde
from crossstream.serdes.description import Described
from crossstream.serdes.json.shapes import instance_of
from crossstream.serdes.protobuf.arrow import arrow_type, columnar, read_columns, write_columns, writes_alike
from crossstream.serdes.protobuf.columns import WRAPPERS, Fields, fields_of, message_of, plain_of
from crossstream.serdes.registry.client import Kind, Reference, RegistrySettings, Strategy
from crossstream.serdes.registry.serde import RegistrySerde
from crossstream.serdes.shipping import Shipped, received, shipped

_ROWS = 2**30
"""Bytes of messages that `ptars` reads at once: it has 32-bit offsets."""


def confluent_protobuf(
    message: Any,
    registry: Any,
    *,
    subject: str | None = None,
    strategy: Strategy = "topic",
    auto_register: bool = True,
) -> Serde:
    """Protobuf messages with the frame of a schema registry, as Confluent's Protobuf serializers write it.

    ``message``: a class that ``protoc`` made; objects are its instances, and a dict that fits is taken, too. Messages
    of any registered schema are read with this class, by the rules of Protobuf. ``registry``: its URL, a dict of
    settings of `confluent_kafka.schema_registry`, or one of its clients. ``subject``: of the schema; without one
    ``strategy`` names it: "topic" (``orders-value``), "record" or "topic-record". ``auto_register=False``: schemas are
    looked up, and never registered. Columns: a struct of the message's fields.
    """
    descriptor = getattr(message, "DESCRIPTOR", None)
    if (
        not isinstance(message, type)
        or not hasattr(descriptor, "full_name")
        or not hasattr(message, "FromString")
    ):
        what = f"{errors.show(message)} is not a class of Protobuf messages"
        step = "make classes with protoc --python_out=. orders.proto, and pass one: orders_pb2.Order"
        raise refuse("CS-404", what, step, serde="confluent_protobuf")
    settings = RegistrySettings.of(registry)
    return ConfluentProtobuf(
        message=message,
        registry=settings,
        subject=subject,
        strategy=strategy,
        auto_register=auto_register,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentProtobuf(RegistrySerde):
    """See `confluent_protobuf`."""

    kind: ClassVar[Kind] = "PROTOBUF"

    message: Any

    def __reduce__(self) -> tuple[Any, ...]:
        settings = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "message"}
        return _from_pickle, (shipped(self.message), settings)

    @property
    def name(self) -> str:
        return f"confluent_protobuf[{self.message.DESCRIPTOR.full_name}]"

    @property
    def dtype(self) -> pl.DataType | None:
        fields = self._fields()
        return fields.dtype if fields.whole else None

    @property
    def some_columns(self) -> pl.DataType | None:
        return self._fields().dtype

    @property
    def unfit_for_keys(self) -> str | None:
        name = ambiguous(self.message.DESCRIPTOR, ())
        return (
            None
            if name is None
            else f"the field {name} is a map or a wrapper, which may be written in two ways"
        )

    @property
    def record_name(self) -> str | None:
        name: str = self.message.DESCRIPTOR.full_name
        return name

    def described(self) -> Described:
        _, _, message, files = shipped(self.message)
        url = self.registry.public_url
        return Described(self.name, "confluent_protobuf", text=message, files=files, registry=url)

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        return self._written(arrays.binary_rows([self._bytes(value) for value in values]))

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return self._messages(self._payload(data))

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        fitted = _fitted(values, self._fields().dtype, self.name, "")
        there = fitted.is_not_null()
        dense = fitted.filter(there)
        known = columnar(self.message)
        if known is not None and known.canonical and writes_alike(dense, self.message.DESCRIPTOR):
            try:
                return self._written(arrays.with_nulls(write_columns(dense, known), there.to_numpy()))
            except ValueError:
                pass  # a null key of a map, for instance: the slow way says where
        return self.encode_objects(fitted.to_list())

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        payload = self._payload(data)
        made = self._fields()
        if fields is None and not made.whole:
            raise errors.no_column(self.name, "a field contains its own message, or is too deep")
        known = columnar(self.message)
        if known is not None and len(payload):
            there = arrays.validity(payload)
            dense = payload if there is None else payload.drop_null()
            parts = max(1, -(-dense.nbytes // _ROWS))
            size = max(1, -(-len(dense) // parts))
            try:
                read = [read_columns(dense.slice(at, size), known) for at in range(0, len(dense), size)]
            except ValueError:
                read = None  # the slow way finds the rows
            if read:
                series = pl.concat(read) if len(read) > 1 else read[0]
                return series if there is None else arrays.series_with_nulls(series, there)
        rows = [None if one is None else plain_of(one) for one in self._messages(payload)]
        return pl.Series("", pa.array(rows, arrow_type(made.dtype)))

    def _fields(self) -> Fields:
        return fields_of(self.message)

    def _bytes(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, Mapping):
            try:
                value = message_of(value, self.message)
            except (TypeError, ValueError, AttributeError, KeyError) as error:
                raise errors.misfit(self.name, value, str(error)) from error
        full_name = self.message.DESCRIPTOR.full_name
        if getattr(getattr(value, "DESCRIPTOR", None), "full_name", None) != full_name:
            next = f"return an instance of {full_name}, or a dict that fits it"
            raise errors.wrong_type(self.name, value, f"messages of {full_name}", next)
        found: bytes = value.SerializeToString(deterministic=True)
        return found

    def _messages(self, payload: pa.LargeBinaryArray) -> list[Any]:
        found: list[Any] = []
        bad: dict[int, str] = {}
        parse = self.message.FromString
        for row, data in enumerate(payload.to_pylist()):
            try:
                found.append(None if data is None else parse(data))
            except Exception as error:  # DecodeError of Protobuf
                bad[row] = str(error)
        if bad:
            raise errors.undecodable_rows(self.name, bad)
        return found

    def _written(self, messages: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
        return self._framed(messages, message_head(path_of(self.message.DESCRIPTOR)))

    def _id_for(self, subject: str) -> int:
        return self._registered(subject, *schema_of_file(self.message.DESCRIPTOR.file))

    def _payload(self, data: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
        """The messages behind the frames. Raises `UndecodableRows`."""
        (ids, rest, bad), schemas = self._unframed(data, "serialized")
        own = path_of(self.message.DESCRIPTOR)
        head = message_head(own)
        there = arrays.validity(rest)
        mine = _begins_with(rest, head)
        full_name = self.message.DESCRIPTOR.full_name
        for id, schema in schemas.items():
            name = message_name(schema.text, own)
            if name is not None and name != full_name:  # another file, or another order of its messages
                mine &= ids != id
        others = np.flatnonzero(~mine if there is None else there & ~mine)
        payload = arrays.without_first(rest, len(head), mine if there is None else mine & there)
        if not len(others):
            if bad:
                raise errors.undecodable_rows(self.name, bad)
            return payload
        found: dict[int, bytes] = {}
        for row in others.tolist():
            if row in bad:
                continue
            text = schemas[int(ids[row])].text if int(ids[row]) in schemas else ""
            try:
                path, size = read_head(rest[row].as_py())
                name = message_name(text, path) if text else None
                if name != full_name:
                    raise ValueError(
                        f"the message is {name or f'at {list(path)} in its file'}, not {full_name}"
                    )
                found[row] = rest[row].as_py()[size:]
            except ValueError as error:
                bad[row] = str(error)
        if bad:
            raise errors.undecodable_rows(self.name, bad)
        rows = payload.to_pylist()
        return arrays.binary_rows([found.get(row, one) for row, one in enumerate(rows)])


def _begins_with(data: pa.LargeBinaryArray, head: bytes) -> arrays.Mask:
    if not len(data):
        return np.zeros(0, np.bool_)
    found: arrays.Mask = pc.fill_null(pc.starts_with(data, head), False).to_numpy(zero_copy_only=False)
    return found


# Columns to write


def _fitted(values: pl.Series, dtype: pl.DataType, serde: str, path: str) -> pl.Series:
    """The column in the type of the message; fields that are missing are null. Raises CS-401."""
    if values.dtype == dtype:
        return values
    if values.dtype == pl.Null:
        return arrays.null_series(len(values), dtype)
    if isinstance(dtype, pl.Struct) and isinstance(values.dtype, pl.Struct):
        given = {part.name: part for part in values.struct.unnest().get_columns()}
        names = [one.name for one in dtype.fields]
        if unknown := given.keys() - set(names):
            raise errors.unknown_fields(serde, unknown, names)
        blank = arrays.null_series(len(values), pl.Null())
        parts = {
            one.name: _fitted(
                given.get(one.name, blank), instance_of(one.dtype), serde, errors.below(path, one.name)
            )
            for one in dtype.fields
        }
        return arrays.with_nulls_of(arrays.struct_of(parts, len(values)), values)
    if isinstance(dtype, pl.List) and isinstance(values.dtype, pl.List):
        inner = instance_of(dtype.inner)
        return arrays.items_changed(values, lambda items: _fitted(items, inner, serde, path))
    numbers = values.dtype.is_numeric() and dtype.is_numeric()
    times = values.dtype.is_temporal() and type(values.dtype) is type(dtype)
    if not (numbers or times or values.dtype in (pl.Categorical, pl.Enum)):
        raise errors.wrong_column(serde, values.dtype, str(dtype), "cast it, or choose another field", path)
    try:
        return values.cast(dtype)
    except pl.exceptions.PolarsError as error:
        raise errors.wrong_column(
            serde, values.dtype, str(dtype), f"give it values that fit: {error}", path
        ) from error


# The place of a message in its file


def path_of(descriptor: Any) -> tuple[int, ...]:
    """The index of a message in its file, after those of the messages that it is declared in."""
    outer = descriptor.containing_type
    if outer is None:
        names = list(descriptor.file.message_types_by_name)
        return (names.index(descriptor.name),)
    return (*path_of(outer), [one.name for one in outer.nested_types].index(descriptor.name))


def message_head(path: tuple[int, ...]) -> bytes:
    """The bytes of a path: its length and its numbers, as zigzag varints; one 0 for the first message.

    >>> message_head((0,)), message_head((1, 0))
    (b'\\x00', b'\\x04\\x02\\x00')
    """
    return b"\0" if path == (0,) else b"".join(map(varint, (len(path), *path)))


def read_head(data: bytes) -> tuple[tuple[int, ...], int]:
    """The path, and how many bytes it takes. Raises `ValueError`.

    >>> read_head(b"\\4\\2\\0...")
    ((1, 0), 3)
    """
    count, at = number_at(data, 0, len(data))
    path = [0] if count == 0 else []
    for _ in range(count if count <= 100 else 0):
        number, at = number_at(data, at, len(data))
        path.append(number)
    if not path or at > len(data):
        raise ValueError("the frame has no valid message indexes")
    return tuple(path), at


def ambiguous(descriptor: Any, within: tuple[str, ...]) -> str | None:
    """The name of a map or a wrapper that a message contains."""
    for one in descriptor.fields:
        inner = one.message_type
        if inner is None or inner.full_name in within:
            continue
        if inner.GetOptions().map_entry or inner.full_name in WRAPPERS:
            return str(one.name)
        found = ambiguous(inner, (*within, inner.full_name))
        if found is not None:
            return found
    return None


@lru_cache(maxsize=1024)
def message_name(schema: str, path: tuple[int, ...]) -> str | None:
    """The full name of a message of a registered file; None: no descriptor, or no such message in it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except Exception:  # the text of a .proto file
        return None
    names, messages = [file.package] if file.package else [], file.message_type
    for index in path:
        if not 0 <= index < len(messages):
            return None
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


@lru_cache(maxsize=512)
def schema_of_file(file: Any) -> tuple[str, tuple[Reference, ...]]:
    """The text to register for a file, and what it imports, except what registries know themselves."""
    known = ("confluent/", "google/protobuf/", "google/type/")
    references = tuple(
        Reference(one.name, *schema_of_file(one))
        for one in file.dependencies
        if not one.name.startswith(known)
    )
    return base64.b64encode(file.serialized_pb).decode(), references


def _from_pickle(message: Shipped, settings: Mapping[str, Any]) -> ConfluentProtobuf:
    return ConfluentProtobuf(message=received(message), **settings)
