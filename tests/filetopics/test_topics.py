"""File topics: what is written can be read, by range, in order, by anyone."""

from __future__ import annotations

import pickle
import shutil
from array import array
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.errors import ConfigError, SinkError, SourceError
from crossstream.filetopics import FileTopics
from crossstream.filetopics import writer as chunking
from crossstream.partitioning import murmur2_partitions
from crossstream.records import decode_headers, encode_headers
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition
from tests.filetopics.topics import Row, batch, numbered, read, segments, write

ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=8),
        st.none() | st.binary(max_size=30),
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.binary(max_size=8),
    ),
    max_size=12,
)


@pytest.fixture
def topics(tmp_path: Path) -> FileTopics:
    return FileTopics(str(tmp_path / "topics"), durable=False)


def by_partition(rows: list[Row], chosen: list[int]) -> dict[int, list[Row]]:
    return {p: [row for row, of in zip(rows, chosen, strict=True) if of == p] for p in range(3)}


@given(
    writes=st.lists(st.tuples(ROWS, st.booleans()), max_size=6),
    segment_bytes=st.sampled_from([1, 2000, 64 << 20]),
    max_rows=st.integers(1, 20),
    data=st.data(),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[tuple[list[Row], bool]],
    segment_bytes: int,
    max_rows: int,
    data: st.DataObject,
) -> None:
    """Any writes, flushed anywhere, segments rolled anywhere: every range of every partition comes back."""
    topics = FileTopics(str(tmp_path_factory.mktemp("topics")), durable=False, segment_bytes=segment_bytes)
    topics.log().create_topic("t", 3)
    writer = topics.writer()
    expected: dict[int, list[Row]] = {0: [], 1: [], 2: []}
    for rows, flush in writes:
        writer.write("t", batch(rows))
        for partition, part in by_partition(rows, murmur2_partitions([row[0] for row in rows], 3)).items():
            expected[partition] += part
        if flush:
            writer.flush()
    writer.close()
    for partition, rows in expected.items():
        assert read(topics, partition=partition, max_rows=max_rows) == rows
        start = data.draw(st.integers(0, len(rows)))
        end = data.draw(st.integers(start, len(rows)))
        assert read(topics, partition=partition, start=start, end=end, max_rows=max_rows) == rows[start:end]


def test_partitions_may_be_given(topics: FileTopics) -> None:
    topics.log().create_topic("t", 2)
    writer = topics.writer()
    writer.write("t", batch(numbered(4)), [1, 0, 1, 1])
    writer.flush()
    rows = numbered(4)
    assert read(topics, partition=0) == [rows[1]]
    assert read(topics, partition=1) == [rows[0], rows[2], rows[3]]


def test_headers_travel(topics: FileTopics) -> None:
    cell = encode_headers([("a", b"1"), ("a", None)])
    write(topics, [(b"k", b"v", 1, cell)])
    assert decode_headers(read(topics)[0][3]) == (("a", b"1"), ("a", None))


def test_records_that_were_read_can_be_written(topics: FileTopics) -> None:
    write(topics, numbered(3))
    writer = topics.writer()
    for records in topics.reader().read(OffsetRange("t", 0, 1, 3), 10):
        writer.write("copy", records)
    writer.close()
    assert read(topics, "copy") == numbered(3)[1:]


def test_a_reader_follows_a_growing_partition(topics: FileTopics) -> None:
    topics.log().create_topic("t", 1)
    log, reader, owner = topics.log(), topics.reader(), TopicPartition("t", 0)
    for n in range(5):
        assert log.end_offsets([owner]) == {owner: n}
        write(topics, numbered(1, n))
        (records,) = reader.read(OffsetRange("t", 0, n, n + 1), 10)
        assert records.column("value").to_pylist() == [b"v%d" % n]


def test_segments_roll(tmp_path: Path) -> None:
    topics = FileTopics(str(tmp_path), durable=False, segment_bytes=3000)
    for n in range(20):
        write(topics, numbered(1, n))
    names = [path.name for path in segments(topics)]
    assert len(names) > 3
    assert names[0] == "00000000000000000000.seg"
    assert read(topics) == numbered(20)
    assert read(topics, start=7, end=13) == numbered(6, 7)


def test_small_frames_are_joined_and_large_ones_cut(topics: FileTopics) -> None:
    for n in range(5):
        write(topics, numbered(1, n))
    write(topics, numbered(7, 5))
    sizes = [one.num_rows for one in topics.reader().read(OffsetRange("t", 0, 0, 12), 4)]
    assert sizes == [4, 4, 4]


def test_an_empty_range_and_an_empty_write_are_nothing(topics: FileTopics) -> None:
    write(topics, [])
    assert topics.log().topics() == {"t": 1}
    assert list(topics.reader().read(OffsetRange("t", 0, 0, 0), 10)) == []
    assert segments(topics) == []


@given(
    frames=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), max_size=5),
    segment_bytes=st.sampled_from([1, 64 << 20]),
    timestamp=st.integers(0, 10),
    data=st.data(),
)
def test_offsets_by_time(
    tmp_path_factory: pytest.TempPathFactory,
    frames: list[list[int]],
    segment_bytes: int,
    timestamp: int,
    data: st.DataObject,
) -> None:
    topics = FileTopics(str(tmp_path_factory.mktemp("topics")), durable=False, segment_bytes=segment_bytes)
    topics.log().create_topic("t", 1)
    for frame in frames:
        write(topics, [(b"k", b"v", moment, None) for moment in frame])
    times = [moment for frame in frames for moment in frame]
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(times))] * 2)))
    later = [offset for offset in range(start, end) if times[offset] >= timestamp]
    log, place = topics.log(), TopicPartition("t", 0)
    log.end_offsets([place])
    assert log.offsets_for_times([OffsetRange("t", 0, start, end)], timestamp, 1) == {
        place: OffsetAndTimestamp(later[0], times[later[0]]) if later else None
    }


def test_a_topic_made_anew_has_another_id(topics: FileTopics) -> None:
    log = topics.log()
    assert log.topic_ids(["t"]) == {}
    log.create_topic("t", 1)
    first = log.topic_ids(["t", "u"])
    assert first == topics.log().topic_ids(["t"])
    shutil.rmtree(Path(topics.topics_dir) / "t")
    log.create_topic("t", 1)
    assert log.topic_ids(["t"])["t"] != first["t"]


def test_topics_are_listed(topics: FileTopics) -> None:
    """Also internal ones: a source may name them."""
    log = topics.log()
    assert log.topics() == {}
    for name, partitions in (("b", 2), ("a.b-c_D9", 1), ("__internal", 1)):
        log.create_topic(name, partitions)
    assert log.topics() == {"__internal": 1, "a.b-c_D9": 1, "b": 2}
    assert list(topics.log().topics()) == ["__internal", "a.b-c_D9", "b"]


def test_the_connection_is_a_value(
    topics: FileTopics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert pickle.loads(pickle.dumps(topics)) == topics
    monkeypatch.chdir(tmp_path)
    assert FileTopics("topics", durable=False) == topics


def test_a_file_is_no_folder_of_topics(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="CS-201"):
        FileTopics(str(tmp_path / "file"))


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250, ".groups", ".new", "a\n"])
def test_names_follow_kafkas_rule(topics: FileTopics, name: str) -> None:
    with pytest.raises(SinkError, match="CS-656"):
        topics.log().create_topic(name, 1)
    with pytest.raises(SinkError, match="CS-656"):
        write(topics, numbered(1), name)
    with pytest.raises(SourceError, match="CS-602"):
        topics.log().end_offsets([TopicPartition(name, 0)])


def test_the_longest_name_is_allowed(topics: FileTopics) -> None:
    write(topics, numbered(1), "x" * 249)
    assert read(topics, "x" * 249) == numbered(1)


def test_a_topic_is_created_once(topics: FileTopics) -> None:
    topics.log().create_topic("t", 2, {"cleanup.policy": "compact"})
    with pytest.raises(SinkError, match="CS-656"):
        topics.log().create_topic("t", 2)
    with pytest.raises(SinkError, match="CS-656"):
        topics.log().create_topic("u", 0)
    assert topics.log().topics() == {"t": 2}
    assert list((Path(topics.topics_dir) / ".new").iterdir()) == []


def test_a_missing_topic_is_created_by_writing(topics: FileTopics) -> None:
    write(topics, numbered(1), "one")
    assert topics.log().topics() == {"one": 1}
    with pytest.raises(SinkError, match="CS-652"):
        topics.writer().must_exist("none")


def test_writing_refuses_what_it_cannot_store(topics: FileTopics) -> None:
    topics.log().create_topic("t", 2)
    writer, records = topics.writer(), batch(numbered(2))
    with pytest.raises(SinkError, match="CS-655"):
        writer.write("t", records, [0, 2])
    with pytest.raises(SinkError, match="CS-655"):
        writer.write("t", records, [-1, 0])
    writer.close()
    assert segments(topics) == []


def test_reading_refuses_what_is_not_there(topics: FileTopics) -> None:
    write(topics, numbered(3))
    reader = topics.reader()
    for span, code in (
        (OffsetRange("t", 0, 0, 4), "CS-603"),
        (OffsetRange("t", 1, 0, 1), "CS-603"),
        (OffsetRange("u", 0, 0, 1), "CS-602"),
        (OffsetRange("t", 0, -1, 1), "CS-601"),
    ):
        with pytest.raises(SourceError, match=code):
            reader.read(span, 10)


def test_segments_deleted_by_hand_are_told(tmp_path: Path) -> None:
    topics, owner = FileTopics(str(tmp_path), segment_bytes=1, durable=False), TopicPartition("t", 0)
    for n in range(3):
        write(topics, numbered(2, 2 * n))
    log, reader = topics.log(), topics.reader()
    assert log.begin_offsets([owner]) == {owner: 0}
    assert len(list(reader.read(OffsetRange("t", 0, 0, 6), 10))) == 1
    segments(topics)[0].unlink()
    assert log.begin_offsets([owner]) == {owner: 2}
    assert log.end_offsets([owner]) == {owner: 6}
    assert read(topics, start=2) == numbered(4, 2)
    with pytest.raises(SourceError, match="CS-606"):
        list(reader.read(OffsetRange("t", 0, 0, 6), 10))
    with pytest.raises(SourceError, match="CS-601"):
        topics.reader().read(OffsetRange("t", 0, 0, 6), 10)


def test_a_topic_made_anew_is_not_mistaken_for_the_old_one(topics: FileTopics) -> None:
    log, reader, writer, owner = topics.log(), topics.reader(), topics.writer(), TopicPartition("t", 0)
    writer.write("t", batch(numbered(5)))
    writer.flush()
    assert log.end_offsets([owner]) == {owner: 5}
    list(reader.read(OffsetRange("t", 0, 0, 5), 10))
    shutil.rmtree(Path(topics.topics_dir) / "t")
    with pytest.raises(SourceError, match="CS-602"):
        log.end_offsets([owner])
    writer.write("t", batch(numbered(2, 100)))
    writer.flush()
    assert log.end_offsets([owner]) == {owner: 2}
    (records,) = reader.read(OffsetRange("t", 0, 0, 2), 10)
    assert records.column("value").to_pylist() == [b"v100", b"v101"]


@given(rows=ROWS, cuts=st.lists(st.integers(0, 12), max_size=4))
@example(rows=[(None, None, 0, None)] * 12, cuts=[])
def test_chunks_do_not_depend_on_the_batches_they_came_in(rows: list[Row], cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "MAX_ROWS", 5)
        patch.setattr(chunking, "MAX_BYTES", 60)
        whole = _chunked([batch(rows)])
        places = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
        parts = [batch(rows).slice(a, b - a) for a, b in pairwise(places)]
        assert _chunked(parts) == whole
        assert [row for chunk in whole for row in chunk] == batch(rows).to_pylist()
        assert all(len(chunk) <= 5 for chunk in whole)


def _chunked(batches: list[pa.RecordBatch]) -> list[list[dict[str, object]]]:
    chunks = chunking.Chunks()
    made = [chunk for one in batches for chunk in chunks.add(one)]
    return [chunk.to_pylist() for chunk in (*made, *chunks.rest())]


def test_writers_know_how_many_partitions_a_topic_has(tmp_path: Path) -> None:
    """As for writing: a topic that is missing is made."""
    files = FileTopics(str(tmp_path))
    files.log().create_topic("three", 3)
    for name, count in (("three", 3), ("made", 1)):
        assert files.writer().partition_count(name) == count
        assert files.staging_writer(tmp_path / "staged", b"tag").partition_count(name) == count


@pytest.mark.slow
@pytest.mark.parametrize("segment_bytes", [64 << 20, 100_000])
def test_small_frames_take_little_memory(tmp_path: Path, segment_bytes: int) -> None:
    """A partition gets a frame with every batch: each takes a few bytes, and all are found."""
    count, owner = 1500, TopicPartition("t", 0)
    topics = FileTopics(str(tmp_path), durable=False, segment_bytes=segment_bytes)
    writer, reader, log = topics.writer(), topics.reader(), topics.log()
    for row in numbered(count):
        writer.write("t", batch([row]))
        writer.flush()
    assert log.end_offsets([owner]) == {owner: count}
    for start, end in [(0, count), (5, 6), (700, 720), (count - 1, count)]:
        taken = list(reader.read(OffsetRange("t", 0, start, end), count))
        assert [n for one in taken for n in one.column("timestamp").to_pylist()] == list(range(start, end))
    for time in (0, 7, 800, count - 1, count):
        span = OffsetRange("t", 0, 5, count)
        first = None if time == count else OffsetAndTimestamp(max(time, 5), max(time, 5))
        assert log.offsets_for_times([span], time, count) == {owner: first}
    for known in (reader, writer, log):
        found = known._folders.partition(owner).segments
        held = [getattr(segment, name) for segment in found for name in ("_bases", "_positions", "_newest")]
        assert all(isinstance(one, array) for one in held)
        assert sum(len(one) * one.itemsize for one in held) == 24 * count


@pytest.mark.parametrize("frame", [0, 50, 99])
def test_a_frame_that_is_damaged_after_it_was_seen(topics: FileTopics, frame: int) -> None:
    """It was sound when it was seen; it is not passed over now."""
    topics.log().create_topic("t", 1)
    writer, reader = topics.writer(), topics.reader()
    for row in numbered(100):
        writer.write("t", batch([row]), [0])
        writer.flush()
    everything = OffsetRange("t", 0, 0, 100)
    assert sum(one.num_rows for one in reader.read(everything, 1000)) == everything.end
    [path] = segments(topics)
    content = bytearray(path.read_bytes())
    size = len(content) // 100
    content[size * frame : size * (frame + 1)] = bytes(size)
    path.write_bytes(content)
    with pytest.raises(SourceError, match="damaged") as raised:
        list(reader.read(everything, 1000))
    assert (raised.value.code, raised.value.where["offset"]) == ("CS-606", frame)
