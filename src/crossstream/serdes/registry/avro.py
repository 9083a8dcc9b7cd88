"""Avro behind the frame of a schema registry: each record is read with the schema of its writer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.serdes.avro.schema import References, record_of
from crossstream.serdes.avro.serde import AvroValues, Group, declared, reader_of, typed
from crossstream.serdes.avro.single import Reader
from crossstream.serdes.avro.types import Form, form_of
from crossstream.serdes.contract import Serde
from crossstream.serdes.description import Described
from crossstream.serdes.json.typed import TypedJson
from crossstream.serdes.registry.client import Kind, RegistrySettings, Strategy, subject_name
from crossstream.serdes.registry.serde import INTERNAL_ID, RegistrySerde, check_ids, framed_parts


def confluent_avro(
    registry: Any,
    schema: Any = None,
    subject: str | None = None,
    *,
    type: Any = None,
    references: Mapping[str, str] | None = None,
    strategy: Strategy = "topic",
    auto_register: bool = True,
) -> Serde:
    """Avro with the frame of a schema registry, as Confluent's Avro serializers write it.

    Every record is read with the schema that its writer registered, and resolved to the declared one. ``registry``: its
    URL, a dict of settings of `confluent_kafka.schema_registry`, or one of its clients. ``schema``, ``type``: as those
    of `avro`; without a schema it is the newest one of the subject when the topology is built. ``references``: schemas
    that it refers to, by name, in an order in which each knows those that it needs. ``subject``: of the schema; without
    one ``strategy`` names it: "topic" (``orders-value``), "record" or "topic-record". ``auto_register=False``: schemas
    are looked up, and never registered.

    >>> totals = confluent_avro("mock://docs", "double")
    >>> totals.deserialize(totals.serialize(0.5))
    0.5
    """
    settings = RegistrySettings.of(registry)
    text: str | None = None
    of = None if type is None else typed(type)
    known = tuple((references or {}).items())
    if schema is not None:
        text, of = declared(schema, type, known)
    made = ConfluentAvro(
        registry=settings,
        schema=text,
        of=of,
        references=known,
        subject=subject,
        strategy=strategy,
        auto_register=auto_register,
    )
    return made.read_from(None, is_key=False) if text is None and subject is not None else made


_OWN_FRAME = b"\0" + INTERNAL_ID.to_bytes(4, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfluentAvro(RegistrySerde, AvroValues):
    """See `confluent_avro`. ``schema``: None until the topic is known.

    ``found``: the subject and id of a schema that comes from the registry.
    """

    kind: ClassVar[Kind] = "AVRO"

    schema: str | None
    of: TypedJson | None = None
    references: References = ()
    found: tuple[str, int] | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return "confluent_avro" if self.schema is None else f"confluent_avro[{self.form.title}]"

    @property
    def form(self) -> Form:
        return form_of(*self._own_text(), self.of)

    @property
    def declared(self) -> Form | None:
        return None if self.schema is None else self.form

    def described(self) -> Described:
        if self.schema is None:
            return Described(self.name, "own")
        url = self.registry.public_url
        return Described(
            self.name, "confluent_avro", text=self.schema, references=self.references, registry=url
        )

    def read_from(self, topic: str | None, is_key: bool) -> ConfluentAvro:
        """Fixes a schema that is not declared, for all processes."""
        return self._fixed(topic, is_key)

    def written_to(self, topic: str | None, is_key: bool) -> ConfluentAvro:
        return super(ConfluentAvro, self._fixed(topic, is_key)).written_to(topic, is_key)

    @property
    def record_name(self) -> str | None:
        record = record_of(self.form.node)
        return None if record is None else record.name

    def _fixed(self, topic: str | None, is_key: bool) -> ConfluentAvro:
        if self.schema is not None:
            return self
        subject = self.subject or subject_name(self.strategy, topic, is_key, None)
        found = self._newest(subject)
        form_of(found.text, found.references, self.of)
        return replace(self, schema=found.text, references=found.references, found=(subject, found.id))

    def _own_text(self) -> tuple[str, References]:
        if self.schema is None:
            what = "the schema of serdes.confluent_avro(…) is not known: it comes from the subject of a topic"
            step = (
                "pass schema=… or subject=…, or use the serde in Consumed or Produced, which know the topic"
            )
            raise refuse("CS-404", what, step, serde="confluent_avro", registry=self.registry.url)
        return self.schema, self.references

    def _head(self) -> bytes | None:
        return _OWN_FRAME

    def _id_for(self, subject: str) -> int:
        if self.found is not None and self.found[0] == subject:
            return self.found[1]
        return self._registered(subject, *self._own_text())

    def _groups(
        self, data: pa.LargeBinaryArray, names: frozenset[str] | None
    ) -> tuple[list[Group], dict[int, str]]:
        own = self._own_text()
        (ids, payload, faults), head = framed_parts(data)
        schemas, unknown = check_ids(self.registry, ids, "AVRO")
        groups: list[Group] = []
        for id in np.unique(ids).tolist():
            if id < 0:
                continue
            rows = np.arange(len(data)) if head else np.flatnonzero(ids == id)
            reader: Reader | str
            if id in unknown:
                reader = unknown[id]
            elif id == INTERNAL_ID:
                reader = reader_of(*own, *own, names)
            else:
                reader = reader_of(schemas[id].text, schemas[id].references, *own, names)
                if isinstance(reader, str):
                    reader = f"schema id {id} cannot be read as the declared schema: {reader}"
            if isinstance(reader, str):
                faults.update(dict.fromkeys(rows.tolist(), reader))
            elif len(rows) == len(data):
                groups.append((rows, payload, reader, head))
            else:
                groups.append((rows, payload.take(pa.array(rows)), reader, 0))
        return groups, faults
