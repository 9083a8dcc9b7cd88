"""Expressions on columns: which rows are at fault, what is read, and what a null is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars import selectors

from crossstream import serdes
from crossstream.columns.evaluate import call_rows, evaluate, holds
from crossstream.columns.functions import ALL, Function, projection_of
from crossstream.columns.values import Values, nulls
from crossstream.errors import ProcessingError
from tests.laws.effort import cases

TEXT = serdes.string()


law = cases(1)


def texts(values: list[str | None]) -> Values:
    return Values(TEXT, wire=TEXT.encode_objects(values))


def rows(values: list[Any], **types: Any) -> Values:
    serde = serdes.json(types)
    return Values(serde, wire=serde.encode_objects(values))


@law
@given(st.lists(st.sampled_from(["1", "22", "x", None]), min_size=1, max_size=20))
def test_the_rows_at_fault_are_found(items: list[str | None]) -> None:
    values = texts(items)
    for function in (pl.col("value").cast(pl.Int64), lambda value: None if value is None else int(value)):
        outcome = evaluate(Function.of(function), values, value=values)
        assert [failure.row for failure in outcome.failures] == [
            n for n, item in enumerate(items) if item == "x"
        ]
        assert outcome.values.objects() == [None if item in (None, "x") else int(item) for item in items]


@law
@given(st.lists(st.sampled_from([None, ValueError, KeyError, StopIteration, ZeroDivisionError]), max_size=20))
@example([StopIteration, None])
@example([None, StopIteration])
def test_whatever_a_callable_raises_the_other_rows_are_processed(
    raised: list[type[Exception] | None],
) -> None:
    def act(row: int) -> int:
        if (error := raised[row]) is not None:
            raise error
        return row

    results, failures = call_rows(act, [list(range(len(raised)))])
    assert results == [row if error is None else None for row, error in enumerate(raised)]
    assert [(failure.row, type(failure.error)) for failure in failures] == [
        (row, error) for row, error in enumerate(raised) if error is not None
    ]


def test_a_predicate_whose_answer_is_neither_true_nor_false_is_at_fault() -> None:
    items = texts(["a", "b", "c"])
    mask, failures = holds(Function.of(lambda item: np.ones(2) if item == "b" else item), items, items)
    assert (mask.tolist(), [failure.row for failure in failures]) == ([True, False, True], [1])


@law
@given(st.lists(st.sampled_from(["1", "2", "x", None]), min_size=1, max_size=20))
def test_a_predicate_that_fails_or_gives_null_is_false(items: list[str | None]) -> None:
    values = texts(items)
    mask, failures = holds(Function.of(pl.col("value").cast(pl.Int64) > 1), values, values)
    assert mask.tolist() == [item == "2" for item in items]
    assert [failure.row for failure in failures] == [n for n, item in enumerate(items) if item == "x"]


def test_a_function_on_columns_may_raise_what_it_likes() -> None:
    def parsed(series: pl.Series) -> pl.Series:
        return pl.Series([int(value) for value in series])

    values = texts(["1", "x", "2"])
    expression = pl.col("value").map_batches(parsed, return_dtype=pl.Int64)
    outcome = evaluate(Function.of(expression), values, value=values)
    assert outcome.values.objects() == [1, None, 2]
    assert [(failure.row, type(failure.error)) for failure in outcome.failures] == [(1, ValueError)]


def test_one_row_at_fault_among_many_costs_little() -> None:
    calls = 0

    def count(series: pl.Series) -> pl.Series:
        nonlocal calls
        calls += 1
        return series.cast(pl.Int64)

    values = texts(["1"] * 5000 + ["x"] + ["2"] * 5000)
    expression = pl.col("value").map_batches(count, return_dtype=pl.Int64, is_elementwise=True)
    outcome = evaluate(Function.of(expression), values, value=values)
    assert [failure.row for failure in outcome.failures] == [5000]
    assert calls < 60


READS = [
    (pl.col("a") > 1, {"a": None}),
    (pl.col("left").struct.field("x") + pl.col("right").struct.field("y"), {"left": {"x"}, "right": {"y"}}),
    (pl.col("right").is_null(), {"right": None}),
    (pl.col("right").struct.field("y").is_null() & pl.col("right").is_null(), {"right": None}),
    (pl.struct("key", n=pl.col("left").struct.field("n").struct.field("m")), {"key": None, "left": {"n"}}),
    (pl.when(pl.col("a") == "x").then(pl.col("b")).otherwise(pl.lit(1)), {"a": None, "b": None}),
    (pl.lit(7), {}),
    (pl.lit("Wildcard").alias("Wildcard"), {}),
    (pl.col("a").list.filter(pl.element() > 1), {"a": None}),
    (pl.col("a").list.eval(pl.element() * 2), {"a": None}),
    (pl.struct(pl.col("a", "b")), {"a": None, "b": None}),
    (pl.struct(selectors.by_name("a"), "key"), {"a": None, "key": None}),
    (pl.col("value").struct.with_fields(n=pl.field("x") + pl.col("a")), {"value": None, "a": None}),
    (pl.col("a").struct.unnest(), {"a": None}),
    (pl.col("a").list.sort(), {"a": None}),
    (pl.struct(pl.all()), {ALL: None}),
    (pl.struct(pl.col("*"), n=pl.col("a")), {ALL: None, "a": None}),
    (pl.struct(pl.all().exclude("a")), {ALL: None}),
    (pl.struct("^a.*$"), {ALL: None}),
    (pl.struct(selectors.numeric()), {ALL: None}),
    (pl.struct(pl.col(pl.String)), {ALL: None}),
    (pl.struct(pl.nth(0)), {ALL: None}),
]


@pytest.mark.parametrize(("expression", "reads"), READS, ids=str)
def test_what_an_expression_reads(expression: pl.Expr, reads: dict[str, Any]) -> None:
    found = projection_of(Function.of(expression))
    assert found == {name: None if fields is None else frozenset(fields) for name, fields in reads.items()}


@dataclass
class Item:
    code: str
    name: str
    tags: list[str]
    size: int | None


ITEMS = [Item("i", "hat", ["red", "new"], 3), Item("j", "cap", [], None)]
SELECTIONS = [
    pl.struct(pl.all()),
    pl.struct(pl.all(), twice=pl.col("size") * 2),
    pl.struct(pl.all().exclude("tags")),
    pl.struct("^[cs].*$"),
    pl.struct(selectors.string(), selectors.integer().fill_null(0).name.suffix("_or_0")),
    pl.struct(pl.col("name", "size")),
    pl.struct(pl.nth(1)),
    pl.concat_str(pl.col("name", "code")),
    pl.any_horizontal(pl.all().is_null()),
    pl.col("tags").list.filter(pl.element() != "red"),
    pl.col("tags").list.eval(pl.element().str.to_uppercase()),
]


@pytest.mark.parametrize("expression", SELECTIONS, ids=str)
@pytest.mark.parametrize("cut", [[2], [1, 2]], ids=["together", "one by one"])
def test_columns_may_be_selected_as_polars_does_it(cut: list[int], expression: pl.Expr) -> None:
    """Their fields are the columns there are, and the key where it is named."""
    typed = serdes.json(Item)
    series = typed.decode_series(typed.encode_objects(ITEMS))
    expected = series.struct.unnest().select(expression.alias("result")).to_series().to_list()
    values = Values(typed, wire=typed.encode_objects(ITEMS))
    found: list[Any] = []
    for start, end in zip([0, *cut], cut, strict=False):
        part = values.take(np.arange(start, end))
        outcome = evaluate(Function.of(expression), texts(["k"] * part.rows), value=part)
        assert not outcome.failures
        found += outcome.values.series().to_list()
    assert found == expected


def test_all_columns_of_a_joiner_are_its_sides() -> None:
    sides = {"left": rows([{"a": 1}], a=pl.Int64), "right": rows([{"b": 2}], b=pl.Int64)}
    outcome = evaluate(Function.of(pl.struct(pl.all())), texts(["k"]), **sides)
    assert outcome.values.objects() == [{"left": {"a": 1}, "right": {"b": 2}}]


RIGHT = serdes.json({"p": pl.Int64, "name": pl.String})


@pytest.mark.parametrize(
    "missing",
    [
        nulls(2, RIGHT),
        Values(RIGHT, objects=[None, None]),
        Values(series=pl.Series([None] * 2, dtype=RIGHT.dtype)),
    ],
    ids=["wire", "objects", "series"],
)
def test_a_side_that_no_row_has_is_null(missing: Values) -> None:
    left = rows([{"q": 2}, {"q": 3}], q=pl.Int64)
    expression = pl.struct(
        product=pl.col("left").struct.field("q") * pl.col("right").struct.field("p"),
        loud=pl.col("right").struct.field("name").str.to_uppercase(),
        alone=pl.col("right").is_null(),
    )
    outcome = evaluate(Function.of(expression), texts(["a", "b"]), left=left, right=missing)
    assert outcome.values.objects() == [{"product": None, "loud": None, "alone": True}] * 2


NULLS: list[tuple[pl.Expr, list[Any], list[int]]] = [
    (pl.col("a"), [1, None, None], [2]),
    (pl.struct("a"), [{"a": 1}, {"a": None}, None], [2]),
    (pl.struct(pl.all()), [{"a": 1}, {"a": None}, None], [2]),
    (pl.col("a").fill_null(0), [1, 0, None], [2]),
    (pl.col("value"), [{"a": 1}, {"a": None}, None], []),
    (pl.col("value").is_null(), [False, False, True], []),
    (pl.col("value").struct.field("a").fill_null(0), [1, 0, 0], []),
    (pl.when(pl.col("value").is_not_null()).then(pl.col("a").fill_null(0)), [1, 0, None], []),
    (pl.lit(7), [7, 7, 7], []),
    (pl.col("key"), ["k", "k", "k"], []),
]


@pytest.mark.parametrize(("expression", "results", "failed"), NULLS, ids=str)
@pytest.mark.parametrize("cut", [[3], [1, 2, 3], [2, 3]], ids=str)
def test_a_value_that_is_null_has_no_fields(
    cut: list[int], expression: pl.Expr, results: list[Any], failed: list[int]
) -> None:
    """As for a callable; an expression that reads the value as a whole decides itself."""
    values = rows([{"a": 1}, {"a": None}, None], a=pl.Int64)
    found: list[Any] = []
    failures: list[int] = []
    for start, end in zip([0, *cut], cut, strict=False):
        outcome = evaluate(
            Function.of(expression), texts(["k"] * (end - start)), value=values.take(np.arange(start, end))
        )
        found += outcome.values.objects()
        for failure in outcome.failures:
            assert isinstance(failure.error, ProcessingError)
            assert failure.error.code == "CS-501"
            failures.append(start + failure.row)
    assert (found, failures) == (results, failed)
