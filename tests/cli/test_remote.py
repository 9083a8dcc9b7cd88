"""The command line on state at a URI: everything that takes STATE_DIR, and what of the URI it prints."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import crossstream as cs
from crossstream.cli.run import _title
from crossstream.storage.commit_log import BatchLog
from tests.cli.cases import Outcome, call, saved_state
from tests.object_store import KEY, SECRET, ObjectStore, cache, object_server, object_store

__all__ = ["cache", "object_server", "object_store"]

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def state(object_store: ObjectStore, tmp_path: Path) -> str:
    uri = object_store.uri(tmp_path.name)
    saved_state(uri, [[("a", 1), ("b", 2)], [("a", 3)]])
    return uri


def without_secrets(outcome: Outcome) -> Outcome:
    for text in (outcome.out, outcome.err):
        assert SECRET not in text
        assert "testing%2Fsecret" not in text
        assert KEY not in text
    return outcome


def test_query(capsys: Captured, state: str) -> None:
    assert call(capsys, "query", state, "things", "get", "a", "--format", "json").lines[0]["value"] == 3
    assert (
        call(capsys, "query", state, "things", "get", "a", "--as-of", 0, "--format", "json").lines[0]["value"]
        == 1
    )
    listed = without_secrets(call(capsys, "query", state))
    assert (listed.code, "things" in listed.out) == (0, True)
    missing = without_secrets(call(capsys, "query", state.replace("?", "/nothing?"), "things"))
    assert (missing.code != 0, "CS-713" in missing.err) == (True, True)


def test_backup_and_restore_and_fork(
    capsys: Captured, state: str, object_store: ObjectStore, tmp_path: Path
) -> None:
    folder, again, fork = (
        tmp_path / "copy",
        object_store.uri(f"{tmp_path.name}-a"),
        object_store.uri(f"{tmp_path.name}-f"),
    )
    assert without_secrets(call(capsys, "state", "backup", state, folder)).code == 0
    assert without_secrets(call(capsys, "state", "restore", folder, again)).code == 0
    assert without_secrets(call(capsys, "state", "fork", again, fork, "--application-id", "second")).code == 0
    for place in (folder, again, fork):
        assert dict(cs.open_store(place, "things").all()) == {"a": 3, "b": 2}
        assert without_secrets(call(capsys, "state", "verify", place)).code == 0
    assert "CS-723" in without_secrets(call(capsys, "state", "restore", folder, state)).err


def test_inspect_and_verify(capsys: Captured, state: str, object_store: ObjectStore, tmp_path: Path) -> None:
    assert call(capsys, "state", "inspect", state, "--format", "json").lines[0]["rows"] == 3
    assert without_secrets(call(capsys, "state", "verify", state)).code == 0
    name = max(name for name in object_store.names(tmp_path.name) if name.endswith(".arrow"))
    object_store.put(tmp_path.name, name, b"damaged")
    object_store.put(tmp_path.name, "stores/things/0/left.arrow", b"left over")
    found = without_secrets(call(capsys, "state", "verify", state, "--format", "json"))
    assert found.code == 1
    assert [line["file"] for line in found.lines if "file" in line] == [name]
    assert [line["leftover"] for line in found.lines if "leftover" in line] == ["stores/things/0/left.arrow"]


def test_rescale(capsys: Captured, state: str) -> None:
    held = BatchLog(state)
    held.lock("shop")
    refused = without_secrets(call(capsys, "state", "rescale", state, "--partitions", 3))
    assert (refused.code != 0, "CS-720" in refused.err) == (True, True)
    held.unlock()
    assert without_secrets(call(capsys, "state", "rescale", state, "--partitions", 3)).code == 0
    assert BatchLog(state).newest().partitions == 3
    assert dict(cs.open_store(state, "things").all()) == {"a": 3, "b": 2}
    assert call(capsys, "state", "verify", state).code == 0


def test_doctor(capsys: Captured, state: str, object_store: ObjectStore) -> None:
    fine = without_secrets(call(capsys, "doctor", "--state-dir", state))
    assert "2 batches kept" in fine.out
    nowhere = without_secrets(call(capsys, "doctor", "--state-dir", object_store.uri("x", bucket="nowhere")))
    assert nowhere.code == 1
    assert "no bucket nowhere" in nowhere.out


def test_what_run_says_of_its_places(state: str) -> None:
    config = cs.StreamsConfig(application_id="shop", topics_dir="topics", state_dir=state)
    app = SimpleNamespace(topology=(), spark_ui_address="http://h:4040", ui_address="http://h:8642")
    title = _title(config, app)
    assert title.splitlines()[2] == "page: http://h:8642, Spark: http://h:4040"
    assert "state: s3://bucket/" in title
    assert "partitions: 2" in title
    assert SECRET not in title
