"""Decimals as JSON: one text for one value, plainly, whether it is in an object or in a column (decision 0031).

msgspec writes what Python's ``str`` gives: 0E-9, 1.00E-7, 1E+3. No option changes that, and looking for Decimals in
objects of any kind costs more than writing them. But a Decimal that becomes text asks for the context of its thread,
and where there is none, makes one: objects are written in an empty one, and if it is empty still, there was no Decimal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextvars import Context
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.serdes import arrays
from crossstream.serdes.json_columns import struct_of, with_nulls_of
from crossstream.serdes.json_types import DECIMAL_DIGITS

_DIGITS = 38
"""The most a column has, before the point and after it. Numbers beyond are in objects only: as Python writes them."""

_SCALELESS = pl.Decimal(*DECIMAL_DIGITS)
"""The column of Decimals for which no scale is declared."""

_NOT_PLAIN = (re.compile(rb'E(?<=[0-9]E)[+-][0-9]+"'), re.compile(rb'-[0.]+"'))
"""What the text of a Decimal with an exponent ends with, and that of a zero with a sign; other text may as well."""

Texts = Sequence[bytes | None]


def plainly(write: Callable[[Sequence[Any]], Texts], values: Sequence[Any]) -> Texts:
    """What msgspec writes of the objects, but Decimals without exponents, whatever the context of the thread says."""
    context = Context()
    written = context.run(write, values)
    if not len(context) or all(map(_is_plain, written)):
        return written
    return Context().run(lambda: write(list(map(_with_plain_decimals, values))))


def _is_plain(text: bytes | None) -> bool:
    return text is None or not any(pattern.search(text) for pattern in _NOT_PLAIN)


def _with_plain_decimals(value: Any) -> Any:
    """An object whose JSON is the same, but with plain Decimals; itself where msgspec makes no other of it."""
    try:
        return _with_plain(msgspec.to_builtins(value, builtin_types=(Decimal,)))
    except TypeError:  # a `msgspec.Raw`
        return value


def _with_plain(value: Any) -> Any:
    kind = type(value)
    if kind is Decimal:
        return _plain(value)
    if kind is dict:
        return {_with_plain(name): _with_plain(item) for name, item in value.items()}
    return [_with_plain(item) for item in value] if kind in (list, tuple) else value


def _plain(value: Decimal) -> str:
    """Without exponent, and without the sign of a zero, as columns have it; a number that none holds as it is."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_DIGITS or value.adjusted() >= _DIGITS:
        return str(value)
    return f"{value if value else value.copy_abs():f}"


def decimals_as_text(values: pl.Series, shortest: bool) -> pl.Series:
    """The series with text in the place of Decimals.

    ``shortest``: those for which no scale is declared without zeros at the end.
    """
    dtype = values.dtype
    if not _has_decimals(dtype):
        return values
    if isinstance(dtype, pl.Struct):
        parts = {part.name: decimals_as_text(part, shortest) for part in values.struct.unnest().get_columns()}
        return with_nulls_of(struct_of(parts, len(values)), values)
    if isinstance(dtype, pl.Array):
        return decimals_as_text(values.arr.to_list(), shortest)
    if isinstance(dtype, pl.List):
        return _items_as_text(values.to_arrow(), shortest)
    text = values.cast(pl.String)
    if not shortest or dtype != _SCALELESS:
        return text
    return text.str.strip_chars_end("0").str.strip_chars_end(".")


def _items_as_text(lists: pa.LargeListArray, shortest: bool) -> pl.Series:
    items = decimals_as_text(arrays.series_of(lists.flatten()), shortest)
    ends = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False), out=ends[1:])
    made = pa.LargeListArray.from_arrays(pa.array(ends), items.to_arrow(), mask=lists.is_null())
    return arrays.series_of(made)


@lru_cache(maxsize=512)
def _has_decimals(dtype: Any) -> bool:
    if isinstance(dtype, pl.Struct):
        return any(_has_decimals(field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.List | pl.Array):
        return bool(_has_decimals(dtype.inner))
    return isinstance(dtype, pl.Decimal)
