"""The benchmark of a changed application: its data, and that sealed topics cannot be read."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from benchmarks.evolve import INPUTS, World, measured, sealed
from benchmarks.evolve_app import all_rows, first, hundredth
from benchmarks.waiting import PARTITIONS

import crossstream as cs
from crossstream.topics import OffsetRange

ORDERS, CUSTOMERS = 5_000, 500


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path, "local", "")
    made.fill(ORDERS, CUSTOMERS)
    return made


def read(world: World, topic: str) -> int:
    """How many records a topic has."""
    reader, found = world.topics.reader(), 0
    ends = world.ends(topic)
    for partition, end in ends.items():
        everything = OffsetRange(topic, partition.partition, 0, end)
        found += sum(batch.num_rows for batch in reader.read(everything, 100_000))
    return found


def test_sealed_topics_cannot_be_read_but_their_ends_are_known(world: World) -> None:
    with sealed(world.folder / "topics"):
        for topic, rows in zip(INPUTS, (ORDERS, CUSTOMERS), strict=True):
            assert sum(world.ends(topic).values()) == rows
            with pytest.raises(cs.SourceError, match="CS-606"):
                read(world, topic)
    assert [read(world, topic) for topic in INPUTS] == [ORDERS, CUSTOMERS]
    assert len(world.ends("orders")) == PARTITIONS


def rows_of(topology: cs.Topology, folder: Path, world: World) -> pl.DataFrame:
    config = cs.StreamsConfig(
        application_id="bench",
        topics_dir=world.folder / "topics",
        state_dir=folder,
        partitions=2,
        durable=False,
        engine="local",
    )
    with cs.SparkStreams(topology, config) as app:
        app.process_available()
    return world.result()


def test_one_change_is_for_each_row_and_one_for_one_in_a_hundred(world: World, tmp_path: Path) -> None:
    before, each, few = (
        rows_of(build(), tmp_path / build.__name__, world) for build in (first, all_rows, hundredth)
    )
    assert before["key"].equals(each["key"])
    assert before["key"].equals(few["key"])
    assert before.height == ORDERS
    assert (before["value"] != each["value"]).all()
    assert 0.005 < (before["value"] != few["value"]).mean() < 0.02


@pytest.mark.slow
def test_only_rows_that_differ_are_written_and_no_record_is_read(tmp_path: Path) -> None:
    began, changed, fresh = measured(tmp_path, "local", "sent", ORDERS, CUSTOMERS, ["hundredth"])
    assert began["rows"] == fresh["rows"] == ORDERS
    assert 0.005 < changed["rows"] / ORDERS < 0.02
    assert 0 < changed["seconds without the start"] < changed["seconds"]
    assert changed["driver, MiB"] > changed["driver, MiB anonymous"] > 0
