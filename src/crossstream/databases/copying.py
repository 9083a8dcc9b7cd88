"""Rows as the CSV that COPY reads: one call of Polars for each column, and none for each row.

An empty field is null; text is always in quotes. JSON is what `serdes.json` writes into a topic, with decimals as
numbers.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.in_postgres import JSON_FIELD, is_array, is_json, json_serde

ROWS = 32_768
"""As many rows are text at a time."""
_TIME = "%H:%M:%S%.6f"
_DATE_AND_TIME = f"%Y-%m-%d {_TIME}"


def csv_of(rows: pa.Table) -> Iterator[bytes]:
    """The rows in parts, each of whole lines. Times with a zone are in UTC, and do not say so."""
    for start in range(0, rows.num_rows, ROWS):
        part = rows.slice(start, ROWS).combine_chunks()
        columns = [_written(column.combine_chunks()).alias(str(at)) for at, column in enumerate(part.columns)]
        out = io.BytesIO()
        pl.DataFrame(columns).write_csv(out, include_header=False, quote_style="non_numeric")
        yield out.getvalue()


def _written(column: pa.Array) -> pl.Series:
    """The values as numbers and texts that Postgres reads in the type of the column."""
    kind = column.type
    if is_array(kind):
        return _arrays(column)
    if is_json(kind):
        return _json(column)
    series = pl.Series(column)
    if pa.types.is_binary(kind):
        return "\\x" + series.bin.encode("hex")
    if pa.types.is_duration(kind):
        return series.dt.total_microseconds().cast(pl.String) + " microseconds"
    if pa.types.is_timestamp(kind):
        return series.dt.strftime(_DATE_AND_TIME)
    if pa.types.is_time(kind):
        return series.dt.strftime(_TIME)
    return series.cast(pl.String) if pa.types.is_date(kind) else series


def _arrays(column: pa.Array) -> pl.Series:
    """``{"a",NULL}``: every element in quotes, for a comma or a brace may be in it."""
    text = _written(column.flatten()).cast(pl.String)
    text = text.str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True)
    element = ('"' + text + '"').fill_null("NULL")
    ends = np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy())
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    lists = pl.Series(pa.ListArray.from_arrays(offsets, element.to_arrow().cast(pa.string())))
    written = "{" + lists.list.join(",") + "}"
    return pl.select(pl.when(pl.Series(column.is_valid())).then(written)).to_series()


def _json(column: pa.Array) -> pl.Series:
    """The text of each value."""
    whole = json_serde(column.type).encode_series(pl.DataFrame({JSON_FIELD: column}).to_struct(""))
    text = pc.binary_slice(whole, len(f'{{"{JSON_FIELD}":'), -1).cast(pa.large_string())
    frame = pl.DataFrame({"text": pl.Series(text), "there": pl.Series(column.is_valid())})
    return frame.select(pl.when("there").then("text").alias("text")).to_series()
