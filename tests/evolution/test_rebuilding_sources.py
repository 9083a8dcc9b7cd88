"""Sources that are no plain topics of Kafka: what is rebuilt reads their stored rows, or reads them again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import crossstream as cs
from crossstream import serdes
from tests.evolution.rebuilding import decided, rebuilt, rows_of
from tests.faults.one_process import process
from tests.spark.world import TEXT, World

JSON = serdes.json()
Row = dict[str, Any]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create(orders=2)
    world.append("orders", [(f"o{i}", {"shop": f"s{i % 3}", "amount": i}, i) for i in range(9)], value=JSON)
    return world


def shops() -> pl.DataFrame:
    return pl.DataFrame({"id": ["s0", "s1"], "town": ["Rome", "Oslo"]})


def shop_of(order: Row) -> str:
    return str(order["shop"])


def town(order: Row, shop: Row) -> Row:
    return {"town": shop["town"]}


def town_and_amount(order: Row, shop: Row) -> Row:
    return {**town(order, shop), "amount": order["amount"]}


def with_refreshed(joiner: Any, only: Any = None) -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders: Any = builder.table("orders", cs.Consumed(key=TEXT, value=JSON))
    held: Any = builder.global_table_from(shops, key="id", name="shops")
    orders = orders if only is None else orders.filter(only)
    orders.join(held, joiner, foreign_key=shop_of).to_stream().to("out", key=str, value=JSON)
    return builder.build()


def with_lake(path: str, joiner: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders: Any = builder.table("orders", cs.Consumed(key=TEXT, value=JSON))
    held: Any = builder.table_from_delta(path, key="id", name="shops")
    orders.join(held, joiner, foreign_key=shop_of).to_stream().to("out", key=str, value=JSON)
    return builder.build()


def check(world: World, new: cs.Topology) -> None:
    (result,) = rebuilt(world, new).results
    assert result.before is not None
    assert {key: value for key, (value, _) in rows_of(result.after).items()} == {
        f"o{i}": {"town": ("Rome", "Oslo")[i % 3], "amount": i} for i in range(9) if i % 3 < 2
    }
    assert len(rows_of(result.before)) == 6


def test_a_table_that_is_read_again_and_again(world: World) -> None:
    process(with_refreshed(town), world.config())
    check(world, with_refreshed(town_and_amount))


def test_a_delta_table(world: World) -> None:
    path = str(world.root / "shops")
    write_deltalake(path, pa.table(shops().to_arrow()))
    process(with_lake(path, town), world.config())
    check(world, with_lake(path, town_and_amount))


def test_a_delta_table_is_read_again_as_of_the_last_batch(world: World) -> None:
    path = str(world.root / "shops")
    write_deltalake(path, pa.table(shops().to_arrow()))
    new = with_lake(path, town_and_amount)
    process(with_lake(path, town), world.config())
    write_deltalake(path, pa.table({"id": ["s2"], "town": ["Bonn"]}), mode="append")
    decision = decided(world, new)
    read_again = {name: rows for name, rows in decision.rows.items() if name != "shops"}
    (result,) = rebuilt(world, new, replace(decision, rows=read_again)).results
    assert len(rows_of(result.after)) == 6


def event(
    op: str, number: int, lsn: int, row: Row | None, before: Row | None = None
) -> tuple[bytes, bytes, int]:
    said = {"op": op, "before": before, "after": row, "source": {"lsn": lsn}, "ts_ms": lsn}
    return json.dumps({"id": number}).encode(), json.dumps(said).encode(), lsn


def with_events(joiner: Any, ordered_by: str | None) -> cs.Topology:
    builder = cs.StreamsBuilder()
    columns = {"id": pl.Int64, "shop": pl.String, "amount": pl.Int64}
    orders: Any = builder.table("events", source=cs.debezium(columns, ordered_by=ordered_by))
    held: Any = builder.table("shops", cs.Consumed(key=TEXT, value=JSON))
    orders.join(held, joiner, foreign_key=shop_of).to_stream().to("out", value=JSON)
    return builder.build()


@pytest.mark.parametrize("ordered_by", [None, "source.lsn"])
def test_rows_of_change_events(world: World, ordered_by: str | None) -> None:
    world.create(events=1, shops=1)
    rows = [{"id": i, "shop": f"s{i % 3}", "amount": i} for i in range(9)]
    events = [event("c", i, 10 + i, row) for i, row in enumerate(rows)]
    gone = event("d", 0, 30, None, rows[0])
    moved = event("u", 1, 31, {**rows[1], "shop": "s0"}, rows[1])
    world.append_wire("events", [*events, gone, moved])
    world.append("shops", [("s0", {"town": "Rome"}, 1), ("s1", {"town": "Oslo"}, 2)], value=JSON)
    process(with_events(town, ordered_by), world.config(max_records_per_batch=4))
    new = with_events(town_and_amount, ordered_by)
    decision = decided(world, new)
    assert not decision.read_again
    (result,) = rebuilt(world, new, decision).results
    assert {key: value for key, (value, _) in rows_of(result.after).items()} == {
        1: {"town": "Rome", "amount": 1},
        3: {"town": "Rome", "amount": 3},
        4: {"town": "Oslo", "amount": 4},
        6: {"town": "Rome", "amount": 6},
        7: {"town": "Oslo", "amount": 7},
    }
