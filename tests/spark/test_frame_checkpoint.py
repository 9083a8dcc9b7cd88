"""Spark's checkpoint of DataFrame sources beside the batch log: what fits, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import crossstream as cs
from crossstream.spark.feed import Checkpoint
from crossstream.storage.log_entries import BatchEntry, Commit


def checkpoint(
    folder: Path, offsets: int = -1, commits: int = -1, epoch: int = -1, begun: int | None = None
) -> Checkpoint:
    """Newest epochs: in Spark's two folders, of the last commit, and of a batch that was begun after it."""
    for name, newest in (("offsets", offsets), ("commits", commits)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(newest + 1):
            (folder / name / str(number)).touch()
            (folder / name / f".{number}.crc").touch()
    (folder / "metadata").touch()
    commit = Commit(7, 1, epoch=epoch)
    return Checkpoint(folder, commit, None if begun is None else BatchEntry(8, (), epoch=begun))


def alone(*sources: str) -> dict[str, list[str]]:
    """Sources each of which Spark reads by itself."""
    return {name: [f"what {name} reads"] for name in sources}


@pytest.mark.parametrize(
    ("offsets", "commits", "epoch", "begun"),
    [
        (-1, -1, -1, None),  # the first start
        (0, -1, -1, None),  # Spark had planned an epoch
        (0, -1, -1, 0),  # and its batch was begun
        (0, -1, 0, None),  # and committed
        (3, 3, 3, None),
        (4, 3, 3, None),
        (4, 3, 3, -1),
        (4, 3, 3, 4),
    ],
)
def test_what_fits(tmp_path: Path, offsets: int, commits: int, epoch: int, begun: int | None) -> None:
    found = checkpoint(tmp_path / "frames", offsets, commits, epoch, begun)
    assert found.order(alone("a", "b"), ["b", "a"]) == ("b", "a"), "Spark knows them by their order"
    assert found.order(alone("a", "b"), []) == ("a", "b")


@pytest.mark.parametrize(
    ("offsets", "commits", "epoch", "begun", "missing"),
    [
        (-1, -1, 3, None, "frames/offsets/3"),
        (2, 2, 3, None, "frames/offsets/3"),
        (3, 3, 3, 4, "frames/offsets/4"),
        (-1, -1, -1, 0, "frames/offsets/0"),
    ],
)
def test_a_checkpoint_that_lacks_epochs(
    tmp_path: Path, offsets: int, commits: int, epoch: int, begun: int | None, missing: str
) -> None:
    with pytest.raises(cs.StateError) as caught:
        checkpoint(tmp_path / "frames", offsets, commits, epoch, begun).order(alone("a"), ["a"])
    assert caught.value.code == "CS-701"
    assert caught.value.where == {"file": str(tmp_path / missing)}


LISTS = ["sources/1/0", "sources/1/1", "sources/1/2"]
"""The files that the second source, a folder, has read in each epoch."""
COMPACTED = ["sources/1/1.compact", "sources/1/2"]


def listing(folder: Path, lists: list[str], epochs: int = 3) -> Checkpoint:
    """A checkpoint of a topic of Kafka and a folder of files, all of its epochs committed."""
    made = checkpoint(folder, epochs - 1, epochs - 1, epochs - 1)
    for epoch in range(epochs):
        lines = ["v1", '{"batchWatermarkMs":0}', '{"logOffset":{"0":7}}', json.dumps({"logOffset": epoch})]
        (folder / "offsets" / str(epoch)).write_text("\n".join(lines))
    (folder / "sources" / "1").mkdir(parents=True)
    for name in lists:
        (folder / name).touch()
    return made


@pytest.mark.parametrize("lists", [LISTS, COMPACTED, [*LISTS, "sources/1/3"], ["sources/1/3.compact"]])
def test_lists_of_files_that_were_read(tmp_path: Path, lists: list[str]) -> None:
    assert listing(tmp_path / "frames", lists).order(alone("a", "b"), ["a", "b"]) == ("a", "b")


@pytest.mark.parametrize(
    ("lists", "gone", "missing"),
    [
        (LISTS, "metadata", "metadata"),
        (LISTS, "offsets/1", "offsets/1"),
        (LISTS, "sources/1/2", "sources/1/2"),
        (LISTS, "sources/1/0", "sources/1/0"),
        (COMPACTED, "sources/1/2", "sources/1/2"),
        (COMPACTED, "sources/1/1.compact", "sources/1/0"),
    ],
)
def test_a_checkpoint_that_lacks_parts(tmp_path: Path, lists: list[str], gone: str, missing: str) -> None:
    found = listing(tmp_path / "frames", lists)
    (tmp_path / "frames" / gone).unlink()
    with pytest.raises(cs.StateError) as caught:
        found.order(alone("a", "b"), ["a", "b"])
    assert caught.value.code == "CS-701"
    assert caught.value.where == {"file": str(tmp_path / "frames" / missing)}


SHARED = {"a": ["topic", "folder"], "b": ["folder", "other"], "c": ["other", "folder"]}
"""Six lines of offsets in Spark's checkpoint, and lists of files for three things that are read."""


def sharing(folder: Path, lists: list[str]) -> Checkpoint:
    """A checkpoint of two epochs of such sources."""
    made = checkpoint(folder, 1, 1, 1)
    lines = ["v1", "{}", '{"logOffset":{"0":7}}', *[json.dumps({"logOffset": 1})] * 5]
    for epoch in range(2):
        (folder / "offsets" / str(epoch)).write_text("\n".join(lines))
    for name in lists:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return made


FOUND = ["sources/1/0", "sources/1/1", "sources/2/0", "sources/2/1"]


def test_what_is_read_for_several_sources_has_one_list(tmp_path: Path) -> None:
    found = sharing(tmp_path / "frames", FOUND)
    assert found.order(SHARED, ["a", "b", "c"]) == ("a", "b", "c")


@pytest.mark.parametrize("missing", FOUND)
def test_a_list_of_several_sources_that_is_missing(tmp_path: Path, missing: str) -> None:
    found = sharing(tmp_path / "frames", [name for name in FOUND if name != missing])
    with pytest.raises(cs.StateError) as caught:
        found.order(SHARED, ["a", "b", "c"])
    assert caught.value.code == "CS-701"
    assert caught.value.where == {"file": str(tmp_path / "frames" / missing)}


def test_lists_are_told_by_the_order_in_which_spark_knows_the_sources(tmp_path: Path) -> None:
    """The folder is the first thing read, and the topic, which has no lists, the second."""
    made = checkpoint(tmp_path / "frames", 0, 0, 0)
    lines = ["v1", "{}", '{"logOffset":0}', '{"logOffset":{"0":7}}']
    (tmp_path / "frames" / "offsets" / "0").write_text("\n".join(lines))
    (tmp_path / "frames" / "sources" / "0").mkdir(parents=True)
    (tmp_path / "frames" / "sources" / "0" / "0").touch()
    assert made.order({"topic": ["topic"], "folder": ["folder"]}, ["folder", "topic"]) == ("folder", "topic")


@pytest.mark.parametrize(("epoch", "begun"), [(2, None), (2, 3), (-1, None)])
def test_a_log_that_lacks_commits(tmp_path: Path, epoch: int, begun: int | None) -> None:
    with pytest.raises(cs.StateError) as caught:
        checkpoint(tmp_path / "frames", 3, 3, epoch, begun).order(alone("a"), ["a"])
    assert caught.value.code == "CS-701"
    assert "commits of the batch log are missing" in caught.value.what


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        (["b", "a", "c"], "c is new"),
        (["a"], "b is gone"),
        (["a", "c"], "c is new; b is gone"),
    ],
)
def test_other_sources(tmp_path: Path, sources: list[str], told: str) -> None:
    with pytest.raises(cs.IncompatibleStateError) as caught:
        checkpoint(tmp_path / "frames", 3, 3, 3).order(alone(*sources), ["a", "b"])
    assert caught.value.code == "CS-750"
    assert caught.value.what == f"the DataFrame sources changed since the last run: {told}"


@pytest.mark.parametrize("begun", [None, 4])
def test_all_of_them_are_left_out_when_no_batch_is_begun(tmp_path: Path, begun: int | None) -> None:
    with pytest.raises(cs.IncompatibleStateError) as caught:
        checkpoint(tmp_path / "frames", 4, 3, 3, begun).order(alone("c"), ["a"])
    assert caught.value.next is not None
    assert ("leave all of them out" in caught.value.next) == (begun is None)
    assert ("batch 8 was begun" in caught.value.next) == (begun is not None)


def test_sources_may_change_before_any_row_was_taken(tmp_path: Path) -> None:
    found = checkpoint(tmp_path / "frames", 0)
    assert found.order(alone("c"), ["a", "b"]) == ("c",)
    assert not (tmp_path / "frames").exists(), "it is of the sources before"


def test_all_of_them_may_be_left_out(tmp_path: Path) -> None:
    found = checkpoint(tmp_path / "frames", 3, 3, 3)
    assert found.order({}, ["a", "b"]) == ("a", "b"), "they may come back"


def test_unless_a_batch_with_rows_of_theirs_was_begun(tmp_path: Path) -> None:
    with pytest.raises(
        cs.IncompatibleStateError, match="DataFrame sources that the topology no longer"
    ) as caught:
        checkpoint(tmp_path / "frames", 4, 3, 3, 4).order({}, ["a", "b"])
    assert caught.value.code == "CS-750"
