"""Integers and floats as Kafka's serializers write them: big-endian, of fixed width."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays, refusals
from crossstream.serdes.serde import Bisecting, Way


class _Format(NamedTuple):
    dtype: pl.DataType
    wire: np.dtype[Any]
    packer: struct.Struct
    java: str


def _format(dtype: pl.DataType, wire: str, packing: str, java: str) -> _Format:
    return _Format(dtype, np.dtype(wire), struct.Struct(packing), java)


_FORMATS = {
    "int16": _format(pl.Int16(), ">i2", ">h", "Short"),
    "int32": _format(pl.Int32(), ">i4", ">i", "Integer"),
    "int64": _format(pl.Int64(), ">i8", ">q", "Long"),
    "float32": _format(pl.Float32(), ">f4", ">f", "Float"),
    "float64": _format(pl.Float64(), ">f8", ">d", "Double"),
}


@dataclass(frozen=True, slots=True)
class Number(Bisecting):
    """Numbers of one width. ``name``: int16, int32, int64, float32 or float64.

    Integers take `int` only (no `bool`, no `float`); floats take `int` too. A `float32` rounds, and refuses
    what is beyond its range. Every NaN is written as Kafka's one NaN (Java's ``doubleToLongBits``): arithmetic makes
    others, and keys are compared by their bytes.
    """

    only_way: ClassVar[Way] = "objects"
    name: str

    @property
    def dtype(self) -> pl.DataType:
        return _FORMATS[self.name].dtype

    @property
    def varied(self) -> bool:
        """As `Varied.varied`: other producers write other NaNs."""
        return not self._integral

    @property
    def _integral(self) -> bool:
        return self.name.startswith("int")

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        self._check_type(value)
        try:
            return _FORMATS[self.name].packer.pack(value if value == value else math.nan)
        except (struct.error, OverflowError) as error:
            raise self._out_of_range(value) from error

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        packer = _FORMATS[self.name].packer
        if len(data) != packer.size:
            raise refusals.undecodable(self.name, f"{len(data)} bytes, not {packer.size}", data)
        return packer.unpack(data)[0]

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        if len(values) <= arrays.FEW:
            return arrays.binary_rows([self.serialize(value) for value in values])
        plain = int if self._integral else float
        if not {plain, type(None)}.issuperset(map(type, values)):
            values = [None if value is None else self._python_number(value) for value in values]
        try:
            column = pl.Series(values, dtype=pl.Int64() if self._integral else pl.Float64())
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            return arrays.binary_rows([self.serialize(value) for value in values])
        return self.encode_series(column)

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        if len(data) <= arrays.FEW:
            return [self.deserialize(row) for row in data.to_pylist()]
        return self.decode_series(data).to_list()

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        column = self._narrow(values).to_arrow()
        wire = _FORMATS[self.name].wire
        numbers = column.drop_null().to_numpy().astype(wire)
        if not self._integral:
            numbers[np.isnan(numbers)] = math.nan
        return arrays.from_fixed_rows(numbers.view(np.uint8), wire.itemsize, arrays.validity(column))

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        wire = _FORMATS[self.name].wire
        rows = arrays.fixed_rows(data, wire.itemsize)
        if rows is None:
            raise refusals.undecodable(self.name, f"not all records are of {wire.itemsize} bytes")
        values: npt.NDArray[Any] = rows.view(wire).astype(wire.newbyteorder("="))
        return arrays.numeric_series(values, arrays.validity(data))

    def _check_type(self, value: object) -> None:
        takes = (int, np.integer) if self._integral else (int, float, np.integer, np.floating)
        if isinstance(value, bool | np.bool_) or not isinstance(value, takes):
            wanted = "int" if self._integral else "float"
            raise refusals.wrong_type(
                self.name,
                value,
                wanted,
                f"convert it, for instance {wanted}(value), or choose another serde",
            )

    def _python_number(self, value: Any) -> int | float:
        self._check_type(value)
        try:
            return int(value) if self._integral else float(value)
        except OverflowError as error:
            raise self._out_of_range(value) from error

    def _narrow(self, values: pl.Series) -> pl.Series:
        fits = values.dtype.is_integer() or (values.dtype.is_float() and not self._integral)
        if not fits:
            wanted = "integers" if self._integral else "numbers"
            raise refusals.wrong_column(
                self.name,
                values.dtype,
                wanted,
                f"cast in the expression: .cast(pl.{self.dtype})",
            )
        try:
            narrow = values.cast(self.dtype, strict=True)
        except pl.exceptions.PolarsError as error:
            raise self._out_of_range(_farthest(values)) from error
        if self.name == "float32":
            self._check_overflow(values, narrow)
        return narrow

    def _check_overflow(self, wide: pl.Series, narrow: pl.Series) -> None:
        before, after = wide.to_numpy().astype(np.float64), narrow.to_numpy()
        lost = np.isinf(after) & np.isfinite(before)
        if lost.any():
            raise self._out_of_range(float(before[lost][0]))

    def _out_of_range(self, value: object) -> Exception:
        java = _FORMATS[self.name].java
        return refusals.no_bytes_for(
            self.name,
            value,
            f"beyond the range of Kafka's {java}",
            "choose a wider serde",
        )


def _farthest(values: pl.Series) -> object:
    """The number farthest from zero."""
    ends: list[Any] = [values.min(), values.max()]
    return max(ends, key=abs)
