"""Records that retention deletes while a batch is to read them, where the application goes on without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.engine.log import BatchLog
from crossstream.errors import SourceError
from crossstream.topics import TopicPartition
from tests.faults.one_process import OneProcess, application
from tests.spark.world import World

TEXT = serdes.string()


def test_the_rows_of_a_dataframe_beside_them_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark hands the rows of an epoch in once: it takes the epoch for done when it gets an answer."""
    world = World(tmp_path)
    world.create(rows=1, out=1)
    world.append("rows", [("gone", "v", 1), ("kept", "v", 2)])
    builder = cs.StreamsBuilder()
    rows = builder.stream("rows", cs.Consumed(key=TEXT, value=TEXT))
    rows.to("out", cs.Produced(key=TEXT, value=TEXT))
    run, taken = OneProcess.run, []

    def running(self: OneProcess, batch: Any, frame: Any) -> Any:
        taken.append((batch.ranges[0].start, frame))
        if len(taken) == 1:
            raise SourceError("records were deleted", code="CS-601")
        return run(self, batch, frame)

    with application(builder.build(), world.config(on_lost_records="skip")) as app:
        monkeypatch.setattr(OneProcess, "run", running)
        monkeypatch.setattr(app.topics, "begin_offsets", lambda wanted: {TopicPartition("rows", 0): 1})
        app._run_frame("what Spark hands in", 0)
    assert taken == [(0, "what Spark hands in"), (1, "what Spark hands in")]
    assert [record.key for record in world.read("out")] == ["kept"]
    commit = BatchLog(world.state_dir).last_commit()
    assert commit is not None
    assert (commit.id, commit.epoch) == (0, 0)
