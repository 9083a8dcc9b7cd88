"""Damage: to the staged rows of a batch, to the files of its tables, and commits of others in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from tests.faults.crash_points import before
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
        assert (caught.value.code, "staged file table-1-" in caught.value.what) in {
            ("CS-701", True),
            ("CS-701", "is damaged" in caught.value.what),
        }
        assert caught.value.next
        assert lives.events() == ["word-old"]
        assert lives.counts() == {"word-old": 1}
    for path, data in wholes.items():
        path.write_bytes(data)
    lives.run()
    assert lives.events() == ["word-old", "word-old", "word-one"]
    assert lives.counts() == {"word-old": 2, "word-one": 1}
