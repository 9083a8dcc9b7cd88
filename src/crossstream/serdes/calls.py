"""Calls of serdes: what one raises becomes a `SerdeError`; and which rows are at fault."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.errors import CrossStreamError, SerdeError, type_and_text
from crossstream.serdes import arrays, errors
from crossstream.serdes.contract import EngineSerde, Readers, Serde

Way = Literal["objects", "series"]
"""The two ways to decode a column: into Python objects, or into a Polars series."""


def find_invalid(
    serde: Serde, data: pa.LargeBinaryArray, fields: Collection[str] | None = None, way: Way | None = None
) -> list[tuple[int, str]]:
    """(row, reason) of the undecodable rows: halves the rows until the bad ones stand alone. For the error path.

    ``way`` "objects": the rows `decode_objects` refuses; "series": those ``decode_series(data, fields)`` refuses;
    None: those that either refuses (without ``dtype`` and ``fields``: the first).

    Raises `SerdeError` for what is not a matter of single rows, such as a type without column form.
    """
    found: dict[int, str] = {}
    if way != "series":
        found.update(bisected(partial(decode_objects, serde), data))
    if way == "series" or (way is None and (serde.dtype is not None or fields is not None)):
        found = {**dict(bisected(lambda part: decode_series(serde, part, fields), data)), **found}
    return sorted(found.items())


def bisected(
    decode: Callable[[pa.LargeBinaryArray], object], data: pa.LargeBinaryArray, first: int = 0
) -> list[tuple[int, str]]:
    """(row, reason) of the rows that ``decode`` refuses as undecodable. ``first``: the number of the first row."""
    try:
        decode(data)
    except SerdeError as error:
        if error.code != errors.UNDECODABLE:
            raise
        if isinstance(error, errors.UndecodableRows) and error.rows:
            wrong = np.zeros(len(data), np.bool_)
            wrong[list(error.rows)] = True
            others = arrays.nulled(data, wrong)
            known = [(first + row, reason) for row, reason in error.rows.items()]
            return sorted(known + bisected(decode, others, first))
        if len(data) <= 1:
            return [(first, error.what)]
        middle = len(data) // 2
        return bisected(decode, data[:middle], first) + bisected(decode, data[middle:], first + middle)
    return []


def serialize(serde: Serde, value: Any) -> bytes | None:
    data: bytes | None = _called(serde, errors.unencodable, serde.serialize, value)
    return data


def deserialize(serde: Serde, data: bytes) -> Any:
    return _called(serde, errors.undecodable, serde.deserialize, data)


def encode_objects(serde: Serde, values: Sequence[Any]) -> pa.LargeBinaryArray:
    return _called(serde, errors.unencodable, serde.encode_objects, values)


def encode_series(serde: Serde, values: pl.Series) -> pa.LargeBinaryArray:
    return _called(serde, errors.unencodable, serde.encode_series, values)


def decode_objects(serde: Serde, data: pa.LargeBinaryArray) -> list[Any]:
    values: list[Any] = _called(serde, errors.undecodable, serde.decode_objects, data)
    return values


def decode_series(
    serde: Serde, data: pa.LargeBinaryArray, fields: Collection[str] | None = None
) -> pl.Series:
    series: pl.Series = _called(serde, errors.undecodable, serde.decode_series, data, fields)
    return series


def decode_checked(
    serde: EngineSerde, data: pa.LargeBinaryArray, fields: Collection[str], readers: Readers
) -> pl.Series:
    series: pl.Series = _called(serde, errors.undecodable, serde.decode_checked, data, fields, readers)
    return series


def nulls(serde: EngineSerde, data: pa.LargeBinaryArray) -> Sequence[bool]:
    found: Sequence[bool] = _called(serde, errors.undecodable, serde.nulls, data)
    return found


def _error(serde: Serde, error: Exception, build: Callable[[str, str], CrossStreamError]) -> Exception:
    """What a serde raised, as a `SerdeError`, with the code of ``build`` if it does not say otherwise."""
    if isinstance(error, MemoryError):  # not about the values at all
        return error
    if isinstance(error, SerdeError) and error.code != SerdeError.default_code:
        return error
    refusal = build(serde.name, error.what if isinstance(error, CrossStreamError) else type_and_text(error))
    refusal.__cause__ = error
    return refusal


def _called(
    serde: Serde, build: Callable[[str, str], CrossStreamError], method: Callable[..., Any], *arguments: Any
) -> Any:
    try:
        return method(*arguments)
    except Exception as error:
        refusal = _error(serde, error, build)
        raise refusal from refusal.__cause__
