"""File topics of someone else: names, links, numbers and bytes in them that mean harm."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from crossstream.errors import CrossStreamError, SourceError
from crossstream.filetopics import FileTopics
from crossstream.filetopics.frame_format import STORED, Frame, encode
from crossstream.records import RECORDS
from crossstream.topics import OffsetRange, TopicPartition
from tests.faults import hostile
from tests.faults.hostile import JSONS, in_time

RECORD = {"key": [b"k"], "value": [b"v"], "timestamp": [1], "offset": [0], "headers": [None]}
SPAN = OffsetRange("t", 0, 0, 1)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What the user has."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def topics(tmp_path: Path) -> FileTopics:
    made = FileTopics(str(tmp_path / "topics"))
    made.log().create_topic("t", 1)
    append(made)
    return made


def append(topics: FileTopics) -> None:
    writer = topics.writer()
    writer.write("t", pa.RecordBatch.from_pydict(RECORD, schema=RECORDS))
    writer.close()


class TestTopics:
    @pytest.mark.parametrize("id", ["../../home/gone", "/tmp/gone", "..", ""])
    def test_an_id_is_no_path(self, topics: FileTopics, tmp_path: Path, home: Path, id: str) -> None:
        path = tmp_path / "topics" / "t" / "topic.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"id": id}))
        with pytest.raises(SourceError, match="CS-606"):
            topics.log().delete_topic("t")
        assert path.exists()

    @pytest.mark.parametrize("text", [*JSONS.values(), b'{"format":1,"id":"a","partitions":1099511627776}'])
    def test_a_description(self, topics: FileTopics, tmp_path: Path, text: bytes) -> None:
        (tmp_path / "topics" / "t" / "topic.json").write_bytes(text)
        with in_time(), pytest.raises(SourceError, match="CS-606"):
            topics.log().topics()

    @pytest.mark.parametrize("place", ["t/topic.json", "t/0", f"t/0/{0:020}.seg"])
    @pytest.mark.parametrize("kind", ["link", "pipe", "/dev/zero"])
    def test_what_is_no_file(
        self, topics: FileTopics, tmp_path: Path, home: Path, place: str, kind: str
    ) -> None:
        path = tmp_path / "topics" / place
        away = home / "away"
        os.rename(path, away)
        before = hostile.outside(home)
        os.mkfifo(path) if kind == "pipe" else path.symlink_to(away if kind == "link" else kind)
        with in_time(), pytest.raises(CrossStreamError) as caught:
            list(topics.reader().read(SPAN, 10))
        assert caught.value.code in ("CS-606", "CS-603")
        with in_time(), pytest.raises(CrossStreamError):
            append(topics)
        assert hostile.outside(home) == before

    def test_a_lock_that_is_a_link(self, topics: FileTopics, tmp_path: Path, home: Path) -> None:
        lock = tmp_path / "topics" / "t" / "0" / "lock"
        lock.unlink()
        lock.symlink_to(home / "made")
        with pytest.raises(CrossStreamError, match="CS-665"):
            append(topics)
        assert not (home / "made").exists()

    def test_frames_with_other_rows_than_they_say(self, topics: FileTopics, tmp_path: Path) -> None:
        batch = pa.RecordBatch.from_pydict(RECORD, schema=RECORDS).select(STORED.names)
        frame, payload = encode(batch)
        bomb = pa.RecordBatch.from_pydict(
            {"key": [None], "value": [bytes(1 << 26)], "timestamp": [1], "headers": [None]}, schema=STORED
        )
        packed = bomb.serialize()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, STORED, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_batch(bomb)
        reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
        reader.read_next_message()
        packed = reader.read_next_message().serialize()
        beyond = bytearray(payload.to_pybytes())
        where = beyond.rfind(struct.pack("<qq", 0, 1))
        beyond[where : where + 16] = struct.pack("<qq", 0, 1 << 40)
        for rows, content in ((1000, payload), (1, packed), (1, bytes(beyond)), (1, b""), (1, b"\xff" * 64)):
            whole = frame._replace(
                rows=rows, base=0, length=len(content), checksum=hostile.xxhash.xxh3_64_intdigest(content)
            )
            assert isinstance(whole, Frame)
            path = tmp_path / "topics" / "t" / "0" / f"{0:020}.seg"
            path.write_bytes(whole.header() + bytes(content) + whole.padding)
            with in_time(), pytest.raises(SourceError, match="CS-606"):
                list(topics.reader().read(OffsetRange("t", 0, 0, rows), 10))

    def test_a_segment_with_an_offset_beyond_all(self, topics: FileTopics, tmp_path: Path) -> None:
        folder = tmp_path / "topics" / "t" / "0"
        os.rename(folder / f"{0:020}.seg", folder / f"{'9' * 20}.seg")
        with pytest.raises(SourceError, match="CS-606"):
            topics.log().end_offsets([TopicPartition("t", 0)])
