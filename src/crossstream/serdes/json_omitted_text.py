"""Columns of structs with ``omit_defaults`` to JSON: what equals a default as an object is left out, by columns.

A field that some rows have and others leave out is written by itself; what all rows have, in one piece with its
neighbours; what none has, not at all; then the pieces of each row are joined. The value in the column decides, for
equal values have one text. That it is left out is known when the default, written from a column, has been read again
as an object: a Decimal 1.50 comes back as 1.5, which has another text, so that no row is without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as mi
import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.errors import SerdeError
from crossstream.serdes import arrays
from crossstream.serdes.json_columns import struct_of, to_series
from crossstream.serdes.json_omitted import is_same, omits_defaults
from crossstream.serdes.json_reading import reading_of
from crossstream.serdes.json_rows import encode_row
from crossstream.serdes.json_shapes import Field, Layout, Leaf, ListOf, column, is_tagged, optional
from crossstream.serdes.json_text import FEW, json_text, with_null_rows
from crossstream.serdes.json_types import any_node

IsLeft = Callable[[pl.Series], pl.Series]
"""Which rows of a column are left out: true, never null."""


def text_without_defaults(values: pl.Series, kind: Any, serde: str) -> pa.LargeBinaryArray | None:
    """The JSON of every row of a column of the type; None if it is to be made of objects: of few rows, or if only
    objects tell what equals a default.

    Raises `SerdeError` (CS-403).
    """
    left = _left_out(kind) if len(values) > FEW else None
    if left is None:
        return None
    parts = values.struct.unnest().get_columns()
    masks = {part.name: left[part.name](part) for part in parts if part.name in left}
    kept = [(part, _some(masks.get(part.name))) for part in parts if not _all(masks.get(part.name))]
    pieces = [
        _Piece(struct_of({part.name: part for part, _ in run}, len(values)), mask)
        for mask, run in _runs(kept)
    ]
    return with_null_rows(_joined(pieces, len(values), serde), values)


class _Piece(NamedTuple):
    """Neighbouring fields; ``left``: the rows without them, None if all rows have them."""

    fields: pl.Series
    left: pl.Series | None


def _some(mask: pl.Series | None) -> pl.Series | None:
    return mask if mask is not None and mask.any() else None


def _all(mask: pl.Series | None) -> bool:
    return mask is not None and bool(mask.all())


def _runs(kept: list[tuple[pl.Series, pl.Series | None]]) -> list[tuple[pl.Series | None, list[Any]]]:
    """Fields with their masks: each with one by itself, and those without together."""
    runs = groupby(kept, key=lambda one: None if one[1] is None else one[0].name)
    return [(run[0][1], run) for run in (list(fields) for _, fields in runs)]


def _joined(pieces: list[_Piece], rows: int, serde: str) -> pa.LargeBinaryArray:
    if len(pieces) == 1 and pieces[0].left is None:
        return json_text(pieces[0].fields, serde, shortest=True)
    texts = [_bare(piece, serde).alias(str(at)) for at, piece in enumerate(pieces)]
    if not texts:
        return arrays.text_bytes(pl.Series(["{}"]).new_from_index(0, rows))
    inner = pl.concat_str(pl.all(), separator=",", ignore_nulls=True)
    text = pl.DataFrame(texts).select(pl.concat_str(pl.lit("{"), inner, pl.lit("}")))
    return arrays.text_bytes(text.to_series())


def _bare(piece: _Piece, serde: str) -> pl.Series:
    """The JSON without its braces, null where it is left out."""
    whole = arrays.bytes_text(json_text(piece.fields, serde, shortest=True))
    bare = whole.str.strip_prefix("{").str.strip_suffix("}")
    return bare if piece.left is None else bare.set(piece.left, None)


@lru_cache(maxsize=256)
def _left_out(kind: Any) -> Mapping[str, IsLeft] | None:
    """For the fields that are left out of some rows, of which ones; None if only objects tell.

    They do where one is told from several texts, and a struct that is in another would be written with its defaults.
    """
    node, reading = mi.type_info(kind), reading_of(kind)
    if not isinstance(node, mi.StructType) or not isinstance(reading.layout, Layout):
        return None
    if reading.derives or any_node(node, lambda one: isinstance(one, mi.UUIDType)):
        return None
    if is_tagged(reading.shape) or any(omits_defaults(field.type) for field in node.fields):
        return None
    found: dict[str, IsLeft] = {}
    for info, field in zip(msgspec.structs.fields(node.cls), reading.layout.fields, strict=True):
        default = _default(info)
        if default is msgspec.NODEFAULT:
            continue
        try:
            is_left = _is_left(default, info.type, field, reading.name)
        except (SerdeError, msgspec.MsgspecError):  # a default that the type does not allow
            return None
        if is_left is None:
            return None
        found[field.name] = is_left
    return found


def _default(info: msgspec.structs.FieldInfo) -> Any:
    """The default that msgspec leaves out; of those that are made, an empty list."""
    return [] if info.default_factory is list else info.default


def _is_left(default: Any, kind: Any, field: Field, serde: str) -> IsLeft | None:
    """Which rows are left out for the default; None: only objects tell."""
    shape = column(field)
    if default is None:
        return pl.Series.is_null
    text = encode_row(default, serde) or b"null"
    wire = msgspec.json.decode(text, type=optional(shape.wire, field.nullable))
    value = to_series([wire], shape, serde)
    written = json_text(value, serde, shortest=True)[0].as_py() or b"null"
    if not is_same(msgspec.json.decode(written, type=kind), default):
        return _never
    if isinstance(shape, Leaf):
        return partial(_equals, value)
    return _is_empty if isinstance(shape, ListOf) and not len(default) else None


def _never(values: pl.Series) -> pl.Series:
    return pl.Series([False]).new_from_index(0, len(values))


def _is_empty(values: pl.Series) -> pl.Series:
    return (values.list.len() == 0).fill_null(False)


def _equals(default: pl.Series, values: pl.Series) -> pl.Series:
    equal = (values == default).fill_null(False)
    if not values.dtype.is_float() or not equal.any():
        return equal
    signs = [np.signbit(one.fill_null(0.0).to_numpy()) for one in (values, default)]
    return equal & pl.Series(np.equal(*signs))  # 0.0 and -0.0
