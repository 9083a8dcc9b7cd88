"""Records in files for a DataFrame: those that the driver would have got, whatever batches and crashes there were."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.application.publishing import Publishing
from crossstream.once import BatchMark
from crossstream.operators.sink import frame_files
from crossstream.operators.sink.frame_columns import columns_of
from crossstream.operators.sink.frame_files import rows_of
from crossstream.runtime.round import RoundTask, Sent
from crossstream.storage.commit_log import STAGED, BatchLog
from crossstream.storage.files import Folder
from crossstream.storage.log_entries import StagedRows
from crossstream.storage.manifest import checked_staged
from crossstream.task.shuffle_codec import unpack
from tests.faults.crash_points import Arm, Crash, after, before
from tests.faults.one_process import CORES, process
from tests.spark.world import ALONE, SPREAD, World

TEXT = serdes.string()
VALUE = serdes.json({"n": pl.UInt32, "text": pl.String})
Rows = list[dict[str, Any]]

values = st.none() | st.fixed_dictionaries(
    {"n": st.none() | st.integers(0, 2**32 - 1), "text": st.none() | st.text(max_size=40)}
)
records = st.tuples(st.sampled_from(["a", "b", "c", "d"]), values, st.integers(0, 2**40))


def topology() -> cs.Topology:
    """Each record to the driver, and to files; once as it is read, and once in a later round."""
    builder = cs.StreamsBuilder()
    read = builder.stream("given", cs.Consumed(key=TEXT, value=VALUE))
    moved = read.repartition(cs.Repartitioned(name="moved"))
    for name, stream in (("read", read), ("moved", moved)):
        stream.for_each_batch(_never, cs.Named(f"{name}-driver"))
        stream.for_each_batch(_never, cs.Named(f"{name}-files"), parallel=True)
    return builder.build()


def _never(frame: Any, batch: int) -> None:
    raise AssertionError("the engine of these tests has no DataFrames")


@dataclass
class Delivered(LocalRounds):
    """Takes what the functions would get. ``batches``: (number, sink, rows); ``read``: the files that were read."""

    folder: Path
    batches: list[tuple[int, str, Rows]] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        LocalRounds.__init__(self, CORES)

    def deliver(self, sent: Sent, files: Sequence[StagedRows], mark: BatchMark) -> None:
        for sink, blobs in sent.items():
            self._take(mark.batch, sink, [pa.table(columns_of(unpack(blobs, TEXT, VALUE)))])
        storage = Folder(self.folder / STAGED)
        for sink in dict.fromkeys(sink for _, sink in files):
            names = [name for name, node in files if node == sink]
            self.read += names
            self._take(
                mark.batch, sink, [rows for name in names for rows in rows_of(checked_staged(storage, name))]
            )

    def _take(self, batch: int, sink: str, parts: Sequence[pa.Table | pa.RecordBatch]) -> None:
        self.batches.append((batch, sink, [row for part in parts for row in part.to_pylist()]))

    def of(self, ending: str) -> dict[tuple[int, str], list[str]]:
        """The rows in any order, by batch and stream."""
        return {
            (batch, sink.removesuffix(ending)): sorted(map(repr, rows))
            for batch, sink, rows in self.batches
            if sink.endswith(ending)
        }


def staged(world: World) -> list[str]:
    return [path.name for path in (world.state_dir / STAGED).rglob("*") if path.is_file()]


@given(
    st.lists(records, max_size=60),
    st.sampled_from([1, 7, 1000]),
    st.sampled_from([SPREAD, ALONE]),
    st.sampled_from([1, 200, 32 << 20]),
)
def test_files_have_what_the_driver_would_get(
    given_records: list[tuple[str, Any, int]], most: int, alone: int, file_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_files, "FILE_BYTES", file_bytes)
        world = World(Path(folder), single_task_rows=alone)
        world.create(given=2)
        world.append("given", given_records, TEXT, VALUE)
        rounds = Delivered(world.state_dir)
        process(topology(), world.config(partitions=2, max_records_per_batch=most), rounds)
        assert rounds.of("-files") == rounds.of("-driver")
        found = [row for (_, stream), rows in rounds.of("-files").items() if stream == "read" for row in rows]
        assert len(found) == len(given_records)
        assert staged(world) == []


GIVEN = [(key, {"n": n, "text": None}, n) for n, key in enumerate("abcdabcdab")]

CRASHES = {
    "a task has written a file": after(RoundTask, "_to_file"),
    "a task has written another": after(RoundTask, "_to_file", 3),
    "the tasks have ended": after(LocalRounds, "run"),
    "a function was called": after(Delivered, "deliver"),
    "before the commit": before(BatchLog, "write_commit"),
    "after the commit": before(Publishing, "forget"),
}


@pytest.mark.parametrize("alone", [SPREAD, ALONE], ids=["spread", "alone"])
@pytest.mark.parametrize("point", CRASHES)
def test_what_a_killed_attempt_wrote_is_not_read(tmp_path: Path, point: str, alone: int) -> None:
    world = World(tmp_path, single_task_rows=alone)
    world.create(given=2)
    world.append("given", GIVEN, TEXT, VALUE)
    config = world.config(partitions=2)
    _crash(world, config, CRASHES[point])
    left = set(staged(world))
    assert left, "the attempt has written"
    world.append("given", GIVEN[:3], TEXT, VALUE)
    rounds = Delivered(world.state_dir)
    process(topology(), config, rounds)
    assert rounds.of("-files") == rounds.of("-driver")
    batches = [1] if point == "after the commit" else [0, 1]
    assert [batch for batch, sink, _ in rounds.batches if sink == "read-files"] == batches
    assert not left & set(rounds.read)
    assert staged(world) == []


def _crash(world: World, config: cs.StreamsConfig, arm: Arm) -> None:
    with pytest.MonkeyPatch.context() as patch:
        arm(patch)
        with pytest.raises(Crash):
            process(topology(), config, Delivered(world.state_dir))
