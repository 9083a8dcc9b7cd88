"""File topics after crashes and damage: torn tails vanish, anything else is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream.errors import SinkError, SourceError
from crossstream.filetopics import FileTopics, partition_log
from crossstream.filetopics import writer as chunking
from crossstream.filetopics.frame_format import HEADER, encode
from crossstream.topics import OffsetRange, TopicPartition
from tests.filetopics.topics import batch, numbered, read, segments, write
from tests.laws.effort import law

OWNER = TopicPartition("t", 0)


@pytest.fixture
def topics(tmp_path: Path) -> FileTopics:
    """Three frames of two records."""
    topics = FileTopics(str(tmp_path), durable=False)
    for n in range(3):
        write(topics, numbered(2, 2 * n))
    return topics


def frame_bytes(base: int = 6) -> bytes:
    """A whole frame of two records, as it would come next."""
    frame, payload = encode(batch(numbered(2, 6)))
    placed = frame._replace(base=base)
    return placed.header() + payload.to_pybytes() + placed.padding


def change(path: Path, position: int, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(content)


def end(topics: FileTopics) -> int:
    return topics.log().end_offsets([OWNER])[OWNER]


@law
@given(written=st.integers(1, len(frame_bytes()) - 1))
def test_a_torn_tail_is_ignored_and_then_cut_off(
    tmp_path_factory: pytest.TempPathFactory, written: int
) -> None:
    """A crash leaves any part of a frame behind the last whole one."""
    topics = FileTopics(str(tmp_path_factory.mktemp("topics")), durable=False)
    write(topics, numbered(6))
    (path,) = segments(topics)
    whole = path.stat().st_size
    with open(path, "ab") as file:
        file.write(frame_bytes()[:written])
    log, reader = topics.log(), topics.reader()
    assert log.end_offsets([OWNER]) == {OWNER: 6}
    assert len(list(reader.read(OffsetRange("t", 0, 0, 6), 10))) == 1
    assert path.stat().st_size == whole + written
    write(topics, numbered(2, 6))
    assert path.stat().st_size == whole + len(frame_bytes())
    assert log.end_offsets([OWNER]) == {OWNER: 8}
    assert read(topics) == numbered(8)


def test_space_that_was_never_written_is_a_torn_tail(topics: FileTopics) -> None:
    (path,) = segments(topics)
    os.truncate(path, path.stat().st_size + 4096)
    assert end(topics) == 6
    write(topics, numbered(1, 6))
    assert read(topics) == numbered(7)


def test_zeros_before_a_frame_are_damage(topics: FileTopics) -> None:
    (path,) = segments(topics)
    change(path, 0, bytes(HEADER.size))
    with pytest.raises(SourceError, match="CS-606") as caught:
        end(topics)
    assert caught.value.where == {"topic": "t", "partition": 0, "offset": 0, "file": str(path)}


@pytest.mark.parametrize("frame", range(3))
@pytest.mark.parametrize("place", [0, 5, 9, 20, 30, 35, 45, 60])
def test_a_damaged_header_is_told(topics: FileTopics, frame: int, place: int) -> None:
    (path,) = segments(topics)
    start = frame * path.stat().st_size // 3
    before = path.read_bytes()[start + place]
    change(path, start + place, bytes([before ^ 0x10]))
    with pytest.raises(SourceError, match="CS-606") as caught:
        end(topics)
    assert caught.value.where["offset"] == 2 * frame
    with pytest.raises(SourceError, match="CS-606"):
        write(topics, numbered(1))


@pytest.mark.parametrize("frame", range(3))
def test_damaged_records_are_told(topics: FileTopics, frame: int) -> None:
    (path,) = segments(topics)
    place = path.read_bytes().index(b"v%d" % (2 * frame))
    change(path, place, b"w")
    assert end(topics) == 6
    with pytest.raises(SourceError, match="CS-606") as caught:
        read(topics)
    assert caught.value.where == {"topic": "t", "partition": 0, "offset": 2 * frame, "file": str(path)}
    assert read(topics, end=2 * frame) == numbered(2 * frame)


def test_a_file_that_became_shorter_is_told(topics: FileTopics) -> None:
    (path,) = segments(topics)
    log = topics.log()
    assert log.end_offsets([OWNER]) == {OWNER: 6}
    os.truncate(path, path.stat().st_size // 3)
    with pytest.raises(SourceError, match="CS-606"):
        log.end_offsets([OWNER])
    with pytest.raises(SourceError, match="CS-603"):
        topics.reader().read(OffsetRange("t", 0, 0, 6), 10)


def test_a_missing_segment_is_told(tmp_path: Path) -> None:
    topics = FileTopics(str(tmp_path), durable=False, segment_bytes=1)
    for n in range(3):
        write(topics, numbered(2, 2 * n))
    segments(topics)[1].unlink()
    with pytest.raises(SourceError, match="CS-606"):
        read(topics, end=6)
    assert read(topics, start=4, end=6) == numbered(2, 4)


def test_a_segment_started_and_left_empty_is_used(tmp_path: Path) -> None:
    topics = FileTopics(str(tmp_path), durable=False, segment_bytes=1)
    write(topics, numbered(2))
    fresh = segments(topics)[0].with_name(f"{2:020d}.seg")
    fresh.write_bytes(frame_bytes(2)[:70])
    log = topics.log()
    assert log.end_offsets([OWNER]) == {OWNER: 2}
    write(topics, numbered(2, 2))
    write(topics, numbered(2, 4))
    assert log.end_offsets([OWNER]) == {OWNER: 6}
    assert read(topics) == numbered(6)
    assert len(segments(topics)) == 3


def test_a_full_disk_leaves_whole_frames_only(topics: FileTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = segments(topics)
    whole = path.read_bytes()
    calls = 0

    def full(file: int, content: memoryview) -> None:
        nonlocal calls
        calls += 1
        os.write(file, bytes(content)[:20])
        if calls == 2:
            raise OSError(28, "No space left on device")

    writer = topics.writer()
    writer.write("t", batch(numbered(1, 6)))
    with monkeypatch.context() as patch:
        patch.setattr(partition_log, "_write", full)
        with pytest.raises(SinkError, match=r"CS-665.*No space left"):
            writer.flush()
    assert path.read_bytes() == whole
    writer.flush()  # what could not be stored is for the caller to write again
    assert end(topics) == 6
    writer.write("t", batch(numbered(1, 6)))
    writer.close()
    assert read(topics) == numbered(7)


def test_a_write_that_fails_leaves_nothing_to_be_written_later(
    topics: FileTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes again writes all of it: what was collected of the failed attempt must not follow."""

    def broken(file: int, content: memoryview) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(chunking, "MAX_ROWS", 3)
    writer = topics.writer()
    with monkeypatch.context() as patch:
        patch.setattr(partition_log, "_write", broken)
        writer.write("t", batch(numbered(2, 6)))
        with pytest.raises(SinkError, match="CS-665"):
            writer.write("t", batch(numbered(2, 8)))
    writer.write("t", batch(numbered(4, 6)))
    writer.close()
    assert read(topics) == numbered(10)


def test_a_description_that_cannot_be_read_is_told(topics: FileTopics) -> None:
    path = Path(topics.topics_dir) / "t" / "topic.json"
    text = path.read_text()
    for content, code in (("{", "CS-606"), (text.replace('"format": 1', '"format": 2'), "CS-606")):
        path.write_text(content)
        with pytest.raises(SourceError, match=code):
            end(topics)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="CS-656"):
        FileTopics(str(tmp_path / "file" / "topics")).log().create_topic("t", 1)
