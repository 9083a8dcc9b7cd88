"""Aggregations behind and before other operators: each sees what it would see in batches of one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.columns.evaluate import evaluate
from crossstream.columns.functions import Function
from crossstream.columns.values import Values

TEXT, NUMBER, JSON = serdes.string(), serdes.int64(), serdes.json()
ROW = serdes.json({"n": pl.Int64, "s": pl.String})
ADD, TAKE = (lambda total, n: total + n), (lambda total, n: total - n)
CUTS = pytest.mark.parametrize("every", [1, 2, 100])

Records = Sequence[tuple[str, str, Any]]


def last(
    make: Callable[[cs.StreamsBuilder], Any], records: Records, every: int, **settings: Any
) -> dict[str, Any]:
    """The last value of each key. A record: (topic, key, value); rows are dicts, or numbers."""
    return dict(everything(make, records, every, **settings)[0])


def everything(
    make: Callable[[cs.StreamsBuilder], Any], records: Records, every: int, **settings: Any
) -> tuple[list[tuple[str, Any]], dict[Any, int]]:
    """What came out, and what was dropped, by operator and reason."""
    builder = cs.StreamsBuilder()
    make(builder)
    with cs.TopologyTestDriver(builder.build(), commit_every=every, **settings) as driver:
        for time, (topic, key, value) in enumerate(records):
            serde = ROW if isinstance(value, dict) else NUMBER
            driver.create_input_topic(topic, TEXT, serde).pipe_input(key, value, timestamp=time)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, JSON).read_records()
        return [(record.key, record.value) for record in out], driver.metrics()["dropped"]


def row(n: int, s: str = "a") -> dict[str, Any]:
    return {"n": n, "s": s}


def written(table: Any) -> None:
    table.map_values(lambda value: value, value=JSON).to("out", key=TEXT, value=JSON)


def rows_of(builder: cs.StreamsBuilder, topic: str = "s") -> Any:
    return builder.stream(topic, cs.Consumed(key=TEXT, value=ROW))


def sum_up(rows: Any) -> Any:
    """Made by a function: the row with the sum."""
    return rows.group_by_key().reduce(lambda one, other: {**other, "n": one["n"] + other["n"]})


@CUTS
@pytest.mark.parametrize(
    "narrow",
    [
        lambda table: table.filter(pl.col("n") > 0),
        lambda table: table.filter_not(pl.col("n") < 0),
        lambda table: table.map_values(pl.struct(n=pl.col("n"), s=pl.col("s"))),
    ],
    ids=["filter", "filter_not", "map_values"],
)
def test_an_expression_knows_the_old_rows_that_a_function_made(every: int, narrow: Any) -> None:
    """a: 7, then 8, then 10. The old row of 8 was taken for one that the expression fails on, so 7 stayed."""

    def make(builder: cs.StreamsBuilder) -> None:
        groups = narrow(sum_up(rows_of(builder))).group_by(
            lambda key, value: (value["s"], value["n"]), key=TEXT, value=NUMBER
        )
        written(groups.reduce(ADD, TAKE))

    records = [("s", "k", row(7)), ("s", "k", row(1)), ("s", "k", row(2)), ("s", "k", row(1, "b"))]
    assert last(make, records[:3], every) == {"a": 10}
    assert last(make, records, every)["b"] == 11


@CUTS
def test_a_table_that_functions_made_is_grouped_by_an_expression(every: int) -> None:
    def make(builder: cs.StreamsBuilder) -> None:
        table = rows_of(builder).group_by_key().reduce(lambda one, other: other)
        written(table.group_by(pl.col("s"), key=TEXT).count())

    records = [("s", "k", row(1)), ("s", "k", row(2)), ("s", "l", row(3))]
    assert last(make, records, every) == {"a": 2}


@CUTS
@pytest.mark.parametrize(
    "aggregated",
    [
        lambda groups: groups.reduce(ADD),
        lambda groups: groups.aggregate(lambda: 0, ADD, value=NUMBER),
        lambda groups: groups.agg(n=cs.agg.sum("value")).map_values(pl.col("n")),
        lambda groups: groups.reduce(ADD, store="kept"),
        lambda groups: groups.reduce(
            ADD, materialized=cs.Materialized(store="kept", history_retention="1 hour")
        ),
    ],
    ids=["reduce", "aggregate", "agg", "named", "with versions"],
)
def test_a_stream_finds_the_aggregate_of_its_moment(every: int, aggregated: Any) -> None:
    """It found the last record in place of the aggregate, where a batch had several of a key."""

    def make(builder: cs.StreamsBuilder) -> None:
        paid = aggregated(builder.stream("paid", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key())
        asked = builder.stream("ask", cs.Consumed(key=TEXT, value=NUMBER))
        asked.left_join(paid, lambda number, total: [number, total]).to("out", key=TEXT, value=JSON)

    records = [("paid", "k", 5), ("paid", "k", 7), ("ask", "k", 1), ("paid", "k", 1), ("ask", "k", 2)]
    assert everything(make, records, every)[0] == [("k", [1, 12]), ("k", [2, 13])]


@CUTS
def test_agg_reads_what_a_joiner_made_in_the_declared_serde(every: int) -> None:
    def make(builder: cs.StreamsBuilder) -> None:
        table = builder.table("t", cs.Consumed(key=TEXT, value=ROW))
        joined = rows_of(builder).left_join(table, lambda left, right: left)
        written(joined.group_by_key(value=ROW).agg(n=cs.agg.sum("n")))

    assert last(make, [("s", "k", row(1)), ("s", "k", row(2))], every) == {"k": {"n": 3}}


@CUTS
def test_a_join_reads_what_another_made_in_the_declared_serde(every: int) -> None:
    """A shuffle writes values in the serde that their reader declares; a reader of the same round got objects."""

    def make(builder: cs.StreamsBuilder) -> None:
        first, second = (builder.table(name, cs.Consumed(key=TEXT, value=ROW)) for name in ("t", "q"))
        joined = rows_of(builder).left_join(first, lambda left, right: (left["n"], 2))
        types = joined.left_join(
            second, lambda left, right: type(left).__name__, cs.Joined(key=TEXT, value=JSON)
        )
        types.to("out", key=TEXT, value=JSON)

    assert last(make, [("s", "k", row(1))], every) == {"k": "list"}


@CUTS
@pytest.mark.parametrize("partitions", [1, 3])
def test_what_an_adder_refused_is_not_taken_away(every: int, partitions: int) -> None:
    """r2 is 13, which the adder refuses, then 5, then 13 again, then gone, then 4."""

    def make(builder: cs.StreamsBuilder) -> None:
        rows = builder.table("t", cs.Consumed(key=TEXT, value=NUMBER))
        groups = rows.group_by(lambda key, value: ("all", value), key=TEXT, value=NUMBER)
        written(
            groups.aggregate(lambda: 0, lambda total, n: total + n if n != 13 else 1 // 0, TAKE, value=NUMBER)
        )

    records = [
        ("t", key, n) for key, n in [("r1", 1), ("r2", 13), ("r2", 5), ("r2", 13), ("r2", None), ("r2", 4)]
    ]
    for end, total in [(3, 6), (4, 1), (5, 1), (6, 5)]:
        made, dropped = everything(
            make, records[:end], every, partitions=partitions, processing_errors="skip"
        )
        assert dict(made) == {"all": total}
    assert sorted(dropped.values()) == [2, 2]
    assert {name.rpartition(" ")[2] for name in dropped} == {"failed", "not-added"}, dropped


@CUTS
def test_an_aggregate_that_a_failing_function_changed_in_place_is_as_before(every: int) -> None:
    def add(total: dict[str, int], n: int) -> dict[str, int]:
        total["n"] += n
        if n == 13:
            raise ValueError(n)
        return total

    def make(builder: cs.StreamsBuilder) -> None:
        numbers = builder.stream("t", cs.Consumed(key=TEXT, value=NUMBER))
        written(numbers.group_by_key().aggregate(lambda: {"n": 0}, add, value=JSON))

    records = [("t", "k", 1), ("t", "k", 13), ("t", "k", 5)]
    assert last(make, records, every, processing_errors="skip") == {"k": {"n": 6}}


@CUTS
def test_an_aggregate_that_its_serde_refuses_leaves_the_one_before(every: int) -> None:
    """The last of a batch was refused, and with it all the records before it."""

    def make(builder: cs.StreamsBuilder) -> None:
        numbers = builder.stream("t", cs.Consumed(key=TEXT, value=NUMBER))
        written(numbers.group_by_key().reduce(lambda total, n: "x" if n == 13 else total + n))

    records = [("t", "k", 1), ("t", "k", 2), ("t", "k", 13)]
    assert last(make, records, every, processing_errors="skip") == {"k": 3}


def test_an_error_of_ours_is_no_failure_of_an_expression() -> None:
    """Values without bytes and without a serde cannot be read as a column: that must not pass for a skipped record."""
    function = Function.of(pl.col("n") > 0)
    with pytest.raises(TypeError, match="only in the serde that its reader names"):
        evaluate(function, Values(TEXT, objects=["k"]), value=Values(objects=[{"n": 1}]))
