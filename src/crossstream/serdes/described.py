"""Serdes as plain data: a state folder says how its rows are read, and holds no code."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import ConfigError, CrossStreamError, StateError
from crossstream.serdes import errors
from crossstream.serdes.avro.schema import parse
from crossstream.serdes.avro.serde import Avro
from crossstream.serdes.json.plain import Kept, KeptJson, SchemaJson, UntypedJson
from crossstream.serdes.json.rows import Decoder, decode_row, decode_rows
from crossstream.serdes.json.typed import TypedJson
from crossstream.serdes.keys import LeftOrRightSerde
from crossstream.serdes.primitives import Boolean, Bytes, Number, String, Uuid
from crossstream.serdes.protobuf.serde import ConfluentProtobuf
from crossstream.serdes.registry.avro import ConfluentAvro
from crossstream.serdes.registry.client import RegistrySettings
from crossstream.serdes.registry.json import ConfluentJson
from crossstream.serdes.serde import OneByOne, Serde
from crossstream.serdes.shipping import message_class, shipped
from crossstream.serdes.windowed import WindowedSerde

_VALUES = (str, int, float, bool, bytes, Decimal, UUID, dt.datetime, dt.date, dt.time, dt.timedelta)
"""Types for `json(type)` that every process has."""

_MOST_DEPTH = 64
"""Levels of a type of columns: Polars itself takes no more than about that."""

_NAMED = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Float32, pl.Float64,
            pl.String, pl.Boolean, pl.Binary, pl.Date, pl.Time,
        )
    }
)  # fmt: skip


class Described(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a serde is made. ``kind``: "known" (by its name), "schema" or "class" (of JSON), "left_or_right", "windowed",
    "avro", "confluent_avro", "confluent_json", "confluent_protobuf" or "own".

    ``columns``: the type of a column, of JSON, as `as_data` gives it. ``is_plain``: whether plain values are written as
    the class writes its own. ``sides``: the serdes of `LeftOrRight` keys, or of the keys in windows; ``size``: of these
    windows.

    ``text``: the schema of Avro, or the full name of a message; ``references``: the schemas that it refers to, by name;
    ``files``: those that describe the message, serialised. ``registry``: the URL of a schema registry, without secrets;
    it is asked for rows that are stored as they were read from a topic.
    """

    name: str
    kind: str
    columns: Any = None
    is_plain: bool = False
    sides: tuple[Described, ...] = ()
    size: int | None = None
    text: str = ""
    references: tuple[tuple[str, str], ...] = ()
    files: tuple[bytes, ...] = ()
    registry: str = ""
    decimals: Literal["text", "number"] = "text"


@lru_cache(maxsize=1)
def _known() -> Mapping[str, Serde]:
    """The serdes that need no more than their names."""
    numbers = map(Number, ("int16", "int32", "int64", "float32", "float64"))
    typed = map(TypedJson, _VALUES)
    made: list[Serde] = [String(), Bytes(), Boolean(), Uuid(), UntypedJson(), Kept(), *numbers, *typed]
    return MappingProxyType({serde.name: serde for serde in made})


def describe(serde: Serde) -> Described:
    """A serde as data."""
    name, known = serde.name, _known().get(serde.name)
    if isinstance(serde, KeptJson) or (type(serde) is type(known) and serde == known):
        return Described(name, "known")
    if isinstance(serde, LeftOrRightSerde):
        return Described(name, "left_or_right", sides=(describe(serde.left), describe(serde.right)))
    if isinstance(serde, WindowedSerde):
        return Described(name, "windowed", sides=(describe(serde.inner),), size=serde.size)
    if isinstance(serde, SchemaJson):
        return Described(name, "schema", as_data(serde.dtype), decimals=serde.decimals)
    if isinstance(serde, TypedJson):
        dtype = serde.dtype if isinstance(serde.dtype, pl.Struct) else None
        fits = dtype is not None and serde.unfit_for_keys is None and is_plain(serde, dtype)
        columns = None if dtype is None else as_data(dtype)
        return Described(name, "class", columns, fits, decimals=serde.decimals)
    if isinstance(serde, Avro):
        return Described(name, "avro", text=serde.schema)
    if isinstance(serde, ConfluentAvro) and serde.schema is not None:
        url = serde.registry.public_url
        return Described(name, "confluent_avro", text=serde.schema, references=serde.references, registry=url)
    if isinstance(serde, ConfluentJson):
        url = serde.registry.public_url
        return Described(name, "confluent_json", sides=(describe(serde.inner),), registry=url)
    if isinstance(serde, ConfluentProtobuf):
        _, _, message, files = shipped(serde.message)
        url = serde.registry.public_url
        return Described(name, "confluent_protobuf", text=message, files=files, registry=url)
    return Described(name, "own")


def names_in(described: Described) -> set[str]:
    """The names of a serde and of those that it is made of."""
    return {described.name}.union(*map(names_in, described.sides))


def made(described: Described, given: Mapping[str, Serde], registry: RegistrySettings | None = None) -> Serde:
    """The serde of a description. Serdes that are ``given`` by name come first. ``registry``: the one to ask.

    Raises `StateError`: CS-703 for a user's own serde that is not given, CS-701 for a damaged description.
    """
    name = described.name
    if name in given:
        return given[name]
    if described.kind == "own":
        what = f"the serde {name} is not part of crossstream, and the state does not describe it"
        step = (
            f"pass serdes={{{name!r}: …}} to open_store, with a serde that the application uses; "
            "serdes.bytes() gives the bytes"
        )
        raise refuse("CS-703", what, step, serde=name)
    try:
        return _made(described, given, registry)
    except (StateError, ConfigError):  # as of a package that is not installed
        raise
    except Exception as error:  # whatever is in the file
        what = f"the description of the serde {name} cannot be read: {error}"
        step = (
            "restore the state folder from a copy, or start its application, which describes its serdes again"
        )
        raise refuse("CS-701", what, step, serde=name) from error


def _made(described: Described, given: Mapping[str, Serde], asked: RegistrySettings | None) -> Serde:
    if described.kind == "known":
        return _known()[described.name]
    if described.kind == "left_or_right":
        left, right = (made(side, given, asked) for side in described.sides)
        return LeftOrRightSerde(left, right)
    if described.kind == "windowed":
        return WindowedSerde(made(described.sides[0], given, asked), described.size)
    if described.kind == "avro":
        parse(described.text)
        return Avro(described.text)
    if described.kind.startswith("confluent_"):
        return _of_registry(described, given, asked)
    dtype = None if described.columns is None else of_data(described.columns)
    if described.kind == "schema" and dtype is not None:
        return SchemaJson(dtype, described.decimals)
    if described.kind == "class" and (dtype is None or isinstance(dtype, pl.Struct)):
        return PlainJson(described.name, dtype, described.is_plain, described.decimals)
    raise ValueError(f"it is of the kind {described.kind!r}")


def _of_registry(described: Described, given: Mapping[str, Serde], asked: RegistrySettings | None) -> Serde:
    registry = asked or RegistrySettings.at(described.registry)
    if described.kind == "confluent_avro":
        parse(described.text, described.references)
        return ConfluentAvro(registry=registry, schema=described.text, references=described.references)
    if described.kind == "confluent_json":
        return ConfluentJson(registry=registry, inner=made(described.sides[0], given, asked), schema=None)
    if described.kind == "confluent_protobuf":
        return ConfluentProtobuf(message=message_class(described.text, described.files), registry=registry)
    raise ValueError(f"it is of the kind {described.kind!r}")


def as_data(dtype: Any) -> Any:
    """A type of columns as JSON: a name, or an object of one field, such as ``{"list": "String"}``."""
    if isinstance(dtype, pl.Struct):
        return {"struct": {field.name: as_data(field.dtype) for field in dtype.fields}}
    if isinstance(dtype, pl.List):
        return {"list": as_data(dtype.inner)}
    if isinstance(dtype, pl.Datetime):
        return {"datetime": [dtype.time_unit, dtype.time_zone]}
    if isinstance(dtype, pl.Duration):
        return {"duration": [dtype.time_unit]}
    if isinstance(dtype, pl.Decimal):
        return {"decimal": [dtype.precision, dtype.scale]}
    return dtype.__name__ if isinstance(dtype, type) else type(dtype).__name__


def of_data(data: Any, depth: int = _MOST_DEPTH) -> pl.DataType:
    """The type that `as_data` wrote. Raises some exception for a wrong description."""
    if isinstance(data, str):
        return _NAMED[data]()
    if not depth:
        raise ValueError(f"it goes deeper than {_MOST_DEPTH} levels")
    ((kind, what),) = data.items()
    if kind == "struct":
        return pl.Struct({name: of_data(inner, depth - 1) for name, inner in what.items()})
    if kind == "list":
        return pl.List(of_data(what, depth - 1))
    if kind == "decimal":
        precision, scale = what
        if not (isinstance(precision, int | None) and 0 <= scale <= (precision or 38) <= 38):
            raise ValueError(f"there is no decimal of {precision} digits, {scale} of them behind the point")
        return pl.Decimal(precision, scale)
    unit, *zone = what
    if unit not in ("ms", "us", "ns"):
        raise ValueError(f"there is no unit {unit!r}")
    if kind == "duration" and not zone:
        return pl.Duration(unit)
    if kind != "datetime" or len(zone) != 1:
        raise ValueError(f"there is no type {kind!r}")
    if zone[0] is not None:
        ZoneInfo(zone[0])
    return pl.Datetime(unit, zone[0])


_SAMPLES: dict[type[pl.DataType], tuple[Any, Any]] = {
    pl.String: ("a", "b"),
    pl.Boolean: (False, True),
    pl.Int64: (7, 8),
    pl.Float64: (0.5, 1.5),
}
"""Two values of each type whose text depends on nothing else."""


_any: Decoder = msgspec.json.Decoder()
_exact: Decoder = msgspec.json.Decoder(float_hook=Decimal)
"""Gives every number with a point as a Decimal: which of them the class declares as such is not known."""


@dataclass(frozen=True, slots=True)
class PlainJson(OneByOne):
    """Rows of a class, read without the class. ``dtype``: the type of its columns, None if it has no column form.

    ``is_plain``: whether dicts of all its fields can be written, to look up keys. It never writes to a topic.
    ``decimals``: as of `json`.
    """

    name: str
    dtype: pl.Struct | None
    is_plain: bool = False
    decimals: Literal["text", "number"] = "text"

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if self.dtype is None or not self.is_plain or not _has_all(value, self.dtype):
            raise errors.classless(self.name, value)
        return SchemaJson(self.dtype).serialize(value)

    def deserialize(self, data: bytes | None) -> Any:
        value = None if data is None else decode_row(data, self._decoder, self.name)
        if self.dtype is not None and value is not None and not isinstance(value, dict):
            raise errors.undecodable(self.name, "it is no object", data)
        return value

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return decode_rows(data, self._decoder, self.name)

    @property
    def _decoder(self) -> Decoder:
        return _exact if self.decimals == "number" else _any

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        return self.encode_objects(values.to_list())

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        serde = UntypedJson() if self.dtype is None else SchemaJson(self.dtype)
        return serde.decode_series(data, fields)


def is_plain(serde: TypedJson, dtype: pl.Struct) -> bool:
    """Whether the class writes exactly its fields: no tag, no names or texts of its own."""
    try:
        for which in (0, 1):
            text = SchemaJson(dtype).serialize(_sample(dtype, which))
            if serde.serialize(serde.deserialize(text)) != text:
                return False
    except (CrossStreamError, KeyError):
        return False
    return True


def _sample(dtype: Any, which: int) -> Any:
    if isinstance(dtype, pl.Struct):
        return {field.name: _sample(field.dtype, which) for field in dtype.fields}
    return _SAMPLES[dtype if isinstance(dtype, type) else type(dtype)][which]


def _has_all(value: Any, dtype: pl.Struct) -> bool:
    """Whether a dict, and those in it, have every field."""
    if not isinstance(value, dict):
        return False
    return all(
        field.name in value
        and (not isinstance(field.dtype, pl.Struct) or _has_all(value[field.name], field.dtype))
        for field in dtype.fields
    )
