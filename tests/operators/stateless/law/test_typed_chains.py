"""Chains of expressions over a declared type: what they give has a type that is found while building.

Law: for every chain of operators, every way to cut its input into batches, and however many partitions, expressions
give what the same functions give as callables with annotations. The types go through filters, merges, shuffles, tables
with and without a name, and joins. A table is the last of a chain: what is told of a row that comes and goes depends on
the cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import cases

TEXT, JSON = serdes.string(), serdes.json()


@dataclass
class Item:
    x: int | None = None


@dataclass
class Row:
    n: int | None = None
    t: str | None = None
    f: float | None = None
    items: list[Item | None] | None = None


def of(value: Any, name: str) -> Any:
    """A field of what an expression gave (a dict) or of an instance; a null has none."""
    return value[name] if isinstance(value, dict) else getattr(value, name)


def changed(**fields: Any) -> tuple[pl.Expr, Callable[[Any], Row]]:
    """A new row as an expression, and as a callable: (expression, function of the old row) by field."""
    columns = {"n": pl.col("n"), "t": pl.col("t"), "f": pl.col("f"), "items": pl.col("items")}

    def call(value: Any) -> Row:
        made = {name: of(value, name) for name in columns}
        return Row(**{**made, **{name: function(value) for name, (_, function) in fields.items()}})

    return pl.struct(**columns | {name: column for name, (column, _) in fields.items()}), call


BUMP = changed(n=(pl.col("n") + 1, lambda v: None if of(v, "n") is None else of(v, "n") + 1))
UPPER = changed(
    t=(pl.col("t").str.to_uppercase(), lambda v: None if of(v, "t") is None else of(v, "t").upper())
)
HALF = changed(f=(pl.col("n") / 2, lambda v: None if of(v, "n") is None else of(v, "n") / 2))
SMALL = changed(n=(pl.col("n").cast(pl.Int8), lambda v: of(v, "n")))
LARGE = pl.col("n").fill_null(0) > 2, lambda v: (of(v, "n") or 0) > 2
IS_B = pl.col("t").eq_missing("b"), lambda v: of(v, "t") == "b"
ITEM = (
    pl.struct(n="x", t=pl.lit("i"), f=pl.lit(0.5), items=pl.lit(None, pl.List(pl.Struct({"x": pl.Int64})))),
    lambda v: Row(of(v, "x"), "i", 0.5),
)


def row_of_item(value: Any) -> Row:
    return ITEM[1](value)


def items_of(value: Any) -> list[Item | None]:
    return of(value, "items") or []


def twice(value: Any) -> list[Row]:
    return [BUMP[1](value), UPPER[1](value)]


LOOKED_UP = (
    pl.struct(
        n=pl.col("left").struct.field("n"),
        t=pl.col("right").struct.field("t"),
        f=pl.col("right").struct.field("f"),
        items=pl.col("left").struct.field("items"),
    ),
    lambda left, right: Row(of(left, "n"), of(right, "t"), of(right, "f"), of(left, "items")),
)


def annotated(function: Callable[..., Any]) -> Callable[..., Row]:
    def call(left: Any, right: Any) -> Row:
        return function(left, right)

    return call


def keyed(key: str, value: Any) -> str:
    return key + "!"


def merged(stream: cs.KStream, way: int) -> cs.KStream:
    return (
        stream.filter(IS_B[way])
        .map_values(BUMP[way])
        .merge(stream.filter_not(IS_B[way]).map_values(SMALL[way]))
    )


def re_keyed(stream: cs.KStream, way: int) -> cs.KStream:
    mapper = (pl.concat_str("key", pl.lit("!")), keyed)[way]
    return stream.select_key(mapper).repartition(cs.Repartitioned(key=TEXT))


def looked_up(stream: cs.KStream, way: int) -> cs.KStream:
    rows = stream.to_table()
    return stream.join(rows, LOOKED_UP[0] if way == 0 else annotated(LOOKED_UP[1]))


def table_of(stream: cs.KStream, way: int, **materialized: Any) -> cs.KStream:
    rows = stream.to_table().filter(LARGE[way]).map_values(UPPER[way], **materialized)
    other = rows.map_values(BUMP[way])
    return rows.join(other, LOOKED_UP[0] if way == 0 else annotated(LOOKED_UP[1])).to_stream()


STEPS: dict[str, Callable[[cs.KStream, int, str], cs.KStream]] = {
    "bump": lambda s, way, name: s.map_values(BUMP[way]),
    "upper": lambda s, way, name: s.map_values(UPPER[way]),
    "half": lambda s, way, name: s.map_values(HALF[way]),
    "small": lambda s, way, name: s.map_values(SMALL[way]),
    "keep": lambda s, way, name: s.filter(LARGE[way]),
    "drop": lambda s, way, name: s.filter_not(IS_B[way]),
    "twice": lambda s, way, name: s.flat_map_values(
        (pl.concat_list(BUMP[0], UPPER[0]), twice)[way]
    ).map_values(SMALL[way]),
    "items": lambda s, way, name: s.flat_map_values((pl.col("items"), items_of)[way]).map_values(
        (ITEM[0], row_of_item)[way]
    ),
    "key": lambda s, way, name: re_keyed(s, way),
    "shuffle": lambda s, way, name: s.repartition(),
    "split": lambda s, way, name: s.split().branch(LARGE[way], name).no_default_branch()[name],
    "merge": lambda s, way, name: merged(s, way),
    "look up": lambda s, way, name: looked_up(s, way),
    "table": lambda s, way, name: table_of(s, way),
    "store": lambda s, way, name: table_of(s, way, materialized=cs.Materialized(store=name)),
    "typed store": lambda s, way, name: table_of(
        s, way, materialized=cs.Materialized(store=name, value=serdes.json(Row))
    ),
}
TABLES = {"table", "store", "typed store"}

items = st.lists(st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 4)}), max_size=2)
values = st.none() | st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-3, 6),
        "t": st.sampled_from([None, "a", "b"]),
        "f": st.sampled_from([None, 0.5, -2.0]),
        "items": st.none()
        | st.lists(st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 4)}), max_size=2),
    }
)
records = st.lists(st.tuples(st.sampled_from("abc"), values), min_size=1, max_size=7)
streams = st.lists(st.sampled_from(sorted(STEPS.keys() - TABLES)), max_size=3)
chains = st.builds(lambda first, last: [*first, last], streams, st.sampled_from(sorted(STEPS)))


def run(chain: list[str], way: int, given: list[tuple[str, Any]], every: int, partitions: int) -> Any:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=serdes.json(Row)))
    for number, step in enumerate(chain):
        stream = STEPS[step](stream, way, f"s{number}")
    stream.to("out", cs.Produced(key=TEXT, value=JSON))
    settings = {"commit_every": every, "partitions": partitions, "processing_errors": "skip"}
    with cs.TopologyTestDriver(builder.build(), **settings) as driver:
        topic = driver.create_input_topic("in", TEXT, JSON)
        topic.pipe_records([(key, value, time) for time, (key, value) in enumerate(given)])
        driver.commit()
        found = driver.create_output_topic("out", TEXT, JSON).read_key_values()
    if TABLES.intersection(chain):  # of several changes of a row in one batch only the last is told
        return {key: value for key, value in dict(found).items() if value is not None}
    return sorted(found, key=repr)


@cases(2.5)
@given(chains, records, st.integers(2, 9), st.integers(1, 3))
@example(["table"], [("a", {"n": 3, "t": None, "f": None, "items": None})], 2, 1)
@example(["keep", "typed store"], [("a", {"n": 3, "t": "b", "f": 0.5, "items": None}), ("a", None)], 2, 2)
@example(["items", "twice", "merge"], [("a", {"n": 3, "t": "b", "f": None, "items": [{"x": 3}, None]})], 9, 1)
@example(
    ["merge", "key", "look up"], [("a", {"n": n, "t": "b", "f": None, "items": []}) for n in (1, 2)], 9, 3
)
def test_expressions_give_what_callables_give_in_any_cut(
    chain: list[str], given: list[tuple[str, Any]], every: int, partitions: int
) -> None:
    expected = run(chain, 1, given, 1, 1)
    for way, size in ((0, 1), (0, every), (1, every)):
        assert run(chain, way, given, size, partitions) == expected


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", [0, 1], ids=["expressions", "callables"])
def test_every_step_keeps_the_type(step: str, way: int) -> None:
    """So that another expression may follow."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=serdes.json(Row)))
    STEPS[step](stream, way, "s").filter(LARGE[0]).map_values(HALF[0])
