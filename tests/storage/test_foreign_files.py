"""What others put into a state folder: a desktop, a copy that went wrong. It is passed over, or it is an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.query.files import inspect_state
from crossstream.query.verification import verify_state
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.vacuum import Vacuum
from tests.docs.state_folder import Writer

TEXT = serdes.string()
BATCHES = 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    builder = cs.StreamsBuilder()
    builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    writer = Writer(tmp_path, builder.build())
    for batch in range(BATCHES):
        writer.run({"rows": [(b"k", b"v%d" % batch, batch)]})
    writer.close()
    return tmp_path


@pytest.mark.parametrize("place", ["commits", "batches"])
@pytest.mark.parametrize(
    "name",
    [
        "._000000000000.json", "000000000000 (1).json", "7.json", "1_000_000_000.json",
        "-00000000001.json", "٠٠٠٠٠٠٠٠٠٠٠٩.json", "000000000009.json.bak", "notes.txt",
    ],
)  # fmt: skip
def test_another_name_in_the_log_is_passed_over(folder: Path, place: str, name: str) -> None:
    (folder / place / name).write_text("{}")
    log = BatchLog(folder)
    assert (log.commits(), log.batches()) == ([0, 1, 2], [0, 1, 2])
    assert cs.open_store(folder, "rows").get("k") == "v2"
    assert inspect_state(folder).batches == [0, 1, 2]
    assert verify_state(folder).problems == []
    Vacuum(folder, log, 1).sweep(BATCHES)
    assert log.commits() == [1, 2]
    assert (folder / place / name).exists()


def test_a_folder_in_one_that_is_no_longer_used_stays(folder: Path) -> None:
    (folder / "stores/old/0/sub").mkdir(parents=True)
    (folder / "stores/old/1").mkdir()
    Vacuum(folder, BatchLog(folder), 10).sweep(BATCHES)
    assert [path.name for path in sorted((folder / "stores/old").iterdir())] == ["0"]
    assert cs.open_store(folder, "rows").get("k") == "v2"


@pytest.mark.parametrize("kind", ["arrow", "manifest"])
def test_a_folder_in_the_place_of_a_file_is_damage(folder: Path, kind: str) -> None:
    newest = max((folder / "stores/rows/0").glob(f"*.{kind}"))
    newest.unlink()
    newest.mkdir()
    with pytest.raises(cs.StateError, match=f"{newest.name} cannot be read: ") as caught:
        cs.open_store(folder, "rows")
    assert caught.value.code == "CS-701"
    assert (problem := verify_state(folder).problems[0]).file == f"stores/rows/0/{newest.name}"
    assert "cannot be read" in problem.what


def test_a_folder_in_the_place_of_a_commit_is_damage(folder: Path) -> None:
    commit = folder / "commits/000000000002.json"
    commit.unlink()
    commit.mkdir()
    with pytest.raises(cs.StateError) as caught:
        cs.open_store(folder, "rows")
    assert caught.value.code == "CS-701"


@pytest.mark.parametrize("place", ["commits", "stores"])
def test_a_store_with_a_file_in_the_place_of_a_folder_is_not_empty(folder: Path, place: str) -> None:
    shutil.rmtree(folder / place)
    (folder / place).write_text("")
    with pytest.raises(cs.StateError) as caught:
        cs.open_store(folder, "rows")
    assert caught.value.code == "CS-701"


def test_what_is_in_a_file_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(cs.StateError) as caught:
        cs.open_store(tmp_path / "file", "rows")
    assert caught.value.code == "CS-713"


def test_the_newest_commit_is_not_missed(folder: Path) -> None:
    """It is as if the batch had not been committed, which is repeated then; before the first one there are no rows."""
    (folder / "commits/000000000002.json").unlink()
    assert cs.open_store(folder, "rows").get("k") == "v1"
    assert BatchLog(folder).begun(BatchLog(folder).newest()) is not None
    for number in (1, 2):
        (folder / f"batches/{number:012d}.json").unlink()
    shutil.rmtree(folder / "commits")
    assert cs.open_store(folder, "rows").get("k") is None
