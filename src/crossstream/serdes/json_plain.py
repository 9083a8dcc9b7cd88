"""JSON of a class that this process does not have: plain values, and the columns that the class has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError
from crossstream.serdes import arrays, refusals
from crossstream.serdes.json_typed import SchemaJson, TypedJson
from crossstream.serdes.json_untyped import UntypedJson
from crossstream.serdes.serde import Way, find_invalid

_SAMPLES: dict[type[pl.DataType], tuple[Any, Any]] = {
    pl.String: ("a", "b"),
    pl.Boolean: (False, True),
    pl.Int64: (7, 8),
    pl.Float64: (0.5, 1.5),
}
"""Two values of each type whose text depends on nothing else."""


@dataclass(frozen=True, slots=True)
class PlainJson:
    """Rows of the serde ``name``, read without its class. ``dtype``: of its columns, None if it has none.

    ``is_plain``: whether dicts of all its fields can be written, to look up keys. It never writes to a topic.
    """

    name: str
    dtype: pl.Struct | None
    is_plain: bool = False

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if self.dtype is None or not self.is_plain or not _has_all(value, self.dtype):
            raise refusals.classless(self.name, value)
        return SchemaJson(self.dtype).serialize(value)

    def deserialize(self, data: bytes | None) -> Any:
        value = UntypedJson().deserialize(data)
        if self.dtype is not None and value is not None and not isinstance(value, dict):
            raise refusals.undecodable(self.name, "it is no object", data)
        return value

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        return arrays.binary_rows(list(map(self.serialize, values)))

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return UntypedJson().decode_objects(data)

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        return self.encode_objects(values.to_list())

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        serde = UntypedJson() if self.dtype is None else SchemaJson(self.dtype)
        return serde.decode_series(data, fields)

    def find_invalid(
        self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
    ) -> list[tuple[int, str]]:
        return find_invalid(self, data, fields, way)


def is_plain(serde: TypedJson, dtype: pl.Struct) -> bool:
    """Whether the class writes what a dict of its fields has, and no more: no tag, no names or texts of its own."""
    try:
        for which in (0, 1):
            text = SchemaJson(dtype).serialize(_sample(dtype, which))
            if serde.serialize(serde.deserialize(text)) != text:
                return False
    except (CrossStreamError, KeyError):
        return False
    return True


def _sample(dtype: Any, which: int) -> Any:
    if isinstance(dtype, pl.Struct):
        return {field.name: _sample(field.dtype, which) for field in dtype.fields}
    return _SAMPLES[dtype if isinstance(dtype, type) else type(dtype)][which]


def _has_all(value: Any, dtype: pl.Struct) -> bool:
    """Whether a dict, and those in it, have every field: what is left out would be a null, or a default."""
    if not isinstance(value, dict):
        return False
    return all(
        field.name in value
        and (not isinstance(field.dtype, pl.Struct) or _has_all(value[field.name], field.dtype))
        for field in dtype.fields
    )
