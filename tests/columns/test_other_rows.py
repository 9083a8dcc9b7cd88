"""Expressions give for a row what they give for the row alone; those that do not are known before anything runs."""

from __future__ import annotations

import warnings

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.columns.functions import other_rows
from tests.api.cases import refused, stream, tables

ROWS = pl.DataFrame(
    {
        "n": [3, 1, None, 2, 2, 5],
        "m": [4, 4, 1, 2, 7, 0],
        "x": [1.5, 0.5, 2.5, None, 0.5, 1.0],
        "t": ["b", "a", None, "c", "c", "d"],
        "yes": [True, False, True, None, True, False],
        "list": [[3, 1], [], None, [2, 2], [5], [1, None]],
        "row": [{"a": n, "b": "z" * n} for n in range(1, 7)],
    }
)
N, M, X, T, YES, LIST, ROW = (pl.col(name) for name in ROWS.columns)
E = pl.Expr

WITHIN = [
    N + M * 2 - 1,
    N.cast(pl.String) + T,
    pl.when(N > 1).then(M).otherwise(pl.lit(7)),
    pl.struct("n", a=ROW.struct.field("a"), b=pl.lit("x")),
    ROW.struct.with_fields(c=pl.field("a") + 1),
    pl.sum_horizontal("n", "m"),
    pl.max_horizontal("n", "m"),
    pl.any_horizontal(N.is_null(), YES),
    pl.concat_str("t", M),
    pl.concat_list("n", "m"),
    pl.coalesce("n", "m"),
    pl.format("{}-{}", T, M),
    pl.fold(pl.lit(0), lambda a, b: a + b, [N, M]),
    N.is_in([1, 2]),
    N.is_in(pl.Series([1, 2]).implode()),
    N.is_in(pl.lit(pl.Series([1, 2])).implode()),
    M.is_in(LIST),
    N.fill_null(0),
    N.replace({1: 10}),
    N.replace_strict({1: 10}, default=None),
    N.clip(1, 2),
    N.bitwise_count_ones(),
    X.round(0),
    X.is_nan(),
    T.str.to_uppercase().str.len_chars(),
    T.str.contains("a").not_(),
    N.repeat_by(M),
    LIST.list.sum(),
    LIST.list.sort().list.first(),
    LIST.list.unique().list.len(),
    LIST.list.eval(pl.element().sum() + pl.len()),
    LIST.list.eval(pl.element().cum_sum().reverse()),
    LIST.list.filter(pl.element() > 1),
    LIST.list.slice(0, 1),
    LIST.list.contains(2),
    pl.lit(pl.Series([10, 20, 30, 40, 50, 60, 70, 80])).gather(M),
    pl.lit(pl.Series([1, 3, 5])).sum() + M,
    pl.lit("Len"),
    T.alias("Len"),
    pl.struct(Len=ROW.struct.with_fields(Len=pl.field("a"))),
    pl.lit({"Agg": "x"}),
    N.hash(),
]

ACROSS = [
    *(aggregate(N) for aggregate in (E.sum, E.mean, E.min, E.max, E.first, E.last, E.median, E.std, E.var)),
    *(aggregate(N) for aggregate in (E.n_unique, E.count, E.len, E.product, E.null_count, E.has_nulls)),
    *(function(N) for function in (E.cum_sum, E.cum_max, E.cum_min, E.cum_prod, E.cum_count, E.diff, E.rank)),
    *(function(N) for function in (E.arg_max, E.arg_min, E.arg_sort, E.reverse, E.mode, E.unique)),
    *(function(N) for function in (E.is_unique, E.is_duplicated, E.is_first_distinct, E.is_last_distinct)),
    *(function(N) for function in (E.rle_id, E.forward_fill, E.backward_fill, E.interpolate, E.drop_nulls)),
    *(function(X) for function in (E.kurtosis, E.skew, E.entropy, E.pct_change, E.implode)),
    *(
        function(M)
        for function in (E.peak_max, E.peak_min, E.sort, E.bitwise_and, E.bitwise_or, E.bitwise_xor)
    ),
    YES.any(),
    YES.all(),
    YES.arg_true(),
    T.str.join("-"),
    N.shift(1),
    N.sum().over("t"),
    M.rank().over(T),
    N.filter(N > 1),
    N.head(1),
    N.tail(1),
    N.slice(0, 1),
    N.gather(M % 2),
    N.get(0),
    N.gather_every(2),
    N.sort_by("m"),
    N.top_k(1),
    N.quantile(0.5),
    N.rolling_sum(2),
    X.ewm_mean(com=1),
    N.append(M),
    N.search_sorted(1),
    N.index_of(1),
    LIST.explode(empty_as_null=False),
    pl.len(),
    pl.int_range(pl.len()),
    pl.corr("n", "m"),
    pl.arg_where(N > 1),
    pl.struct("n", total=N.sum()),
    pl.when(N.mean() < N).then(1).otherwise(0),
    ROW.struct.with_fields(c=pl.field("a").sum()),
    ROW.struct.field("a").max(),
    N - N.min(),
]


def values(expression: pl.Expr, rows: pl.DataFrame) -> list[object]:
    """What it gives for these rows: for each, if it gives one value for all; the error, if that is what it gives."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = rows.select(expression.alias("result")).to_series()
    except pl.exceptions.PolarsError as error:
        return [type(error)] * len(rows)
    return found.new_from_index(0, len(rows)).to_list() if len(found) == 1 else found.to_list()


def alone(expression: pl.Expr) -> list[list[object]]:
    return [values(expression, ROWS.slice(row, 1)) for row in range(len(ROWS))]


@pytest.mark.parametrize("expression", WITHIN, ids=str)
def test_what_stays_within_a_row_passes(expression: pl.Expr) -> None:
    assert [[value] for value in values(expression, ROWS)] == alone(expression)
    assert other_rows(expression) is None


@pytest.mark.parametrize("expression", ACROSS, ids=str)
def test_what_looks_at_other_rows_is_named(expression: pl.Expr) -> None:
    assert [[value] for value in values(expression, ROWS)] != alone(expression)
    assert other_rows(expression)


def test_such_an_expression_is_refused_before_anything_runs() -> None:
    told = "would depend on the batches"
    refused("CS-111", lambda: stream().map_values(pl.col("n").sum()), told, "mapper of map_values", "(Sum)")
    refused("CS-111", lambda: stream().filter(pl.col("n").mean() < pl.col("n")), told)
    refused("CS-111", lambda: stream().select_key(pl.col("n").cum_sum()), told)
    refused("CS-111", lambda: stream().flat_map_values(pl.col("n").implode()), told)
    refused("CS-111", lambda: stream().split().branch(pl.col("n").is_first_distinct()), told)
    refused("CS-111", lambda: cs.Consumed(timestamp_extractor=pl.col("at").max()), told)
    [orders, customers], joiner = tables("orders", "customers"), pl.col("left").struct.field("n").max()
    refused("CS-111", lambda: orders.join(customers, joiner), told, "joiner of join")
    refused("CS-111", lambda: orders.join_many({"customer": (customers, pl.len())}, joiner), told)


def test_several_columns_are_no_value() -> None:
    builder = cs.StreamsBuilder()
    text, typed = serdes.string(), serdes.json({"a": pl.Int64, "b": pl.Int64})
    rows = builder.stream("in", cs.Consumed(key=text, value=typed))
    with pytest.raises(cs.TopologyError, match=r"CS-115.*several columns"):
        rows.map_values(pl.col("a", "b"))
