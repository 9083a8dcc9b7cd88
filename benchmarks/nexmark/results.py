"""Compares what a side gave with what DuckDB gives."""

from __future__ import annotations

import polars as pl

from benchmarks.nexmark.events import CLOSING_MS
from benchmarks.nexmark.reference import QUERIES

RECORDS = pl.Schema({"key": pl.Binary(), "value": pl.Binary()})
"""Records of a topic of results, in the order of its partitions."""

_LAST_DAY = pl.Series([CLOSING_MS]).cast(pl.Datetime("ms")).dt.strftime("%Y-%m-%d").item()


def rows_of(query: str, records: pl.DataFrame, columns: pl.Schema) -> pl.DataFrame:
    """The rows that records (`RECORDS`) stand for. ``columns``: theirs, with types.

    Of a stream each record is a row. Of a table the last value of each key is one, and so is each record without a
    key. A value with the field ``rows`` stands for the rows in that list.
    """
    values = records["value"]
    if not QUERIES[query].stream:
        keyed = records.filter(pl.col("key").is_not_null())
        last = keyed.group_by("key", maintain_order=True).last()["value"]
        values = pl.concat([last, records.filter(pl.col("key").is_null())["value"]])
    return parsed(values.drop_nulls(), columns)


def parsed(values: pl.Series, columns: pl.Schema) -> pl.DataFrame:
    """JSON objects as rows."""
    text, row = values.cast(pl.String), pl.Struct(columns)
    if len(text) and text[0].startswith('{"rows":'):
        lists = text.str.json_decode(pl.Struct({"rows": pl.List(row)})).struct.field("rows")
        return lists.explode().drop_nulls().struct.unnest()
    return text.str.json_decode(row).struct.unnest()


def differs(query: str, rows: pl.DataFrame, expected: pl.DataFrame) -> str | None:
    """How rows differ from the expected ones; None if they do not. Rows of closers alone are left out."""
    free = QUERIES[query].free
    compared = [name for name in expected.columns if name not in free]
    missing = set(expected.columns) - set(rows.columns)
    if missing:
        return f"{query}: no column {', '.join(sorted(missing))}"
    mine = without_closers(rows.select(expected.columns)).select(compared)
    theirs = expected.select(compared)
    mine, theirs = (comparable(frame, expected.schema) for frame in (mine, theirs))
    more = mine.join(theirs, on=mine.columns, how="anti", nulls_equal=True)
    less = theirs.join(mine, on=mine.columns, how="anti", nulls_equal=True)
    if len(more) or len(less):
        return f"{query}: {len(more)} rows too many, as {more.rows()[:2]}, {len(less)} missing, as {less.rows()[:2]}"
    if len(
        rows_by_number(mine).join(
            rows_by_number(theirs), on=[*mine.columns, "len"], how="anti", nulls_equal=True
        )
    ):
        return f"{query}: {len(mine)} rows instead of {len(theirs)}"
    return None


def rows_by_number(rows: pl.DataFrame) -> pl.DataFrame:
    """Each different row, and how often it is there."""
    return rows.group_by(rows.columns).len()


def without_closers(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that are not of the last events, which close the windows."""
    ids = [name for name in ("id", "auction", "bidder", "seller") if name in rows.columns]
    real = pl.all_horizontal(pl.col(name) >= 0 for name in ids) if ids else pl.lit(True)
    if "day" in rows.columns:
        real &= pl.col("day") != _LAST_DAY
    return rows.filter(real)


def comparable(rows: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """The same types on both sides; fractions as thousandths."""
    exact = {
        name: pl.col(name).mul(1_000).round() if schema[name].is_float() else pl.col(name)
        for name in rows.columns
    }
    whole = {
        name: of.cast(pl.Int64) if schema[name].is_numeric() else of.cast(pl.String)
        for name, of in exact.items()
    }
    return rows.select(**whole)
