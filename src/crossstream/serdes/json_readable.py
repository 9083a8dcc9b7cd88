"""Whether objects of a declared type that have been written can be read again.

`msgspec.convert` checks what it makes, but takes an instance of a class for what the class says, whatever its fields
hold: ``Offer(price="5")`` where the price is an int. Once it is in a store, such a row cannot be read, nor can any
table with it. So the text is decoded before it is given away: all rows in one call, as wire structs where there are
such, for these are decoded in half the time of dataclasses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import msgspec.inspect as mi
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.serdes import refusals
from crossstream.serdes.json_columns import CHUNK
from crossstream.serdes.json_rows import Decoder, decode_row, decode_rows
from crossstream.serdes.json_shapes import NoColumn, Shape, optional
from crossstream.serdes.json_types import any_node, derives_values

_NARROWER = (mi.EnumType, mi.LiteralType, mi.UUIDType)
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length")
_UNCHECKED = (mi.StructType, mi.DataclassType, mi.NamedTupleType, mi.FloatType)


def checks(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    """What decodes rows to find out whether they can be read: if the first cannot, the last one decides.

    ``whole``: the decoder of the type. A wire struct refuses what only objects hold, such as an int of 65 bits. None at
    all: `msgspec.convert` has looked at everything.
    """
    if isinstance(node, mi.FloatType) or not any_node(node, lambda one: isinstance(one, _UNCHECKED)):
        return ()
    return _decoders(node, shape, whole)


def column_checks(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    """As `checks`, of columns: they have text for UUIDs and members of Enums, and know no limits."""
    return _decoders(node, shape, whole) if any_node(node, _is_narrower) else ()


def _decoders(node: mi.Type, shape: Shape | NoColumn, whole: Decoder) -> tuple[Decoder, ...]:
    if isinstance(shape, NoColumn) or derives_values(node):
        return (whole,)
    return msgspec.json.Decoder(optional(shape.wire, True)), whole


def _is_narrower(node: mi.Type) -> bool:
    return isinstance(node, _NARROWER) or any(getattr(node, limit, None) is not None for limit in _LIMITS)


def check_rows(
    rows: pa.LargeBinaryArray, values: Iterable[Any], decoders: Iterable[Decoder], serde: str
) -> None:
    """Raises `SerdeError` (CS-401) for the first of the values whose row none of the decoders can read."""
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


def _unreadable(rows: pa.LargeBinaryArray, values: Iterable[Any], decoder: Decoder, serde: str) -> SerdeError:
    for row, value in zip(rows, values, strict=True):
        try:
            if row.is_valid:
                decode_row(row.as_py(), decoder, serde)
        except SerdeError as error:
            return refusals.unreadable(serde, value, str(error.__cause__))
    raise AssertionError("rows that cannot be read together, and can one by one")
