"""Records that retention deletes while a batch is to read them, where the application goes on without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.application.loop import Loop
from crossstream.errors import SourceError
from crossstream.filetopics import FileTopics
from crossstream.kafka.errors import deleted
from crossstream.storage.commit_log import BatchLog
from crossstream.topics import OffsetRange, TopicPartition
from tests.faults.one_process import application, process
from tests.spark.world import World, record_batch

TEXT = serdes.string()


def copying() -> cs.Topology:
    builder = cs.StreamsBuilder()
    rows = builder.stream("rows", cs.Consumed(key=TEXT, value=TEXT))
    rows.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def test_the_rows_of_a_dataframe_beside_them_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark hands the rows of an epoch in once: it takes the epoch for done when it gets an answer."""
    world = World(tmp_path)
    world.create(rows=1, out=1)
    world.append("rows", [("gone", "v", 1), ("kept", "v", 2)])
    run, taken = LocalRounds.run, []

    def running(self: LocalRounds, batch: Any, frame: Any) -> Any:
        taken.append((batch.ranges[0].start, frame))
        if len(taken) == 1:
            raise SourceError("records were deleted", code="CS-601")
        return run(self, batch, frame)

    with application(copying(), world.config(on_lost_records="skip")) as app:
        monkeypatch.setattr(LocalRounds, "run", running)
        monkeypatch.setattr(app.inputs.topics, "begin_offsets", lambda wanted: {TopicPartition("rows", 0): 1})
        app.run_rows("what Spark hands in", 0)
    assert taken == [(0, "what Spark hands in"), (1, "what Spark hands in")]
    assert [record.key for record in world.read("out")] == ["kept"]
    commit = BatchLog(world.state_dir).last_commit()
    assert commit is not None
    assert (commit.id, commit.epoch) == (0, 0)


def begun(root: Path, committed: int) -> World:
    """Of five records some were committed, and a batch was begun with the others; each is a file of its own."""
    world = World(root)
    world.create(rows=1, out=1)
    append(world, *range(committed))
    process(copying(), world.config())
    append(world, *range(committed, 5))
    with application(copying(), world.config()) as app, pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalRounds, "run", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            app.run_next()
    return world


def append(world: World, *numbers: int) -> None:
    for number in numbers:
        writer = FileTopics(str(world.topics_dir), segment_bytes=1, durable=False).writer()
        writer.write("rows", record_batch([(b"%d" % number, b"v", 1)]))
        writer.close()


def delete(world: World, *offsets: int) -> None:
    for offset in offsets:
        (world.topics_dir / "rows" / "0" / f"{offset:020d}.seg").unlink()


def drain(app: Loop) -> int:
    """Processes everything; how many records were counted as lost."""
    lost = 0
    while app.run_next():
        lost += app.progress.dropped.get("lost by retention", 0)
    return lost


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("committed", [0, 1])
def test_a_gap_is_counted_once(tmp_path: Path, committed: int, later: int) -> None:
    """What the start has counted, and what is deleted after it, though the batch that was begun asks for both."""
    world = begun(tmp_path, committed)
    delete(world, 0, 1, 2)
    with application(copying(), world.config(on_lost_records="skip")) as app:
        delete(world, *range(3, 3 + later))
        assert drain(app) == 3 - committed + later
    assert [int(record.key) for record in world.read("out")] == [*range(committed), *range(3 + later, 5)]


def test_the_error_of_a_reader_says_how_to_go_on(tmp_path: Path) -> None:
    world, wanted = begun(tmp_path, 0), OffsetRange("rows", 0, 0, 5)
    delete(world, 0)
    with pytest.raises(SourceError) as caught:
        list(world.topics.reader().read(wanted, 10))
    error = deleted(wanted, 0, 1)
    assert (caught.value.code, error.code) == ("CS-601", "CS-601")
    assert all("on_lost_records='skip'" in (one.next or "") for one in (caught.value, error))
