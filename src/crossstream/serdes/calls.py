"""Calls of serdes, which may be the user's own: what they raise is told as a refusal, what they give is checked.

A serde raises what Python raises for bytes that it cannot read, a ValueError for instance. That is a matter of the
record then, as with a serde of this package: whoever set ``deserialization_errors`` meant it. The checks are made once
for a column. Source: semantics 5.4.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError, SerdeError, told
from crossstream.serdes import refusals

if TYPE_CHECKING:
    from crossstream.serdes.serde import Serde

_BYTES = "a pyarrow.LargeBinaryArray, as pa.array(rows, pa.large_binary()) gives"


def unread(serde: Serde, error: Exception) -> Exception:
    """What the serde raised while it read, as a `SerdeError`: CS-402, if it does not say otherwise."""
    return error if _is_told(error) else _caused(refusals.undecodable(serde.name, _reason(error)), error)


def _unwritten(serde: Serde, error: Exception) -> Exception:
    """What the serde raised while it wrote, as a `SerdeError`: CS-403, if it does not say otherwise."""
    return error if _is_told(error) else _caused(refusals.unencodable(serde.name, _reason(error)), error)


def _caused(refusal: SerdeError, error: Exception) -> SerdeError:
    refusal.__cause__ = error
    return refusal


def serialize(serde: Serde, value: Any) -> bytes | None:
    try:
        data: Any = serde.serialize(value)
    except Exception as error:
        refusal = _unwritten(serde, error)
        raise refusal from refusal.__cause__
    if data is None or isinstance(data, bytes):
        return data
    if not isinstance(data, bytearray | memoryview):
        raise refusals.wrong_answer(serde.name, "serialize", "bytes or None", data)
    return bytes(data)


def encode_objects(serde: Serde, values: Sequence[Any]) -> pa.LargeBinaryArray:
    try:
        data = serde.encode_objects(values)
    except Exception as error:
        refusal = _unwritten(serde, error)
        raise refusal from refusal.__cause__
    return _checked(serde, "encode_objects", data, pa.LargeBinaryArray, _BYTES, len(values))


def encode_series(serde: Serde, values: pl.Series) -> pa.LargeBinaryArray:
    try:
        data = serde.encode_series(values)
    except Exception as error:
        refusal = _unwritten(serde, error)
        raise refusal from refusal.__cause__
    return _checked(serde, "encode_series", data, pa.LargeBinaryArray, _BYTES, len(values))


def decode_objects(serde: Serde, data: pa.LargeBinaryArray) -> list[Any]:
    try:
        values = serde.decode_objects(data)
    except Exception as error:
        refusal = unread(serde, error)
        raise refusal from refusal.__cause__
    found: list[Any] = _checked(serde, "decode_objects", values, list, "a list", len(data))
    return found


def decode_series(
    serde: Serde, data: pa.LargeBinaryArray, fields: Collection[str] | None = None
) -> pl.Series:
    try:
        series = serde.decode_series(data, fields)
    except Exception as error:
        refusal = unread(serde, error)
        raise refusal from refusal.__cause__
    found: pl.Series = _checked(serde, "decode_series", series, pl.Series, "a polars.Series", len(data))
    return found


def _is_told(error: Exception) -> bool:
    """Whether it says what is wrong as our own serdes do; or is not about the values at all."""
    if isinstance(error, SerdeError):
        return error.code != SerdeError.default_code
    return isinstance(error, MemoryError)


def _reason(error: Exception) -> str:
    return error.what if isinstance(error, CrossStreamError) else told(error)


def _checked(serde: Serde, method: str, given: Any, kind: type, wanted: str, rows: int) -> Any:
    """What the method gave, if it is of this kind and has so many rows; else CS-412."""
    if not isinstance(given, kind):
        raise refusals.wrong_answer(serde.name, method, wanted, given)
    if len(given) != rows:  # type: ignore[arg-type]
        raise refusals.wrong_count(serde.name, method, rows, len(given))  # type: ignore[arg-type]
    return given
