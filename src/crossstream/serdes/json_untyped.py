"""JSON without a declared type: plain dicts, lists, text and numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any, ClassVar

import msgspec
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, refusals
from crossstream.serdes.json_columns import spread
from crossstream.serdes.json_inferred import infer, infer_fields
from crossstream.serdes.json_rows import Decoder, decode_row, decode_rows, encode_row, encode_rows
from crossstream.serdes.json_shapes import nameable, optional
from crossstream.serdes.json_spelling import holds_sets, with_sets_in_order
from crossstream.serdes.json_text import json_text
from crossstream.serdes.serde import Way, find_invalid

_decoder: Decoder = msgspec.json.Decoder()
_ARRAY = ord("[")


@dataclass(frozen=True, slots=True)
class UntypedJson:
    """Any JSON value; what msgspec encodes is encoded as msgspec does it, but Decimals without exponent.

    A column's type is inferred from the values of each call; expressions get rows together that have the same types
    alone, so that a record means the same in any batch. The text ``null`` is a null. Of names that occur twice in an
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

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        return json_text(values, "json", shortest=True)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        """A column of the type the values have; with ``fields``, a struct of exactly these, sorted."""
        values, columns = self.decode_fields(data, fields)
        if columns is None:
            return infer(values, "json")
        present = [value is not None for value in values]
        dense = {name: list(compress(column, present)) for name, column in columns.items()}
        series = infer_fields(dense, sum(present), "json")
        return series if all(present) else spread(series, values)

    def decode_fields(
        self, data: pa.LargeBinaryArray, fields: Collection[str] | None
    ) -> tuple[list[Any], dict[str, list[Any]] | None]:
        """As `Inferring.decode_fields`, for objects that are records."""
        if fields is None:
            return self.decode_objects(data), None
        names = tuple(sorted(fields))
        if not all(map(nameable, names)):
            return self._picked(self.decode_objects(data), names)
        values = decode_rows(data, _fields_decoder(names), "json")
        absent = _fields_type(names)()
        rows = [absent if value is None else value for value in values] if None in values else values
        return values, {name: list(map(attrgetter(f"f{at}"), rows)) for at, name in enumerate(names)}

    def _picked(self, values: list[Any], names: tuple[str, ...]) -> tuple[list[Any], dict[str, list[Any]]]:
        """Fields of whole objects: for names that a msgspec struct cannot have."""
        if not {dict, type(None)}.issuperset(map(type, values)):
            raise refusals.undecodable("json", "not all records are objects")
        return values, {name: [(value or {}).get(name) for value in values] for name in names}

    def find_invalid(
        self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
    ) -> list[tuple[int, str]]:
        return find_invalid(self, data, fields, way)


@lru_cache(maxsize=512)
def _fields_decoder(names: tuple[str, ...]) -> Decoder:
    """Decodes these fields of an object, whatever they are, and skips the others."""
    return msgspec.json.Decoder(optional(_fields_type(names), True))


@lru_cache(maxsize=512)
def _fields_type(names: tuple[str, ...]) -> Any:
    attributes = [(f"f{at}", Any, None) for at in range(len(names))]
    renamed = {f"f{at}": name for at, name in enumerate(names)}
    return msgspec.defstruct("Fields", attributes, rename=renamed, gc=False, eq=False)
