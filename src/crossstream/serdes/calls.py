"""Calls of serdes, which may be the user's own: what they raise is told as a refusal, what they give is checked.

A serde raises what Python raises for bytes that it cannot read, a ValueError for instance. That is a matter of the
record then, as with a serde of this package: whoever set ``deserialization_errors`` meant it. The checks are made once
for a column. Source: semantics 5.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError, SerdeError, told
from crossstream.serdes import refusals

if TYPE_CHECKING:
    from crossstream.serdes.serde import Serde

_BYTES = "a pyarrow.LargeBinaryArray, as pa.array(rows, pa.large_binary()) gives"


@contextmanager
def reading(serde: Serde) -> Iterator[None]:
    """What the serde raises while it reads is a `SerdeError`: CS-402, if it does not say otherwise."""
    try:
        yield
    except Exception as error:
        if _is_told(error):
            raise
        raise refusals.undecodable(serde.name, _reason(error)) from error


@contextmanager
def writing(serde: Serde) -> Iterator[None]:
    """What the serde raises while it writes is a `SerdeError`: CS-403, if it does not say otherwise."""
    try:
        yield
    except Exception as error:
        if _is_told(error):
            raise
        raise refusals.unencodable(serde.name, _reason(error)) from error


def serialize(serde: Serde, value: Any) -> bytes | None:
    with writing(serde):
        data: Any = serde.serialize(value)
    if data is None or isinstance(data, bytes):
        return data
    if not isinstance(data, bytearray | memoryview):
        raise refusals.wrong_answer(serde.name, "serialize", "bytes or None", data)
    return bytes(data)


def encode_objects(serde: Serde, values: Sequence[Any]) -> pa.LargeBinaryArray:
    with writing(serde):
        data = serde.encode_objects(values)
    return _checked(serde, "encode_objects", data, pa.LargeBinaryArray, _BYTES, len(values))


def encode_series(serde: Serde, values: pl.Series) -> pa.LargeBinaryArray:
    with writing(serde):
        data = serde.encode_series(values)
    return _checked(serde, "encode_series", data, pa.LargeBinaryArray, _BYTES, len(values))


def decode_objects(serde: Serde, data: pa.LargeBinaryArray) -> list[Any]:
    with reading(serde):
        values = serde.decode_objects(data)
    found: list[Any] = _checked(serde, "decode_objects", values, list, "a list", len(data))
    return found


def decode_series(
    serde: Serde, data: pa.LargeBinaryArray, fields: Collection[str] | None = None
) -> pl.Series:
    with reading(serde):
        series = serde.decode_series(data, fields)
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
