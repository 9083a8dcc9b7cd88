"""What is derived from a declared type, once for each process: how its rows and columns are read and written."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect

from crossstream.serdes import refusals
from crossstream.serdes.json_defaults import leaves_defaults
from crossstream.serdes.json_leaves import is_checked
from crossstream.serdes.json_omitted import omits_defaults
from crossstream.serdes.json_readable import checks, column_checks
from crossstream.serdes.json_rows import Decoder
from crossstream.serdes.json_shapes import Layout, NoColumn, Shape, optional, rows_of
from crossstream.serdes.json_spelling import Spelling, spelling
from crossstream.serdes.json_types import classes_of, derives_values, read_record, read_type, type_name


class Columns(NamedTuple):
    """How a column is decoded: rows by ``decoder``, and the shape they then have (or are converted to)."""

    decoder: Decoder
    shape: Shape
    convert: Any


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
def checked_columns(kind: Any, names: frozenset[str]) -> Columns:
    """How columns of some fields of a Python type are decoded while all of them are looked at."""
    whole, layout = columns_of(kind, None), reading_of(kind).layout
    if whole.convert is not None or not isinstance(layout, Layout):
        return whole
    return whole._replace(shape=with_unchecked(layout, names))


def with_unchecked(layout: Layout, names: frozenset[str]) -> Shape:
    """The struct of those fields, and of the others that only a column can refuse."""
    wanted = [field.name for field in layout.fields if field.name in names or not is_checked(field.shape)]
    shape = layout.struct(wanted)
    assert not isinstance(shape, NoColumn)
    return shape


def some_fields(layout: Layout, names: frozenset[str], serde: str) -> Shape | NoColumn:
    known = [field.name for field in layout.fields]
    if unknown := names.difference(known):
        raise refusals.unknown_fields(serde, unknown, known)
    return layout.struct(names)
