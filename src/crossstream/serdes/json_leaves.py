"""Single values of typed JSON: their Polars type, and what msgspec checks so that the column holds them."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl

from crossstream.serdes.json_shapes import Leaf, ListOf, NoColumn, Shape, StructOf, limited

_EXACT = Context(prec=100, traps=[])
"""Gives NaN for a number with more digits."""


_CHECKED = (
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32),
    *(pl.Float32, pl.Float64, pl.Boolean, pl.String),
)


def is_checked(shape: Shape | NoColumn) -> bool:
    """Whether whatever msgspec takes for the shape fits into its column, so that none need be made to find out."""
    if isinstance(shape, StructOf):
        return all(is_checked(field.shape) for field in shape.fields)
    if isinstance(shape, ListOf):
        return is_checked(shape.item)
    return isinstance(shape, Leaf) and shape.dtype in _CHECKED


def is_text(shape: Shape | NoColumn) -> bool:
    """Whether its column is text."""
    return isinstance(shape, Leaf) and shape.dtype == pl.String


def integer(dtype: pl.DataType, **limits: Any) -> Leaf:
    """An integer of the column's width; ``limits``: further ones, of msgspec's `Meta`."""
    low, high = _range(dtype)
    if limits.get("gt") is None and limits.get("ge") is None:
        limits["ge"] = low
    if dtype == pl.UInt64:  # Meta takes limits of 64 bits with a sign only
        return Leaf(dtype, limited(int, **limits), narrow=_unsigned64)
    if limits.get("lt") is None and limits.get("le") is None:
        limits["le"] = high
    return Leaf(dtype, limited(int, **limits))


def float32() -> Leaf:
    """A float of 32 bits: rounded, and refused beyond its range."""
    largest = float(np.finfo(np.float32).max)
    return Leaf(
        pl.Float32(), limited(float, ge=-largest, le=largest), narrow=lambda value: float(np.float32(value))
    )


def timestamp(unit: Any, zone: str | None) -> Leaf:
    """A point in time (with an offset in the text), or, with ``zone`` None, a local time (without one)."""
    wire = limited(datetime, tz=zone is not None)
    return Leaf(pl.Datetime(unit, zone), wire, narrow=_to_milliseconds if unit == "ms" else None)


def decimal(precision: int, scale: int) -> Leaf:
    """A decimal; one with more digits than the column has is refused, never rounded."""
    step = Decimal(1).scaleb(-scale)

    def narrow(value: Decimal) -> Decimal:
        exact = value.quantize(step, context=_EXACT) if value.is_finite() else None
        if exact is None or exact != value or len(exact.as_tuple().digits) > precision:
            raise ValueError(f"{value} is not a decimal of {precision} digits, {scale} after the point")
        return exact

    return Leaf(pl.Decimal(precision, scale), Decimal, narrow)


FLOAT64 = Leaf(pl.Float64(), float)
STRING = Leaf(pl.String(), str)
BOOLEAN = Leaf(pl.Boolean(), bool)
BINARY = Leaf(pl.Binary(), bytes)
DATE = Leaf(pl.Date(), date)
TIME = Leaf(pl.Time(), limited(time, tz=False))
DURATION = Leaf(pl.Duration("us"), timedelta)
UUID_TEXT = Leaf(pl.String(), UUID)


def _range(dtype: pl.DataType) -> tuple[int, int]:
    bits = {"8": 8, "16": 16, "32": 32, "64": 64}[str(dtype).removeprefix("U").removeprefix("Int")]
    return (0, 2**bits - 1) if dtype.is_unsigned_integer() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _unsigned64(value: int) -> int:
    if value >= 2**64:
        raise ValueError(f"{value} is beyond UInt64")
    return value


def _to_milliseconds(value: datetime) -> datetime:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)
