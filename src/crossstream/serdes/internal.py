"""The serde of tables nobody named: any Python object that stays inside the engine (decision 0005)."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, refusals, shipping
from crossstream.serdes.json_columns import spread
from crossstream.serdes.json_inferred import has_fields, infer, infer_fields, records
from crossstream.serdes.serde import Serde, Way, find_invalid

_PROTOCOL = 5


@dataclass(frozen=True, slots=True)
class Pickled:
    """Objects as Python pickles them (protocol 5), with their class if it cannot be imported.

    The bytes of equal objects may differ.
    """

    name: ClassVar[str] = "pickled"
    dtype: ClassVar[pl.DataType | None] = None

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return pickle.dumps(value, _PROTOCOL)
        except Exception:  # pickle raises whatever the object's own methods raise
            return _with_its_class(value)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return pickle.loads(data)
        except Exception as error:  # likewise
            raise refusals.undecodable("pickled", str(error), data) from error

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        return arrays.binary_rows(list(map(self.serialize, values)))

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        return list(map(self.deserialize, data.to_pylist()))

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        return self.encode_objects(values.to_list())

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        """A column of the type the objects have; with ``fields`` and records, a struct of exactly these."""
        return column_of(self.decode_objects(data), fields)

    def decode_fields(
        self, data: pa.LargeBinaryArray, fields: Collection[str] | None
    ) -> tuple[list[Any], dict[str, list[Any]] | None]:
        """As `Inferring.decode_fields`: the objects."""
        return self.decode_objects(data), None

    def find_invalid(
        self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
    ) -> list[tuple[int, str]]:
        return find_invalid(self, data, fields, way or "objects")


def column_of(values: list[Any], fields: Collection[str] | None = None, serde: str = "pickled") -> pl.Series:
    """Objects as a column of the type they have; with ``fields`` and records, a struct of exactly these.

    Raises `SerdeError`: CS-406 for objects of several types, CS-404 for a type no column is of.
    """
    present = [value for value in values if value is not None]
    kinds = list(set(map(type, present)))
    if fields is None or len(kinds) != 1 or not has_fields(kinds[0]):
        return infer(values, serde)
    rows = records(present, kinds[0], serde)
    columns = {name: [row.get(name) for row in rows] for name in sorted(fields)}
    dense = infer_fields(columns, len(present), serde)
    return dense if len(present) == len(values) else spread(dense, values)


def _with_its_class(value: Any) -> bytes:
    """A value whose class other processes cannot import, one of the application's main file for instance."""
    try:
        return shipping.dumps(value)
    except Exception as error:  # likewise
        raise refusals.unpicklable(value, str(error)) from error


def pickled() -> Serde:
    """The serde of unnamed tables; its bytes are read by the application that wrote them, and no other."""
    return Pickled()
