"""What is derived from a declared type, once for each process: how its rows and columns are read and written."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect

from crossstream.serdes import refusals
from crossstream.serdes.json_defaults import leaves_defaults
from crossstream.serdes.json_leaves import is_checked
from crossstream.serdes.json_omitted import omits_defaults
from crossstream.serdes.json_readable import checks, column_checks
from crossstream.serdes.json_rows import Decoder, Read, whole
from crossstream.serdes.json_shapes import Layout, NoColumn, Shape, optional, rows_of
from crossstream.serdes.json_spelling import Spelling, spelling
from crossstream.serdes.json_types import classes_of, derives_values, read_record, read_type, type_name
from crossstream.serdes.serde import Readers


class Columns(NamedTuple):
    """How a column is decoded: rows by ``decoder``, and the shape they then have (or are converted to).

    ``read``: what functions read of an object, now or later.
    """

    decoder: Decoder
    shape: Shape
    convert: Any
    read: Read = whole


class Reading(NamedTuple):
    """What is derived from a declared type, once for each process."""

    name: str
    decoder: Decoder
    checks: tuple[Decoder, ...]
    column_checks: tuple[Decoder, ...]
    many: Any
    shape: Shape | NoColumn
    layout: Layout | NoColumn
    derives: bool
    incomplete: bool
    omits: bool
    spelling: Spelling | None
    classes: tuple[type, ...]


@lru_cache(maxsize=256)
def reading_of(kind: Any) -> Reading:
    node = msgspec.inspect.type_info(kind)
    layout = read_record(node)
    shape = layout.struct() if isinstance(layout, Layout) else read_type(node)[0]
    decoder = msgspec.json.Decoder(kind | None)
    name, derives, incomplete = f"json[{type_name(kind)}]", derives_values(node), leaves_defaults(node)
    defaults = derives, incomplete, omits_defaults(node)
    looks = checks(node, shape, decoder), column_checks(node, shape, decoder)
    many = rows_of(kind)
    return Reading(name, decoder, *looks, many, shape, layout, *defaults, spelling(node), classes_of(node))


@lru_cache(maxsize=512)
def columns_of(kind: Any, names: frozenset[str] | None) -> Columns:
    """How columns of a Python type are decoded. Raises CS-404, CS-408."""
    reading = reading_of(kind)
    shape = reading.shape
    if names is not None and isinstance(reading.layout, Layout):
        shape = some_fields(reading.layout, names, reading.name)
    if isinstance(shape, NoColumn):
        raise refusals.no_column(reading.name, shape.reason)
    if reading.derives:
        return Columns(reading.decoder, shape, rows_of(shape.wire))
    return Columns(msgspec.json.Decoder(optional(shape.wire, True)), shape, None)


@lru_cache(maxsize=512)
def checked_columns(kind: Any, names: frozenset[str], readers: Readers) -> Columns:
    """How columns of some fields of a Python type are decoded while the others are to be what the type says."""
    layout = reading_of(kind).layout
    if not isinstance(layout, Layout):
        return columns_of(kind, None)
    read = _read(layout, names, readers)
    if reading_of(kind).derives:
        return columns_of(kind, read)
    return checked(layout, msgspec.json.Decoder(optional(layout.wire_for(read), True)), names, read, readers)


def checked(
    layout: Layout, decoder: Decoder, names: frozenset[str], fit: Collection[str], readers: Readers
) -> Columns:
    """Columns of these fields, and of those others that are to ``fit`` into columns and only a column can refuse."""
    made = [
        field.name
        for field in layout.fields
        if field.name in names
        or (field.name in fit and not is_checked(field.shape) and not isinstance(field.shape, NoColumn))
    ]
    shape = layout.struct(made)
    if isinstance(shape, NoColumn):
        raise refusals.no_column(layout.title, shape.reason)
    if readers.callables:
        return Columns(decoder, shape, None)
    read = _read(layout, names, readers)
    fields = [(field.name, attrgetter(field.attribute)) for field in layout.fields if field.name in read]
    return Columns(decoder, shape, None, lambda value: value and {name: get(value) for name, get in fields})


def _read(layout: Layout, names: frozenset[str], readers: Readers) -> frozenset[str]:
    """The fields that are read as columns, now or later."""
    known = frozenset(field.name for field in layout.fields)
    if readers.fields is not None:
        return (names | readers.fields) & known
    return names | {field.name for field in layout.fields if not isinstance(field.shape, NoColumn)}


def some_fields(layout: Layout, names: frozenset[str], serde: str) -> Shape | NoColumn:
    known = [field.name for field in layout.fields]
    if unknown := names.difference(known):
        raise refusals.unknown_fields(serde, unknown, known)
    return layout.struct(names)
