"""Protobuf behind the frame of a schema registry: the id of the schema, then the place of the message in its file."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.errors import ConfigError, SerdeError
from crossstream.serdes import arrays, refusals
from crossstream.serdes.protobuf_columns import (
    WRAPPERS,
    Fields,
    arrow_type,
    columnar,
    fields_of,
    message_of,
    plain_of,
    read_columns,
    write_columns,
    writes_alike,
)
from crossstream.serdes.registry import (
    INTERNAL_ID,
    Reference,
    RegistrySettings,
    Strategy,
    check_ids,
    put_frames,
    register,
    split_frames,
    subject_name,
    without_heads,
)
from crossstream.serdes.serde import Serde

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
        raise SerdeError(
            f"{refusals.show(message)} is not a class of Protobuf messages",
            code="CS-404",
            where={"serde": "confluent_protobuf"},
            next="make classes with protoc --python_out=. orders.proto, and pass one: orders_pb2.Order",
        )
    settings = RegistrySettings.of(registry)
    return ConfluentProtobuf(
        message=message,
        registry=settings,
        subject=subject,
        strategy=strategy,
        auto_register=auto_register,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentProtobuf:
    """See `confluent_protobuf`. ``target``: the subject that it writes for; None: inside the application."""

    message: Any
    registry: RegistrySettings
    subject: str | None = field(default=None, compare=False)
    strategy: Strategy = field(default="topic", compare=False)
    auto_register: bool = field(default=True, compare=False)
    target: str | None = None

    varied: ClassVar[bool] = True

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
        """As `SomeColumns.some_columns`."""
        return self._fields().dtype

    @property
    def unfit_for_keys(self) -> str | None:
        """As `key_fault`."""
        name = ambiguous(self.message.DESCRIPTOR, ())
        return (
            None
            if name is None
            else f"the field {name} is a map or a wrapper, which may be written in two ways"
        )

    def read_from(self, topic: str | None, is_key: bool) -> Serde:
        """As `ForTopic.read_from`: any schema of this message is read, whatever its subject."""
        return self

    def written_to(self, topic: str | None, is_key: bool) -> Serde:
        """As `ForTopic.written_to`."""
        record = self.message.DESCRIPTOR.full_name
        return replace(self, target=self.subject or subject_name(self.strategy, topic, is_key, record))

    def serialize(self, value: Any) -> bytes | None:
        data: bytes | None = self.encode_objects([value])[0].as_py()
        return data

    def deserialize(self, data: bytes | None) -> Any:
        return self.decode_objects(arrays.binary_rows([data]))[0]

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        return self._framed(arrays.binary_rows([self._bytes(value) for value in values]))

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
                return self._framed(_spread(write_columns(dense, known), there.to_numpy()))
            except ValueError:
                pass  # a null key of a map, for instance: the slow way says where
        return self.encode_objects(fitted.to_list())

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        payload = self._payload(data)
        made = self._fields()
        if fields is None and not made.whole:
            raise refusals.no_column(self.name, "a field contains its own message")
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
                return series if there is None else _with_nulls(series, there)
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
                raise refusals.misfit(self.name, value, str(error)) from error
        full_name = self.message.DESCRIPTOR.full_name
        if getattr(getattr(value, "DESCRIPTOR", None), "full_name", None) != full_name:
            next = f"return an instance of {full_name}, or a dict that fits it"
            raise refusals.wrong_type(self.name, value, f"messages of {full_name}", next)
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
            raise refusals.undecodable_rows(self.name, bad)
        return found

    def _framed(self, payload: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
        if payload.null_count == len(payload):
            return payload
        id = INTERNAL_ID
        if self.target is not None:
            text, references = schema_of_file(self.message.DESCRIPTOR.file)
            id = register(self.registry, self.target, "PROTOBUF", text, references, self.auto_register)
        return put_frames(id, payload, message_head(path_of(self.message.DESCRIPTOR)))

    def _payload(self, data: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
        """The messages behind the frames. Raises `UndecodableRows`."""
        ids, rest, bad = split_frames(data)
        schemas, unknown = check_ids(self.registry, ids, "PROTOBUF", "serialized")
        for id, reason in unknown.items():
            bad.update(dict.fromkeys(np.flatnonzero(ids == id).tolist(), reason))
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
        payload = without_heads(rest, mine if there is None else mine & there, len(head))
        if not len(others):
            if bad:
                raise refusals.undecodable_rows(self.name, bad)
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
            raise refusals.undecodable_rows(self.name, bad)
        rows = payload.to_pylist()
        return arrays.binary_rows([found.get(row, one) for row, one in enumerate(rows)])


def _spread(dense: pa.LargeBinaryArray, there: arrays.Mask) -> pa.LargeBinaryArray:
    return dense if there.all() else dense.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _with_nulls(series: pl.Series, there: arrays.Mask) -> pl.Series:
    rows = pl.Series(np.cumsum(there) - 1).cast(pl.Int64)
    return series.gather(rows.set(~pl.Series(there), None))


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
    if isinstance(dtype, pl.Struct) and isinstance(values.dtype, pl.Struct):
        given = {one.name for one in values.dtype.fields}
        names = [one.name for one in dtype.fields]
        if given - set(names):
            raise refusals.unknown_fields(serde, given - set(names), names)
        columns = [
            _fitted(values.struct.field(one.name), one.dtype, serde, f"{path}.{one.name}".strip("."))  # type: ignore[arg-type]
            if one.name in given
            else pl.Series(one.name, [None], dtype=one.dtype).new_from_index(0, len(values))
            for one in dtype.fields
        ]
        struct = pl.DataFrame([column.alias(name) for column, name in zip(columns, names, strict=True)])
        made = struct.to_struct(values.name)
        if values.null_count():
            made = pl.select(pl.when(values.is_not_null()).then(made)).to_series()
        return made
    if isinstance(dtype, pl.List) and isinstance(values.dtype, pl.List):
        inner = _fitted(values.drop_nulls().explode(empty_as_null=False), dtype.inner, serde, path)  # type: ignore[arg-type]
        if inner.dtype == dtype.inner and not isinstance(dtype.inner, pl.Struct):
            return values.cast(dtype)
        array = values.to_arrow(compat_level=pl.CompatLevel.oldest())
        items = _fitted(pl.Series(array.values), dtype.inner, serde, path)  # type: ignore[arg-type]
        lists = pa.LargeListArray.from_arrays(
            array.offsets, items.to_arrow(compat_level=pl.CompatLevel.oldest()), mask=array.is_null()
        )
        return pl.Series(lists)
    numbers = values.dtype.is_numeric() and dtype.is_numeric()
    times = values.dtype.is_temporal() and type(values.dtype) is type(dtype)
    if not (numbers or times or values.dtype == pl.Null or values.dtype in (pl.Categorical, pl.Enum)):
        raise refusals.wrong_column(serde, values.dtype, str(dtype), "cast it, or choose another field", path)
    try:
        return values.cast(dtype)
    except pl.exceptions.PolarsError as error:
        raise refusals.wrong_column(
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
    if path == (0,):
        return b"\0"
    made = bytearray()
    for number in (len(path), *path):
        rest = number << 1
        while rest > 0x7F:
            made.append(rest & 0x7F | 0x80)
            rest >>= 7
        made.append(rest)
    return bytes(made)


def read_head(data: bytes) -> tuple[tuple[int, ...], int]:
    """The path, and how many bytes it takes. Raises `ValueError`.

    >>> read_head(b"\\4\\2\\0...")
    ((1, 0), 3)
    """
    count, at = _varint(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= 100:
        raise ValueError(f"the frame has no valid message indexes: {count} of them")
    found = []
    for _ in range(count):
        number, at = _varint(data, at)
        found.append(number)
    return tuple(found), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise ValueError("the frame ends within its message indexes")
        found |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("the frame has no valid message indexes")


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


# To workers

Shipped = tuple[str, str, str, tuple[bytes, ...]]


def shipped(message: Any) -> Shipped:
    """A class of messages as data: its module and name, and the files that describe it."""
    files: dict[str, bytes] = {}

    def add(file: Any) -> None:
        for one in file.dependencies:
            add(one)
        files.setdefault(file.name, file.serialized_pb)

    add(message.DESCRIPTOR.file)
    return message.__module__, message.__qualname__, message.DESCRIPTOR.full_name, tuple(files.values())


@lru_cache(maxsize=512)
def received(message: Shipped) -> Any:
    """The class, from its module where there is one, else made of the files."""
    module, name, full_name, files = message
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        if found.DESCRIPTOR.full_name == full_name:
            return found
    except (ImportError, AttributeError):
        pass
    return message_class(full_name, files, shared=True)


def message_class(full_name: str, files: Sequence[bytes], *, shared: bool = False) -> Any:
    """The class of a message, made of the files that describe it. ``shared``: the one of the whole process."""
    try:
        from google.protobuf import descriptor_pool, message_factory  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(
            f"Protobuf is not installed here: {error}",
            code="CS-201",
            next='pip install "crossstream[protobuf]"',
        ) from error
    pool = descriptor_pool.Default() if shared else descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))


def _from_pickle(message: Shipped, settings: Mapping[str, Any]) -> ConfluentProtobuf:
    return ConfluentProtobuf(message=received(message), **settings)
