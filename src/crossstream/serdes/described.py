"""Serdes as plain data: a state folder says how its rows are read, and holds no code."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import ConfigError, StateError
from crossstream.serdes import errors
from crossstream.serdes.avro.schema import parse
from crossstream.serdes.avro.serde import Avro
from crossstream.serdes.contract import EngineSerde, OneByOne, Serde
from crossstream.serdes.description import Described, of_data
from crossstream.serdes.json.plain import InternalJson, SchemaJson, UntypedJson
from crossstream.serdes.json.rows import Decoder, decode_row, decode_rows
from crossstream.serdes.json.typed import KNOWN_TYPES, TypedJson
from crossstream.serdes.keys import LeftOrRightSerde
from crossstream.serdes.own import known
from crossstream.serdes.primitives import Boolean, Bytes, Number, String, Uuid
from crossstream.serdes.protobuf.serde import ConfluentProtobuf
from crossstream.serdes.registry.avro import ConfluentAvro
from crossstream.serdes.registry.client import RegistrySettings
from crossstream.serdes.registry.json import ConfluentJson
from crossstream.serdes.shipping import message_class
from crossstream.serdes.windowed import WindowedSerde


@lru_cache(maxsize=1)
def _known() -> Mapping[str, EngineSerde]:
    """The serdes that need no more than their names."""
    numbers = map(Number, ("int16", "int32", "int64", "float32", "float64"))
    typed = map(TypedJson, KNOWN_TYPES)
    made: list[EngineSerde] = [
        String(),
        Bytes(),
        Boolean(),
        Uuid(),
        UntypedJson(),
        InternalJson(),
        *numbers,
        *typed,
    ]
    return MappingProxyType({serde.name: serde for serde in made})


def names_in(described: Described) -> set[str]:
    """The names of a serde and of those that it is made of."""
    return {described.name}.union(*map(names_in, described.sides))


def made(
    described: Described, given: Mapping[str, Serde], registry: RegistrySettings | None = None
) -> EngineSerde:
    """The serde of a description. Serdes that are ``given`` by name come first. ``registry``: the one to ask.

    Raises `StateError`: CS-703 for a user's own serde that is not given, CS-701 for a damaged description.
    """
    name = described.name
    if name in given:
        return known(given[name])
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


def _made(described: Described, given: Mapping[str, Serde], asked: RegistrySettings | None) -> EngineSerde:
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


def _of_registry(
    described: Described, given: Mapping[str, Serde], asked: RegistrySettings | None
) -> EngineSerde:
    registry = asked or RegistrySettings.at(described.registry)
    if described.kind == "confluent_avro":
        parse(described.text, described.references)
        return ConfluentAvro(registry=registry, schema=described.text, references=described.references)
    if described.kind == "confluent_json":
        return ConfluentJson(registry=registry, inner=made(described.sides[0], given, asked), schema=None)
    if described.kind == "confluent_protobuf":
        return ConfluentProtobuf(message=message_class(described.text, described.files), registry=registry)
    raise ValueError(f"it is of the kind {described.kind!r}")


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
    is_text: ClassVar[bool] = True

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


def _has_all(value: Any, dtype: pl.Struct) -> bool:
    """Whether a dict, and those in it, have every field."""
    if not isinstance(value, dict):
        return False
    return all(
        field.name in value
        and (not isinstance(field.dtype, pl.Struct) or _has_all(value[field.name], field.dtype))
        for field in dtype.fields
    )
