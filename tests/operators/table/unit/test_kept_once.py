"""A table that has a name and is looked up by a join is kept once, in whatever round that is."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.query.files import open_store
from tests.docs.state_folder import Writer

TEXT = serdes.string()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)


def stored(name: str) -> cs.Materialized:
    return cs.Materialized(store=name, key=TEXT, value=TEXT)


def both(left: str, right: str) -> str:
    return f"{left},{right}"


def tables(builder: cs.StreamsBuilder, *names: str, named: bool = True) -> list[Any]:
    return [builder.table(name, CONSUMED, stored(f"all-{name}") if named else None) for name in names]


def stores_of(builder: cs.StreamsBuilder) -> dict[str, int]:
    """Stores that hold rows of tables, and not only those of hot keys: name and round."""
    plan = plan_topology(builder.build())
    return {
        store.name: store.round
        for store in plan.stores.values()
        if store.layout.kind in ("key-value", "versioned") and store.copies is None
    }


def test_the_right_side_of_a_foreign_key_join() -> None:
    builder = cs.StreamsBuilder()
    left, right = tables(builder, "left", "right")
    left.join(right, both, foreign_key=lambda row: row, table_joined=cs.TableJoined(name="join"))
    assert stores_of(builder) == {"all-left": 1, "all-right": 2}


def test_the_right_tables_of_a_join_of_many() -> None:
    builder = cs.StreamsBuilder()
    (left,) = tables(builder, "left", named=False)
    one, two = tables(builder, "one", "two")
    left.join_many({"one": (one, str), "two": (two, str)}, lambda row, rows: row, named=cs.Named("many"))
    assert stores_of(builder) == {"all-one": 2, "all-two": 2, "many.partners": 3}


def test_both_sides_of_a_join_by_key_after_a_join_by_foreign_key() -> None:
    builder = cs.StreamsBuilder()
    left, right = tables(builder, "left", "right")
    first = left.join(right, both, foreign_key=lambda row: row, materialized=stored("first"))
    first.join(left, both, materialized=stored("second"))
    assert stores_of(builder) == {"all-right": 2, "first": 3, "all-left": 3, "second": 3}


@pytest.mark.parametrize("reads", ["to_stream", "filter"])
def test_a_table_whose_changes_are_read_too(reads: str) -> None:
    builder = cs.StreamsBuilder()
    left, right = tables(builder, "left", "right")
    left.join(right, both, foreign_key=lambda row: row)
    right.to_stream().to("out") if reads == "to_stream" else right.filter(lambda row: True)
    assert stores_of(builder) == {"all-left": 1, "all-right": 1, "right@2": 2}


def test_a_table_that_a_partitioner_places_for_the_join() -> None:
    """What is asked for by name is found by the hash of its key."""
    builder = cs.StreamsBuilder()
    left, right = tables(builder, "left", "right")
    placed = cs.TableJoined(other_partitioner=lambda key, count: zlib.crc32(key.encode()) % count)
    left.join(right, both, foreign_key=lambda row: row, table_joined=placed)
    assert stores_of(builder) == {"all-left": 1, "all-right": 1, "right@2": 2}


def test_it_is_found_by_its_name_and_takes_half_the_room(tmp_path: Path) -> None:
    """Bytes of the files of all stores with the rows of the right table, against one that is kept twice."""
    records = [(f"r{number:03}".encode(), b"x" * 100, number) for number in range(500)]
    sizes = {}
    for way in ("once", "twice"):
        builder = cs.StreamsBuilder()
        left, right = tables(builder, "left", "right")
        left.join(right, both, foreign_key=lambda row: row)
        if way == "twice":
            right.filter(lambda row: True)
        writer = Writer(tmp_path / way, builder.build(), partitions=2)
        writer.run({"right": records, "left": [(b"l", b"r001", 0)]})
        writer.close()
        found = open_store(tmp_path / way, "all-right")
        assert dict(found.all()) == {key.decode(): value.decode() for key, value, _ in records}
        assert found.get("r007") == "x" * 100
        folders = [
            folder
            for folder in (tmp_path / way / "stores").iterdir()
            if "right" in folder.name and "join" not in folder.name
        ]
        sizes[way] = sum(file.stat().st_size for folder in folders for file in folder.rglob("*.arrow"))
    assert 0 < sizes["once"] * 1.9 < sizes["twice"]
