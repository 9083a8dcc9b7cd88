"""Frames: split and joined as columns; damaged ones do not disturb their neighbours."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream.serdes import arrays
from crossstream.serdes.registry.serde import FRAME, Frames, put_frames, split_frames

IDS = st.integers(0, 2**31 - 1)
FRAMES = st.tuples(IDS, st.binary(max_size=20))
ROWS = st.lists(st.none() | FRAMES, max_size=30)
ANYTHING = st.lists(
    st.none() | st.binary(max_size=12) | st.binary(max_size=8).map(lambda b: b"\0" + b), max_size=30
)


def array(rows: list[bytes | None], skipped: int = 0) -> pa.LargeBinaryArray:
    return pa.array([b"other"] * skipped + rows, pa.large_binary()).slice(skipped)


def one_by_one(row: bytes | None) -> tuple[int, bytes | None, bool]:
    """Id, payload, and whether the row is good: the slow way."""
    if row is None:
        return -1, None, True
    if len(row) < FRAME or row[0] != 0 or row[1] > 127:
        return -1, None, False
    return int.from_bytes(row[1:FRAME], "big"), row[FRAME:], True


def facts(frames: Frames) -> list[tuple[int, bytes | None, bool]]:
    payload = frames.payload.to_pylist()
    return [(id, payload[row], row not in frames.bad) for row, id in enumerate(frames.ids.tolist())]


@given(ROWS, st.integers(0, 3))
def test_what_is_joined_is_split(rows: list[tuple[int, bytes] | None], skipped: int) -> None:
    payload = [None if row is None else row[1] for row in rows]
    framed = [None if row is None else b"\0" + row[0].to_bytes(4, "big") + row[1] for row in rows]
    frames = split_frames(array(framed, skipped))
    assert frames.bad == {}
    assert frames.payload.to_pylist() == payload
    assert frames.ids.tolist() == [-1 if row is None else row[0] for row in rows]


@given(ANYTHING, st.integers(0, 3))
def test_columns_are_read_as_rows_are(rows: list[bytes | None], skipped: int) -> None:
    assert facts(split_frames(array(rows, skipped))) == [one_by_one(row) for row in rows]


@given(ROWS, IDS, st.binary(max_size=3))
def test_one_id_for_all_rows(rows: list[tuple[int, bytes] | None], id: int, after: bytes) -> None:
    payload = array([None if row is None else row[1] for row in rows])
    framed = put_frames(id, payload, after)
    head = b"\0" + id.to_bytes(4, "big") + after
    assert framed.to_pylist() == [None if row is None else head + row for row in payload.to_pylist()]
    good = np.ones(len(payload), np.bool_) if not payload.null_count else payload.is_valid().to_numpy(False)
    assert arrays.without_first(framed, len(head), good).to_pylist() == payload.to_pylist()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"", "5 bytes: there are 0"),
        (b"\0\0\0\0", "5 bytes: there are 4"),
        (b'{"id": 1}', "the first byte is b'{', not 0"),
        (b"\1" + bytes(16), "its schema id is in the headers"),
        (b"\0\xff\0\0\1{}", "negative"),
    ],
)
def test_a_bad_row_says_what_is_wrong(row: bytes, said: str) -> None:
    frames = split_frames(array([b"\0\0\0\0\1{}", row, None]))
    assert list(frames.bad) == [1]
    assert said in frames.bad[1]
    assert frames.payload.to_pylist() == [b"{}", None, None]
