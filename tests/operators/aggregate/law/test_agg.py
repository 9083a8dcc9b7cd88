"""Built-in aggregates through the driver, against plain Python over the rows of each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any
from unittest.mock import patch

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import agg, serdes
from crossstream.operators.aggregate.builtin import group_rows
from tests.laws.effort import cases, law
from tests.laws.engine import Way
from tests.laws.rescaling import rescale_driver

Row = dict[str, Any]
Input = tuple[str, "Row | None"]

TEXT = serdes.string()
SCHEMA = {"n": pl.Int64, "x": pl.Float64, "s": pl.String, "d": pl.Date, "g": pl.String, "u": pl.UInt64}
VALUE = serdes.json(SCHEMA)
CONSUMED = cs.Consumed(key=TEXT, value=VALUE)

rows = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-3, 3),
        "x": st.none() | st.sampled_from([0.1, 0.2, -0.1, 1e16, -1e16, 3.5, 1e-300, -0.0]),
        "s": st.none() | st.sampled_from(["", "a", "b", "é"]),
        "d": st.none() | st.sampled_from([date(2024, 1, 1), date(1969, 2, 3)]),
        "g": st.none() | st.sampled_from(["u", "v"]),
        "u": st.none() | st.sampled_from([0, 1, 2**62, 2**58 + 1]),
    }
)
inputs = st.lists(st.tuples(st.sampled_from("abc"), st.none() | rows), max_size=24)
some_ways = st.builds(
    Way,
    partitions=st.integers(1, 3),
    every=st.sampled_from([1, 2, 3, 5, 100]),
    commits=st.frozensets(st.integers(1, 20), max_size=3),
    bits=st.sampled_from([64, 4, 1]),
    packed=st.booleans(),
)

OF_NUMBERS = {
    "count": agg.count(),
    "known": agg.count("n"),
    "total": agg.sum("n"),
    "unsigned": agg.sum("u"),
    "exact": agg.sum("x"),
    "mean": agg.mean("x"),
    "share": agg.sum(pl.col("n") * 2) / agg.count(),
}
EXTREMES = {"low": agg.min("n"), "high": agg.max("x"), "text": agg.max("s"), "day": agg.min("d")}
OF_ROWS = {
    "first": agg.first("s"),
    "last": agg.last("d"),
    "all": agg.collect("n"),
    "set": agg.collect_set("s"),
    "numbers": agg.count_distinct("n"),
    "zeros": agg.collect("x"),
    "top": agg.top(2, by="n", field="s"),
    "bottom": agg.bottom(3, by=pl.col("s")),
    "different": agg.approx_distinct("x"),
}
ALL = {**OF_NUMBERS, **EXTREMES, **OF_ROWS}
some_columns = st.sampled_from(
    [ALL, OF_NUMBERS, OF_NUMBERS | EXTREMES, EXTREMES, OF_ROWS, {"low": EXTREMES["low"]}]
)


def expected(found: Sequence[Row]) -> Row:
    """What the rows of a group give."""
    n, x, s, d, u = ([row[name] for row in found if row.get(name) is not None] for name in "nxsdu")
    different = list(dict.fromkeys(s))
    return {
        "count": len(found),
        "known": len(n),
        "total": sum(n) if n else None,
        "unsigned": sum(u) if u else None,
        "exact": math.fsum(x) if x else None,
        "mean": math.fsum(x) / len(x) if x else None,
        "share": 2 * sum(n) / len(found) if n else None,
        "low": min(n, default=None),
        "high": max(x, default=None),
        "text": max(s, default=None),
        "day": min(d, default=None),
        "first": s[0] if s else None,
        "last": d[-1] if d else None,
        "all": n,
        "set": different,
        "numbers": len(set(n)),
        "zeros": [abs(value) if value == 0 else value for value in x],
        "top": [row["s"] for row in sorted_by(found, "n", largest=True)[:2]],
        "bottom": sorted_by(found, "s")[:3],
        "different": len(set(x)),
    }


def sorted_by(found: Sequence[Row], name: str, largest: bool = False) -> list[Row]:
    """The rows with a value, of equal ones the first to arrive first."""
    return sorted((row for row in found if row[name] is not None), key=lambda row: row[name], reverse=largest)


def at_end(given_: Sequence[Input]) -> dict[str, Row]:
    """The groups of a stream, by key."""
    groups: dict[str, list[Row]] = {}
    for key, value in given_:
        if value is not None:
            groups.setdefault(key, []).append(value)
    return {key: expected(found) for key, found in groups.items()}


def of_table(given_: Sequence[Input]) -> dict[str, Row]:
    """The groups of a table, by the field ``g``; rows in the order in which they last changed."""
    held: dict[str, Row] = {}
    for key, value in given_:
        held.pop(key, None)
        if value is not None and value["g"] is not None:
            held[key] = value
    groups: dict[str, list[Row]] = {}
    for row in held.values():
        groups.setdefault(row["g"], []).append(row)
    return {key: expected(found) for key, found in groups.items()}


def pipe(driver: cs.TopologyTestDriver, way: Way, given_: Sequence[Input], then: Any = None) -> None:
    topics = {"s": driver.create_input_topic("s", TEXT, VALUE)}
    items = [{"side": "s", "key": key, "value": value, "ts": ts} for ts, (key, value) in enumerate(given_)]
    for number, ended in way.pipe(driver, topics, items):
        if ended and then is not None:
            then(number)


def only(columns: Any, wanted: dict[str, Row]) -> dict[str, Row]:
    return {key: {name: row[name] for name in columns} for key, row in wanted.items()}


def table_of(driver: cs.TopologyTestDriver, name: str = "t") -> dict[str, Row]:
    return dict(driver.get_key_value_store(name).all())


@law
@given(inputs, some_ways, some_columns)
def test_a_stream_gives_what_its_records_give(given_: list[Input], way: Way, columns: Any) -> None:
    builder = cs.StreamsBuilder()
    builder.stream("s", CONSUMED).group_by_key().agg(cs.Materialized(store="t"), **columns)
    with way.driver(builder.build()) as driver:
        pipe(
            driver,
            way,
            given_,
            lambda number: check(table_of(driver), only(columns, at_end(given_[:number]))),
        )


A, B = ({"n": n, "x": None, "s": "a", "d": None, "g": "u", "u": None} for n in (1, 2))


@cases(2)
@given(inputs, some_ways, some_columns, st.lists(st.integers(1, 4), max_size=3))
@example([("a", A), ("b", B), ("a", None), ("a", B), ("b", None)], Way(every=100), EXTREMES, [])
def test_a_table_gives_what_its_rows_give(
    given_: list[Input], way: Way, columns: Any, partitions: list[int]
) -> None:
    """Rows change, go, and move between groups; partitions change too."""
    builder = cs.StreamsBuilder()
    by_group = builder.table("s", CONSUMED).group_by(
        lambda key, row: (row["g"], row), cs.Grouped(key=TEXT, value=VALUE)
    )
    by_group.agg(cs.Materialized(store="t"), **columns)
    with way.driver(builder.build()) as driver:

        def then(number: int) -> None:
            check(table_of(driver), only(columns, of_table(given_[:number])))
            if partitions:
                rescale_driver(driver, partitions[number % len(partitions)])

        pipe(driver, way, given_, then)


@law
@given(inputs, some_ways, st.booleans(), some_columns, st.sampled_from([1, 3, 1000]))
def test_every_record_has_its_own_result(
    given_: list[Input], way: Way, tables: bool, columns: Any, chunk: int
) -> None:
    """A versioned table keeps every change, so each moment can be asked for."""
    builder = cs.StreamsBuilder()
    kept = cs.Materialized(store="t", history_retention=1000)
    if tables:
        grouped: Any = builder.table("s", CONSUMED).group_by(
            lambda key, row: (row["g"], row), cs.Grouped(key=TEXT, value=VALUE)
        )
    else:
        grouped = builder.stream("s", CONSUMED).group_by_key()
    grouped.agg(kept, **columns)
    with patch.object(group_rows, "CHUNK", chunk), way.driver(builder.build()) as driver:
        pipe(driver, way, given_)
        store = driver.get_versioned_store("t")
        for number in range(len(given_)):
            so_far = given_[: number + 1]
            wanted = only(columns, of_table(so_far) if tables else at_end(so_far))
            keys = ["u", "v"] if tables else ["a", "b", "c"]
            found = {key: store.get(key, as_of_time=number) for key in keys}
            check({key: one for key, one in found.items() if one is not None}, wanted)


@law
@given(inputs, some_ways, some_columns)
def test_windows_come_out_once(given_: list[Input], way: Way, columns: Any) -> None:
    """In one partition: each has a stream time of its own."""
    way = replace(way, partitions=1)
    builder = cs.StreamsBuilder()
    windows = cs.TimeWindows(size=6, advance=3, grace=2)
    grouped = builder.stream("s", CONSUMED).group_by_key().windowed_by(windows, emit="close")
    grouped.agg(**columns).to_stream().to("out")
    with way.driver(builder.build()) as driver:
        pipe(driver, way, given_)
        topic = driver.create_output_topic("out", serdes.windowed(TEXT, 6), serdes.json(_struct(columns)))
        found = {(one.key.key, one.key.start): one.value for one in topic.read_records()}
    times = [ts for ts, (_, value) in enumerate(given_) if value is not None]
    wanted = {}
    for start in range(0, 30, 3):
        if times and start + 6 + 2 <= max(times):
            inside = at_end(given_[start : start + 6])
            wanted.update({(key, start): row for key, row in only(columns, inside).items()})
    check(found, wanted)


def _struct(columns: Any) -> Any:
    builder = cs.StreamsBuilder()
    serde = builder.stream("s", CONSUMED).group_by_key().agg(**columns)._node.value
    assert serde is not None
    return serde.dtype


def check(found: dict[Any, Any], wanted: dict[Any, Row]) -> None:
    assert found == wanted


@dataclass
class Plain:
    """A row of the inputs."""

    n: int | None
    x: float | None
    s: str | None
    d: date | None
    g: str | None
    u: int | None


SOME_WINDOWS = st.sampled_from(
    [
        cs.SessionWindows(gap=3, grace=4),
        cs.SessionWindows(gap=1, grace=9),
        cs.SlidingWindows(difference=4, grace=5),
        cs.TimeWindows(size=5, advance=2, grace=3),
    ]
)


@cases(1.5)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), rows, st.integers(0, 20)), max_size=12),
    some_ways,
    st.sampled_from([ALL, OF_NUMBERS | EXTREMES, {"different": ALL["different"], "high": ALL["high"]}]),
    SOME_WINDOWS,
    st.sampled_from(["update", "close"]),
)
def test_windows_of_every_kind_give_what_functions_give(
    given_: list[tuple[str, Row, int]], way: Way, columns: Any, windows: Any, emit: Any
) -> None:
    """Records come late, and join sessions."""
    builder = cs.StreamsBuilder()
    grouped = builder.stream("s", CONSUMED).group_by_key().windowed_by(windows, emit=emit)
    made = grouped.agg(**columns)
    merging: Any = (
        {"merger": lambda left, right: left + right} if isinstance(windows, cs.SessionWindows) else {}
    )
    kept = cs.Materialized(value=serdes.json(list[Plain]))
    collected = grouped.aggregate(
        list, lambda found, row: [*found, Plain(**row)], materialized=kept, **merging
    )
    for name, table in (("agg", made), ("plain", collected)):
        table.to_stream().to(name)
    with way.driver(builder.build()) as driver:
        topics = {"s": driver.create_input_topic("s", TEXT, VALUE)}
        items = [{"side": "s", "key": key, "value": row, "ts": ts} for key, row, ts in given_]
        list(way.pipe(driver, topics, items))
        key = made._node.key
        assert key is not None
        value = serdes.json(_struct(columns))
        plain = serdes.json(list[Plain])
        out, other = (
            driver.create_output_topic("agg", key, value),
            driver.create_output_topic("plain", key, plain),
        )
        found = [(tuple(one.key), one.value, one.timestamp) for one in out.read_records()]
        functions = [(tuple(one.key), one.value, one.timestamp) for one in other.read_records()]
    wanted = [
        (key, None if rows_ is None else only(columns, {"": expected(as_rows(rows_))})[""], ts)
        for key, rows_, ts in functions
    ]
    check(last_of(found), last_of(wanted))


def last_of(found: Sequence[tuple[Any, Any, Any]]) -> dict[Any, Any]:
    """The table after these changes."""
    return {key: one for key, one in {key: (row, ts) for key, row, ts in found}.items() if one[0] is not None}


def as_rows(found: Sequence[Plain]) -> list[Row]:
    return [vars(row) for row in found]
