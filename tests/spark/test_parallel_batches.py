"""`for_each_batch(…, parallel=True)`: the frame of a batch is read from what the tasks wrote, and is the same one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.errors import PythonException

import crossstream as cs
from crossstream import serdes
from crossstream.runtime import turns
from crossstream.storage.commit_log import BatchLog
from tests.faults.crash_points import before, crash
from tests.operators.sink.unit.test_frame_sinks import Count
from tests.pairs import Pair
from tests.spark.marketplace import JSON, TEXT
from tests.spark.world import ALONE, World

pytestmark = pytest.mark.spark

Function = Callable[..., None]


def topology(function: Function, key: Any = TEXT, value: Any = TEXT, **settings: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    given = builder.stream("given", cs.Consumed(key=key, value=value))
    given.for_each_batch(function, cs.Named("frames"), **{"parallel": True, **settings})
    return builder.build()


def process(spark: Any, world: World, built: cs.Topology, **settings: Any) -> None:
    with cs.SparkStreams(built, world.config(**settings), spark) as app:
        app.process_available()


def staged(world: World) -> list[Path]:
    return [path for path in (world.state_dir / "staged").rglob("*") if path.is_file()]


MOMENT = datetime(2026, 1, 31, 12, 0, 0, 1, timezone.utc)
WHOLE = {
    "text": pl.String,
    "flag": pl.Boolean,
    "i8": pl.Int8,
    "u8": pl.UInt8,
    "i16": pl.Int16,
    "u16": pl.UInt16,
    "i32": pl.Int32,
    "u32": pl.UInt32,
    "i64": pl.Int64,
    "u64": pl.UInt64,
    "f32": pl.Float32,
    "f64": pl.Float64,
    "amount": pl.Decimal(10, 2),
    "day": pl.Date,
    "at": pl.Datetime("us", "UTC"),
    "local": pl.Datetime("ms"),
    "bytes": pl.Binary,
    "list": pl.List(pl.UInt8),
    "locals": pl.List(pl.Struct({"at": pl.Datetime("us")})),
    "inner": pl.Struct({"n": pl.UInt32, "none": pl.String}),
}
RECORD = {
    "text": "ä",
    "flag": True,
    "i8": -128,
    "u8": 255,
    "i16": -(2**15),
    "u16": 2**16 - 1,
    "i32": -(2**31),
    "u32": 2**32 - 1,
    "i64": -(2**63),
    "u64": 2**64 - 1,
    "f32": 1.5,
    "f64": -0.1,
    "amount": Decimal("-1.50"),
    "day": date(2026, 1, 31),
    "at": MOMENT,
    "local": datetime(2026, 1, 31, 12),
    "bytes": b"\0\xff",
    "list": [0, 255, None],
    "locals": [{"at": datetime(2026, 1, 31, 12, 0, 0, 1)}, None],
    "inner": {"n": 2**32 - 1, "none": None},
}

KINDS = {
    "declared": (serdes.json(WHOLE), [RECORD, None, dict.fromkeys(RECORD)]),
    "without a type": (JSON, [{"n": 1}, {"n": 2**70}, [1, "x"], "text", None]),
    "a class": (serdes.json(Count), [Count(1), Count(None), None]),
    "text": (TEXT, ["a", "", None]),
    "bytes": (serdes.bytes(), [b"a", b"", None]),
    "int64": (serdes.int64(), [1, -1, None]),
    "float64": (serdes.float64(), [1.5, float("inf"), None]),
    "boolean": (serdes.boolean(), [True, False, None]),
    "a serde of the user": (Pair(dtype=None), [(1, 2), None]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, ALONE], ids=["spread", "alone"])
def test_the_frame_is_that_of_the_driver(spark: Any, tmp_path: Path, kind: str, rows: int) -> None:
    """Types and rows; as key and as value."""
    world = World(tmp_path, single_task_rows=rows)
    serde, values = KINDS[kind]
    world.create(given=2)
    world.append("given", [(value, value, n) for n, value in enumerate(values * 3)], serde, serde)
    seen: dict[bool, Any] = {}

    def write(parallel: bool) -> Function:
        def function(frame: Any, batch: int) -> None:
            seen[parallel] = frame.schema, sorted(map(repr, frame.collect())), frame.count(), batch

        return function

    builder = cs.StreamsBuilder()
    given = builder.stream("given", cs.Consumed(key=serde, value=serde))
    for parallel in (False, True):
        given.for_each_batch(write(parallel), cs.Named(f"frames-{parallel}"), parallel=parallel)
    process(spark, world, builder.build())
    assert seen[True] == seen[False]
    assert seen[True][2] == 3 * len(values)
    assert not staged(world), "the files of a committed batch are gone"


@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
@pytest.mark.parametrize("default", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def test_times_without_a_zone_are_of_the_session(spark: Any, tmp_path: Path, zone: str, default: str) -> None:
    """Wherever they are in a value. In a list they were in UTC."""
    settings = {"spark.sql.session.timeZone": zone, "spark.sql.timestampType": default}
    known = {name: spark.conf.get(name) for name in settings}
    local = pl.Datetime("ms")
    value = serdes.json({"at": local, "list": pl.List(pl.Struct({"at": local}))})
    noon = datetime(2026, 1, 31, 12)
    seen: dict[bool, list[Any]] = {}

    def write(parallel: bool) -> Function:
        def function(frame: Any, batch: int) -> None:
            texts = [f"string(value.{name})" for name in ("at", "list[0].at")]
            seen[parallel] = [frame.schema, *frame.selectExpr(*texts).collect()[0]]

        return function

    try:
        for name, setting in settings.items():
            spark.conf.set(name, setting)
        for parallel in (False, True):
            world = World(tmp_path / str(parallel))
            world.create(given=1)
            world.append("given", [("k", {"at": noon, "list": [{"at": noon}]}, 1)], TEXT, value)
            process(spark, world, topology(write(parallel), value=value, parallel=parallel))
    finally:
        for name, setting in known.items():
            spark.conf.set(name, setting)
    assert seen[True] == seen[False]
    assert seen[True][1:] == ["2026-01-31 12:00:00"] * 2


def test_a_partition_for_each_file_of_a_task(spark: Any, world: World) -> None:
    world.create(given=2)
    world.append("given", [(f"k{n}", "v", n) for n in range(20)])
    seen: list[tuple[int, set[str]]] = []

    def write(frame: Any, batch: int) -> None:
        names = {path.name for path in staged(world)}
        seen.append((frame.rdd.getNumPartitions(), names))

    process(spark, world, topology(write))
    [(partitions, names)] = seen
    assert partitions == len(names) == 2
    assert all(name.startswith("frame-0-") for name in names)


def test_a_batch_without_records_calls_nothing(spark: Any, world: World) -> None:
    world.create(given=1, other=1)
    world.append("other", [("k", "v", 1)])
    builder = cs.StreamsBuilder()
    calls: list[int] = []
    for topic in ("given", "other"):
        stream = builder.stream(topic, cs.Consumed(key=TEXT, value=TEXT))
        if topic == "given":
            stream.for_each_batch(lambda frame, batch: calls.append(batch), parallel=True)
        else:
            stream.to("given")
    built = builder.build()
    with cs.SparkStreams(built, world.config(), spark) as app:
        app.process_available()
        assert app.progress.batch == 0
        assert calls == []
        app.process_available()
    assert calls == [1]


def test_what_the_function_raises(spark: Any, world: World) -> None:
    world.create(given=1)
    world.append("given", [("k", "v", 1)])
    seen: list[tuple[int, list[str]]] = []

    def write(frame: Any, batch: int) -> None:
        seen.append((batch, [row.value for row in frame.collect()]))
        if len(seen) == 1:
            raise OSError("no such table")

    with pytest.raises(cs.ProcessingError) as caught:
        process(spark, world, topology(write))
    assert caught.value.code == "CS-591"
    assert caught.value.what == "the function of frames raised OSError: no such table"
    assert len(staged(world)) == 1
    process(spark, world, topology(write))
    assert seen == [(0, ["v"]), (0, ["v"])]
    assert not staged(world)


def test_a_mark_for_writing_once(spark: Any, world: World) -> None:
    world.create(given=1)
    world.append("given", [("k", "v", 1)])
    seen: list[tuple[int, str, int]] = []

    def write(frame: Any, batch: int, mark: cs.BatchMark) -> None:
        seen.append((frame.count(), mark.writer, mark.batch))

    process(spark, world, topology(write))
    assert seen == [(1, "app/frames", 0)]


@pytest.mark.parametrize("rows", [0, ALONE], ids=["spread", "alone"])
def test_killed_before_the_commit(spark: Any, tmp_path: Path, rows: int) -> None:
    """What the first attempt wrote is there, and is not read."""
    world = World(tmp_path, single_task_rows=rows)
    world.create(given=2)
    world.append("given", [(f"k{n}", "v", n) for n in range(20)])
    seen: list[tuple[int, list[str], set[Path]]] = []

    def write(frame: Any, batch: int) -> None:
        seen.append((batch, sorted(row.key for row in frame.collect()), set(staged(world))))

    built = topology(write)
    crash(cs.SparkStreams(built, world.config(), spark), before(BatchLog, "write_commit"))
    left = set(staged(world))
    assert left
    world.append("given", [("late", "v", 50)])
    process(spark, world, built)
    keys = sorted(f"k{n}" for n in range(20))
    (first, repeated, following) = seen
    assert first[:2] == repeated[:2] == (0, keys)
    assert following[:2] == (1, ["late"])
    assert first[2] == left
    assert not left & repeated[2], "the next start removes them"
    assert not staged(world)


def test_a_file_that_no_task_reported_is_not_read(spark: Any, world: World) -> None:
    """An attempt that was killed, or runs twice, leaves a whole file of the same batch."""
    world.create(given=1)
    world.append("given", [("k", "v", 1)])
    seen: list[list[str]] = []

    def write(frame: Any, batch: int) -> None:
        (there,) = staged(world)
        there.with_name("frame-0-00000000" + there.name[16:]).write_bytes(there.read_bytes())
        seen.append([row.key for row in frame.collect()])

    process(spark, world, topology(write))
    assert seen == [["k"]]
    (left,) = staged(world)
    assert left.name.startswith("frame-0-00000000-")
    process(spark, world, topology(write))
    assert not staged(world)


def test_a_damaged_file_is_named(spark: Any, world: World) -> None:
    world.create(given=1)
    world.append("given", [("k", "v", 1)])

    def write(frame: Any, batch: int) -> None:
        (there,) = staged(world)
        there.write_bytes(there.read_bytes()[:-1] + b"!")
        frame.collect()

    with pytest.raises(cs.StateError) as caught:
        process(spark, world, topology(write))
    assert caught.value.code == "CS-701"
    assert "checksum" in caught.value.what
    assert (caught.value.where["operator"], caught.value.where["batch"]) == ("frames", 0)


@pytest.mark.parametrize("parallel", [True, False])
def test_nothing_large_passes_through_the_driver(
    spark: Any, tmp_path: Path, parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of all that tasks send there are the same for a thousand times the rows; without it they are not."""
    sizes: list[int] = []

    def collected(blocks: Any) -> Any:
        blocks = list(blocks)
        sizes.append(sum(len(block[4]) for block in blocks))
        return turns.collected(blocks)

    monkeypatch.setattr("crossstream.spark.rounds.collected", collected)
    seen: list[tuple[int, int]] = []
    for rows in (20, 20_000):
        world = World(tmp_path / str(rows))
        world.create(given=2)
        world.append("given", [(f"k{n}", "v" * 100, n) for n in range(rows)])
        process(
            spark,
            world,
            topology(lambda frame, batch: seen.append((batch, frame.count())), parallel=parallel),
        )
    assert seen == [(0, 20), (0, 20_000)]
    few, many = sizes
    assert (many < few + 100) if parallel else (many > few + 20_000 * 100)


def test_a_frame_that_is_read_after_its_call(spark: Any, world: World) -> None:
    world.create(given=1)
    world.append("given", [("k", "v", 1)])
    kept: list[Any] = []
    process(spark, world, topology(lambda frame, batch: kept.append(frame)))
    with pytest.raises(PythonException, match="read the DataFrame before the function returns"):
        kept[0].collect()
