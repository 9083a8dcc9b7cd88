"""Blobs that go through files instead of the JVM."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crossstream import serdes
from crossstream.columns.changes import Changes
from crossstream.columns.values import Values
from crossstream.spark.shuffle_spill import (
    INLINE_BYTES,
    BlobLocation,
    drop_batch,
    loaded,
    shared_folder,
    spilled,
)
from crossstream.storage.files import FEW, BufferList
from crossstream.task.shuffle_codec import Block, pack, unpack

SMALL = b"s" * INLINE_BYTES
LARGE = [bytes([number]) * (INLINE_BYTES + number) for number in range(1, 200, 13)]


def blocks(blobs: Sequence[Any]) -> list[Block]:
    return [(1, 0, 7, number, blob) for number, blob in enumerate(blobs)]


def gathered(pieces: Sequence[bytes]) -> BufferList:
    blob = BufferList()
    for piece in pieces:
        blob.write(piece)
    return blob


def test_large_blobs_come_back_as_they_were(tmp_path: Path) -> None:
    sent = [(3, blocks([SMALL, *LARGE])), (1, blocks([LARGE[0]]))]
    shipped = pickle.loads(pickle.dumps(list(spilled(sent, str(tmp_path), 5))))
    assert [pid for pid, _ in shipped] == [3, 1]
    assert [type(block[4]) for block in shipped[0][1]] == [bytes] + [BlobLocation] * len(LARGE)
    back = list(loaded(block for _, some in shipped for block in some))
    assert [(*block[:4], bytes(block[4])) for block in back] == sent[0][1] + sent[1][1]


def test_gathered_blobs_come_back_as_they_were(tmp_path: Path) -> None:
    """Large ones are written buffer by buffer; small ones, and all where there is no folder, are pickled as bytes."""
    blobs = [gathered([b"ab", b"", b"c"]), gathered(LARGE)]
    sent = [(3, blocks(blobs))]
    for folder, kinds in ((str(tmp_path), [bytes, BlobLocation]), (None, [bytes, bytes])):
        [(_, shipped)] = pickle.loads(pickle.dumps(list(spilled(sent, folder, 5))))
        assert [type(block[4]) for block in shipped] == kinds
        assert [bytes(block[4]) for block in loaded(shipped)] == [b"abc", b"".join(LARGE)]


@pytest.mark.parametrize("rows", [0, 3, FEW + 1])
def test_packed_changes_are_unpacked(rows: int) -> None:
    keys = pa.array([None if n % 7 == 3 else b"%d" % n for n in range(rows + 2)], pa.large_binary())[1:-1]
    serde, numbers = serdes.bytes(), np.arange(rows)
    changes = Changes(Values(serde, wire=keys), Values(serde, wire=keys), numbers, -numbers, numbers * 2)
    for blob in (pack(changes, serde, serde), bytes(pack(changes, serde, serde))):
        back = unpack([blob, blob], serde, serde)
        assert back.key.wire().to_pylist() == 2 * keys.to_pylist()
        assert back.value.wire().to_pylist() == 2 * keys.to_pylist()
        assert (back.ts.tolist(), back.major.tolist()) == (2 * numbers.tolist(), 2 * (-numbers).tolist())


def test_a_blob_that_lies_in_a_file_is_passed_on_as_it_is(tmp_path: Path) -> None:
    [(_, [first])] = spilled([(0, blocks([LARGE[0]]))], str(tmp_path), 5)
    [(_, [second])] = spilled([(0, [first])], str(tmp_path), 5)
    assert first == second
    assert len(list((tmp_path / "5").iterdir())) == 1


def test_an_attempt_that_is_repeated_has_a_file_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        list(spilled([(0, blocks([LARGE[0]]))], str(tmp_path), 5))
    assert len(list((tmp_path / "5").iterdir())) == 2


def test_without_a_folder_everything_goes_through_spark() -> None:
    sent = [(0, blocks(LARGE))]
    assert list(spilled(sent, None, 0)) == sent


def test_the_files_of_a_batch_go_when_it_has_ended(tmp_path: Path) -> None:
    for batch in (4, 5):
        list(spilled([(0, blocks(LARGE))], str(tmp_path), batch))
    drop_batch(str(tmp_path), 4)
    drop_batch(str(tmp_path), 4)
    assert [folder.name for folder in tmp_path.iterdir()] == ["5"]


def test_one_machine_has_a_folder(spark: Any) -> None:
    folder = shared_folder(spark.sparkContext, "some-run")
    assert spark.sparkContext.master.startswith("local[") == (folder is not None)
    assert folder is None or Path(folder).is_dir()
