"""Another program writes a table between two batches, or while a batch is written: both keep what they wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.types import StringType

import crossstream as cs
from crossstream.columns.flat import DELETED
from crossstream.lakehouse import tables
from crossstream.lakehouse.tables import Tables
from tests.faults.one_process import streams
from tests.lakehouse.lake import FORMATS, Lake
from tests.lakehouse.test_each_batch_once import NUMBER, TEXT, WRITERS, Lives

NAMES = ("events", "counts")
"""One is appended, one is merged."""


@pytest.fixture(params=FORMATS)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    return Lives(tmp_path, request.param)


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PAUSE_SECONDS", 0.01)


@dataclass(frozen=True, slots=True)
class Other:
    """Another program that writes the tables, with the libraries of their format."""

    lake: Lake

    def delta(self, name: str) -> DeltaTable:
        return DeltaTable(self.lake.path(name))

    @contextmanager
    def iceberg(self, name: str) -> Iterator[Table]:
        catalog = load_catalog("default", **self.lake.catalog)
        yield catalog.load_table(f"shop.{name}")
        catalog.close()

    @property
    def writes_delta(self) -> bool:
        return self.lake.form == "delta"

    def inserts(self, name: str, key: str = "new", value: Any = None) -> None:
        value = value or {"counts": 100}.get(name, "of another")
        row = pa.Table.from_pylist([{"key": key, "value": value}])
        if self.writes_delta:
            write_deltalake(self.delta(name), row, mode="append", schema_mode="merge")
        else:
            with self.iceberg(name) as table:
                table.append(row)

    def updates(self, name: str) -> None:
        if self.writes_delta:
            self.delta(name).update(predicate="key = 'other'", updates={"key": "'another'"})
            return
        with self.iceberg(name) as table:
            row = table.scan(row_filter="key == 'other'").to_arrow()
            table.overwrite(
                row.set_column(0, row.schema.field("key"), [["another"]]), overwrite_filter="key == 'other'"
            )

    def deletes(self, name: str, key: str = "other") -> None:
        if self.writes_delta:
            self.delta(name).delete(f"key = '{key}'")
            return
        with self.iceberg(name) as table:
            table.delete(f"key == '{key}'")

    def compacts(self, name: str, files: int = 0) -> None:
        """``files``: as many are in its way at least."""
        if self.writes_delta:
            assert self.delta(name).optimize.compact()["numFilesRemoved"] >= files
            return
        with self.iceberg(name) as table:
            table.overwrite(table.scan().to_arrow())

    def compacts_and_vacuums(self, name: str) -> None:
        """Without the days that others wait for readers of older versions."""
        self.compacts(name, 2)
        if self.writes_delta:
            assert self.delta(name).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
            return
        with self.iceberg(name) as table:
            used = {task.file.file_path for task in table.scan().plan_files()}
            newest = table.metadata.current_snapshot_id
            table.maintenance.expire_snapshots().by_ids(
                [one.snapshot_id for one in table.snapshots() if one.snapshot_id != newest]
            ).commit()
            data = list(Path(table.location().removeprefix("file://")).rglob("*.parquet"))
            gone = [path for path in data if f"file://{path}" not in used]
            assert gone
            for path in gone:
                path.unlink()

    def adds_a_column(self, name: str) -> None:
        if self.writes_delta:
            self.delta(name).alter.add_columns([Field("note", PrimitiveType("string"))])
            return
        with self.iceberg(name) as table, table.update_schema() as update:
            update.add_column("note", StringType())

    def renames_a_column(self, name: str, old: str, new: str) -> None:
        if self.writes_delta:
            rows = self.lake.rows(name).rename({old: new}).to_arrow()
            write_deltalake(self.lake.path(name), rows, mode="overwrite", schema_mode="overwrite")
            return
        with self.iceberg(name) as table, table.update_schema() as update:
            update.rename_column(old, new)

    def cleans_the_log(self, name: str) -> None:
        """Several commits later only a checkpoint and what follows it are left."""
        for key in ("one", "two"):
            self.inserts(name, key)
        if self.writes_delta:
            table = self.delta(name)
            table.create_checkpoint()
            for path in (Path(self.lake.path(name)) / "_delta_log").glob("*.json"):
                if path.stem.isdigit() and int(path.stem) < table.version():
                    path.unlink()


Keys = set[str]
ACTS: dict[str, tuple[Callable[[Other, str], None], Keys, Keys]] = {
    "compacts": (lambda other, name: other.compacts(name, 2), set(), set()),
    "compacts and vacuums": (Other.compacts_and_vacuums, set(), set()),
    "inserts": (Other.inserts, {"new"}, set()),
    "updates": (Other.updates, {"another"}, {"other"}),
    "deletes": (Other.deletes, set(), {"other"}),
    "deletes a row of ours": (lambda other, name: other.deletes(name, "b"), set(), {"b"}),
    "adds a column": (Other.adds_a_column, set(), set()),
    "cleans the log": (Other.cleans_the_log, {"one", "two"}, set()),
}
"""What another program does; keys that come by it, and that go."""


@pytest.mark.parametrize("during", [False, True], ids=["between two batches", "while a batch is written"])
@pytest.mark.parametrize("act", ACTS)
def test_both_keep_what_they_wrote(
    lives: Lives, act: str, during: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts, come, gone = ACTS[act]
    other = Other(lives.lake)
    with streams(lives.topology(), lives.world.config()) as app:
        lives.append("a", "b")
        app.process_available()
        for name in NAMES:
            other.inserts(name, "other")
            if not act.startswith("compacts"):
                other.compacts(name)  # rows of both are in one file
            if not during:
                acts(other, name)
        lives.append("a", "c")
        with monkeypatch.context() as patch:
            if during:
                disturbed(lives.writer, lambda name: acts(other, name), patch)
            app.process_available()
        lives.append("d")
        app.process_available()
    lives.run()  # a start finds the tables right, too
    check(lives, {"a", "b", "c", "d", "other"} - gone | come)


@pytest.mark.parametrize("during", [False, True], ids=["between two batches", "while a batch is written"])
def test_a_column_that_is_renamed_is_a_clear_error(
    lives: Lives, during: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg knows a column by its number: a batch that is being written is in the renamed column."""
    other = Other(lives.lake)
    lives.append("a", "b")
    lives.run()
    for name in NAMES:
        other.inserts(name, "other")
    lives.append("a", "c")
    with streams(lives.topology(), lives.world.config()) as app, monkeypatch.context() as patch:
        if during:
            disturbed(lives.writer, lambda name: other.renames_a_column(name, "value", "renamed"), patch)
        if not during or not other.writes_delta:
            app.process_available()
            lives.append("d")
        if not during:
            for name in NAMES:
                other.renames_a_column(name, "value", "renamed")
        with pytest.raises(cs.SinkError) as caught:
            app.process_available()
    assert (caught.value.code, "value" in caught.value.what) == ("CS-657", True)
    for name in NAMES:
        if "renamed" in lives.lake.rows(name).columns:
            other.renames_a_column(name, "renamed", "value")
    lives.run()
    if during and other.writes_delta:
        lives.append("d")
        lives.run()
    check(lives, set("abcd") | {"other"})


def disturbed(
    writer: Any, act: Callable[[str], None], patch: pytest.MonkeyPatch, names: Iterable[str] = NAMES
) -> None:
    """The other program acts once for each table, when the version to be written is open."""
    write, left = writer.write, set(names)

    def written(self: Any, rows: pa.Table, mark: Any) -> None:
        name = re.split(r"[/.]", self.node.table)[-1]
        if name in left:
            left.remove(name)
            act(name)
        write(self, rows, mark)

    patch.setattr(writer, "write", written)


def check(lives: Lives, keys: set[str]) -> None:
    """The rows of all, and each batch once in each table."""
    counts = dict(lives.lake.rows("counts").select("key", "value").rows())
    assert counts == {key: {"a": 2}.get(key, 1 if key in "bcd" else 100) for key in keys}
    events = lives.lake.rows("events").select("key", "value").rows()
    ours = sorted(key for key, value in events if value == "x")
    assert ours == sorted([*(keys & set("abcd")), "a"])
    assert {key for key, value in events if value != "x"} == keys - set("abcd")
    for name in NAMES:
        found = batches(lives.lake, name)
        assert (found, found[-1]) == (sorted(set(found)), 2)


def batches(lake: Lake, name: str) -> list[int]:
    """The batches of the commits of a table, as far as its history is kept."""
    other = Other(lake)
    if other.writes_delta:
        found = [entry.get("crossstream.batch") for entry in other.delta(name).history()]
    else:
        table = "table" if name == "counts" else "events"
        with other.iceberg(name) as opened:
            found = [
                one.summary.additional_properties.get(f"crossstream.app.{table}.batch")
                for one in opened.snapshots()
                if one.summary is not None
            ][::-1]
    return [int(batch) for batch in reversed(found) if batch is not None]


CHANGES = pa.schema(
    [("key", pa.string()), ("value", pa.int64()), (DELETED, pa.bool_())], {"crossstream.key": "key"}
)
OURS = st.dictionaries(st.sampled_from("abcd"), st.none() | st.integers(0, 9), min_size=1, max_size=4)
THEIRS = st.none() | st.tuples(st.sampled_from("abcdwxyz"), st.none() | st.integers(10, 19))
"""A key and its new value; None: the row is deleted."""
TURNS = st.lists(st.tuples(THEIRS, THEIRS, OURS), min_size=1, max_size=4)
"""What another program writes before a batch, and while it is written; what the batch changes."""


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=4)
@given(turns=TURNS, is_compacted=st.booleans())
@example(turns=[(None, ("a", 10), {"a": 1})], is_compacted=False)  # both insert one key
@example(turns=[(None, None, {"a": 1, "b": 2}), (None, ("b", 11), {"a": 3})], is_compacted=False)
@example(turns=[(("z", 10), None, {"a": 1, "b": 2}), (None, ("z", None), {"a": 3})], is_compacted=True)
@example(turns=[(("a", 10), ("b", 11), {"c": None})], is_compacted=False)  # a batch that changes no row
def test_the_later_commit_of_a_row_counts(
    tmp_path_factory: pytest.TempPathFactory, form: Any, turns: list[Any], is_compacted: bool
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"), form)
    other, there = Other(lake), dict[str, int]()
    builder = cs.StreamsBuilder()
    lake.sink(builder.table("counts", cs.Consumed(key=TEXT, value=NUMBER)), "counts", named=cs.Named("table"))
    topology = builder.build()

    def put(key: str, value: int | None) -> None:
        if key in there:
            other.deletes("counts", key)
        if value is not None:
            other.inserts("counts", key, value)
        change(there, {key: value})

    written = Tables(topology, "app")
    written.begin("state", -1)
    for batch, (first, meanwhile, ours) in enumerate(turns):
        if first is not None:
            put(*first)
        if is_compacted and there:  # PyIceberg warns of a table without rows
            other.compacts("counts")
        rows = [{"key": key, "value": value, DELETED: value is None} for key, value in ours.items()]
        with pytest.MonkeyPatch.context() as patch:
            # A row that is not there is deleted, while the other program inserts it: either may come first.
            if meanwhile is not None and ours.get(meanwhile[0], 0) is not None:
                disturbed(WRITERS[form], lambda _, put=put, act=meanwhile: put(*act), patch, {"counts"})
            written.write({"table": pa.Table.from_pylist(rows, CHANGES)}, batch)
        change(there, ours)
        assert dict(lake.tuples("counts")) == there
    written.close()
    with pytest.raises(cs.StateError, match=f"has batch {len(turns) - 1} of this state"):
        Tables(topology, "app").begin("state", len(turns) - 2)


def change(table: dict[str, int], changes: dict[str, int | None]) -> None:
    for key, value in changes.items():
        table.pop(key, None)
        if value is not None:
            table[key] = value
