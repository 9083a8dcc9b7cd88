"""Bounds of columns: how deep their types may be, and how large their decimals."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa

from crossstream.serdes import arrays
from crossstream.serdes.json.shapes import NoColumn

DEEPEST_COLUMN = 56
"""Lists and structs of a column that are in each other: Arrow passes on 64, of which operators need some."""

MOST_DIGITS = 10_000
"""Zeros that an exponent may stand for: ``1e999999999`` is the text of a number with a billion of them."""


def is_too_deep(dtype: Any, levels: int = DEEPEST_COLUMN) -> bool:
    """Whether more than so many lists and structs are in each other."""
    if isinstance(dtype, pl.Struct):
        return levels == 0 or any(is_too_deep(one.dtype, levels - 1) for one in dtype.fields)
    if isinstance(dtype, pl.List | pl.Array):
        return levels == 0 or is_too_deep(dtype.inner, levels - 1)
    return False


TOO_DEEP = NoColumn(f"a type of more than {DEEPEST_COLUMN} lists and structs in each other")


def check_exponents(values: Iterable[Decimal | None]) -> None:
    """Raises ValueError for decimals that are far from all columns: for some of them Arrow ends the process."""
    if any(value is not None and abs(value.adjusted()) > MOST_DIGITS for value in values):
        raise ValueError(f"a decimal of more than {MOST_DIGITS} digits")


def is_decimal(dtype: Any) -> bool:
    return bool(dtype == pl.Decimal)  # an instance, or the class of which Polars makes one


def may_have_exponents(data: pa.LargeBinaryArray) -> bool:
    """Whether a number in these texts may have a negative exponent; in a text its letter may be escaped."""
    begin, end = arrays.offsets(data)[[0, -1]]
    content = arrays.content(data)[begin:end]
    if len(content) < 4096:  # where a step of numpy costs more than the search
        text = content.tobytes()
        return b"e-" in text or b"E-" in text or b"\\u" in text
    before, after = content[:-1], content[1:]
    return bool(
        (before[after == ord("-")] | 0x20 == ord("e")).any() or (after[before == ord("\\")] == ord("u")).any()
    )
