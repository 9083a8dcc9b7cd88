"""Columns of a table as text, back to the values that were written: one call of Polars or Arrow for each column.

The reverse of `copying.py`, by the types of the columns as crossstream writes them.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.in_postgres import JSON_FIELD, is_array, is_json, json_serde
from crossstream.errors import CrossStreamError
from crossstream.serdes.arrays import items_changed

TEXT = pa.string()
_SPAN = r"^(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?$"
"""An interval of hours and microseconds, as they are written. Days and months have no fixed length."""
_CLOCK = "1970-01-01 "


class Unread(Exception):
    """A table, or a column of it, that does not have what crossstream writes; the text says which, and why."""


def text_of(name: str, kind: pa.DataType) -> str:
    """The expression for a column, whose ``name`` is in quotes, as text that `parsed` reads."""
    return f"to_json({name}::text[])::text" if is_array(kind) else f"{name}::text"


def parsed(text: pa.Array, kind: pa.DataType, name: str) -> pl.Series:
    """The values of a column of this type. Raises `Unread` if one is of another type."""
    try:
        return _arrays(text, kind) if is_array(kind) else _values(text, kind)
    except (pa.ArrowException, pl.exceptions.PolarsError, CrossStreamError) as error:
        raise Unread(f"the column {name!r} has a value that is not {kind}") from error


def _values(text: pa.Array, kind: pa.DataType) -> pl.Series:
    if is_json(kind):
        return _json(text, kind)
    if pa.types.is_string(kind):
        return pl.Series(text)
    if pa.types.is_binary(kind):
        return pl.Series(text).str.strip_prefix("\\x").str.decode("hex")
    if pa.types.is_duration(kind):
        return _spans(pl.Series(text))
    if pa.types.is_time(kind):
        at = pc.binary_join_element_wise(_CLOCK, text, "").cast(pa.timestamp("us"))
        return pl.Series(at).dt.time()
    return pl.Series(text.cast(kind))


def _spans(text: pl.Series) -> pl.Series:
    parts = text.str.extract_groups(_SPAN).struct.unnest()
    sign, hours, minutes, seconds, rest = parts.get_columns()
    whole = (hours.cast(pl.Int64) * 60 + minutes.cast(pl.Int64)) * 60 + seconds.cast(pl.Int64)
    found = whole * 1_000_000 + rest.fill_null("0").str.pad_end(6, "0").cast(pl.Int64)
    signed = pl.select(pl.when(sign == "-").then(-found).otherwise(found)).to_series()
    if signed.null_count() > text.null_count():
        raise pl.exceptions.InvalidOperationError("an interval of days or months")
    return signed.cast(pl.Duration("us"))


def _arrays(text: pa.Array, kind: pa.DataType) -> pl.Series:
    """JSON arrays of the elements' texts."""
    lists = pl.Series(text).str.json_decode(pl.List(pl.String))
    return items_changed(lists, lambda items: _values(items.to_arrow().cast(TEXT), kind.value_type))


def _json(text: pa.Array, kind: pa.DataType) -> pl.Series:
    """JSON in any order of its fields, as Postgres keeps it."""
    whole = pc.binary_join_element_wise(f'{{"{JSON_FIELD}":', pc.fill_null(text, "null"), "}", "")
    found = json_serde(kind).decode_series(whole.cast(pa.large_binary()))
    return found.struct.field(JSON_FIELD)
