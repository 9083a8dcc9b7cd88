"""JSON without a declared type: plain dicts, lists, text and numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, refusals
from crossstream.serdes.json_rows import Decoder, decode_row, decode_rows, encode_row, encode_rows, nulls
from crossstream.serdes.json_spelling import holds_sets, with_sets_in_order
from crossstream.serdes.json_text import json_text
from crossstream.serdes.serde import Way, find_invalid

_decoder: Decoder = msgspec.json.Decoder()
_ARRAY = ord("[")


@dataclass(frozen=True, slots=True)
class UntypedJson:
    """Any JSON value; what msgspec encodes is encoded as msgspec does it, but Decimals without exponent.

    Expressions need a declared type. The text ``null`` is a null. Of names that occur twice in an
    object, the last counts. Sets, alone or in arrays, are written sorted; those inside objects as they come: keys of
    that kind want a declared type.
    """

    name: ClassVar[str] = "json"
    dtype: ClassVar[pl.DataType | None] = None
    varied: ClassVar[bool] = True

    def serialize(self, value: Any) -> bytes | None:
        text = encode_row(value, "json")
        if text is None or text[0] != _ARRAY or not holds_sets([value]):
            return text
        return encode_row(with_sets_in_order(value), "json")

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else decode_row(data, _decoder, "json")

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        rows = encode_rows(values, "json")
        if arrays.begins_with(rows, _ARRAY) and holds_sets(values):
            return encode_rows(list(map(with_sets_in_order, values)), "json")
        return rows

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

    def find_invalid(
        self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
    ) -> list[tuple[int, str]]:
        return find_invalid(self, data, fields, way)
