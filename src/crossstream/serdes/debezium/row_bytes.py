"""Rows whose bytes are those that the table stores: they are cut out of the event, not written again.

That is so where the schema of the connector's row and the one of the table have the same fields in the same order, and
each pair of types has the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays
from crossstream.serdes.avro.schema import Node, nullable, record_of
from crossstream.serdes.avro.single import limits
from crossstream.serdes.debezium.convert import DECIMAL, NO_SCHEMA, Logical
from crossstream.serdes.debezium.settings import Debezium
from crossstream.serdes.registry.avro import ConfluentAvro

WHOLE = "row bytes"
"""The column with the bytes of a row; no field of Avro has a space in its name."""

_SAME = ("boolean", "int", "long", "float", "double", "bytes", "string")
_TIMES = ("timestamp-micros", "local-timestamp-micros")


def checked_fields(row: Node, meaning: Logical, settings: Debezium) -> Mapping[str, str] | None:
    """The fields whose values have to be looked at, as the table's type has narrower limits, with that type.

    None: the bytes differ. ``row``: the connector's, with plain types; ``meaning``: what they mean.
    """
    serde = settings.stored
    stored = record_of(serde.form.node) if isinstance(serde, ConfluentAvro) else None
    if stored is None or [one.name for one in row.fields] != [one.name for one in stored.fields]:
        return None
    checked = {}
    for one, other in zip(row.fields, stored.fields, strict=True):
        logical = _shared(one.node, other.node, meaning.inner.get(one.name, NO_SCHEMA))
        if logical is None:
            return None
        if logical:
            checked[one.name] = logical
    return checked


def _shared(written: Node, stored: Node, meaning: Logical) -> str | None:
    """The logical type of the table's field, or no text; None: the bytes differ."""
    if "union" in (written.kind, stored.kind):
        if written.kind != stored.kind or [part.kind == "null" for part in written.parts] != [
            part.kind == "null" for part in stored.parts
        ]:
            return None
        one, other = nullable(written), nullable(stored)
        return None if one is None or other is None else _shared(one, other, meaning)
    if stored.logical in _TIMES:
        return stored.logical if written.kind == "long" and meaning.unit == "micros" else None
    if stored.logical == "date":
        return "date" if written.kind == "int" else None
    if stored.logical or written.kind not in _SAME or (written.kind == "string" and meaning.name == DECIMAL):
        return None
    return "" if written.kind == stored.kind or (written.kind, stored.kind) == ("int", "long") else None


def cut_rows(after: pl.Series, checked: Mapping[str, str], settings: Debezium) -> pa.LargeBinaryArray | None:
    """The bytes of the rows; None: one of them leaves a value out, or has a time beyond the calendar."""
    for name, logical in checked.items():
        column, (low, high) = after.struct.field(name), limits(logical)
        least, most = column.min(), column.max()
        if least is not None and not low <= least <= most < high:  # type: ignore[operator]
            return None
    made = after.struct.field(WHOLE).to_arrow().cast(arrays.LARGE_BINARY)
    if settings.unavailable and settings.unavailable_value:
        content = arrays.content(made).tobytes()
        if any(mark.encode() in content for mark in settings.marks):
            return None
    return made
