"""A changed result that is a table of Postgres: its rows are read back, and those that differ are written."""

from __future__ import annotations

from datetime import datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.databases.connection import parts_of
from crossstream.databases.postgres import PostgresSink
from crossstream.errors import StateError
from crossstream.evolution.evolve import Evolved
from crossstream.evolution.revert import Code, revert
from crossstream.storage.commit_log import BatchLog
from tests.databases.tables import Tables
from tests.evolution.test_evolve import changed, rounds, run
from tests.faults.crash_points import Crash, after, before
from tests.spark.world import World

TEXT = serdes.string()
PRICED = serdes.json({"price": pl.Int64})
GIVEN = cs.Consumed(key=TEXT, value=PRICED)
PRICES = {f"p{number}": number for number in range(50)}


def topology(tables: Tables, price: pl.Expr, table: str = "prices", **settings: Any) -> cs.Topology:
    """Prices, changed by an expression, in a table; no store has them."""
    builder = cs.StreamsBuilder()
    prices = builder.table("prices", GIVEN)
    tables.sink(prices.map_values(pl.struct(price=price), value=PRICED), table, key="product", **settings)
    return builder.build()


PRICE = pl.col("price")
DEARER = pl.when(PRICE >= 40).then(PRICE + 1).otherwise(PRICE)


def left(tmp_path: Path, tables: Tables) -> World:
    """The state and the table that the first code leaves."""
    world = World(tmp_path)
    world.create(prices=2)
    world.append(
        "prices",
        [(key, {"price": price}, at) for at, (key, price) in enumerate(PRICES.items())],
        value=PRICED,
    )
    run(world, topology(tables, PRICE))
    return world


def rows(tables: Tables, table: str = "prices") -> dict[str, int]:
    return dict(tables.execute(f"SELECT product, price FROM {table}"))


def written(done: Evolved) -> int:
    return sum(done.sent.values())


def test_rows_that_differ_are_written(tmp_path: Path, tables: Tables) -> None:
    world = left(tmp_path, tables)
    assert rows(tables) == PRICES
    before = dict(tables.execute("SELECT product, xmin::text FROM prices"))
    done = changed(world, topology(tables, DEARER))
    assert rows(tables) == {key: price + (price >= 40) for key, price in PRICES.items()}
    assert written(done) == 10
    after = dict(tables.execute("SELECT product, xmin::text FROM prices"))
    assert {key for key in after if after[key] != before[key]} == {f"p{number}" for number in range(40, 50)}
    assert done.commit is not None
    assert list(tables.marks().values()) == [done.commit.id]
    assert changed(world, topology(tables, DEARER)).commit is None
    world.append("prices", [("p1", {"price": 7}, 99)], value=PRICED)
    run(world, topology(tables, DEARER))
    assert rows(tables)["p1"] == 7


def test_a_change_is_taken_back(tmp_path: Path, tables: Tables) -> None:
    world = left(tmp_path, tables)
    new = topology(tables, DEARER)
    changed(world, new)
    revert(world.state_dir, Code(new, world.config(partitions=2), rounds))
    assert rows(tables) == PRICES
    world.append("prices", [("p1", {"price": 7}, 99)], value=PRICED)
    run(world, topology(tables, PRICE))
    assert rows(tables) == {**PRICES, "p1": 7}


KEY = serdes.json({"shop": pl.Int64, "name": pl.String})


def kept(tables: Tables, least: int) -> cs.Topology:
    """Prices from one on, as they came, with keys of JSON, in a table with a column for each field."""
    builder = cs.StreamsBuilder()
    prices = builder.table("prices", cs.Consumed(key=KEY, value=PRICED))
    tables.sink(prices.filter(least <= PRICE), "prices", key=["shop", "name"])
    return builder.build()


def test_equal_values_in_other_bytes(tmp_path: Path, tables: Tables) -> None:
    """Other programs write JSON with spaces: what a table has is the same row nevertheless."""
    world = World(tmp_path)
    world.create(prices=2)
    given = [(b'{"name": "n%d",  "shop": %d}' % (n, n % 3), b'{"price":  %d}' % n, n) for n in range(50)]
    world.append_wire("prices", given)
    run(world, kept(tables, 3))
    found = "SELECT shop, name, price FROM prices ORDER BY price"
    was = [(n % 3, f"n{n}", n) for n in range(3, 50)]
    assert tables.execute(found) == was
    new = kept(tables, 5)
    assert written(changed(world, new)) == 2
    assert tables.execute(found) == was[2:]
    revert(world.state_dir, Code(new, world.config(partitions=2), rounds))
    assert tables.execute(found) == was


CHANGED = {key: price + (price >= 40) for key, price in PRICES.items()}
KILLED = {
    "before it is noted": (before(BatchLog, "write_batch"), False),
    "before the rows are written": (before(PostgresSink, "write"), True),
    "in the transaction": (after(PostgresSink, "_change"), True),
    "when the rows are there": (after(PostgresSink, "write"), True),
    "before the commit": (before(BatchLog, "write_commit", 2), True),
}
"""Where, and whether the next start finishes it. The first commit is that of the stores that are rebuilt."""


@pytest.mark.parametrize("place", KILLED)
def test_a_change_that_is_killed(
    place: str, tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, new = left(tmp_path, tables), topology(tables, DEARER)
    arm, is_noted = KILLED[place]
    with monkeypatch.context() as patch:
        arm(patch)
        with pytest.raises(Crash):
            changed(world, new)
    if not is_noted:
        assert rows(tables) == PRICES
    done = changed(world, new)
    assert (done.commit is None) is is_noted
    assert rows(tables) == CHANGED
    assert list(tables.marks().values()) == [BatchLog(world.config().state_path).newest().id]
    assert changed(world, new).commit is None


def test_a_new_table_gets_all_rows_and_one_that_is_gone_is_named(tmp_path: Path, tables: Tables) -> None:
    world = left(tmp_path, tables)
    new = topology(tables, PRICE, "others")
    done = changed(world, new)
    assert rows(tables, "others") == rows(tables) == PRICES
    assert written(done) == len(PRICES)
    assert len(done.decision.gone) == 1
    assert [result.compared for result in done.decision.results] == ["nothing"]
    run(world, new)
    revert(world.state_dir, Code(new, world.config(partitions=2), rounds))
    assert (rows(tables, "others"), rows(tables)) == ({}, PRICES)
    world.append("prices", [("p1", {"price": 7}, 99)], value=PRICED)
    run(world, topology(tables, PRICE))
    assert (rows(tables, "others"), rows(tables)) == ({}, {**PRICES, "p1": 7})


def test_a_result_that_a_store_has_is_compared_with_it(tmp_path: Path, tables: Tables) -> None:
    """The table is not read: what others have changed in it stays until the key changes."""

    def stored(price: pl.Expr) -> cs.Topology:
        builder = cs.StreamsBuilder()
        kept = cs.Materialized(store="kept", key=TEXT, value=PRICED)
        prices = builder.table("prices", GIVEN).map_values(pl.struct(price=price), materialized=kept)
        tables.sink(prices, "prices", key="product")
        return builder.build()

    world = World(tmp_path)
    world.create(prices=2)
    world.append("prices", [(key, {"price": price}, 1) for key, price in PRICES.items()], value=PRICED)
    run(world, stored(PRICE))
    tables.execute("UPDATE prices SET price = -1 WHERE product = 'p1'")
    done = changed(world, stored(DEARER))
    assert [result.compared for result in done.decision.results] == ["store"]
    assert (written(done), rows(tables)) == (10, {**CHANGED, "p1": -1})


def test_rows_of_others_are_not_of_the_result(tmp_path: Path, tables: Tables) -> None:
    world = left(tmp_path, tables)
    tables.execute("UPDATE prices SET price = -1 WHERE product = 'p1'")
    tables.execute("INSERT INTO prices VALUES ('other', 1)")
    tables.execute("DELETE FROM prices WHERE product = 'p2'")
    assert written(changed(world, topology(tables, DEARER))) == 13
    assert rows(tables) == CHANGED


def test_a_column_that_is_new_has_no_values_yet(tmp_path: Path, tables: Tables) -> None:
    def named(least: int) -> cs.Topology:
        builder = cs.StreamsBuilder()
        name = pl.when(least <= PRICE).then(pl.lit("dear"))
        value = serdes.json({"price": pl.Int64, "name": pl.String})
        prices = builder.table("prices", GIVEN).map_values(pl.struct(price=PRICE, name=name), value=value)
        tables.sink(prices, "prices", key="product", schema_mode="merge")
        return builder.build()

    world = left(tmp_path, tables)
    assert written(changed(world, named(40))) == 10
    assert tables.execute("SELECT count(*) FROM prices WHERE name = 'dear' AND price >= 40") == [(10,)]


EVERY = {
    "flag": pl.Boolean(),
    "n": pl.UInt64(),
    "small": pl.UInt8(),
    "ratio": pl.Float64(),
    "cost": pl.Decimal(9, 2),
    "kind": pl.String(),
    "raw": pl.Binary(),
    "day": pl.Date(),
    "clock": pl.Time(),
    "at": pl.Datetime("ms", "Europe/Berlin"),
    "tags": pl.List(pl.String()),
    "costs": pl.List(pl.Decimal(9, 2)),
    "lines": pl.List(pl.Struct({"sku": pl.String(), "cost": pl.Decimal(9, 2), "at": pl.Datetime("us")})),
}
TIME = datetime(2026, 1, 2, 3, 4, 5, 678_000, timezone.utc)
FULL = {
    "flag": False,
    "n": 2**64 - 1,
    "small": 255,
    "ratio": -0.0,
    "cost": Decimal("-1.50"),
    "kind": "b",
    "raw": b"\0\xff",
    "day": TIME.date(),
    "clock": time(23, 59, 59, 5),
    "at": TIME,
    "tags": ['a"\\,{}\n', None, ""],
    "costs": [Decimal("0.10"), None],
    "lines": [{"sku": "é", "cost": Decimal("2.00"), "at": datetime(2026, 1, 2)}, None],
}


def test_every_type_is_the_same_when_it_is_read_back(tmp_path: Path, tables: Tables) -> None:
    """A filter changes, and no row but those that it leaves out is written."""
    key = serdes.json({"shop": pl.Struct({"id": pl.Int32, "name": pl.String}), "on": pl.Date})
    value = serdes.json(EVERY)

    def topology(least: int) -> cs.Topology:
        builder = cs.StreamsBuilder()
        rows = builder.table("rows", cs.Consumed(key=key, value=value))
        kept = rows.map_values(lambda row: dict(row), value=value).filter(pl.col("small") >= least)
        tables.sink(kept, "rows", timestamp="seen")
        return builder.build()

    world = World(tmp_path)
    world.create(rows=2)
    empty = {**dict.fromkeys(EVERY), "small": 9}
    others = [{**FULL, "small": 1}, FULL, empty, {**FULL, "tags": [], "lines": [], "raw": b""}]
    given = [
        ({"shop": {"id": n, "name": f"s{n}"}, "on": TIME.date()}, row, n) for n, row in enumerate(others)
    ]
    world.append("rows", given, key=key, value=value)
    run(world, topology(1))
    was = tables.tuples("rows", "*, xmin::text")
    assert len(was) == 4
    assert written(changed(world, topology(2))) == 1
    assert tables.tuples("rows", "*, xmin::text") == [
        row for row in was if row[5] != 1
    ]  # of the column `small`
    revert(world.state_dir, Code(topology(2), world.config(partitions=2), rounds))
    assert tables.tuples("rows") == [row[:-1] for row in was]


OTHERS = {
    "ALTER TABLE prices ALTER price TYPE integer": "the column 'price' is integer, and bigint is written",
    "ALTER TABLE prices RENAME price TO cost": "it has no column 'price'",
    "DROP TABLE prices": "there is no such table",
    "ALTER TABLE prices ALTER price TYPE numeric; INSERT INTO prices VALUES ('x', 0.5)": "the column 'price' has a",
    "ALTER TABLE prices SET UNLOGGED": "it is unlogged",
}


@pytest.mark.parametrize("sql", OTHERS)
def test_a_table_that_has_other_values_is_refused(sql: str, tmp_path: Path, tables: Tables) -> None:
    world = left(tmp_path, tables)
    for one in sql.split("; "):
        tables.execute(one)
    with pytest.raises(StateError, match=OTHERS[sql]) as caught:
        changed(world, topology(tables, DEARER))
    assert caught.value.code == "CS-755"
    assert BatchLog(world.config().state_path).newest().id == 0


def test_a_database_that_does_not_answer_is_named(tmp_path: Path, tables: Tables) -> None:
    world = left(tmp_path, tables)
    tables.dsn = "host=127.0.0.1 port=1 user=writer password=s3cret-word"
    with pytest.raises(StateError, match="the database does not give them") as caught:
        changed(world, topology(tables, DEARER))
    assert caught.value.code == "CS-755"
    assert "s3cret" not in str(caught.value)


def test_a_key_of_floats_is_refused(tmp_path: Path, tables: Tables) -> None:
    def by_float(price: pl.Expr) -> cs.Topology:
        builder = cs.StreamsBuilder()
        prices = builder.table("prices", cs.Consumed(key=serdes.float64(), value=PRICED))
        tables.sink(prices.map_values(pl.struct(price=price), value=PRICED), "prices")
        return builder.build()

    world = World(tmp_path)
    world.create(prices=1)
    world.append("prices", [(0.5, {"price": 1}, 1)], key=serdes.float64(), value=PRICED)
    run(world, by_float(PRICE))
    with pytest.raises(StateError, match="the column 'key' is a key of floats"):
        changed(world, by_float(DEARER + 1))


def test_the_password_stays_in_the_driver(
    tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = str(parts_of(tables.dsn)["password"]).encode()
    world, jobs = left(tmp_path, tables), []
    prepare = LocalRounds.prepare

    def noted(self: LocalRounds, job: Any, *more: Any) -> Any:
        jobs.append(cloudpickle.dumps(job))
        return prepare(self, job, *more)

    monkeypatch.setattr(LocalRounds, "prepare", noted)
    before(PostgresSink, "write")(monkeypatch)
    with pytest.raises(Crash):
        changed(world, topology(tables, DEARER))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("evolving" in path.parts for path in files)
    assert len(jobs) == 2
    assert not [path for path in files if password in path.read_bytes()]
    assert not [job for job in jobs if password in job]
