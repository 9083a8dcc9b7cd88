"""Copies of state: a backup of a running application, its way back, and a fork."""

from __future__ import annotations

import os
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import crossstream as cs
from crossstream.errors import CrossStreamError, StateError
from crossstream.query.files import application_of
from crossstream.query.verification import verify_state
from crossstream.storage import copying
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.copying import copy_state
from tests.cli.cases import call
from tests.docs.state_folder import Writer
from tests.docs.test_state_format import Model
from tests.storage.test_rescaling import BY_HASH, shops

pytestmark = pytest.mark.slow

STORES = ("left", "result", "past")


def answers(folder: Path, as_of: int | None = None) -> dict[str, dict[Any, Any]]:
    return {name: dict(cs.open_store(folder, name, as_of).all()) for name in STORES}


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def running(tmp_path: Path, model: Model):
    """A writer of state that keeps the last batch only, after six batches."""
    chance = random.Random(5)
    with closing(Writer(tmp_path / "state", shops(BY_HASH), 2, 1)) as writer:
        found = writer.log.application()
        assert found is not None
        writer.log.write_application(replace(found, state_id="of the first"))
        writer.go = lambda: writer.run(model.records(chance))
        for _ in range(6):
            writer.go()
        yield writer


@pytest.mark.parametrize("links", [True, False])
def test_a_copy_holds_the_newest_commit_and_stays_when_the_application_continues(running, tmp_path, links):
    before, newest = answers(running.root), BatchLog(running.root).newest()
    done = copy_state(running.root, tmp_path / "copy", links=links)
    for _ in range(5):
        running.go()
    assert (done.commit, done.linked) == (newest, done.files if links else 0)
    assert answers(tmp_path / "copy") == before != answers(running.root)
    found = verify_state(tmp_path / "copy")
    assert (found.problems, found.leftovers, found.batches) == ([], [], (newest.id,))
    assert verify_state(running.root).problems == []
    assert application_of(tmp_path / "copy") == application_of(running.root)


def test_files_that_retention_deletes_meanwhile(running, tmp_path, monkeypatch):
    """Two batches end while files are copied: what the copy lacks of the first commit is gone."""
    read, began = copying.read_manifest, []

    def slow(storage, name):
        if len(began) < 2:
            began.append(name)
            for _ in range(2):
                running.go()
        return read(storage, name)

    monkeypatch.setattr(copying, "read_manifest", slow)
    monkeypatch.setattr(copying, "in_threads", lambda work, items: [work(one) for one in items])
    first = BatchLog(running.root).newest().id
    done = copy_state(running.root, tmp_path / "copy", links=False)
    assert len(began) == 2
    assert done.commit.id > first
    found = verify_state(tmp_path / "copy")
    assert (found.problems, found.leftovers) == ([], [])
    assert answers(tmp_path / "copy") == answers(running.root, done.commit.id)


def test_a_file_that_is_damaged_is_not_copied(running, tmp_path):
    run = next((running.root / "stores" / "result").rglob("*.arrow"))
    data = bytearray(run.read_bytes())
    data[len(data) // 2] ^= 1
    run.write_bytes(bytes(data))
    with pytest.raises(StateError, match="CS-701"):
        copy_state(running.root, tmp_path / "copy", links=False)
    with pytest.raises(StateError, match="CS-701"):  # what was copied is no new folder for an application
        BatchLog(tmp_path / "copy").last_commit()


@pytest.mark.parametrize("links", [True, False])
def test_a_missing_file_is_an_error_and_no_endless_loop(running, tmp_path, links):
    next((running.root / "stores" / "result").rglob("*.arrow")).unlink()
    with pytest.raises((StateError, FileNotFoundError)):
        copy_state(running.root, tmp_path / "copy", links=links)


def test_a_fork_is_other_state_and_lives_beside_the_first(running, tmp_path, model, capsys):
    fork = tmp_path / "fork"
    assert call(capsys, "state", "fork", running.root, fork, "--application-id", "second").code == 0
    first, second = application_of(running.root), application_of(fork)
    assert second.application_id == "second"
    assert second.state_id not in ("", first.state_id)
    shared = [path for path in (fork / "stores").rglob("*.arrow") if os.stat(path).st_nlink > 1]
    assert shared
    before = answers(fork)
    for _ in range(4):
        running.go()
    assert answers(fork) == before
    assert verify_state(fork).problems == []
    outcome = call(capsys, "state", "fork", fork, tmp_path / "x", "--application-id", "second")
    assert (outcome.code, "CS-720" in outcome.err) == (1, True)


def test_backup_and_restore(running, tmp_path, capsys):
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    before = answers(running.root)
    assert "after batch" in call(capsys, "state", "backup", running.root, backup).err
    running.go()
    assert call(capsys, "state", "restore", backup, restored).code == 0
    assert answers(restored) == before
    assert all(os.stat(path).st_nlink == 1 for path in restored.rglob("*.arrow"))
    ids = [application_of(folder).state_id for folder in (running.root, backup, restored)]
    assert ids == ["of the first"] * 3


@pytest.mark.parametrize("action", ["backup", "restore"])
def test_a_target_that_is_not_empty_is_refused(running, tmp_path, capsys, action):
    target = tmp_path / "target"
    target.mkdir()
    (target / "letter.txt").write_text("mine")
    outcome = call(capsys, "state", action, running.root, target)
    assert (outcome.code, "CS-723" in outcome.err, "letter.txt" in outcome.err) == (1, True, True)
    assert [path.name for path in target.iterdir()] == ["letter.txt"]


def test_what_cannot_be_copied(tmp_path):
    with pytest.raises(CrossStreamError, match="CS-713"):
        copy_state(tmp_path / "nothing", tmp_path / "copy", links=True)
    assert not (tmp_path / "copy").exists()
