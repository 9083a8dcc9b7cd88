"""JSON behind the frame of a schema registry: the payload is that of `serdes.json`, its schema is a JSON Schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, SerdeError
from crossstream.serdes import errors
from crossstream.serdes.contract import NO_READER, EngineSerde, Readers, Serde
from crossstream.serdes.description import Described
from crossstream.serdes.json.plain import SchemaJson, UntypedJson
from crossstream.serdes.json.typed import TypedJson, json
from crossstream.serdes.own import known
from crossstream.serdes.registry.client import Kind, RegistrySettings, Strategy
from crossstream.serdes.registry.json_cost import MOST_STEPS, Cost
from crossstream.serdes.registry.serde import RegistrySerde

_DRAFT = "http://json-schema.org/draft-07/schema#"


def confluent_json(
    registry: Any,
    type: Any = None,
    *,
    schema: str | Mapping[str, Any] | None = None,
    references: Mapping[str, str] | None = None,
    subject: str | None = None,
    strategy: Strategy = "topic",
    auto_register: bool = True,
    validate: bool = False,
) -> Serde:
    """JSON with the frame of a schema registry, as Confluent's JSON Schema serializers write it.

    ``registry``: its URL, a dict of settings of `confluent_kafka.schema_registry`, or one of its clients. ``type``: as
    that of `json`. ``schema``: the JSON Schema to register, as text or a dict; without one it is made of the type.
    Without both, the newest schema of the subject is used for writing. ``references``: schemas that it refers to, by
    name. ``subject``: of the schema; without one ``strategy`` names it: "topic" (``orders-value``), "record" or
    "topic-record". ``auto_register=False``: schemas are looked up, and never registered. ``validate``: checks each
    record against the writer's schema, one by one.

    >>> orders = confluent_json("mock://docs", dict[str, int])
    >>> orders.deserialize(orders.serialize({"id": 7}))
    {'id': 7}
    """
    inner = known(json(type))
    text = schema if isinstance(schema, str) or schema is None else msgspec.json.encode(schema).decode()
    if text is not None:
        _title(text)
    elif type is not None:
        text = schema_of_type(inner)
    return ConfluentJson(
        registry=RegistrySettings.of(registry),
        inner=inner,
        schema=text,
        references=tuple((references or {}).items()),
        subject=subject,
        strategy=strategy,
        auto_register=auto_register,
        validate=validate,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentJson(RegistrySerde):
    """See `confluent_json`."""

    kind: ClassVar[Kind] = "JSON"

    inner: EngineSerde
    schema: str | None
    references: tuple[tuple[str, str], ...] = ()
    validate: bool = False

    @property
    def name(self) -> str:
        return f"confluent_{self.inner.name}"

    @property
    def dtype(self) -> pl.DataType | None:
        return self.inner.dtype

    @property
    def some_columns(self) -> pl.DataType | None:
        return self.inner.columns

    @property
    def unfit_for_keys(self) -> str | None:
        return self.inner.unfit_for_keys

    @property
    def record_name(self) -> str | None:
        return None if self.schema is None else _title(self.schema)

    def described(self) -> Described:
        sides = (self.inner.described(),)
        return Described(self.name, "confluent_json", sides=sides, registry=self.registry.public_url)

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        with self._named():
            return self._framed(self._checked(self.inner.encode_objects(values)))

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        with self._named():
            return self._framed(self._checked(self.inner.encode_series(values)))

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        with self._named():
            return self.inner.decode_objects(self._payload(data))

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        with self._named():
            return self.inner.decode_series(self._payload(data), fields)

    def decode_checked(
        self, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers = NO_READER
    ) -> pl.Series:
        with self._named():
            return self.inner.decode_checked(self._payload(data), fields, readers)

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        with self._named():
            return self.inner.nulls(self._payload(data))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of the JSON have the name of this serde."""
        try:
            yield
        except SerdeError as error:
            if error.where.get("serde") == self.inner.name:
                error.where["serde"] = self.name
            raise

    def _id_for(self, subject: str) -> int:
        if self.schema is None:
            return self._newest(subject).id
        return self._registered(subject, self.schema, self.references)

    def _payload(self, data: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
        """The JSON behind the frames. Raises `UndecodableRows`."""
        (ids, payload, bad), schemas = self._unframed(data)
        if self.validate:
            for id, schema in schemas.items():
                rows = np.flatnonzero(ids == id)
                try:
                    found = dict(faults(schema.text, schema.references, payload.take(pa.array(rows))))
                except SerdeError as error:  # the schema is the writer's: its records are bad, and no others
                    if error.code != errors.REFUSED_SCHEMA:
                        raise
                    found = dict.fromkeys(range(len(rows)), f"schema id {id}: {error.what}")
                bad.update({int(rows[row]): reason for row, reason in found.items()})
        if bad:
            raise errors.undecodable_rows(self.name, bad)
        return payload

    def _checked(self, payload: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
        """The payload; with ``validate`` the declared schema takes all of it."""
        if not self.validate or self.schema is None:
            return payload
        for row, reason in faults(self.schema, self.references, payload):
            text = payload[row].as_py()
            next = "return what the schema asks for, or change the schema"
            raise errors.no_bytes_for(self.name, msgspec.json.decode(text), reason, next)
        return payload


def faults(
    schema: str, references: tuple[tuple[str, str], ...], payload: pa.LargeBinaryArray
) -> Iterator[tuple[int, str]]:
    """(row, reason) of the rows that a JSON Schema refuses. Rows that are not JSON are left to the decoder.

    Raises `SerdeError` (CS-421) for a schema with which nothing can be checked.
    """
    validator, cost = _validator(schema, references)
    for row, text in enumerate(payload.to_pylist()):
        try:
            value = None if text is None else msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
        if text is None or value is None:
            continue
        if cost.is_too_high(text, value):
            yield row, f"the writer's JSON Schema takes more than {MOST_STEPS} steps for it"
            continue
        if validator.is_valid(value):
            continue
        error = next(iter(validator.iter_errors(value)))
        path = "".join(f"/{part}" for part in error.instance_path)
        yield row, f"not of the writer's JSON Schema at {path or '/'}: {error.message}"


@lru_cache(maxsize=256)
def _validator(schema: str, references: tuple[tuple[str, str], ...]) -> tuple[Any, Cost]:
    try:
        import jsonschema_rs
    except ImportError as error:
        what = f"validate=True needs a package that is not installed: {error}"
        raise refuse(errors.NO_COLUMN, what, 'pip install "crossstream[registry]"') from error

    def referred(uri: str) -> Any:
        found = next((name for name in others if uri == name or uri.endswith("/" + name)), None)
        if found is None:
            raise ValueError(f"the schema refers to {uri}, which the registry does not have")
        return others[found]

    try:
        given = msgspec.json.decode(schema)
        others = {name: msgspec.json.decode(text) for name, text in references}
        cost = Cost(given, others)
        if cost.steps(0) > MOST_STEPS:
            raise ValueError(f"it takes more than {MOST_STEPS} steps to check a value")
        return jsonschema_rs.validator_for(given, retriever=referred), cost
    except Exception as error:
        step = "correct the schema in the registry, or leave validate=True out"
        raise refuse(errors.REFUSED_SCHEMA, f"the JSON Schema cannot be used: {error}", step) from error


def _title(schema: str) -> str | None:
    """The name of a schema. Raises `SerdeError` (CS-404) for what is not a JSON Schema."""
    try:
        found = msgspec.json.decode(schema)
    except msgspec.DecodeError as error:
        raise _not_a_schema(schema, str(error)) from error
    if not isinstance(found, dict | bool):
        raise _not_a_schema(schema, "it is no object")
    return found.get("title") if isinstance(found, dict) else None


def _not_a_schema(schema: object, reason: str) -> CrossStreamError:
    what = f"{errors.show(schema)} is not a JSON Schema: {reason}"
    step = 'pass the text of one, or a dict: schema={"type": "object", "properties": …}'
    return refuse("CS-404", what, step, serde="confluent_json")


def schema_of_type(serde: Serde) -> str | None:
    """The JSON Schema of what a serde of JSON writes, closed: a compatible one may add fields that have defaults."""
    if isinstance(serde, UntypedJson):
        return None
    if isinstance(serde, SchemaJson):
        made: Any = _of_dtype(serde.dtype)
        made["type"] = made["type"][0]
    else:
        assert isinstance(serde, TypedJson)
        made = _of_type(serde.type)
    return msgspec.json.encode({"$schema": _DRAFT, **made}).decode()


def _of_type(kind: Any) -> dict[str, Any]:
    try:
        made: dict[str, Any] = _closed(msgspec.json.schema(kind))
    except Exception as error:  # TypeError of msgspec, and what it does not expect
        raise _not_a_schema(kind, f"none can be made of this type ({error})") from error
    name = made.get("$ref", "").removeprefix("#/$defs/")
    if name in made.get("$defs", {}):
        definitions = made["$defs"]
        top = definitions[name]
        others = {other: one for other, one in definitions.items() if other != name}
        if f'"#/$defs/{name}"' in msgspec.json.encode([top, others]).decode():
            others[name] = top
        made = {**top, "$defs": others} if others else top
    return made


_NESTED = ("properties", "$defs")
_SCHEMAS = ("items", "prefixItems", "anyOf", "allOf", "oneOf", "additionalProperties")


def _closed(schema: Any) -> Any:
    """In the words of draft 7, and without fields that the type does not have."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for key, inner in schema.items():
        if key in _NESTED:
            found[key] = {name: _closed(one) for name, one in inner.items()}
        elif key in _SCHEMAS:
            found[key] = _closed(inner)
    if "prefixItems" in found:
        found["additionalItems"] = found.pop("items", True)
        found["items"] = found.pop("prefixItems")
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def _of_dtype(dtype: pl.DataType) -> dict[str, Any]:
    if isinstance(dtype, pl.Struct):
        fields = {one.name: _of_dtype(one.dtype) for one in dtype.fields}  # type: ignore[arg-type]
        return {"type": ["object", "null"], "properties": fields, "additionalProperties": False}
    if isinstance(dtype, pl.List | pl.Array):
        return {"type": ["array", "null"], "items": _of_dtype(dtype.inner)}  # type: ignore[arg-type]
    if dtype.is_integer():
        return {"type": ["integer", "null"]}
    if dtype.is_float():
        return {"type": ["number", "null"]}
    if isinstance(dtype, pl.Boolean):
        return {"type": ["boolean", "null"]}
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        return {"type": ["string", "null"], "format": "date-time"}
    if isinstance(dtype, pl.Date):
        return {"type": ["string", "null"], "format": "date"}
    return {"type": ["string", "null"]}
