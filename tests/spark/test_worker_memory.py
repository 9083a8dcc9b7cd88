"""What a worker holds in memory, and what it gives back."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.planning.layouts import KEY_VALUE
from crossstream.planning.plan import StoreDef
from crossstream.runtime.worker import Job
from crossstream.spark.worker import opened
from crossstream.storage import resident as memory
from crossstream.storage.files import partition_folder
from crossstream.storage.sorted_run import Run, sort_rows
from crossstream.storage.store import MAPPED_BYTES, StoreUpdate, Version
from crossstream.task.batch import Batch, Settings
from crossstream.task.stores import FolderStores, grow
from tests.storage.rows import key_value_rows

linux = pytest.mark.skipif(
    memory.resident() == 0, reason="the system has no /proc, where Linux shows what a process holds"
)
STORE = StoreDef(name="rows", layout=KEY_VALUE, round=1, key=serdes.bytes(), value=serdes.bytes())


def mapped_file(path: Path, size: int) -> pa.Buffer:
    path.write_bytes(os.urandom(1 << 20) * (size >> 20))
    return pa.memory_map(str(path)).read_buffer()


@linux
def test_a_worker_holds_its_share_of_the_machine_or_of_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_CONTAINER", tmp_path / "memory.max")
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": (64 << 30) // mmap.PAGESIZE}.__getitem__)
    share = memory.share.__wrapped__
    assert share() == 16 << 30
    (tmp_path / "memory.max").write_text("max\n")
    assert share() == 16 << 30
    (tmp_path / "memory.max").write_text(f"{8 << 30}\n")
    assert share() == 2 << 30
    monkeypatch.setenv("CONTAINER_ID", "container_1")
    assert share() == memory.RESIDENT, "YARN ends what holds more than it was to"


@linux
def test_pages_of_mapped_files_are_given_back(tmp_path: Path) -> None:
    size = 64 << 20
    ours, other = mapped_file(tmp_path / "ours", size), mapped_file(tmp_path / "other", size)
    sums = [int(np.frombuffer(buffer, np.uint8).sum()) for buffer in (ours, other)]
    before = memory.resident()
    memory.give_back((str(tmp_path / "ours"),), 2 * before)
    assert memory.resident() > before - size // 4, "there was no need"
    memory.give_back((str(tmp_path / "ours"),), 0)
    assert before - 1.25 * size < memory.resident() < before - 0.75 * size
    (tmp_path / "ours").unlink()  # as old state is, while it is read
    assert [int(np.frombuffer(buffer, np.uint8).sum()) for buffer in (ours, other)] == sums
    memory.give_back((str(tmp_path / "ours"),), 0)
    assert memory.resident() < before - 0.75 * size


def rows(batch: int, count: int = 10) -> Run:
    return sort_rows(key_value_rows({b"%d" % n: b"%d" % batch * 100 for n in range(count)}))


def open_files(root: Path) -> set[str]:
    """Names of the files below a folder that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {os.path.basename(line.split(maxsplit=5)[5].split()[0]) for line in lines if str(root) in line}


@linux
def test_large_runs_are_held_in_their_files(tmp_path: Path) -> None:
    stores = FolderStores(tmp_path)
    version = grow(stores, STORE, 0, Version(KEY_VALUE), StoreUpdate(rows(0), -1, 0))
    assert open_files(tmp_path) == set()
    count = MAPPED_BYTES // 100
    version = grow(stores, STORE, 0, version, StoreUpdate(rows(1, count), -1, 1))
    assert open_files(tmp_path) == {segment.ref.file for segment in version.parts[0].segments if segment.ref}
    keys = {row.as_py() for row in version.snapshot().live()["key"]}
    assert keys == {b"%d" % n for n in range(count)}


@linux
def test_files_of_old_versions_are_closed(tmp_path: Path) -> None:
    """Of those this process made itself, and of those that another one moved on."""
    ours, theirs = FolderStores(tmp_path), FolderStores(tmp_path)
    count = MAPPED_BYTES // 50
    version = grow(ours, STORE, 0, Version(KEY_VALUE), StoreUpdate(rows(0, count), -1, 0))
    first = version.name
    del version
    for batch in range(1, 30):
        stores = theirs if batch % 2 else ours
        before = theirs.open(STORE, 0, first) if batch % 2 else ours.open(STORE, 0, first)
        version = grow(stores, STORE, 0, before, StoreUpdate(rows(batch, count), -1, batch))
        first, needed = version.name, version.files()
        assert first is not None
        for each in (ours, theirs):
            each.close_superseded(batch + 1, {"rows": {0: first}})
        del before, version
        assert open_files(tmp_path) <= needed, batch
    assert len(needed) < 29, "some were merged"
    assert ours.held == {}
    theirs.close_superseded(31, {"rows": {0: first}})
    assert theirs.held[("rows", 0)].name == first, "it is still the newest"
    assert (tmp_path / partition_folder("rows", 0)).is_dir()


def test_a_batch_that_runs_does_not_lose_what_it_has_just_made(tmp_path: Path) -> None:
    """Its later rounds still start from the state before it."""
    stores = FolderStores(tmp_path)
    before = grow(stores, STORE, 0, Version(KEY_VALUE), StoreUpdate(rows(0), -1, 0))
    assert before.name is not None
    grow(stores, STORE, 0, before, StoreUpdate(rows(1), -1, 1))
    stores.close_superseded(1, {"rows": {0: before.name}})
    assert stores.held[("rows", 0)].batch == 1
    stores.close_superseded(2, {"rows": {0: before.name}})
    assert stores.held == {}


@linux
def test_files_stay_open_between_small_batches_that_workers_take_in_turn(tmp_path: Path) -> None:
    """And for a while only; a batch that is spread over all of them closes them at once."""
    job = Job("app", plan_topology(cs.Topology({})), str(tmp_path), "staged", Settings(), None)
    idle, count = opened(job), MAPPED_BYTES // 50
    version = grow(idle.stores, STORE, 0, Version(KEY_VALUE), StoreUpdate(rows(0, count), -1, 0))
    assert version.name is not None
    del version
    moved_on = {"rows": {0: "by another worker"}}
    for number in (1, 4):
        idle.begin(Batch(number, (), 1, moved_on, shares=0))
        assert open_files(tmp_path)
    idle.begin(Batch(5, (), 1, moved_on, shares=0))
    assert not open_files(tmp_path)
    again = grow(idle.stores, STORE, 0, Version(KEY_VALUE), StoreUpdate(rows(5, count), -1, 5))
    assert again.name is not None
    del again
    idle.begin(Batch(6, (), 1, moved_on, shares=2))
    assert not open_files(tmp_path)
