"""Damage: to the staged rows of a batch, to the files of its tables, and commits of others in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

import crossstream as cs
from tests.faults.crash_points import before
from tests.faults.one_process import streams
from tests.lakehouse.lake import FORMATS
from tests.lakehouse.test_each_batch_once import Lives


@pytest.fixture(params=FORMATS)
def lives(request: pytest.FixtureRequest, tmp_path: Path) -> Lives:
    return Lives(tmp_path, request.param)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


STAGED: dict[str, Callable[[bytes], bytes | None]] = {
    "removed": lambda data: None,
    "empty": lambda data: b"",
    "cut in the middle": lambda data: data[: len(data) // 2],
    "cut before its last marker": lambda data: data[:-8],
    "without its rows": lambda data: data[: data.index(b"\xff\xff\xff\xff", 8)],
    "a letter of a row": lambda data: data.replace(b"word-one", b"word-two", 1),
    "a flipped bit": lambda data: flipped(data, len(data) * 3 // 4),
    "something added": lambda data: data + b"\0",
}


@pytest.mark.parametrize("damage", STAGED)
def test_damaged_staged_rows_are_not_written(lives: Lives, damage: str) -> None:
    """The rows that were noted are written, or none: the start says what is wrong and does not skip the batch."""
    lives.append("word-old")
    lives.run()
    lives.append("word-one", "word-old")
    lives.run(before(lives.writer, "write"))
    wholes = {path: path.read_bytes() for path in (lives.world.state_dir / "staged").iterdir()}
    for path, data in wholes.items():
        bad = STAGED[damage](data)
        assert bad != data
        path.unlink() if bad is None else path.write_bytes(bad)
    for _ in range(2):  # it is said again
        with pytest.raises(cs.StateError) as caught:
            lives.run()
        assert (caught.value.code, "file table-1-" in caught.value.what) == ("CS-701", True)
        assert caught.value.next
        assert lives.events() == ["word-old"]
        assert lives.counts() == {"word-old": 1}
    for path, data in wholes.items():
        path.write_bytes(data)
    lives.run()
    assert lives.events() == ["word-old", "word-old", "word-one"]
    assert lives.counts() == {"word-old": 2, "word-one": 1}


def removed(lake: Any) -> None:
    if lake.form == "delta":
        shutil.rmtree(lake.path("counts"))
    else:
        with_catalog(lake, lambda catalog: catalog.drop_table("shop.counts"))


def older(lake: Any) -> None:
    """The table without its newest version, as a copy of it from before has it."""
    if lake.form == "delta":
        max((Path(lake.path("counts")) / "_delta_log").glob("*.json")).unlink()
        return

    def replace(catalog: Any) -> None:
        before = catalog.load_table("shop.counts").metadata.metadata_log[-1].metadata_file
        catalog.drop_table("shop.counts")
        catalog.register_table("shop.counts", before)

    with_catalog(lake, replace)


def with_catalog(lake: Any, act: Callable[[Any], None]) -> None:
    catalog = load_catalog("default", **lake.catalog)
    act(catalog)
    catalog.close()


@pytest.mark.parametrize("lose", [removed, older])
@pytest.mark.parametrize("crashed", [False, True], ids=["", "in a batch"])
def test_a_table_that_lost_rows_is_refused(lives: Lives, lose: Callable[[Any], None], crashed: bool) -> None:
    """It is not filled from then on, as if its rows had never been there."""
    for word in "ab":
        lives.append(word)
        lives.run()
    lives.append("c")
    if crashed:
        lives.run(before(lives.writer, "write"))
    lose(lives.lake)
    with pytest.raises(cs.StateError) as caught:
        lives.run()
    assert (caught.value.code, caught.value.what.split(",")[0]) == (
        "CS-745",
        "the table lacks batch 1 of this state",
    )
    assert "counts" in caught.value.where["table"]
    # The setting says that it is meant.
    lives.run(on_lost_state="restart")
    assert lives.counts() == ({"c": 1} if lose is removed else {"a": 1, "c": 1})
    lives.append("c")
    lives.run()
    assert lives.counts()["c"] == 2


def test_a_table_that_is_removed_under_an_application(lives: Lives) -> None:
    with streams(lives.topology(), lives.world.config()) as app:
        lives.append("a")
        app.process_available()
        removed(lives.lake)
        lives.append("b")
        with pytest.raises(cs.CrossStreamError) as caught:
            app.process_available()
    # delta-rs misses a file of the version that it has open.
    assert caught.value.code == ("CS-665" if lives.lake.form == "delta" else "CS-745")
