"""JSON without a declared type: plain dicts, lists, text and numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, refusals
from crossstream.serdes.json_rows import (
    Decoder,
    decode_row,
    decode_rows,
    encode_row,
    encode_rows,
    nulls,
)
from crossstream.serdes.json_text import json_text
from crossstream.serdes.serde import Bisecting

_decoder: Decoder = msgspec.json.Decoder()
_ARRAY = ord("[")
_SETS = frozenset({set, frozenset})


@dataclass(frozen=True, slots=True)
class UntypedJson(Bisecting):
    """Any JSON value; what msgspec encodes is encoded as msgspec does it.

    Expressions need a declared type. The text ``null`` is a null. Of names that occur twice in an object, the last
    counts. A set is written sorted, but as it comes where it is inside something else: such keys need a declared type.
    """

    name: ClassVar[str] = "json"
    dtype: ClassVar[pl.DataType | None] = None
    varied: ClassVar[bool] = True

    def serialize(self, value: Any) -> bytes | None:
        return encode_row(_listed(value), "json")

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else decode_row(data, _decoder, "json")

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        rows = encode_rows(values, "json")
        if not arrays.begins_with(rows, _ARRAY) or _SETS.isdisjoint(map(type, values)):
            return rows
        return encode_rows(list(map(_listed, values)), "json")

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return decode_rows(data, _decoder, "json")

    def nulls(self, data: pa.LargeBinaryArray) -> Sequence[bool]:
        """As `Passing.nulls`."""
        return nulls(data, _decoder, "json")

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        return json_text(values, "json", shortest=True)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        """A column of the type that Arrow reads off the values. Raises `SerdeError` (CS-404) if there is none."""
        try:
            return arrays.series_of(pa.array(self.decode_objects(data)))
        except (pa.ArrowException, OverflowError, RecursionError, pl.exceptions.PolarsError) as error:
            raise refusals.mixed_types("json", error) from error


def _listed(value: Any) -> Any:
    """A set as a list in an order that depends on nothing but its items; anything else unchanged."""
    if type(value) not in _SETS:
        return value
    try:
        return sorted(value)
    except TypeError:  # of items of several types, or without an order
        return sorted(value, key=repr)
