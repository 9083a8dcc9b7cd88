"""A side whose results are not those of DuckDB is found out."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from benchmarks.nexmark.results import RECORDS, differs, rows_of

Q2 = pl.DataFrame({"auction": [123, 123, 246], "price": [5, 5, 7]})
Q17 = {"day": "2015-07-15", "total_bids": 1}


def records(*pairs: tuple[str | None, Any]) -> pl.DataFrame:
    values = [None if value is None else json.dumps(value).encode() for _, value in pairs]
    keys = [None if key is None else key.encode() for key, _ in pairs]
    return pl.DataFrame({"key": keys, "value": values}, schema=RECORDS)


def test_the_same_rows_in_any_order() -> None:
    assert differs("q2", Q2.reverse(), Q2) is None


@pytest.mark.parametrize(
    "rows",
    [
        Q2.head(2),
        Q2.unique(),
        pl.concat([Q2, Q2.tail(1)]),
        Q2.with_columns(price=pl.col("price") + 1),
        Q2.head(0),
        Q2.select("auction"),
    ],
    ids=["one lacks", "one of two equal ones lacks", "one twice", "others", "none", "no column"],
)
def test_other_rows(rows: pl.DataFrame) -> None:
    assert differs("q2", rows, Q2) is not None


def test_closers_do_not_count() -> None:
    closer = pl.DataFrame({"auction": [-10_001], "price": [1]})
    assert differs("q2", pl.concat([Q2, closer]), Q2) is None


def test_what_sql_leaves_open_is_not_compared() -> None:
    bid = {"auction": 1, "bidder": 2, "price": 3, "channel": "a", "url": "b", "dateTime": 4, "extra": "c"}
    wanted = pl.DataFrame([bid])
    assert differs("q18", pl.DataFrame([{**bid, "price": 9}]), wanted) is None
    assert differs("q18", pl.DataFrame([{**bid, "dateTime": 9}]), wanted) is not None


def test_fractions_are_compared_as_thousandths() -> None:
    row = {"auction": 1, "bidder": 2, "price": 0.908, "dateTime": 4, "extra": ""}
    assert differs("q1", pl.DataFrame([{**row, "price": 0.9080000001}]), pl.DataFrame([row])) is None
    assert differs("q1", pl.DataFrame([{**row, "price": 0.909}]), pl.DataFrame([row])) is not None


def test_of_a_table_the_last_value_of_a_key_counts() -> None:
    row = {"name": "ada", "city": "Bend", "state": "OR", "id": 1}
    schema = pl.DataFrame([row]).schema
    given = records(("1", {**row, "city": "Kent"}), ("2", row), ("1", row), ("2", None), (None, row))
    assert rows_of("q3", given, schema).rows(named=True) == [row, row]


def test_of_a_stream_each_record_counts() -> None:
    given = records(("1", {"auction": 123, "price": 5}), ("1", {"auction": 123, "price": 5}))
    assert rows_of("q2", given, Q2.schema).rows() == [(123, 5), (123, 5)]


def test_a_record_may_be_a_list_of_rows() -> None:
    schema = pl.Schema({"starttime": pl.Int64(), "auction": pl.Int64(), "num": pl.Int64()})
    rows = [{"starttime": 0, "auction": auction, "num": 3} for auction in (1, 2)]
    assert rows_of("q5", records(("w", {"rows": rows}), ("v", {"rows": []})), schema).to_dicts() == rows
