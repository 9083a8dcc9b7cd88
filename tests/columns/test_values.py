"""Columns of values: every form gives the same values, rows are picked lazily, nulls stay nulls."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.columns.values import Values, concat_values, nulls
from crossstream.serdes.contract import ANY_READER, Readers
from tests.laws.effort import cases
from tests.storage.rows import binary

law = cases(1.33)
TEXT, INT, JSON = serdes.string(), serdes.int64(), serdes.json()

MAKERS: dict[str, Callable[[list[str | None]], Values]] = {
    "wire": lambda items: Values(TEXT, wire=TEXT.encode_objects(items)),
    "objects": lambda items: Values(TEXT, objects=list(items)),
    "series": lambda items: Values(series=pl.Series(items, dtype=pl.String)),
}
items = st.lists(st.none() | st.sampled_from(["", "a", "bc"]), min_size=1, max_size=6)
forms = st.sampled_from(["missing", "objects", "series", "wire"])
picks = st.lists(st.integers(-2, 5), max_size=12)


def picked(values: list[Any], rows: list[int]) -> list[Any]:
    return [None if row < 0 else values[row] for row in rows]


def check(values: Values, expected: list[Any], form: str) -> None:
    """The values in one form first, then in all."""
    forms: dict[str, Callable[[], Any]] = {
        "missing": lambda: values.missing().tolist() == [item is None for item in expected],
        "objects": lambda: values.objects() == expected,
        "series": lambda: values.series().to_list() == expected,
        "wire": lambda: values.wire(TEXT).to_pylist() == TEXT.encode_objects(expected).to_pylist(),
    }
    assert forms[form]()
    assert values.rows == len(expected)
    for one in forms.values():
        assert one()


@law
@given(st.sampled_from(sorted(MAKERS)), items, st.lists(picks, max_size=3), forms)
def test_rows_of_rows(maker: str, base: list[str | None], steps: list[list[int]], form: str) -> None:
    values, expected = MAKERS[maker](base), base
    for step in steps:
        rows = [row for row in step if row < len(expected)]
        values = values.take(np.array(rows, np.int64))
        expected = picked(expected, rows)
    check(values, expected, form)


@law
@given(
    st.sampled_from(sorted(MAKERS)),
    items,
    st.none() | picks,
    st.none() | forms,
    st.integers(0, 12),
    st.integers(0, 12),
    forms,
)
def test_rows_in_a_row(
    maker: str,
    base: list[str | None],
    picks: list[int] | None,
    known: str | None,
    start: int,
    stop: int,
    form: str,
) -> None:
    """A slice has the forms that are there, and gets the others."""
    values, expected = MAKERS[maker](base), base
    if picks is not None:
        rows = [row for row in picks if row < len(base)]
        values, expected = values.take(np.array(rows, np.int64)), picked(base, rows)
    if known is not None:
        {
            "missing": values.missing,
            "objects": values.objects,
            "series": values.series,
            "wire": lambda: values.wire(TEXT),
        }[known]()
    stop = min(stop, len(expected))
    start = min(start, stop)
    check(values.slice(start, stop), expected[start:stop], form)


@law
@given(st.lists(st.tuples(st.sampled_from(sorted(MAKERS)), items, picks), min_size=1, max_size=4))
def test_concatenation(parts: list[tuple[str, list[str | None], list[int]]]) -> None:
    values, expected = [], []
    for maker, base, rows in parts:
        rows = [row for row in rows if row < len(base)]
        values.append(MAKERS[maker](base).take(np.array(rows, np.int64)))
        expected += picked(base, rows)
    check(concat_values(values), expected, "objects")


def test_concatenation_of_other_serdes_and_of_nulls() -> None:
    numbers, words = Values(INT, wire=INT.encode_objects([1, None])), MAKERS["wire"](["a"])
    assert concat_values([numbers, words]).objects() == [1, None, "a"]
    assert concat_values([numbers, nulls(2, TEXT)]).objects() == [1, None, None, None]
    assert concat_values([nulls(1, TEXT), nulls(1, TEXT)]).missing().tolist() == [True, True]


def test_no_rows_of_nothing_and_nulls_of_nothing() -> None:
    for make in MAKERS.values():
        empty = make([])
        assert empty.take(np.empty(0, np.int64)).objects() == []
        blank = empty.take(np.array([-1, -1]))
        assert blank.missing().tolist() == [True, True]
        assert blank.objects() == [None, None]
        assert blank.wire(TEXT).to_pylist() == [None, None]
        assert blank.series().to_list() == [None, None]


class Counting:
    """A serde that counts what it decodes."""

    def __init__(self) -> None:
        self.decoded = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(TEXT, name)

    def decode_objects(self, data: Any) -> list[Any]:
        self.decoded += len(data)
        return TEXT.decode_objects(data)


def test_rows_picked_many_times_are_decoded_once() -> None:
    serde: Any = Counting()
    values = Values(serde, wire=binary([b"a", b"b", b"c"]))
    assert values.take(np.array([0, 1] * 50)).objects() == ["a", "b"] * 50
    assert values.take(np.array([2] * 50)).objects() == ["c"] * 50
    assert serde.decoded == 3


def test_few_rows_of_many_are_decoded_alone() -> None:
    serde: Any = Counting()
    values = Values(serde, wire=binary([b"%d" % n for n in range(1000)]))
    assert values.take(np.array([5, -1])).objects() == ["5", None]
    assert serde.decoded == 2


def test_only_the_fields_that_are_wanted() -> None:
    serde = serdes.json({"a": pl.Int64, "b": pl.String})
    values = Values(serde, wire=serde.encode_objects([{"a": 1, "b": "x"}, {"a": 2, "b": None}, None]))
    assert values.series({"a"}).to_list() == [{"a": 1}, {"a": 2}, None]
    assert values.series({"a"}) is values.series({"a"})


def test_the_objects_of_a_function_have_a_column_only_in_the_type_that_it_declares() -> None:
    rows = [{"a": 1}, None]
    with pytest.raises(TypeError, match="in the serde that its reader names"):
        Values(objects=rows).series()
    assert Values(serdes.json({"a": pl.Int64}), objects=rows).series().to_list() == rows


def test_wire_of_another_serde() -> None:
    numbers = Values(INT, wire=INT.encode_objects([1, None]))
    assert numbers.wire(JSON).to_pylist() == [b"1", None]
    assert numbers.wire().to_pylist() == INT.encode_objects([1, None]).to_pylist()
    made = Values(objects=[{"a": 1}, None])
    assert made.wire(JSON).to_pylist() == [b'{"a":1}', None]
    assert made.wire(JSON) is made.wire(JSON)


def test_bytes_that_somebody_asked_for_change_nothing_for_others() -> None:
    """Story: a sink writes dates as JSON. Who reads them after it gets dates, and not text."""
    day = date(2026, 1, 2)
    for made in (Values(objects=[day, None]), Values(series=pl.Series([day, None]))):
        view = made.take(np.array([1, 0]))
        assert made.wire(JSON).to_pylist() == [b'"2026-01-02"', None]
        assert view.wire(JSON).to_pylist() == [None, b'"2026-01-02"']
        assert made.slice(0, 1).wire(JSON).to_pylist() == [b'"2026-01-02"']
        for values in (made, view):
            with pytest.raises(TypeError, match="in the serde that its reader names"):
                values.wire()
        assert made.objects() == [day, None]
        assert view.objects() == [None, day]
        assert made.serde is None


@pytest.mark.parametrize("checked", [None, ANY_READER])
def test_after_some_fields_the_whole(checked: Readers | None) -> None:
    serde = serdes.json({"a": pl.Int64, "b": pl.String, "c": pl.Int64})
    rows = [{"a": 1, "b": "x", "c": 2}, None, {"a": 3, "b": None, "c": 4}]
    values = Values(serde, wire=serde.encode_objects(rows))
    view = values.take(np.array([2, 0, -1]))
    assert values.series(["a"], checked=checked).to_list() == [{"a": 1}, None, {"a": 3}]
    assert view.series(["a"]).to_list() == [{"a": 3}, {"a": 1}, None]
    assert values.series([], checked=checked).to_list() == [{"a": 1}, None, {"a": 3}]
    assert view.series().to_list() == [rows[2], rows[0], None]
    assert values.series().to_list() == rows
    assert values.series(["c"]).to_list() == rows
    assert values.objects() == rows


def test_what_has_been_decoded() -> None:
    serde = serdes.json({"a": pl.Int64, "b": pl.String, "c": pl.Int64})
    rows = [{"a": 1, "b": "x", "c": 2}, None, {"a": 3, "b": None, "c": 4}]
    wire = serde.encode_objects(rows)
    values = Values(serde, wire=wire)
    assert values.decoded() is None
    series = values.series(["a", "b"])
    assert values.decoded() is series
    assert values.decoded(["a", "b"]) is series
    assert values.decoded(["b"]).to_list() == [{"b": "x"}, None, {"b": None}]
    assert values.take(np.array([2, 0])).series(["a"]).to_list() == [
        {"a": 3, "b": None},
        {"a": 1, "b": "x"},
    ]
    assert values.decoded(["c"]) is None
    again = Values(serde, wire=wire, fields=values.decoded(["b"]))
    assert again.series(["b"]) is again.decoded()
    assert again.series(["a", "b"]).to_list() == [{"a": 1, "b": "x"}, None, {"a": 3, "b": None}]
    assert again.objects() == rows


def test_what_a_function_made_has_not_been_decoded() -> None:
    """Bytes may hold less than that: a column of Float32 rounds."""
    serde = serdes.json({"a": pl.Float32})
    made = Values(series=pl.Series([{"a": 1e-300}]))
    assert (made.wire(serde).to_pylist(), made.decoded()) == ([b'{"a":0.0}'], None)
    made = Values(serde, objects=[{"a": 1.5}])
    assert made.wire(serde).to_pylist() == [b'{"a":1.5}']
    assert made.series(["a"]).to_list() == [{"a": 1.5}]
    assert made.decoded() is None
