"""A changed result that is a Delta table: rows are changed, added and deleted in one commit of it, and taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.evolution.revert import Code, revert
from tests.evolution.test_evolve import changed, rounds, run
from tests.spark.world import World

deltalake = pytest.importorskip("deltalake")
TEXT = serdes.string()
GIVEN = cs.Consumed(key=TEXT, value=TEXT)
ROW = serdes.json({"name": str})


def topology(folder: Path, function: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    words = builder.table("words", GIVEN)
    shown = words.map_values(function, materialized=cs.Materialized(store="shown", key=TEXT, value=ROW))
    shown.to_delta(str(folder / "lake"))
    return builder.build()


def first(value: str) -> dict[str, str] | None:
    return None if value == "four" else {"name": value.upper()}


def second(value: str) -> dict[str, str] | None:
    return None if value == "one" else {"name": value.upper() if len(value) == 3 else value}


def rows(folder: Path) -> dict[str, str]:
    found = deltalake.DeltaTable(str(folder / "lake")).to_pyarrow_table().to_pylist()
    return {row["key"]: row["name"] for row in found}


def test_its_rows_are_changed_and_taken_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(words=1)
    world.append("words", [("a", "one", 1), ("b", "two", 2), ("c", "three", 3), ("d", "four", 4)])
    run(world, topology(tmp_path, first))
    was = {"a": "ONE", "b": "TWO", "c": "THREE"}
    assert rows(tmp_path) == was
    done = changed(world, topology(tmp_path, second))
    assert rows(tmp_path) == {"b": "TWO", "c": "three", "d": "four"}
    assert list(done.sent.values()) == [3]
    assert done.commit is not None
    assert list(done.commit.tables.values()) == [1]
    revert(world.state_dir, Code(topology(tmp_path, second), world.config(partitions=2), rounds))
    assert rows(tmp_path) == was
    world.append("words", [("a", "other", 5)])
    run(world, topology(tmp_path, first))
    assert rows(tmp_path) == {**was, "a": "OTHER"}
