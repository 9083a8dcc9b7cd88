"""What no batch needs is deleted, what a kept batch needs is not."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.planning.layouts import KEY_VALUE
from crossstream.planning.plan import StoreDef
from crossstream.query.verification import verify_state
from crossstream.storage import root, vacuum
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import BatchEntry, Commit
from crossstream.storage.sorted_run import Run
from crossstream.storage.store import StoreUpdate
from crossstream.storage.vacuum import Vacuum
from crossstream.task import shuffle_codec
from crossstream.task.stores import FolderStores, grow
from tests.docs.state_folder import Writer

pytestmark = pytest.mark.slow

STORE = StoreDef(name="a/b", layout=KEY_VALUE, round=1, key=None, value=None)


def row(batch: int) -> Run:
    value = pa.array([b"%d" % batch], pa.large_binary())
    one = np.array([1], np.int64)
    key = pa.array([b"k"], pa.large_binary())
    return Run(
        {"h": one.astype(np.uint64), "key": key, "value": value, "ts": one, "gone": np.zeros(1, np.uint8)}
    )


@pytest.mark.parametrize("many", [512, 0], ids=["at once", "in the background"])
@pytest.mark.parametrize("restart_after", [1, 4, 17, 30])
def test_kept_batches_stay_readable_through_restarts(
    tmp_path: Path, restart_after: int, many: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(vacuum, "MANY", many)
    monkeypatch.setattr(root, "MANY", many)
    log, stores, retain = BatchLog(tmp_path), FolderStores(tmp_path), 3
    retirement = Vacuum(tmp_path, log, retain)
    name = None
    for batch in range(40):
        if batch % restart_after == 0:
            retirement.close()
            retirement, stores = Vacuum(tmp_path, log, retain), FolderStores(tmp_path)
            retirement.sweep(batch)
            retirement.await_look()
        before = stores.open(STORE, 0, name)
        after = grow(stores, STORE, 0, before, StoreUpdate(row(batch), -1, batch))
        name = after.name
        assert name is not None
        log.write_commit(Commit(batch, 1, versions={STORE.name: {0: name}}))
        retired = [*(before.files() - after.files()), *([before.name] if before.name else [])]
        retirement.add(batch, {f"{STORE.name}/0": retired})
        retirement.root.close()
        assert log.commits() == list(range(max(0, batch - retain), batch + 1))
        for id_ in log.commits():
            version = FolderStores(tmp_path).open(STORE, 0, log.commit(id_).versions[STORE.name][0])
            assert version.snapshot().live()["value"].to_pylist() == [b"%d" % id_]
    files = sum(1 for _ in (tmp_path / "stores").rglob("*.arrow"))
    assert files < 40


def test_batches_that_end_while_a_start_still_looks_delete_nothing_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What was due meanwhile is deleted after it, with the next batch."""
    monkeypatch.setattr(vacuum, "MANY", 0)
    log = BatchLog(tmp_path)
    for batch in range(4):
        log.write_batch(BatchEntry(batch, ()))
        log.write_commit(Commit(batch, 1))
    may_look = Event()
    commits = Vacuum._kept
    monkeypatch.setattr(Vacuum, "_kept", lambda self, found: (may_look.wait(10), commits(self, found))[1])
    retirement = Vacuum(tmp_path, log, 2)
    retirement.sweep(4)
    for batch in (4, 5):
        log.write_commit(Commit(batch, 1))
        retirement.add(batch, {})
    assert log.commits() == [1, 2, 3, 4, 5]
    may_look.set()
    retirement.await_look()
    log.write_commit(Commit(6, 1))
    retirement.add(6, {})
    assert log.commits() == [4, 5, 6]
    retirement.close()


def test_a_start_removes_what_crashes_left_in_the_log(tmp_path: Path):
    """One while an entry was written, and one between a commit and the entry of its batch, which both were to go."""
    log = BatchLog(tmp_path)
    for batch in range(6):
        log.write_batch(BatchEntry(batch, ()))
        log.write_commit(Commit(batch, 1))
    for name in ("batches/000000000006.json.77.tmp", "commits/000000000005.json.78.tmp"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "commits/000000000001.json").unlink()
    Vacuum(tmp_path, log, 3).sweep(6)
    kept = [f"{batch:012d}.json" for batch in (2, 3, 4, 5)]
    for folder in ("batches", "commits"):
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == kept


def test_a_start_removes_what_a_crash_left_of_the_first_file(tmp_path: Path):
    """Files of the user in the same folder stay, whatever their names end with."""
    log = BatchLog(tmp_path)
    left = ("application.json.5f1e2d3c.tmp", "application.json.77.tmp", "evolving/application.json.78.tmp")
    for name in ("notes.tmp", "application.json.tmp.old", *left):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"half")
    Vacuum(tmp_path, log, 3).sweep(0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["application.json.tmp.old", "notes.tmp"]


TEXT = serdes.string()
RETAIN = 3


def kept(history: str | None = None) -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.table(
        "rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="kept", history_retention=history)
    )
    return builder.build()


@pytest.mark.parametrize("history", [None, "1 second"])
def test_no_file_is_left_behind(tmp_path: Path, history: str | None):
    """Also not of rows that were merged away in the batch that brought them."""
    assert left_behind(tmp_path, history) == [[]] * 60


def test_files_of_slices_that_were_merged_away_go_when_their_batch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shuffle_codec, "WHOLE_BYTES", 1)
    monkeypatch.setattr(shuffle_codec, "SLICE_BYTES", 1)
    found = left_behind(tmp_path, None)
    assert any(found)
    for batch, names in enumerate(found):
        assert all(int(name.rpartition("/")[2][:12]) > batch - RETAIN for name in names)


def left_behind(root: Path, history: str | None) -> list[list[str]]:
    """After each of some small batches, the files that no batch leads to."""
    writer, found = Writer(root, kept(history), retain=RETAIN), []
    for batch in range(60):
        writer.run({"rows": [(b"%d" % (n % 150), b"v", 1000 * n) for n in range(5 * batch, 5 * batch + 5)]})
        state = verify_state(root)
        assert state.problems == []
        found.append(state.leftovers)
    writer.close()
    return found
