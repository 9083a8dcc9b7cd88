"""What the user says about a topic of change events."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Literal, get_origin

import msgspec
import polars as pl

from crossstream.errors import SerdeError
from crossstream.serdes.contract import Serde
from crossstream.serdes.debezium.convert import DECIMAL, NO_SCHEMA, Logical
from crossstream.serdes.json.plain import SchemaJson
from crossstream.serdes.json.reading import reading_of
from crossstream.serdes.json.shapes import Field, Layout, instance_of, read_schema
from crossstream.serdes.json.typed import TypedJson
from crossstream.serdes.registry.avro import confluent_avro
from crossstream.serdes.registry.client import RegistrySettings

_UNIT_NAMES = {"millis": "Timestamp", "micros": "MicroTimestamp", "nanos": "NanoTimestamp"}

Binary = Literal["base64", "base64-url-safe", "hex"]
"""How bytes are written as text (``binary.handling.mode``)."""


@dataclass(frozen=True, slots=True)
class Debezium:
    """How change events become rows; see `crossstream.debezium`.

    ``row``, ``key``: the serdes of the table; ``keys``: the columns of the primary key. ``units``, ``scales``: pairs of
    a field and its setting; the unit of the field "" is for all fields. ``binary``: how bytes are text.
    ``unavailable``: the fields that an event may leave out, with ``unavailable_value`` in their place. ``registry``:
    that of Avro's schemas; None: events are JSON. ``transactions``: the topic that says when transactions end.
    ``snapshots``: whether a snapshot shows all rows. ``reads_snapshot``: whether the marks of snapshots are read.
    """

    row: TypedJson | SchemaJson
    key: Serde
    keys: tuple[str, ...]
    ordered_by: str | None = None
    unavailable_value: str | None = None
    unavailable: tuple[str, ...] = ()
    units: tuple[tuple[str, str], ...] = ()
    scales: tuple[tuple[str, int], ...] = ()
    decimals: Literal["precise", "string"] = "precise"
    binary: Binary = "base64"
    truncate: Literal["refuse", "ignore", "delete"] = "refuse"
    tombstones: Literal["ignore", "delete"] = "delete"
    registry: RegistrySettings | None = field(default=None, metadata={"noted": False})
    snapshots: Literal["full", "partial"] = "partial"
    transactions: str | None = None
    reads_snapshot: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts in the place of a value that is left out: of text, of hstore as JSON, and of bytes."""
        value = self.unavailable_value
        return () if value is None else _marks(value)

    @property
    def needs_values(self) -> bool:
        """Whether an event is read together with the row as it was before."""
        return bool(self.unavailable) or self.ordered_by is not None

    @property
    def needs_rows(self) -> bool:
        """Whether it is kept which rows there are."""
        return self.needs_values or self.follows_snapshots

    @property
    def follows_snapshots(self) -> bool:
        """Whether the end of a snapshot deletes rows."""
        return self.snapshots == "full"

    @property
    def without_snapshots(self) -> Debezium:
        """The same for a reader that keeps no rows."""
        return replace(self, snapshots="partial", reads_snapshot=False)

    @property
    def stored(self) -> Serde:
        """The serde of the table's rows: Avro where events are Avro and it holds the type as JSON does, else JSON."""
        return self.row if self.registry is None else _stored(self.row, self.registry)

    @property
    def fields(self) -> tuple[Field, ...]:
        return layout_of(self.row).fields

    def logical(self, name: str, dtype: pl.DataType) -> Logical:
        """What a column means where records have no schema."""
        if isinstance(dtype, pl.List):
            return Logical(item=self.logical(name, instance_of(dtype.inner)))
        units: Mapping[str, str] = dict(self.units)
        if isinstance(dtype, pl.Datetime | pl.Time | pl.Duration):
            unit = units.get(name) or units.get("")
            return NO_SCHEMA if unit is None else Logical(f"io.debezium.time.{_UNIT_NAMES[unit]}")
        if isinstance(dtype, pl.Binary):  # inside of records, as a point, bytes are always base64
            return NO_SCHEMA if "." in name else Logical(self.binary)
        scale = dict(self.scales).get(name)
        is_number = isinstance(dtype, pl.Decimal) or dtype.is_numeric()
        if scale is not None or (is_number and self.decimals == "precise"):
            return Logical(DECIMAL, scale)
        if isinstance(dtype, pl.Struct):
            inner = {
                one.name: self.logical(f"{name}.{one.name}", instance_of(one.dtype)) for one in dtype.fields
            }
            return Logical(inner=inner)
        return NO_SCHEMA


@lru_cache(maxsize=64)
def _marks(value: str) -> tuple[str, ...]:
    data = value.encode()
    texts = [base64.b64encode(data), base64.urlsafe_b64encode(data), data.hex().encode()]
    return value, msgspec.json.encode({value: value}).decode(), *(text.decode() for text in texts)


@lru_cache(maxsize=256)
def _stored(row: TypedJson | SchemaJson, registry: RegistrySettings) -> Serde:
    if isinstance(row, SchemaJson) or row.dtype is None or get_origin(row.type) is Annotated:
        return row  # Avro of a class has no scales
    try:
        made = confluent_avro(registry, row.type)
    except SerdeError:  # Avro has no such type
        return row
    form = made.form  # type: ignore[attr-defined]
    is_alike = form.columns == row.dtype and not form.is_narrower and not _has_time(row.dtype)
    return made if is_alike else row


def _has_time(dtype: pl.DataType) -> bool:
    """Whether it has a time of day, of which Avro keeps microseconds only."""
    if isinstance(dtype, pl.Struct):
        return any(_has_time(instance_of(one.dtype)) for one in dtype.fields)
    return _has_time(instance_of(dtype.inner)) if isinstance(dtype, pl.List) else dtype == pl.Time


def layout_of(row: TypedJson | SchemaJson) -> Layout:
    """The fields of a row."""
    if isinstance(row, SchemaJson):
        assert isinstance(row.dtype, pl.Struct)
        return read_schema(row.dtype)
    layout = reading_of(row.type).layout
    assert isinstance(layout, Layout)
    return layout
