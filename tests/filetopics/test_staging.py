"""Staged records: published once, however often that is tried, in the order given."""

from __future__ import annotations

import pickle
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.errors import SinkError
from crossstream.filetopics import FileTopics, Staged, partition_log
from crossstream.filetopics import writer as chunking
from crossstream.topics import TopicPartition
from tests.filetopics.topics import Row, batch, numbered, read, segments, write

OWNER = TopicPartition("t", 0)


@pytest.fixture
def topics(tmp_path: Path) -> FileTopics:
    topics = FileTopics(str(tmp_path / "topics"), durable=False)
    topics.log().create_topic("t", 2)
    return topics


def staged_by(topics: FileTopics, task: bytes, *frames: list[Row], partition: int = 0) -> tuple[Staged, ...]:
    """What a task stages that writes these records, flushed after each list."""
    writer = topics.staging_writer(Path(topics.topics_dir).parent / "staged", task)
    for rows in frames:
        writer.write("t", batch(rows), [partition] * len(rows))
        writer.flush()
    return writer.staged


def stage_frames(topics: FileTopics, count: int) -> list[Staged]:
    """``count`` staged frames of two records."""
    return list(staged_by(topics, b"batch 1", *(numbered(2, 2 * n) for n in range(count))))


def test_publishing_appends_what_was_staged(topics: FileTopics) -> None:
    write(topics, numbered(3))
    staged = stage_frames(topics, 2)
    assert read(topics) == numbered(3)
    assert topics.publisher().publish(staged) == {OWNER: 7}
    assert read(topics) == numbered(3) + numbered(4)


def test_publishing_again_changes_nothing(topics: FileTopics) -> None:
    staged = pickle.loads(pickle.dumps(stage_frames(topics, 3)))
    publisher = topics.publisher()
    assert publisher.publish(staged) == publisher.publish(staged) == {OWNER: 6}
    for one in staged:
        Path(one.path).unlink()
    assert topics.publisher().publish(staged, {OWNER: 0}) == {OWNER: 6}
    assert read(topics) == numbered(6)


@given(
    crashes=st.lists(st.integers(0, 12), max_size=4),
    before=st.integers(0, 3),
    between=st.integers(0, 3),
)
@example(crashes=[1, 4, 7], before=0, between=1)
def test_publishing_after_any_crashes_publishes_once(
    tmp_path_factory: pytest.TempPathFactory, crashes: list[int], before: int, between: int
) -> None:
    """Each attempt is cut short after so many writes to the disk; others write between the attempts."""
    topics = FileTopics(str(tmp_path_factory.mktemp("any") / "topics"), durable=False, segment_bytes=2000)
    topics.log().create_topic("t", 1)
    if before:
        write(topics, numbered(before, 100))
    staged = stage_frames(topics, 4)
    for crash in crashes:
        with pytest.MonkeyPatch.context() as patch:
            crash_after(patch, crash)
            with suppress(Crash):
                topics.publisher().publish(staged, {OWNER: before})
        if between:
            write(topics, numbered(between, 200))
    topics.publisher().publish(staged, {OWNER: before})
    published = [row for row in read(topics) if row[2] < 100]
    assert published == numbered(8)


def test_what_follows_on_a_frame_that_is_not_there_is_appended_after_it(topics: FileTopics) -> None:
    """So the last record of a key is that of the last attempt, however the attempts before were cut short."""
    first, old, last = stage_frames(topics, 3)
    (new,) = staged_by(topics, b"batch 1, task 2", numbered(2, 20))
    publisher = topics.publisher()
    publisher.publish([first, old, last])
    attempts = [[first, new], [first, new, last], [first, new, last]]
    assert [publisher.publish(attempt)[OWNER] for attempt in attempts] == [8, 10, 10]
    assert [row[1:] for row in read(topics)[6:]] == [row[1:] for row in numbered(2, 20) + numbered(2, 4)]


class Crash(BaseException):
    """The process ends: nothing is tidied up."""


def crash_after(patch: pytest.MonkeyPatch, writes: int) -> None:
    """Lets ``writes`` pieces reach the disk, and ten bytes of the next."""
    write_whole, left = partition_log._write, iter(range(writes))

    def write_some(file: int, content: bytes) -> None:
        if next(left, None) is not None:
            write_whole(file, content)
            return
        write_whole(file, bytes(content)[:10])
        patch.setattr("os.ftruncate", lambda file, size: None)
        raise Crash

    patch.setattr(partition_log, "_write", write_some)


def test_a_tag_before_the_given_offset_does_not_count(topics: FileTopics) -> None:
    staged = stage_frames(topics, 1)
    publisher = topics.publisher()
    publisher.publish(staged)
    assert publisher.publish(staged, {OWNER: 2}) == {OWNER: 4}
    assert publisher.publish(staged, {OWNER: 2}) == {OWNER: 4}
    assert read(topics) == numbered(2) * 2


def test_tags_are_looked_for_in_every_segment_since(tmp_path: Path) -> None:
    topics = FileTopics(str(tmp_path / "topics"), durable=False, segment_bytes=1)
    topics.log().create_topic("t", 1)
    staged = stage_frames(topics, 4)
    topics.publisher().publish(staged)
    assert len(segments(topics)) == 4
    assert topics.publisher().publish(staged, {OWNER: 1}) == {OWNER: 8}
    assert topics.publisher().publish(staged[1:], {OWNER: 2}) == {OWNER: 8}


def test_a_staged_file_that_is_gone_or_damaged_is_told(topics: FileTopics) -> None:
    first, second, third = stage_frames(topics, 3)
    path = Path(second.path)
    content = path.read_bytes()
    for harm in (
        content.replace(b"v2", b"w2"),
        content[:-1],
        content[:10],
        b"x" + content[1:],
        Path(third.path).read_bytes(),
    ):
        path.write_bytes(harm)
        with pytest.raises(SinkError, match="CS-665") as caught:
            topics.publisher().publish([first, second, third])
        assert caught.value.where == {"topic": "t", "partition": 0, "file": second.path}
        assert read(topics) == numbered(2)
    path.unlink()
    with pytest.raises(SinkError, match="CS-665"):
        topics.publisher().publish([first, second, third])
    path.write_bytes(content)
    topics.publisher().publish([first, second, third])
    assert read(topics) == numbered(6)


def test_a_staging_folder_that_cannot_be_written_is_told(topics: FileTopics, tmp_path: Path) -> None:
    (tmp_path / "staged").write_text("")
    with pytest.raises(SinkError, match="CS-665"):
        staged_by(topics, b"batch 1", numbered(1))


@pytest.fixture
def _small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "MAX_ROWS", 3)


@pytest.mark.usefixtures("_small_frames")
def test_a_task_that_runs_again_stages_the_same(topics: FileTopics, tmp_path: Path) -> None:
    """The second attempt gets its records in other batches; only one of both is published in effect."""
    attempts = []
    for cuts in ([0, 20], [0, 1, 5, 13, 20]):
        writer = topics.staging_writer(tmp_path / "staged", b"batch 7, task 3")
        for first, end in pairwise(cuts):
            rows = numbered(end - first, first)
            writer.write("t", batch(rows), [row[2] % 2 for row in rows])
        writer.flush()
        attempts.append(writer.staged)

    def frames(attempt: tuple[Staged, ...]) -> set[tuple[int, bytes, int]]:
        return {(one.partition, one.tag, one.rows) for one in attempt}

    assert frames(attempts[0]) == frames(attempts[1])
    assert len(frames(attempts[0])) == 8
    assert {one.path for one in attempts[0]}.isdisjoint(one.path for one in attempts[1])
    for attempt in attempts:
        topics.publisher().publish(attempt)
    assert read(topics, partition=0) == numbered(20)[0::2]
    assert read(topics, partition=1) == numbered(20)[1::2]


def test_another_batch_or_task_has_other_tags(topics: FileTopics, tmp_path: Path) -> None:
    tags = set()
    for name in (b"batch 1", b"batch 2"):
        writer = topics.staging_writer(tmp_path, name)
        for topic in ("t", "u"):
            writer.write(topic, batch(numbered(2)), [0, 0])
        writer.close()
        tags |= {one.tag for one in writer.staged}
    assert len(tags) == 4


def tags_of(topics: FileTopics, *records: list[Row]) -> set[bytes]:
    """The tags of one frame that a task makes of these records, each time it runs."""
    return {one.tag for rows in records for one in staged_by(topics, b"batch 1", rows)}


def test_other_values_have_the_same_tag_and_the_first_ones_stay(topics: FileTopics) -> None:
    old, new = [(b"k", b"v", 1, None)], [(b"k", None, 2, b"\x90")]
    assert len(tags_of(topics, old, new)) == 1
    for rows in (old, new):
        topics.publisher().publish(staged_by(topics, b"batch 1", rows))
    assert read(topics) == old


def test_other_keys_have_other_tags_where_they_choose_among_partitions(topics: FileTopics) -> None:
    """Also where the bytes of all keys together are the same, and where null and empty keys differ only."""
    keys = [(b"ab", b"c"), (b"a", b"bc"), (b"abc", b""), (b"abc", None), (None, b"abc"), (b"", b"abc")]
    records = [[(key, b"v", 1, None) for key in pair] for pair in keys]
    assert len(tags_of(topics, *records)) == len(keys)


def test_the_only_partition_has_other_tags_for_another_number_of_records_alone(tmp_path: Path) -> None:
    topics = FileTopics(str(tmp_path / "topics"), durable=False)
    topics.log().create_topic("t", 1)
    assert len(tags_of(topics, numbered(1), numbered(1, 7), numbered(2), numbered(2, 7))) == 2


def test_publishing_into_durable_topics(tmp_path: Path) -> None:
    topics = FileTopics(str(tmp_path / "topics"))
    writer = topics.staging_writer(tmp_path / "staged", b"batch")
    writer.write("t", batch(numbered(2)))
    writer.close()
    topics.publisher().publish(writer.staged)
    assert read(topics) == numbered(2)
