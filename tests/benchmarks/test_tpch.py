"""The benchmark of TPC-H: its changes, and that every query gives what DuckDB gives on the tables of then."""

from __future__ import annotations

from inspect import getsource
from pathlib import Path

import polars as pl
import pytest
from benchmarks.data import START_MS
from benchmarks.tpch.bench import Day
from benchmarks.tpch.changes import NATION_CHANGES, scenario
from benchmarks.tpch.data import TABLES, Change, applied, generated
from benchmarks.tpch.figures import ratio, summary
from benchmarks.tpch.queries import QUERIES, SCHEMAS, topology
from benchmarks.tpch.results import Fold
from benchmarks.tpch.sides import flink_statements
from benchmarks.tpch.sql import SQL, in_order, run

import crossstream as cs
from tests.spark.world import World

SCALE_FACTOR = 0.01


@pytest.fixture(scope="module")
def day() -> Day:
    return Day(scenario(generated(SCALE_FACTOR), (500, 3_000)))


def send(world: World, part: list[Change]) -> None:
    for change in part:
        for messages in change.messages(START_MS):
            world.append_wire(f"x-{change.table}", [(key, value, at) for key, value, at in messages])


def fold_of(world: World, query: str) -> Fold:
    fold = Fold(SQL[query].first_key)
    for partition in world.wire("x-results"):
        for key, value, *_ in partition:
            fold.take(key, value)
    return fold


@pytest.mark.parametrize("query", SQL)
def test_a_query_gives_what_duckdb_gives(query: str, day: Day, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(**{f"x-{table}": 2 for table in SQL[query].tables}, **{"x-results": 2})
    results = day.results(query)
    with cs.SparkStreams(topology("x", query), world.config(engine="local", partitions=2)) as app:
        for part, wanted in zip(day.parts(query), results, strict=True):
            send(world, part)
            app.process_available()
            assert fold_of(world, query).rows(wanted.schema).equals(wanted)
    assert len(results[-1]) > 0
    assert query == "q18" or not results[-1].equals(results[0])


def test_the_same_seed_gives_the_same_changes(day: Day) -> None:
    again = scenario(generated(SCALE_FACTOR), (500, 3_000))
    for mine, theirs in zip(day.scenario.parts, again.parts, strict=True):
        assert [one.table for one in mine] == [one.table for one in theirs]
        assert all(one.rows.equals(other.rows) for one, other in zip(mine, theirs, strict=True))
    other = scenario(generated(SCALE_FACTOR), (500, 3_000), seed=2)
    assert not day.scenario.parts[0][-1].rows.equals(other.parts[0][-1].rows)


def test_rows_come_change_move_and_go(day: Day) -> None:
    changes = {change.table: change.rows for change in day.scenario.parts[1]}
    assert changes["nation"].height == NATION_CHANGES
    before, after = day.tables[1], day.tables[2]
    for table, moved in (("orders", "o_custkey"), ("lineitem", "l_suppkey"), ("customer", "c_nationkey")):
        keys = list(TABLES[table])
        gone = before[table].join(after[table], on=keys, how="anti")
        new = after[table].join(before[table], on=keys, how="anti")
        both = before[table].join(after[table], on=keys)
        assert (len(gone) > 0) == (len(new) > 0) == (table != "customer")
        assert (both[moved] != both[f"{moved}_right"]).any()
        assert changes[table]["gone"].any() == (table != "customer")


def test_no_line_is_without_its_order_its_part_and_its_supplier(day: Day) -> None:
    for rows in day.tables:
        for table, column in (("orders", "o_orderkey"), ("part", "p_partkey"), ("supplier", "s_suppkey")):
            assert (
                rows["lineitem"]
                .join(rows[table], left_on=f"l_{column[2:]}", right_on=column, how="anti")
                .is_empty()
            )
        assert (
            rows["orders"]
            .join(rows["customer"], left_on="o_custkey", right_on="c_custkey", how="anti")
            .is_empty()
        )
        for name, table in rows.items():
            assert table.select(TABLES[name]).is_unique().all()


def test_changes_are_applied_in_order() -> None:
    rows = {"nation": pl.DataFrame({"n_nationkey": [1, 2, 3], "n_name": ["a", "b", "c"]})}
    change = pl.DataFrame(
        {
            "n_nationkey": [2, 3, 2, 4, 3],
            "n_name": ["x", "y", "z", "w", "v"],
            "at": [0, 1, 2, 3, 4],
            "gone": [False, False, False, False, True],
        }
    )
    after = applied(rows, [Change("nation", change)])["nation"]
    assert sorted(after.rows()) == [(1, "a"), (2, "z"), (4, "w")]
    messages = [m for part in Change("nation", change).messages(100) for m in part]
    assert messages[0] == ((2).to_bytes(8, "big"), b'{"n_nationkey":2,"n_name":"x"}', 100)
    assert messages[-1] == ((3).to_bytes(8, "big"), None, 104)


def test_the_schemas_are_those_of_the_rows() -> None:
    made = {name: dict(rows.schema) for name, rows in generated(SCALE_FACTOR).items()}
    assert made == SCHEMAS


def test_a_result_without_its_key_gets_it() -> None:
    fold = Fold("k")
    for key, value in ((7, b'{"n":1}'), (8, b'{"n":2}'), (7, b'{"n":3}'), (8, None)):
        fold.take(key.to_bytes(8, "big"), value)
    assert fold.rows(pl.Schema({"k": pl.Int64, "n": pl.Int64})).rows() == [(7, 3)]


def test_all_sides_are_asked_the_same() -> None:
    assert set(QUERIES) == set(SQL)
    for query in SQL:
        *tables, insert = flink_statements("localhost:9092", "x", query)
        assert len(tables) == len(SQL[query].tables) + 1
        assert SQL[query].text.strip().split("\n", 1)[1] in insert


def test_rows_are_compared_in_order() -> None:
    rows = pl.DataFrame({"b": [2, 1], "a": ["x", "x"]}, schema={"b": pl.Int32, "a": pl.String})
    assert in_order(rows).rows() == [("x", 1), ("x", 2)]
    assert in_order(rows).schema == {"a": pl.String, "b": pl.Int64}


def test_the_page_shows_the_queries_that_are_measured() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tpch.md").read_text()
    for name, query in QUERIES.items():
        assert getsource(query) in page
        assert SQL[name].text.strip() in page


@pytest.mark.parametrize("query", [name for name, asked in SQL.items() if asked.shaped])
def test_another_shape_gives_the_same(query: str, day: Day) -> None:
    asked = SQL[query]
    assert asked.shaped is not None
    for rows, wanted in zip(day.tables, day.results(query), strict=True):
        assert in_order(run(asked.shaped, asked.tables, rows)).equals(wanted)


def test_ratios_are_those_of_one_round() -> None:
    given = [("crossstream", 0, 40), ("flink-heap", 0, 10), ("flink-rocksdb", 0, 20), ("crossstream", 1, 90)]
    given += [("flink-heap", 1, 30), ("flink-rocksdb", 1, 10)]
    lines = [
        {"query": "q3", "side": side, "round": number, "per second": rate, "snapshot": 1}
        | {"core-seconds per million": 1.0}
        for side, number, rate in given
    ]
    ours, heap, rocks = summary(lines)
    assert ours["times flink"] == 2.5
    assert "times merge" not in ours
    assert (ours["per second"], heap["per second"], rocks["per second"]) == (65, 20, 15)
    assert ratio(lines, "merge") is None
