"""Batches of change events and of tables of a lake, and results that are no records of topics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import crossstream as cs
from crossstream.recompute.again import Rerun
from crossstream.recompute.parted_records import compare_results
from crossstream.recompute.partings import Found, Name
from crossstream.recompute.suspects import suspects
from crossstream.storage.log_entries import NotedFrame, Publication
from tests.faults.one_process import application
from tests.laws.effort import cases
from tests.laws.shapes import IN, TEXT
from tests.object_store import SECRET, ObjectStore, object_server, object_store
from tests.operators.debezium import snapshots
from tests.recompute.replay.lives import Life, folder
from tests.spark.world import World

__all__ = ["object_server", "object_store"]


@cases(0.3)
@given(life=snapshots.some_lives, ends=st.sets(st.integers(1, 40), max_size=4), partitions=st.integers(1, 3))
def test_change_events(life: snapshots.Life, ends: set[int], partitions: int) -> None:
    base = life.lived(partitions)
    made = snapshots.built(life.settings)
    events = life.arrivals(base.events)
    if life.settings.get("unavailable_fields") == []:
        events = [one._replace(value=snapshots._whole(one.value)) for one in events]
    with folder() as root:
        lived = Life(World(root), made, {"notes": partitions, "names": 1}, {"partitions": partitions})
        lived.world.create(notes=partitions, names=1)
        with application(made, lived.config) as running:
            rows = [(grade, name, 0) for grade, name in snapshots.GROUPS.items()]
            lived.world.append("names", rows, cs.serdes.int64(), TEXT, partitions=[0] * len(rows))
            for number, event in enumerate(events):
                wire = [(event.key, event.value, event.time)]
                lived.world.append_wire("notes", wire, [event.partition])
                if number in ends:
                    running.run_until(running.inputs.end_offsets())
            running.run_until(running.inputs.end_offsets())
        for number in lived.batches():
            found = lived.again(number)[1]
            assert (found.is_same, found.notes) == (True, ())
            assert lived.from_bundle(number)[1] == found


def rows(*values: tuple[str, int]) -> pa.Table:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    return pa.Table.from_pylist([{"id": key, "n": n} for key, n in values], schema=schema)


def test_tables_of_a_lake(tmp_path: Path) -> None:
    """A batch of versions of a table runs again while the table has them; no bundle holds its rows."""
    table = str(tmp_path / "table")
    write_deltalake(table, rows(("a", 1), ("b", 2)))
    builder = cs.StreamsBuilder()
    read = builder.table_from_delta(table, key="id", store="read")
    shown = read.map_values(str, materialized=cs.Materialized(store="shown", value=TEXT))
    shown.to_stream().to("out", cs.Produced(value=TEXT))
    life = Life(World(tmp_path), builder.build(), {}, {"partitions": 2})
    life.live([[]])
    write_deltalake(table, rows(("c", 3)), mode="append")
    life.live([[]])
    DeltaTable(table).delete("id = 'a'")
    life.live([[]])
    assert life.batches() == [0, 1, 2]
    for number in life.batches():
        assert life.again(number)[1].is_same
        with pytest.raises(cs.StateError) as caught:
            life.from_bundle(number)
        assert caught.value.code == "CS-715"


def test_rows_for_a_table(tmp_path: Path) -> None:
    """Rows for tables are compared by the checksum of the file in which they waited."""

    def made(more: str) -> cs.Topology:
        builder = cs.StreamsBuilder()
        left = builder.table("left", IN)
        left.map_values(lambda v: v + more, materialized=cs.Materialized(value=TEXT)).to_delta(
            str(tmp_path / "table")
        )
        return builder.build()

    life = Life(World(tmp_path), made("!"), {"left": 1}, {"partitions": 1})
    life.live([[("left", "a", "1", 1, 0), ("left", "b", "2", 2, 0)], [("left", "a", None, 3, 0)]])
    for number in (0, 1):
        assert life.again(number)[1] == Found(rows=life.again(number)[1].rows)
        assert life.from_bundle(number)[1].is_same
    rerun, found = life.again(0, made("?"))
    ((name, count),) = found.different.items()
    assert (name.kind, count) == ("table", 2)
    assert suspects(rerun.plan, found.different.keys(), ())[0].startswith("left.map_values (")


@pytest.fixture
def rerun(tmp_path: Path) -> Rerun:
    """A batch that writes to topics in the round that reads, and in a later one."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("left", IN)
    stream.to("at-once", key=TEXT, value=TEXT)
    stream.group_by_key().count().to_stream().to("later", key=TEXT, value=cs.serdes.int64())
    life = Life(World(tmp_path), builder.build(), {"left": 1}, {"partitions": 1})
    life.live([[("left", "a", "1", 1, 0)]])
    return life.again(0)[0]


def with_files(rerun: Rerun, staged: list[NotedFrame]) -> Rerun:
    """The same, of a batch whose transaction had these files."""
    assert rerun.past.after is not None
    entry = structs.replace(rerun.past.entry, publication=Publication(rerun.past.after, tuple(staged)))
    return replace(rerun, past=replace(rerun.past, entry=entry))


def test_results_of_a_transaction(rerun: Rerun) -> None:
    """They are compared by the checksums of their files, which have other names in each attempt."""
    again = [(name.replace(name.split("-")[3], "01234567"), *rest) for name, *rest in rerun.results.staged]
    assert again != rerun.results.staged
    found = compare_results(with_files(rerun, again), None)
    assert found == Found(rows={Name("topic", "at-once"): 1, Name("topic", "later"): 1})


def test_other_results_of_a_transaction(rerun: Rerun) -> None:
    """What a task that reads made of other pieces may be the same records; else they are others."""
    other = [(f"{name[:-22]}{'0' * 16}.arrow", *rest) for name, *rest in rerun.results.staged]
    found = compare_results(with_files(rerun, other), None)
    assert found.different == {Name("topic", "later"): 1}
    assert found.notes == ("topic at-once: as many records as then; whether they are the same is not known",)
    more = [(name, topic, place, rows + 1, tag) for name, topic, place, rows, tag in other]
    found = compare_results(with_files(rerun, more), None)
    assert found.different == {Name("topic", "at-once"): 2, Name("topic", "later"): 2}
    fewer = [frame for frame in rerun.results.staged if frame[1] == "later"]
    assert compare_results(with_files(rerun, fewer), None).different == {Name("topic", "at-once"): 1}


def test_results_in_kafka_without_transactions(rerun: Rerun) -> None:
    found = compare_results(rerun, None)
    assert found.is_same
    assert found.notes == (
        "results in Kafka are not compared: without exactly_once the log does not say what they are",
    )


@dataclass(frozen=True, slots=True)
class RemoteWorld(World):
    """File topics in a folder, state at a URI."""

    uri: str = ""

    def config(self, **settings: Any) -> cs.StreamsConfig:
        return World.config(self, **{"state_dir": self.uri, **settings})


def test_state_on_an_object_store(
    tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is only read there, and the bundle of it has no secret of its URI."""
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path / "cache"))
    builder = cs.StreamsBuilder()
    builder.table("left", IN, cs.Materialized(store="left")).to_stream().to("out", key=TEXT, value=TEXT)
    world = RemoteWorld(tmp_path, uri=object_store.uri("state"))
    life = Life(world, builder.build(), {"left": 1}, {"partitions": 2})
    life.live([[("left", "a", "1", 1, 0)], [("left", "a", "2", 2, 0), ("left", "b", "3", 3, 0)]])
    before = object_store.objects("state")
    for number in (0, 1):
        found = life.again(number)[1]
        assert (found.is_same, found.notes) == (True, ())
        assert life.from_bundle(number)[1] == found
        assert SECRET.encode() not in (tmp_path / f"{number}.bundle").read_bytes()
    assert object_store.objects("state") == before
