"""File topics shared by processes: writers do not mix, a killed one harms nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crossstream.filetopics import FileTopics
from crossstream.topics import OffsetRange, TopicPartition
from tests.filetopics.topics import numbered, read, write

pytestmark = pytest.mark.slow

OWNER = TopicPartition("t", 0)
WRITER = """
import sys
from crossstream.filetopics import FileTopics
from tests.filetopics.topics import batch

folder, name, count = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
writer = FileTopics(folder, durable=False, segment_bytes=20_000).writer()
for n in range(count):
    writer.write("t", batch([(name, b"%d.%d" % (n, part), n, None) for part in range(1 + n % 3)]))
    writer.flush()
"""


def start_writer(folder: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), name, str(count)], env=env)


def expected(count: int) -> list[bytes]:
    return [b"%d.%d" % (n, part) for n in range(count) for part in range(1 + n % 3)]


def test_writers_of_several_processes_take_turns(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path, name, 60) for name in ("a", "b", "c")]
    topics = FileTopics(str(tmp_path))
    log, reader, followed = topics.log(), topics.reader(), []
    while any(writer.poll() is None for writer in writers) or not followed:
        if "t" in log.topics():
            end = log.end_offsets([OWNER])[OWNER]
            for records in reader.read(OffsetRange("t", 0, len(followed), end), 50):
                followed += records.column("value").to_pylist()
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    rows = read(topics)
    assert [row[1] for row in rows][: len(followed)] == followed
    for name in (b"a", b"b", b"c"):
        assert [value for key, value, _, _ in rows if key == name] == expected(60)


@pytest.mark.parametrize("patience", [0.0, 0.01, 0.05])
def test_a_killed_writer_leaves_whole_frames(tmp_path: Path, patience: float) -> None:
    writer = start_writer(tmp_path, "a", 1_000_000)
    topics = FileTopics(str(tmp_path))
    log = topics.log()
    while not log.topics() or not log.end_offsets([OWNER])[OWNER]:
        assert writer.poll() is None
        time.sleep(0.001)
    time.sleep(patience)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    before = read(topics)
    assert [value for _, value, _, _ in before] == expected(len(before))[: len(before)]
    write(topics, numbered(3))
    assert read(topics) == before + numbered(3)
