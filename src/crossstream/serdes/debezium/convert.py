"""Columns as a connector writes them, to columns of the declared types.

A connector writes dates as days, times and timestamps as numbers, decimals as bytes. What a number means is in the
name of its schema; where records have no schema, the settings of the table say it. Everything here works on columns.
Source: Debezium's reference, "Data type mappings" of each connector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.serdes import arrays, errors
from crossstream.serdes.json.shapes import instance_of

_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."

_UNITS: Mapping[str, str] = MappingProxyType(
    {
        f"{_DEBEZIUM}Time": "millis",
        f"{_CONNECT}Time": "millis",
        f"{_DEBEZIUM}MicroTime": "micros",
        f"{_DEBEZIUM}NanoTime": "nanos",
        f"{_DEBEZIUM}Timestamp": "millis",
        f"{_CONNECT}Timestamp": "millis",
        f"{_DEBEZIUM}MicroTimestamp": "micros",
        f"{_DEBEZIUM}NanoTimestamp": "nanos",
        f"{_DEBEZIUM}MicroDuration": "micros",
        f"{_DEBEZIUM}NanoDuration": "nanos",
    }
)
"""What a number counts, by the name of its schema."""

DECIMAL = f"{_CONNECT}Decimal"
"""The schema of a decimal as bytes: the unscaled number, big-endian."""

DIGITS = "digits"
"""The schema of numbers that are text."""

NOT_FINITE: Mapping[str, float] = MappingProxyType(
    {sign + text: float(sign + text) for sign in ("", "-") for text in ("NaN", "Infinity", "infinity")}
)
"""What Postgres has for numbers, and for dates and times, that are not finite."""

_WIDTH = 16
"""Bytes of a decimal of 38 digits."""


@dataclass(frozen=True, slots=True)
class Logical:
    """What the schema of a column says. ``name``: of the type; ``inner``: of the fields; ``item``: of a list."""

    name: str | None = None
    scale: int | None = None
    inner: Mapping[str, Logical] = field(default_factory=dict, hash=False)
    item: Logical | None = None

    @property
    def unit(self) -> str | None:
        return _UNITS.get(self.name or "")


NO_SCHEMA = Logical()


def convert(raw: pl.Series, dtype: pl.DataType, logical: Logical, path: str) -> pl.Series:
    """The column in the declared type. Raises `SerdeError` (CS-402) if a value does not fit."""
    if raw.dtype == pl.Null:
        return arrays.null_series(len(raw), dtype)
    if raw.dtype == pl.String and (dtype.is_numeric() or dtype.is_temporal()):
        raw = _finite(raw, dtype, logical, path)
    try:
        made = _converted(raw, dtype, logical, path)
    except (pa.ArrowException, pl.exceptions.PolarsError, OverflowError, ValueError) as error:
        raise misfit(path, dtype, raw.dtype, str(error)) from error
    if made is None:
        raise misfit(path, dtype, raw.dtype)
    return made


def _finite(raw: pl.Series, dtype: pl.DataType, logical: Logical, path: str) -> pl.Series:
    """Texts, of which only those of floats may be NaN or infinite."""
    odd = raw.is_in(list(NOT_FINITE))
    if not odd.any() or (
        logical.name == DECIMAL and logical.scale is not None
    ):  # base64, which may be such a word
        return raw
    if dtype.is_float():
        texts = {text: str(number) for text, number in NOT_FINITE.items()}
        return raw.replace(texts).cast(dtype, strict=True)
    other = "float or str" if dtype.is_numeric() else "str"
    raise bad(
        f"field {path} is declared as a column of {dtype}, which has no {raw.filter(odd)[0]}: declare it as {other}"
    )


def is_bytes(dtype: Any) -> bool:
    """Whether it is the type of bytes, or of lists of them."""
    return is_bytes(instance_of(dtype.inner)) if isinstance(dtype, pl.List) else bool(dtype == pl.Binary)


def misfit(path: str, wanted: object, given: object, reason: str = "") -> CrossStreamError:
    more = f" ({reason})" if reason else ""
    return bad(f"field {path} is declared as a column of {wanted}, and the record has {given}{more}")


def bad(reason: str) -> CrossStreamError:
    """A record that is no change of a row."""
    return refuse(errors.UNDECODABLE, reason, "check the type, and the settings of cs.debezium(…)")


def _converted(raw: pl.Series, dtype: pl.DataType, logical: Logical, path: str) -> pl.Series | None:
    if isinstance(dtype, pl.Struct):
        return _struct(raw, dtype, logical, path)
    if isinstance(dtype, pl.List):
        return _list(raw, dtype, logical, path)
    if dtype == pl.String:
        return _text(raw, logical)
    if raw.dtype == dtype:
        return raw
    if isinstance(raw.dtype, pl.Struct) and {"scale", "value"} <= set(raw.struct.fields):
        return _number(_of_any_scale(raw), dtype, Logical(DIGITS), path)
    if isinstance(raw.dtype, pl.Decimal):
        return pl.Series(_rescaled(raw.to_arrow(), dtype))
    if isinstance(dtype, pl.Date | pl.Datetime | pl.Time | pl.Duration):
        return _time(raw, dtype, logical, path)
    if dtype == pl.Binary:
        return _bytes(raw, logical) if raw.dtype == pl.String else None
    if dtype == pl.Boolean:
        return _boolean(raw)
    if isinstance(dtype, pl.Decimal) or dtype.is_numeric():
        return _number(raw, dtype, logical, path)
    return None


def _struct(raw: pl.Series, dtype: pl.Struct, logical: Logical, path: str) -> pl.Series | None:
    if not isinstance(raw.dtype, pl.Struct):
        return None
    given = {part.name: part for part in raw.struct.unnest().get_columns()}
    nothing = arrays.null_series(len(raw), pl.Null())
    parts = {
        one.name: convert(
            given.get(one.name, nothing),
            instance_of(one.dtype),
            logical.inner.get(one.name, NO_SCHEMA),
            f"{path}.{one.name}",
        )
        for one in dtype.fields
    }
    return arrays.with_nulls_of(arrays.struct_of(parts, len(raw)), raw)


def _list(raw: pl.Series, dtype: pl.List, logical: Logical, path: str) -> pl.Series | None:
    if not isinstance(raw.dtype, pl.List):
        return None
    inner, item = instance_of(dtype.inner), logical.item or NO_SCHEMA
    return arrays.items_changed(raw, lambda items: convert(items, inner, item, f"{path}[]"))


_PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}


def _time(raw: pl.Series, dtype: Any, logical: Logical, path: str) -> pl.Series | None:
    if isinstance(raw.dtype, pl.Datetime | pl.Time | pl.Duration | pl.Date):
        return _of_time(raw, dtype)
    if raw.dtype == pl.String:
        return _of_text(raw, dtype)
    if not raw.dtype.is_integer():
        return None
    if isinstance(dtype, pl.Date):
        return raw.cast(pl.Int32, strict=True).cast(pl.Date)
    if logical.unit is None and logical.name is not None:
        kind = logical.name.rpartition(".")[2]
        raise bad(
            f"field {path} is a {logical.name}, and declared as a column of {dtype}: "
            f"declare it as {'date' if kind == 'Date' else 'int'}"
        )
    if logical.unit is None:
        raise bad(
            f"field {path} is the number {raw.drop_nulls()[0]}, and nothing says whether it counts milliseconds, "
            f'microseconds or nanoseconds: give units={{"{path}": "micros"}}'
        )
    numbers = raw.cast(pl.Int64, strict=True)
    if isinstance(dtype, pl.Time):
        return (numbers * (10**9 // _PER_SECOND[logical.unit])).cast(pl.Time, strict=True)
    return _counted(numbers, logical.unit, dtype)


def _counted(numbers: pl.Series, unit: str, dtype: Any) -> pl.Series:
    """Numbers since the epoch, or lengths of time, in the unit of the type; smaller parts are cut off."""
    have, want = _PER_SECOND[unit], {"ms": 10**3, "us": 10**6, "ns": 10**9}[dtype.time_unit]
    if want >= have:
        limit = np.iinfo(np.int64).max // (want // have)
        if len(numbers.drop_nulls()) and not (numbers.abs() <= limit).all():
            raise ValueError("beyond what the column holds")
        scaled = numbers * (want // have)
    else:
        scaled = numbers // (have // want)
    return scaled.cast(dtype)


def _of_time(raw: pl.Series, dtype: Any) -> pl.Series:
    """Times that are decoded already, as Avro's are."""
    if isinstance(raw.dtype, pl.Datetime) and isinstance(dtype, pl.Datetime):
        wanted = raw.dt.cast_time_unit(dtype.time_unit)
        return (
            wanted.dt.replace_time_zone(dtype.time_zone)
            if raw.dtype.time_zone is None
            else wanted.cast(dtype)
        )
    return raw.cast(dtype, strict=True)


_OFFSET = r"(?:Z|[+-]\d\d:?\d\d)$"


def _of_text(raw: pl.Series, dtype: Any) -> pl.Series | None:
    """ISO text, with an offset or without one, which is then UTC."""
    if isinstance(dtype, pl.Date):
        return raw.str.strip_suffix("Z").str.to_date("%Y-%m-%d", strict=True)
    if isinstance(dtype, pl.Time):
        return raw.str.replace(_OFFSET, "").str.to_time("%H:%M:%S%.f", strict=True)
    if not isinstance(dtype, pl.Datetime):
        return None
    try:  # as connectors write it
        times = raw.str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit=dtype.time_unit, strict=True)
        return times.dt.replace_time_zone(dtype.time_zone and "UTC")
    except pl.exceptions.PolarsError:
        return _with_offsets(raw, dtype)


def _with_offsets(raw: pl.Series, dtype: Any) -> pl.Series:
    text = (
        raw.str.replace(r"Z$", "+00:00")
        .str.replace(r"^(\S+) ", "${1}T")
        .str.replace(r"T(\d\d:\d\d)([+-]|$)", "T${1}:00${2}")
    )
    has_offset = text.str.contains(r"[+-]\d\d:?\d\d$")
    if not has_offset.all():
        text = pl.select(pl.when(has_offset).then(text).otherwise(text + "+00:00")).to_series()
    times = text.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit=dtype.time_unit, strict=True)
    return (
        times.dt.replace_time_zone(None)
        if dtype.time_zone is None
        else times.dt.convert_time_zone(dtype.time_zone)
    )


def _bytes(raw: pl.Series, logical: Logical) -> pl.Series:
    if logical.name == "hex":
        return raw.str.decode("hex", strict=True)
    if logical.name == "base64-url-safe":
        raw = raw.str.replace_all("-", "+", literal=True).str.replace_all("_", "/", literal=True)
    return raw.str.decode("base64", strict=True)


def _boolean(raw: pl.Series) -> pl.Series | None:
    """MySQL writes BOOLEAN as 0 or 1."""
    if not raw.dtype.is_integer() or not raw.drop_nulls().is_in([0, 1]).all():
        return None
    return raw.cast(pl.Boolean)


def _text(raw: pl.Series, logical: Logical) -> pl.Series | None:
    if logical.name == DECIMAL and raw.dtype in (pl.String, pl.Binary):
        return pl.Series(pc.cast(_unscaled(raw, logical.scale or 0), pa.large_string()))
    if isinstance(raw.dtype, pl.Decimal):
        return pl.Series(_rescaled(raw.to_arrow(), pl.String()))
    if isinstance(raw.dtype, pl.Enum | pl.Categorical):
        return raw.cast(pl.String)
    return raw if raw.dtype == pl.String else None


def _number(raw: pl.Series, dtype: pl.DataType, logical: Logical, path: str) -> pl.Series | None:
    if raw.dtype in (pl.String, pl.Binary):
        if logical.name == DECIMAL:
            if logical.scale is None:
                raise bad(
                    f"field {path} is a decimal as bytes, and nothing says how many digits are after the point: "
                    f'give scales={{"{path}": 2}}, or set decimal.handling.mode=string on the connector'
                )
            return pl.Series(_rescaled(_unscaled(raw, logical.scale), dtype))
        if raw.dtype == pl.Binary:
            return None
        if isinstance(dtype, pl.Decimal):
            return pl.Series(pc.cast(raw.to_arrow(), _arrow_decimal(dtype)))
        return raw.cast(dtype, strict=True)
    if isinstance(dtype, pl.Decimal):
        if raw.dtype.is_float():
            raw = raw.cast(pl.String)
        return pl.Series(pc.cast(raw.to_arrow(), _arrow_decimal(dtype)))
    if dtype.is_float():
        return raw.cast(dtype, strict=True) if raw.dtype.is_numeric() else None
    if not raw.dtype.is_integer():
        return None
    if (
        dtype == pl.UInt64 and raw.dtype == pl.Int64
    ):  # a connector writes numbers from 2**63 on as negative ones
        return (
            pl.Series(raw.to_numpy().view(np.uint64))
            if not raw.null_count()
            else raw.reinterpret(signed=False)
        )
    return raw.cast(dtype, strict=True)


def _of_any_scale(raw: pl.Series) -> pl.Series:
    """Decimals that have their scales beside them, as text."""
    return pl.Series(
        [None if one is None else digits(one["value"], one["scale"]) for one in raw.to_list()],
        dtype=pl.String,
    )


def digits(unscaled: bytes, scale: int) -> str:
    number = Decimal(int.from_bytes(unscaled, "big", signed=True))
    return format(number.scaleb(-int(scale), Context(prec=200)), "f")


def _arrow_decimal(dtype: Any) -> pa.DataType:
    return pa.decimal128(dtype.precision or 38, dtype.scale)


def _rescaled(numbers: pa.Array, dtype: pl.DataType) -> pa.Array:
    """Exact: a cast that loses digits raises."""
    if isinstance(dtype, pl.Decimal):
        return pc.cast(numbers, _arrow_decimal(dtype))
    if dtype == pl.String:
        return pc.cast(numbers, pa.large_string())
    return pc.cast(numbers, pl.Series([], dtype=dtype).to_arrow().type)


def _unscaled(raw: pl.Series, scale: int) -> pa.Array:
    """Decimals of unscaled numbers in big-endian bytes, or in the base64 of such bytes."""
    if not 0 <= scale <= 38:
        raise ValueError(f"{scale} digits after the point")
    data = (raw.str.decode("base64", strict=True) if raw.dtype == pl.String else raw).to_arrow()
    begins, ends = arrays.offsets(data)[:-1], arrays.offsets(data)[1:]
    content, sizes = arrays.content(data), ends - begins
    there = data.is_valid().to_numpy(zero_copy_only=False)
    if ((sizes > _WIDTH) | (sizes == 0))[there].any():
        raise ValueError("a decimal of more than 38 digits, or of none")
    numbers = np.zeros((len(data), _WIDTH), np.uint8)
    signed = np.flatnonzero(there & (sizes > 0))
    numbers[signed[content[begins[signed]] >= 0x80]] = 0xFF
    for place in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(there & (sizes > place))
        numbers[rows, place] = content[ends[rows] - 1 - place]
    made = pa.Array.from_buffers(
        pa.decimal128(38, scale), len(data), [data.is_valid().buffers()[1], pa.py_buffer(numbers)]
    )
    made.validate(full=True)
    return made
