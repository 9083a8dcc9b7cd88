"""DataFrames of plain columns, and changes of tables, through an application on Spark."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crossstream as cs
from tests.spark.change_commits import History, histories
from tests.spark.feed_source import SCHEMA, feed, put
from tests.spark.marketplace import JSON, TEXT
from tests.spark.world import World

pytestmark = pytest.mark.spark

UTC = dt.timezone.utc


@contextmanager
def running(spark: Any, world: World, builder: cs.StreamsBuilder, **config: Any) -> Iterator[cs.SparkStreams]:
    with cs.SparkStreams(builder.build(), world.config(**config), spark) as app:
        app.process_available()
        yield app


def rows_of(spark: Any, world: World, schema: str, *rows: dict[str, Any], name: str = "rows") -> Any:
    """A streaming DataFrame of these rows."""
    folder = world.root / name
    folder.mkdir(exist_ok=True)
    (folder / f"{len(list(folder.iterdir()))}.json").write_text("\n".join(map(json.dumps, rows)))
    return spark.readStream.schema(schema).json(str(folder))


def test_tables_of_plain_columns_join_by_expressions(spark: Any, world: World) -> None:
    orders = rows_of(
        spark,
        world,
        "id string, customer_id bigint, price decimal(10,2)",
        {"id": "o1", "customer_id": 1, "price": "1.50"},
        {"id": "o2", "customer_id": 9, "price": "2.50"},
        {"id": None, "customer_id": 1, "price": "3.50"},
        name="orders",
    )
    customers = rows_of(
        spark,
        world,
        "id bigint, name string, since date",
        {"id": 1, "name": "Ada", "since": "2026-01-31"},
        name="c",
    )
    builder = cs.StreamsBuilder()
    offers = builder.table_from(orders, key="id", name="orders").join(
        builder.table_from(customers, key="id", columns=["name"], name="customers"),
        foreign_key="customer_id",
        on_merge=cs.prefixed("customer_"),
        store="offers",
    )
    offers.to_stream()
    with running(spark, world, builder) as app:
        assert app.store("offers").get("o1") == {
            "customer_id": 1,
            "price": Decimal("1.50"),
            "customer_name": "Ada",
        }
        assert app.store("offers").get("o2") is None
        assert app.progress.dropped == {"orders: null-key": 1}


def test_every_type_comes_back(spark: Any, world: World) -> None:
    """Through the store; beside each the same value as Spark has it."""
    row = (
        "SELECT 'k' AS id, cast(1 as tinyint) AS tiny, cast(2 as smallint) AS small, 3 AS whole, 4L AS big, "
        "cast(0.5 as float) AS single, 0.1D AS double, true AS flag, 'é' AS text, cast('ab' as binary) AS raw, "
        "cast('1.50' as decimal(10,2)) AS price, timestamp '2026-01-31 12:00:00.000005' AS at, "
        "timestamp_ntz '2026-01-31 12:00:00' AS local, date '2026-01-31' AS day, array(1, null) AS list, "
        "map('a', 1, 'b', null) AS pairs, named_struct('x', 1, 'y', array(named_struct('z', 'q'))) AS deep, "
        "interval '1 02:03:04.000005' day to second AS took, null AS nothing"
    )
    path = str(world.root / "types")
    spark.sql(row.replace(", null AS nothing", "")).write.parquet(path)
    schema = spark.read.parquet(path).schema
    frame = spark.readStream.schema(schema).parquet(path).selectExpr("*", "null AS nothing")
    builder = cs.StreamsBuilder()
    builder.table_from(frame, key="id", name="types", store="types")
    with running(spark, world, builder) as app:
        found = app.store("types").get("k")
    assert found == {
        "tiny": 1,
        "small": 2,
        "whole": 3,
        "big": 4,
        "single": 0.5,
        "double": 0.1,
        "flag": True,
        "text": "é",
        "raw": b"ab",
        "price": Decimal("1.50"),
        "at": dt.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
        "local": dt.datetime(2026, 1, 31, 12),
        "day": dt.date(2026, 1, 31),
        "list": [1, None],
        "pairs": [{"key": "a", "value": 1}, {"key": "b", "value": None}],
        "deep": {"x": 1, "y": [{"z": "q"}]},
        "took": dt.timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5),
        "nothing": None,
    }


def test_a_stream_with_times_and_without_keys(spark: Any, world: World) -> None:
    world.create(out=1)
    frame = rows_of(
        spark,
        world,
        "n bigint, at timestamp",
        {"n": 7, "at": "1970-01-01T00:00:01.5Z"},
        {"n": 8, "at": "1970-01-01T00:00:02Z"},
    )
    builder = cs.StreamsBuilder()
    events = builder.stream_from(frame, key=(), timestamp="at", columns=["n"], name="events")
    events.filter(pl.col("n") > 7).to("out", cs.Produced(key=TEXT, value=JSON))
    with running(spark, world, builder):
        pass
    (record,) = world.read("out", TEXT, JSON)
    assert (record.key, record.value, record.ts) == (None, {"n": 8}, 2000)


def test_a_key_of_several_columns(spark: Any, world: World) -> None:
    frame = rows_of(
        spark,
        world,
        "shop string, id bigint, n bigint",
        {"shop": "a", "id": 1, "n": 7},
        {"shop": "a", "id": None, "n": 8},
    )
    builder = cs.StreamsBuilder()
    builder.table_from(frame, key=["shop", "id"], name="rows", store="rows")
    with running(spark, world, builder) as app:
        assert app.store("rows").get({"shop": "a", "id": 1}) == {"n": 7}
        assert app.progress.dropped == {"rows: null-key": 1}


def test_a_number_that_json_lacks_is_named(spark: Any, world: World) -> None:
    frame = rows_of(spark, world, "id string, n bigint", {"id": "a", "n": 1}).selectExpr(
        "id", "double('NaN') AS x"
    )
    builder = cs.StreamsBuilder()
    builder.table_from(frame, key="id", name="rows", store="rows")
    with pytest.raises(cs.SerdeError) as caught, running(spark, world, builder):
        pass
    assert (caught.value.code, caught.value.where["operator"]) == ("CS-403", "rows")


def test_a_column_with_a_strange_name(spark: Any, world: World) -> None:
    frame = rows_of(spark, world, "id string, n bigint", {"id": "a", "n": 1})
    builder = cs.StreamsBuilder()
    odd = frame.withColumnRenamed("n", "a.`b` c")
    builder.table_from(odd, key="id", name="rows", store="rows")
    with running(spark, world, builder) as app:
        assert app.store("rows").get("a") == {"a.`b` c": 1}


# -- changes


def changes_of(spark: Any, world: World, *rows: list[Any]) -> Any:
    """A streaming DataFrame of changes."""
    names = ("key", "number", "_change_type", "_commit_version", "_commit_timestamp")
    return rows_of(
        spark,
        world,
        SCHEMA,
        *({**dict(zip(names, row, strict=True)), names[4]: moment(row[4])} for row in rows),
        name="changes",
    )


def moment(milliseconds: int) -> str:
    return dt.datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


COMMITS = [
    [["a", 1, "insert", 1, 1000], ["b", 1, "insert", 1, 1000]],
    [
        ["a", 1, "update_preimage", 2, 1000],
        ["a", 2, "update_postimage", 2, 1000],
        ["b", 1, "delete", 2, 1000],
    ],
    [["b", 5, "insert", 3, 500], ["a", 2, "delete", 3, 500], ["a", 9, "insert", 3, 500]],
]


def test_changes_are_a_table(spark: Any, world: World) -> None:
    """All versions in one micro-batch, the last first, a row in each partition of Spark."""
    put(world.root / "feed", [[row] for commit in reversed(COMMITS) for row in reversed(commit)])
    builder = cs.StreamsBuilder()
    builder.table_from(feed(spark, world.root / "feed"), key="key", name="rows", store="rows")
    with running(spark, world, builder) as app:
        store = app.store("rows")
        assert {key: value["number"] for key, value in store.all()} == {"a": 9, "b": 5}
        assert app.progress.dropped == {"rows: update-preimage": 1}


def test_changes_as_a_stream_are_records(spark: Any, world: World) -> None:
    """Of all rows, with the columns of changes as fields, at the times of the commits."""
    world.create(out=1)
    builder = cs.StreamsBuilder()
    changes = builder.stream_from(changes_of(spark, world, *COMMITS[1]), key="key", name="rows")
    changes.to("out", cs.Produced(key=TEXT, value=JSON))
    with running(spark, world, builder):
        pass
    records = world.read("out", TEXT, JSON)
    assert [(record.key, record.value["_change_type"], record.ts) for record in records] == [
        ("a", "update_preimage", 1000),
        ("a", "update_postimage", 1000),
        ("b", "delete", 1000),
    ]
    assert records[0].value["_commit_version"] == 2


def test_changes_beside_a_topic_and_other_rows(spark: Any, world: World) -> None:
    """The rows that are no changes keep the order of their partition."""
    world.create(names=2, out=1)
    world.append("names", [("a", {"name": "Ada"}, 1), ("y", {"name": "Grace"}, 2)], value=JSON)
    frame = changes_of(spark, world, ["a", 1, "insert", 1, 1000], ["b", 1, "insert", 1, 1000])
    plain = [{"id": "k", "n": number} for number in range(50)]
    builder = cs.StreamsBuilder()
    table = builder.table_from(frame, key="key", name="rows", store="rows")
    table.join(
        builder.table("names", key=str, value={"name": pl.String}), lambda row, name: name, store="both"
    )
    builder.stream_from(
        rows_of(spark, world, "id string, n bigint", *plain, name="plain"), key="id", name="plain"
    ).to("out", cs.Produced(key=TEXT, value=JSON))
    with running(spark, world, builder) as app:
        assert app.store("rows").get("b") == {"number": 1}
        assert app.store("both").get("a") == {"name": "Ada"}
    assert [record.value["n"] for record in world.read("out", TEXT, JSON)] == list(range(50))


def test_an_unknown_change_stops_the_batch(spark: Any, world: World) -> None:
    frame = changes_of(spark, world, ["a", 1, "upsert", 1, 1000])
    builder = cs.StreamsBuilder()
    builder.table_from(frame, key="key", name="rows", store="rows")
    with pytest.raises(cs.ProcessingError) as caught, running(spark, world, builder):
        pass
    assert caught.value.code == "CS-507"
    assert caught.value.where == {"operator": "rows", "column": "_change_type"}


def test_a_key_that_is_none_is_named(spark: Any, world: World) -> None:
    frame = changes_of(spark, world, ["a", 1, "insert", 1, 1000], ["a", 2, "insert", 1, 1000])
    builder = cs.StreamsBuilder()
    builder.table_from(frame, key="key", name="rows", store="rows")
    with (
        pytest.raises(cs.ProcessingError, match="version 1 has two rows of the key 'a'") as caught,
        running(spark, world, builder),
    ):
        pass
    assert caught.value.where["operator"] == "rows"
    assert "test_plain_frames.py" in caught.value.where["line"]


def test_a_commit_that_comes_in_two_batches(spark: Any, world: World) -> None:
    """Its delete might be of the row that it wrote in the first one."""
    builder = cs.StreamsBuilder()
    frame = changes_of(spark, world, ["a", 2, "insert", 3, 1000])
    builder.table_from(frame, key="key", name="rows", store="rows")
    with running(spark, world, builder) as app:
        changes_of(spark, world, ["b", 2, "insert", 3, 1000])
        app.process_available()
        assert {key for key, _ in app.store("rows").all()} == {"a", "b"}
    changes_of(spark, world, ["a", 1, "delete", 3, 1000])
    with (
        pytest.raises(cs.ProcessingError, match="version 3 came after a batch"),
        running(spark, world, builder),
    ):
        pass


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(history=histories(most=5), cuts=st.sets(st.integers(1, 4)), seed=st.integers(0, 99))
def test_law_the_table_is_that_of_the_commits(
    spark: Any, history: History, cuts: set[int], seed: int
) -> None:
    """Commits cut into batches, restarted after each; the rows of a batch torn over partitions."""
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        world.create(unused=1)
        shuffle = random.Random(seed).shuffle
        begin = 0
        for end in sorted({one for one in cuts if one < len(history.rows)} | {len(history.rows)}):
            rows = [row for commit in history.rows[begin:end] for row in commit]
            shuffle(rows)
            put(world.root / "feed", [rows[part::3] for part in range(3)])
            builder = cs.StreamsBuilder()
            table = builder.table_from(feed(spark, world.root / "feed"), key="key", name="rows", store="rows")
            table.map_values(pl.struct(twice=pl.col("number") * 2), store="twice")
            with running(spark, world, builder) as app:
                stored = {key: value["number"] for key, value in app.store("rows").all()}
                twice = {key: value["twice"] for key, value in app.store("twice").all()}
            assert stored == history.tables[end - 1]
            assert twice == {key: 2 * number for key, number in stored.items()}
            begin = end
