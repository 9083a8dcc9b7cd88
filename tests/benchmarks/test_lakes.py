"""The benchmark of lake tables: from Delta and from topics the application gives the join of the visible versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.data import START_MS
from benchmarks.lakes import messages_of
from benchmarks.lakes_app import OFFERS, SOURCES, topology
from benchmarks.lakes_data import Change, Data, Lake, LakeSizes, read

import crossstream as cs
from tests.spark.world import World

SIZES = LakeSizes(orders=1_000, customers=200, commits=11, changes=100, customer_changes=40, every=2)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake.make(tmp_path_factory.mktemp("lake"), SIZES)


@pytest.mark.parametrize("source", SOURCES)
def test_the_result_is_the_join_of_the_visible_versions(source: str, lake: Lake, tmp_path: Path) -> None:
    lake.hide()
    world = World(tmp_path)
    world.create(orders=2, customers=2)
    tables = {name: lake.uri(name) if source == "delta" else name for name in ("orders", "customers")}
    config: dict[str, Any] = {"partitions": 2, "engine": "local"}
    sent = sending(world)
    with cs.SparkStreams(
        topology(source, {**tables, "folder": str(tmp_path)}), world.config(**config)
    ) as app:
        for steps in (0, 1, 1, 2, SIZES.commits):
            lake.show(steps)
            next(sent) if steps == 0 else [next(sent, None) for _ in range(steps)]
            app.process_available()
            wanted = lake.joined()
            found = read(str(tmp_path / OFFERS)).select(wanted.columns).sort("id")
            assert found.equals(wanted), steps
    assert lake.shown == SIZES.commits
    assert 0 < len(wanted) != len(read(lake.uri("orders")))  # some orders have no customer


def sending(world: World) -> Iterator[None]:
    """At each step the next records as the side that reads topics gets them, in file topics."""
    data = Data(SIZES)
    first, at = list(data.first()), START_MS
    for changes in (first, *data.commits()):
        for change in changes:
            for messages in messages_of(change, at):
                world.append_wire(change.table, [(key, value, ts) for key, value, ts in messages])
                at += len(messages)
        yield


def test_a_lake_that_is_kept_begins_again(lake: Lake, tmp_path: Path) -> None:
    lake.hide()
    first = lake.joined()
    changes = lake.show(3)
    assert changes == 3 * SIZES.changes + SIZES.customer_changes + 1
    assert not lake.joined().equals(first)
    again = Lake.kept(lake.folder, SIZES)
    assert again.joined().equals(first)
    assert again.steps == lake.steps
    assert len(again.steps) == SIZES.commits


def test_commits_insert_update_and_delete(lake: Lake) -> None:
    commits: list[list[Change]] = []
    data = Data(SIZES)
    there = {change.table: set(change.rows["id"]) for change in data.first()}
    kinds = set()
    for changes in data.commits():
        commits.append(changes)
        for change in changes:
            assert change.rows["id"].is_unique().all()
            for key, deleted in change.rows.select("id", "deleted").iter_rows():
                known = key in there[change.table]
                kinds.add((change.table, known, deleted))
                (there[change.table].discard if deleted else there[change.table].add)(key)
    assert {kind for kind in kinds if kind[0] == "orders"} == {
        ("orders", True, False),
        ("orders", True, True),
        ("orders", False, False),
    }
    assert [len(changes) for changes in commits].count(2) == SIZES.commits // SIZES.every
