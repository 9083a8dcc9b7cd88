"""Static tables that are read again, as a topology is built; and what a reading refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream.api.refreshed import Refreshed
from crossstream.errors import CrossStreamError

RATES = pa.table({"code": ["EUR", "USD"], "rate": [1.0, 1.1], "at": [1, 2]})


def refreshed(given: Any, key: Any = "code", **settings: Any) -> Refreshed:
    builder = cs.StreamsBuilder()
    builder.global_table_from(given, key=key, name="rates", **settings)
    found = builder.build().frames["rates"]
    assert isinstance(found, Refreshed)
    return found


@pytest.mark.parametrize(
    "given", [RATES, pl.DataFrame(RATES), lambda: RATES], ids=["arrow", "polars", "function"]
)
def test_the_columns_are_the_key_and_the_value(given: Any) -> None:
    found = refreshed(given)
    assert found.every == 300_000
    assert found.reading().rows.rows() == [(b"EUR", b'{"rate":1.0,"at":1}'), (b"USD", b'{"rate":1.1,"at":2}')]
    chosen = refreshed(given, ["code", "at"], columns=["rate"], refresh=None)
    assert chosen.every is None
    assert chosen.reading().rows.row(0) == (b'{"code":"EUR","at":1}', b'{"rate":1.0}')


def test_rows_without_a_key_are_left_out() -> None:
    found = refreshed(lambda: pa.table({"code": ["EUR", None, None], "rate": [1.0, 2.0, 3.0]})).reading()
    assert (found.rows.height, found.nulls) == (1, 2)


def test_a_table_may_be_empty() -> None:
    assert refreshed(RATES.slice(0, 0)).reading().rows.height == 0


def test_two_tables_without_a_name_have_two() -> None:
    builder = cs.StreamsBuilder()
    for _ in range(2):
        builder.global_table_from(RATES, key="code")
    assert [node.topics for node in builder.build()] == [("refreshed:refreshed",), ("refreshed:refreshed-2",)]


@pytest.mark.parametrize(
    ("given", "settings", "said"),
    [
        (SimpleNamespace(isStreaming=True, toArrow=None), {}, r"CS-150.*streaming one(?s:.)*table_from"),
        ([1], {}, r"CS-150.*takes a static DataFrame, not list"),
        (lambda: None, {}, r"CS-150.*not NoneType"),
        (RATES, {"key": "cod"}, r"CS-150.*no column 'cod'(?s:.)*write 'code'"),
        (RATES, {"key": []}, r"CS-101.*names no column"),
        (RATES, {"columns": 5}, r"CS-101.*columns=5"),
        (RATES, {"columns": ["rat"]}, r"CS-150.*no column 'rat'"),
        (RATES, {"refresh": "soon"}, r"CS-110.*refresh"),
        (RATES, {"refresh": 0}, r"CS-110.*refresh"),
        (RATES, {"refresh": 5}, r"CS-110.*does not say its unit"),
        (lambda: 1 / 0, {}, r"CS-621.*ZeroDivisionError"),
        (RATES, {"name": "my rates"}, r"CS-102"),
    ],
)
def test_what_is_no_table_is_refused_where_it_is_written(
    given: Any, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(CrossStreamError, match=said) as raised:
        cs.StreamsBuilder().global_table_from(given, **{"key": "code", **settings})
    assert "test_global_table_from.py" in str(raised.value.where["line"])


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (RATES.drop_columns(["rate"]), r"its column rate is gone: the columns are code, at"),
        (
            RATES.set_column(1, "rate", pa.array(["1", "2"])),
            r"its column rate is of type string now, and was Float64",
        ),
        (RATES.set_column(0, "code", pa.array(["EUR", "EUR"])), r"it has 2 rows with the key code='EUR'"),
        (RATES.append_column("rate", pa.array([1, 2])), r"it has several columns rate"),
    ],
)
def test_a_later_reading_that_does_not_fit_is_refused(now: pa.Table, said: str) -> None:
    tables = [RATES, now]
    found = refreshed(lambda: tables.pop(0))
    with pytest.raises(CrossStreamError, match=rf"\[CS-621\] {said}(?s:.)*operator rates"):
        found.reading()


def test_a_column_that_is_new_is_left_out() -> None:
    tables = [RATES, RATES.append_column("more", pa.array([1, 2]))]
    found = refreshed(lambda: tables.pop(0))
    assert found.reading().rows.row(0) == (b"EUR", b'{"rate":1.0,"at":1}')


def test_what_reading_raises_is_named() -> None:
    calls = []

    def away() -> pa.Table:
        calls.append(1)
        if len(calls) > 1:
            raise ConnectionError("the database is away")
        return RATES

    with pytest.raises(
        CrossStreamError, match=r"\[CS-621\] it cannot be read: ConnectionError: the database is away"
    ):
        refreshed(away).reading()
