"""Text, bytes, booleans, UUIDs and numbers as Kafka's serializers write them."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.serdes import arrays, errors
from crossstream.serdes.contract import EngineSerde, OneByOne
from crossstream.serdes.description import Described

_UUID_TEXT = r"\A[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
_UUID_BYTES = re.compile(_UUID_TEXT.replace(r"\z", r"\Z").encode())
_NOT_UUID = "not the 36 characters of a UUID"


@dataclass(frozen=True, slots=True)
class String(EngineSerde):
    """Text as UTF-8."""

    name: ClassVar[str] = "string"
    dtype: ClassVar[pl.DataType] = pl.String()

    def described(self) -> Described:
        return Described(self.name, "known")

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise errors.wrong_type("string", value, "str", "convert it first, for instance str(value)")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise _no_utf8(value) from error

    def deserialize(self, data: bytes | None) -> str | None:
        if data is None:
            return None
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise errors.undecodable("string", "not UTF-8", data) from error

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        if not {str, type(None)}.issuperset(map(type, values)):
            return arrays.binary_rows(list(map(self.serialize, values)))
        try:
            return pa.array(values, pa.large_string()).view(arrays.LARGE_BINARY)
        except (UnicodeEncodeError, pa.ArrowInvalid) as error:
            raise _no_utf8(values) from error

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[str | None]:
        if len(data) <= arrays.FEW:
            return list(map(self.deserialize, data.to_pylist()))
        try:
            texts: list[str | None] = data.cast(pa.large_string()).to_pylist()
        except pa.ArrowInvalid as error:
            raise errors.undecodable("string", "not UTF-8") from error
        return texts

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        if values.dtype not in (pl.String, pl.Categorical, pl.Enum):
            raise errors.wrong_column("string", values.dtype, "String", "cast with .cast(pl.String)")
        return arrays.text_bytes(values.cast(pl.String))

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        try:
            return pl.Series(data.cast(pa.large_string()))
        except pa.ArrowInvalid as error:
            raise errors.undecodable("string", "not UTF-8") from error


def _no_utf8(value: object) -> Exception:
    next = "clean it, for instance with value.encode('utf-8', 'replace')"
    return errors.no_bytes_for("string", value, "it holds a lone surrogate", next)


@dataclass(frozen=True, slots=True)
class Bytes(EngineSerde):
    """Bytes, unchanged."""

    name: ClassVar[str] = "bytes"
    dtype: ClassVar[pl.DataType] = pl.Binary()

    def described(self) -> Described:
        return Described(self.name, "known")

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, bytes | bytearray | memoryview):
            raise errors.wrong_type("bytes", value, "bytes", "encode it first, for instance value.encode()")
        return bytes(value)

    def deserialize(self, data: bytes | None) -> bytes | None:
        return data

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        if {bytes, type(None)}.issuperset(map(type, values)):
            return arrays.binary_rows(values)
        return arrays.binary_rows(list(map(self.serialize, values)))

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[bytes | None]:
        rows: list[bytes | None] = data.to_pylist()
        return rows

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        if values.dtype != pl.Binary:
            raise errors.wrong_column("bytes", values.dtype, "Binary", "cast with .cast(pl.Binary)")
        return values.to_arrow().cast(arrays.LARGE_BINARY)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        return pl.Series(data)


@dataclass(frozen=True, slots=True)
class Boolean(OneByOne):
    """One byte: 0 or 1."""

    name: ClassVar[str] = "boolean"
    dtype: ClassVar[pl.DataType] = pl.Boolean()

    def described(self) -> Described:
        return Described(self.name, "known")

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, bool | np.bool_):
            raise errors.wrong_type("boolean", value, "bool", "convert it first, for instance bool(value)")
        return b"\x01" if value else b"\x00"

    def deserialize(self, data: bytes | None) -> bool | None:
        if data is None:
            return None
        if data not in (b"\x00", b"\x01"):
            raise errors.undecodable("boolean", "not one byte 0 or 1", data)
        return data == b"\x01"

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        if values.dtype != pl.Boolean:
            raise errors.wrong_column("boolean", values.dtype, "Boolean", "cast with .cast(pl.Boolean)")
        column = values.to_arrow()
        rows = column.drop_null().to_numpy(zero_copy_only=False).view(np.uint8)
        return arrays.from_fixed_rows(rows, 1, arrays.validity(column))

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        rows = arrays.fixed_rows(data, 1)
        if rows is None or (rows > 1).any():
            raise errors.undecodable("boolean", "not all records are one byte 0 or 1")
        return arrays.numeric_series(rows.astype(np.bool_), arrays.validity(data))


@dataclass(frozen=True, slots=True)
class Uuid(OneByOne):
    """A UUID as text of 36 characters, written in lower case (Kafka's UUIDSerializer).

    Objects are `uuid.UUID`, columns the text. The shorter notations that Java's ``UUID.fromString`` would
    take as well are refused.
    """

    name: ClassVar[str] = "uuid"
    dtype: ClassVar[pl.DataType] = pl.String()
    varied: ClassVar[bool] = True

    def described(self) -> Described:
        return Described(self.name, "known")

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, UUID):
            raise errors.wrong_type("uuid", value, "uuid.UUID", "convert it: uuid.UUID(value)")
        return str(value).encode()

    def deserialize(self, data: bytes | None) -> UUID | None:
        if data is None:
            return None
        if not _UUID_BYTES.match(data):
            raise errors.undecodable("uuid", _NOT_UUID, data)
        return UUID(data.decode())

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        if values.dtype == pl.Null:
            return arrays.null_rows(len(values))
        if values.dtype != pl.String:
            raise errors.wrong_column("uuid", values.dtype, "String", "cast with .cast(pl.String)")
        text = values.to_arrow().cast(pa.large_string())
        if (wrong := _first_not_uuid(text)) is not None:
            raise errors.no_bytes_for("uuid", wrong, _NOT_UUID, "write it as str(uuid.UUID(value))")
        return pc.utf8_lower(text).view(arrays.LARGE_BINARY)

    def decode_series(self, data: pa.LargeBinaryArray, fields: Collection[str] | None = None) -> pl.Series:
        try:
            text = data.cast(pa.large_string())
        except pa.ArrowInvalid as error:
            raise errors.undecodable("uuid", "not UTF-8") from error
        if (wrong := _first_not_uuid(text)) is not None:
            raise errors.undecodable("uuid", _NOT_UUID, wrong.encode())
        return pl.Series(pc.utf8_lower(text))


def _first_not_uuid(text: pa.LargeStringArray) -> str | None:
    fits = pc.match_substring_regex(text, _UUID_TEXT)
    wrong = None if fits.false_count == 0 else text.filter(pc.invert(fits))
    return None if wrong is None else wrong[0].as_py()


class _Format(NamedTuple):
    dtype: pl.DataType
    wire: np.dtype[Any]
    packer: struct.Struct
    java: str


_FORMATS = {
    "int16": _Format(pl.Int16(), np.dtype(">i2"), struct.Struct(">h"), "Short"),
    "int32": _Format(pl.Int32(), np.dtype(">i4"), struct.Struct(">i"), "Integer"),
    "int64": _Format(pl.Int64(), np.dtype(">i8"), struct.Struct(">q"), "Long"),
    "float32": _Format(pl.Float32(), np.dtype(">f4"), struct.Struct(">f"), "Float"),
    "float64": _Format(pl.Float64(), np.dtype(">f8"), struct.Struct(">d"), "Double"),
}


@dataclass(frozen=True, slots=True)
class Number(EngineSerde):
    """Numbers of one width. ``name``: int16, int32, int64, float32 or float64.

    Integers take `int` only (no `bool`, no `float`); floats take `int` too. A `float32` rounds, and refuses
    what is beyond its range. Every NaN is written as Kafka's one NaN (Java's ``doubleToLongBits``): arithmetic makes
    others, and keys are compared by their bytes.
    """

    name: str

    @property
    def dtype(self) -> pl.DataType:
        return _FORMATS[self.name].dtype

    @property
    def varied(self) -> bool:
        """As `EngineSerde.varied`: other producers write other NaNs."""
        return not self._integral

    @property
    def _integral(self) -> bool:
        return self.name.startswith("int")

    def described(self) -> Described:
        return Described(self.name, "known")

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
            raise errors.undecodable(self.name, f"{len(data)} bytes, not {packer.size}", data)
        return packer.unpack(data)[0]

    def encode_objects(self, values: Sequence[Any]) -> pa.LargeBinaryArray:
        plain = int if self._integral else float
        if len(values) <= arrays.FEW or not {plain, type(None)}.issuperset(map(type, values)):
            return arrays.binary_rows(list(map(self.serialize, values)))
        try:
            column = pl.Series(values, dtype=pl.Int64() if self._integral else pl.Float64())
        except (TypeError, OverflowError, pl.exceptions.PolarsError):
            return arrays.binary_rows(list(map(self.serialize, values)))
        return self.encode_series(column)

    def decode_objects(self, data: pa.LargeBinaryArray) -> list[Any]:
        if len(data) <= arrays.FEW:
            return list(map(self.deserialize, data.to_pylist()))
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
            raise errors.undecodable(self.name, f"not all records are of {wire.itemsize} bytes")
        values: npt.NDArray[Any] = rows.view(wire).astype(wire.newbyteorder("="))
        return arrays.numeric_series(values, arrays.validity(data))

    def _check_type(self, value: object) -> None:
        takes = (int, np.integer) if self._integral else (int, float, np.integer, np.floating)
        if isinstance(value, bool | np.bool_) or not isinstance(value, takes):
            wanted = "int" if self._integral else "float"
            next = f"convert it, for instance {wanted}(value), or choose another serde"
            raise errors.wrong_type(self.name, value, wanted, next)

    def _narrow(self, values: pl.Series) -> pl.Series:
        fits = values.dtype.is_integer() or (values.dtype.is_float() and not self._integral)
        if not fits:
            wanted = "integers" if self._integral else "numbers"
            next = f"cast in the expression: .cast(pl.{self.dtype})"
            raise errors.wrong_column(self.name, values.dtype, wanted, next)
        try:
            narrow = values.cast(self.dtype, strict=True)
        except pl.exceptions.PolarsError as error:
            raise self._out_of_range(_farthest(values)) from error
        if self.name == "float32":
            lost = narrow.is_infinite() & values.cast(pl.Float64).is_finite()
            if lost.any():
                raise self._out_of_range(values.filter(lost)[0])
        return narrow

    def _out_of_range(self, value: object) -> Exception:
        reason = f"beyond the range of Kafka's {_FORMATS[self.name].java}"
        return errors.no_bytes_for(self.name, value, reason, "choose a wider serde")


def _farthest(values: pl.Series) -> object:
    """The number farthest from zero."""
    ends: list[Any] = [values.min(), values.max()]
    return max(ends, key=abs)
