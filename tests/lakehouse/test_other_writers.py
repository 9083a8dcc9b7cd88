"""Another program writes a table between two batches, or while a batch is written: both keep what they wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.types import StringType

import crossstream as cs
from crossstream.lakehouse import tables
from tests.faults.one_process import streams
from tests.lakehouse.lake import FORMATS, Lake
from tests.lakehouse.test_each_batch_once import Lives

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

    def inserts(self, name: str, key: str = "new") -> None:
        value = {"counts": 100}.get(name, "of another")
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

    def compacts(self, name: str) -> None:
        if self.writes_delta:
            found = self.delta(name).optimize.compact()
            assert found["numFilesRemoved"] > 1
            return
        with self.iceberg(name) as table:
            table.overwrite(table.scan().to_arrow())

    def compacts_and_vacuums(self, name: str) -> None:
        """Without the days that others wait for readers of older versions."""
        self.compacts(name)
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
    "compacts": (Other.compacts, set(), set()),
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
            if not during:
                acts(other, name)
        lives.append("a", "c")
        with monkeypatch.context() as patch:
            if during:
                disturbed(lives, lambda name: acts(other, name), patch)
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
            disturbed(lives, lambda name: other.renames_a_column(name, "value", "renamed"), patch)
        if not during or not other.writes_delta:
            app.process_available()
            lives.append("d")
        if not during:
            for name in NAMES:
                other.renames_a_column(name, "value", "renamed")
        with pytest.raises(cs.SinkError) as caught:
            app.process_available()
    assert (caught.value.code, "value" in caught.value.what) == ("CS-654", True)
    for name in NAMES:
        if "renamed" in lives.lake.rows(name).columns:
            other.renames_a_column(name, "renamed", "value")
    lives.run()
    if during and other.writes_delta:
        lives.append("d")
        lives.run()
    check(lives, set("abcd") | {"other"})


def disturbed(lives: Lives, act: Callable[[str], None], patch: pytest.MonkeyPatch) -> None:
    """The other program acts once for each table, when the version to be written is open."""
    write, left = lives.writer.write, set(NAMES)

    def written(self: Any, rows: pa.Table, mark: Any) -> None:
        name = self.node.table.rpartition("/")[2].rpartition(".")[2]
        if name in left:
            left.remove(name)
            act(name)
        write(self, rows, mark)

    patch.setattr(lives.writer, "write", written)


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
