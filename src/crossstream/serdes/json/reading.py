"""What is derived from a declared type, once for each process: how its JSON is read, as objects or columns."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi
import pyarrow as pa

from crossstream.errors import CrossStreamError, SerdeError
from crossstream.serdes import errors
from crossstream.serdes.contract import Readers
from crossstream.serdes.json.columns import (
    Columns,
    checked,
    fields_read,
    some_fields,
)
from crossstream.serdes.json.defaults import lacks_defaults
from crossstream.serdes.json.native import native_columns
from crossstream.serdes.json.rows import (
    CHUNK,
    Decoder,
    Encoder,
    decode_row,
    decode_rows,
    with_numbers,
)
from crossstream.serdes.json.shapes import (
    Layout,
    NoColumn,
    Shape,
    StructOf,
    optional,
    rows_of,
)
from crossstream.serdes.json.types import (
    Scales,
    classes_in,
    derives_values,
    encoder_of,
    field_order,
    nodes_in,
    read_record,
    read_type,
    type_name,
    unfit_for_keys,
    with_scales,
)


class Reading(NamedTuple):
    """What is derived from a declared type, once for each process.

    ``checks``, ``column_checks``: see `checks`. ``many``: a list of rows. ``derives``: see `derives_values`.
    ``lacks_defaults``: see `defaults`; ``order``, ``encoder``, ``unfit_for_keys``: see `types`; ``number_encoder``:
    that of decimals as numbers.
    """

    name: str
    decoder: Decoder
    checks: tuple[Decoder, ...]
    column_checks: tuple[Decoder, ...]
    many: Any
    shape: Shape | NoColumn
    layout: Layout | NoColumn
    derives: bool
    lacks_defaults: bool
    order: Sequence[str]
    encoder: Encoder
    number_encoder: Encoder
    unfit_for_keys: str | None
    classes: tuple[type, ...]


@lru_cache(maxsize=256)
def reading_of(kind: Any) -> Reading:
    node = mi.type_info(kind)
    for scales in (one for one in typing.get_args(kind) if isinstance(one, Scales)):
        node = with_scales(node, dict(scales.by_path))
    layout = read_record(node)
    shape = layout.struct() if isinstance(layout, Layout) else read_type(node)[0]
    decoder = msgspec.json.Decoder(kind | None)
    return Reading(
        name=f"json[{type_name(kind)}]",
        decoder=decoder,
        checks=checks(node, shape, decoder),
        column_checks=column_checks(node, shape, decoder),
        many=rows_of(kind),
        shape=shape,
        layout=layout,
        derives=derives_values(node),
        lacks_defaults=lacks_defaults(node),
        order=field_order(node),
        encoder=encoder_of(node),
        number_encoder=with_numbers(encoder_of(node)),
        unfit_for_keys=unfit_for_keys(node),
        classes=tuple(dict.fromkeys(classes_in(node))),
    )


@lru_cache(maxsize=512)
def columns_of(kind: Any, names: frozenset[str] | None) -> Columns:
    """How columns of a Python type are decoded. Raises CS-404, CS-401."""
    reading = reading_of(kind)
    shape = reading.shape
    if names is not None and isinstance(reading.layout, Layout):
        shape = some_fields(reading.layout, names, reading.name)
    if isinstance(shape, NoColumn):
        raise errors.no_column(reading.name, shape.reason)
    if reading.derives:
        return Columns(reading.decoder, shape, rows_of(shape.wire))
    fields = shape.fields if isinstance(shape, StructOf) else ()
    is_open = names is not None or _is_open(reading.layout)
    native = native_columns(fields, shape, is_open)
    return Columns(msgspec.json.Decoder(optional(shape.wire, True)), shape, None, native=native)


def _is_open(layout: Layout | NoColumn) -> bool:
    """Whether objects may have fields that are not known."""
    return isinstance(layout, Layout) and not layout.options.get("forbid_unknown_fields")


@lru_cache(maxsize=512)
def checked_columns(kind: Any, names: frozenset[str], readers: Readers) -> Columns:
    """How columns of some fields of a Python type are decoded, while the others are checked."""
    layout = reading_of(kind).layout
    if not isinstance(layout, Layout):
        return columns_of(kind, None)
    read = fields_read(layout, names, readers)
    if reading_of(kind).derives:
        return columns_of(kind, read)
    return checked(layout, msgspec.json.Decoder(optional(layout.wire_for(read), True)), names, read, readers)


@lru_cache(maxsize=512)
def passing_decoder(kind: Any) -> Decoder:
    """Refuses the texts that the decoder of a Python type refuses. Makes small structs where it can."""
    reading = reading_of(kind)
    layout = reading.layout
    if reading.derives or not isinstance(layout, Layout):
        return reading.decoder
    if any(isinstance(field.shape, NoColumn) for field in layout.fields):
        return reading.decoder
    return msgspec.json.Decoder(optional(layout.wire_for(frozenset()), True))


_NARROWER = (mi.EnumType, mi.LiteralType, mi.UUIDType)

_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")

_UNCHECKED = (mi.StructType, mi.DataclassType, mi.NamedTupleType, mi.FloatType)


def checks(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    """The decoders that check whether written rows can be read: if the first refuses, the last one decides.

    ``whole``: the decoder of the type. A wire struct refuses what only objects hold, such as an int of 65 bits. No
    decoder: `msgspec.convert` has checked everything.
    """
    if isinstance(node, mi.FloatType) or not any(isinstance(one, _UNCHECKED) for one in nodes_in(node)):
        return ()
    return _decoders(node, shape, whole)


def column_checks(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    """As `checks`, for columns: they have text for UUIDs and Enums, and no limits."""
    return _decoders(node, shape, whole) if any(map(_is_narrower, nodes_in(node))) else ()


def _decoders(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    if isinstance(shape, NoColumn) or derives_values(node):
        return (whole,)
    return msgspec.json.Decoder(optional(shape.wire, True)), whole


def _is_narrower(node: mi.Type) -> bool:
    return isinstance(node, _NARROWER) or has_limits(node)


def has_limits(node: mi.Type) -> bool:
    """Whether a type has limits of msgspec's `Meta`, such as a greatest number."""
    return any(getattr(node, limit, None) is not None for limit in _LIMITS)


def check_rows(
    rows: pa.LargeBinaryArray, values: Iterable[Any], decoders: Iterable[Decoder], serde: str
) -> None:
    """Raises `SerdeError` (CS-401) for the first value whose row no decoder can read."""
    error: SerdeError | None = None
    for decoder in decoders:
        try:
            for start in range(0, len(rows), CHUNK):
                decode_rows(rows.slice(start, CHUNK), decoder, serde)
            return
        except SerdeError as refusal:
            error, last = refusal, decoder
    if error is not None:
        raise _unreadable(rows, values, last, serde) from error.__cause__


def _unreadable(
    rows: pa.LargeBinaryArray, values: Iterable[Any], decoder: Decoder, serde: str
) -> CrossStreamError:
    for row, value in zip(rows, values, strict=True):
        try:
            if row.is_valid:
                decode_row(row.as_py(), decoder, serde)
        except SerdeError as error:
            return errors.unreadable(serde, value, str(error.__cause__))
    raise AssertionError("rows that cannot be read together, and can one by one")
