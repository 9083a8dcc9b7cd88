"""Times that columns hold and Python does not: before the year 1 and after 9999.

A column counts microseconds, so it has room for them: a time of the year 1 with an offset, moved to UTC, is in the
year 0. Neither objects nor JSON have a form for it that can be read again.
"""

from __future__ import annotations

from datetime import date, datetime, timezone
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

_FIRST, _LAST = date.min, date.max


@lru_cache(maxsize=512)
def _is_dated(dtype: Any) -> bool:
    """Whether there are dates or points in time in a column of this type."""
    if isinstance(dtype, pl.Struct):
        return any(_is_dated(field.dtype) for field in dtype.fields)
    if isinstance(dtype, pl.List | pl.Array):
        return bool(_is_dated(dtype.inner))
    return isinstance(dtype, pl.Datetime) or dtype == pl.Date


def beyond(values: pl.Series) -> np.ndarray | None:
    """Which rows have such a time somewhere; None: none has."""
    dtype = values.dtype
    if not _is_dated(dtype) or not len(values):
        return None
    if isinstance(dtype, pl.Struct):
        return _any(beyond(part) for part in values.struct.unnest().get_columns())
    if isinstance(dtype, pl.List | pl.Array):
        return _in_lists(values)
    low, high = _limits(dtype)
    counted = values.to_physical()
    least, most = counted.min(), counted.max()
    if least is None or (least >= low and most <= high):  # type: ignore[operator]
        return None
    return ((counted < low) | (counted > high)).fill_null(False).to_numpy()


def _in_lists(values: pl.Series) -> np.ndarray | None:
    frame = pl.DataFrame({"items": values}).with_row_index("row").explode("items")
    found = beyond(frame["items"])
    if found is None:
        return None
    rows = np.zeros(len(values), bool)
    rows[frame["row"].to_numpy()[found]] = True
    return rows


def _any(found: Any) -> np.ndarray | None:
    masks = [mask for mask in found if mask is not None]
    return np.logical_or.reduce(masks) if masks else None


@lru_cache(maxsize=16)
def _limits(dtype: Any) -> tuple[int, int]:
    """The first and the last that Python has, as the column counts them."""
    if dtype == pl.Date:
        epoch = date(1970, 1, 1)
        return (_FIRST - epoch).days, (_LAST - epoch).days
    per_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[dtype.time_unit]
    first, last = (
        round(datetime(day.year, day.month, day.day, tzinfo=timezone.utc).timestamp())
        for day in (_FIRST, _LAST)
    )
    return first * per_second, (last + 86_400) * per_second - 1
