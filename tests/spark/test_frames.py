"""Streaming DataFrames in, a DataFrame per batch out: what rows become, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream.spark import frame_loop as engine
from crossstream.spark.batch_frames import frame_of
from crossstream.storage.commit_log import BatchLog
from tests.application.waiting import in_background, wait_for
from tests.faults.crash_points import POINTS
from tests.laws.clock import Clock
from tests.spark.marketplace import JSON, TEXT
from tests.spark.world import World

pytestmark = pytest.mark.spark


def frame(spark: Any, world: World, schema: str, rows: list[dict[str, Any]]) -> Any:
    """A streaming DataFrame of these rows."""
    world.create(out=1)
    folder = world.root / "rows"
    folder.mkdir()
    (folder / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    return spark.readStream.schema(schema).json(str(folder))


def run(
    spark: Any, world: World, source: Any, function: Callable[[Any, int], None] | None = None, **consumed: Any
) -> None:
    """The rows as a stream, to the topic "out" and to a function."""
    builder = cs.StreamsBuilder()
    stream = builder.stream_from(source, cs.Consumed(name="rows", **consumed))
    if function is not None:
        stream.for_each_batch(function)
    stream.to("out", cs.Produced(key=TEXT, value=JSON))
    with cs.SparkStreams(builder.build(), world.config(), spark) as app:
        app.process_available()


@dataclass(frozen=True, slots=True)
class Rows:
    """Folders of rows, each a DataFrame source, and the topic "orders" beside them."""

    spark: Any
    world: World

    def put(self, source: str, key: str) -> None:
        folder = self.world.root / source
        folder.mkdir(exist_ok=True)
        (folder / f"{key}.json").write_text(json.dumps({"key": key, "value": {"n": 1}}))

    def frame(self, source: str) -> Any:
        read = self.spark.readStream.schema("key string, value struct<n: bigint>")
        return read.json(f"file://{self.world.root / source}")

    def read_in(self, partitions: int) -> None:
        """Into how many partitions Spark splits four files, as it does by the number of cores."""
        self.spark.conf.set("spark.sql.files.minPartitionNum", partitions)

    def process(self, *sources: str, function: Callable[[Any], Any] = lambda value: value) -> None:
        self.process_frames(function, **{name: self.frame(name) for name in sources})

    def process_frames(self, function: Callable[[Any], Any] = lambda value: value, /, **frames: Any) -> None:
        builder, out = cs.StreamsBuilder(), cs.Produced(key=TEXT, value=JSON)
        for name, frame in frames.items():
            stream = builder.stream_from(frame, cs.Consumed(name=name))
            stream.map_values(function).to("out", out)
        builder.stream("orders", cs.Consumed(key=TEXT, value=JSON)).to("out", out)
        with cs.SparkStreams(builder.build(), self.world.config(), self.spark) as app:
            app.process_available()

    def out(self) -> list[str]:
        return sorted(record.key for record in self.world.read("out", TEXT, JSON))


@pytest.mark.parametrize(
    ("kind", "given", "milliseconds"),
    [
        ("timestamp", "2026-01-01T00:00:00.001Z", 1_767_225_600_001),
        ("timestamp_ntz", "2026-01-01T00:00:00.001", 1_767_225_600_001),
        ("bigint", 1_767_225_600_001, 1_767_225_600_001),
        ("int", 7, 7),
    ],
)
def test_timestamps(spark: Any, world: World, kind: str, given: Any, milliseconds: int) -> None:
    rows = [{"key": "a", "value": {"n": 1}, "timestamp": given}]
    batches: list[Any] = []
    run(
        spark,
        world,
        frame(spark, world, f"key string, value struct<n: bigint>, timestamp {kind}", rows),
        lambda records, batch: batches.append((batch, records.collect())),
    )
    (record,) = world.read("out", TEXT, JSON)
    assert (record.key, record.value, record.ts) == ("a", {"n": 1}, milliseconds)
    [(batch, (row,))] = batches
    assert (batch, row.key, row.value) == (0, "a", '{"n":1}')
    assert row.timestamp.astimezone(timezone.utc) == datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def test_rows_without_timestamps_get_the_same_when_their_batch_is_repeated(spark: Any, world: World) -> None:
    source = frame(spark, world, "key string, value struct<n: bigint>", [{"key": "a", "value": {"n": 1}}])
    taken: list[datetime] = []

    def write(records: Any, batch: int) -> None:
        taken.extend(row.timestamp for row in records.collect())
        if len(taken) == 1:
            raise OSError("no such table")

    with pytest.raises(cs.ProcessingError):
        run(spark, world, source, write)
    run(spark, world, source, write)
    assert len(taken) == 2
    assert taken[0] == taken[1]
    (record,) = world.read("out", TEXT, JSON)
    assert record.ts == int(BatchLog(world.state_dir).batch(0).time * 1000)


def test_headers(spark: Any, world: World) -> None:
    headers = "headers array<struct<key: string, value: binary>>"
    rows = [
        {"key": "a", "value": {"n": 1}, "headers": [{"key": "trace", "value": "aGk="}, {"key": "none"}]},
        {"key": "b", "value": {"n": 2}},
    ]
    run(spark, world, frame(spark, world, f"key string, value struct<n: bigint>, {headers}", rows))
    found = {record.key: tuple(record.headers) for record in world.read("out", TEXT, JSON)}
    assert found == {"a": (("trace", b"hi"), ("none", None)), "b": ()}


def test_a_row_without_its_timestamp_is_refused(spark: Any, world: World) -> None:
    rows = [{"key": "a", "value": {"n": 1}, "timestamp": 5}, {"key": "b", "value": {"n": 1}}]
    source = frame(spark, world, "key string, value struct<n: bigint>, timestamp bigint", rows)
    with pytest.raises(cs.ProcessingError) as caught:
        run(spark, world, source)
    assert caught.value.code == "CS-507"
    assert caught.value.where == {"operator": "rows", "column": "timestamp"}
    assert not world.read("out", TEXT, JSON)


@pytest.mark.parametrize("header", [None, {"value": "aGk="}])
def test_a_header_without_key_is_refused(spark: Any, world: World, header: Any) -> None:
    rows = [{"key": "a", "value": {"n": 1}, "headers": [{"key": "trace", "value": "aGk="}, header]}]
    schema = "key string, value struct<n: bigint>, headers array<struct<key: string, value: binary>>"
    source = frame(spark, world, schema, rows)
    with pytest.raises(cs.ProcessingError) as caught:
        run(spark, world, source)
    assert caught.value.code == "CS-507"
    assert caught.value.where == {"operator": "rows", "column": "headers"}
    assert not world.read("out", TEXT, JSON)


def test_a_negative_timestamp_is_mended_in_the_dataframe(spark: Any, world: World) -> None:
    rows = [{"key": "a", "value": {"n": 1}, "timestamp": -5}]
    source = frame(spark, world, "key string, value struct<n: bigint>, timestamp bigint", rows)
    with pytest.raises(cs.ProcessingError) as caught:
        run(spark, world, source)
    assert caught.value.code == "CS-507"
    assert caught.value.next is not None
    assert "timestamp_extractor" not in caught.value.next, "CS-101 refuses it"


def test_a_function_of_batches_that_exits_is_named(spark: Any, world: World) -> None:
    """It is called in a thread of Spark's: sys.exit() would end that and nothing else."""
    source = frame(spark, world, "key string, value struct<n: bigint>", [{"key": "a", "value": {"n": 1}}])
    with pytest.raises(cs.ProcessingError) as caught:
        run(spark, world, source, lambda records, batch: sys.exit(3))
    assert caught.value.code == "CS-591"
    run(spark, world, source)
    assert [record.key for record in world.read("out", TEXT, JSON)] == ["a"]


def test_a_column_that_its_serde_does_not_take_is_named(spark: Any, world: World) -> None:
    source = frame(spark, world, "key string, value struct<n: bigint>", [{"key": "a", "value": {"n": 1}}])
    with pytest.raises(cs.SerdeError) as caught:
        run(spark, world, source, key=TEXT, value=cs.serdes.int64())
    assert (caught.value.code, caught.value.where["column"]) == ("CS-401", "value")


@pytest.mark.parametrize(
    ("code", "columns", "told"),
    [
        ("CS-150", ["named_struct('a', parse_json('1')) as value"], "value.a is of type variant"),
        ("CS-150", ["array(map('x', parse_json('1'))) as value"], "value is of type variant"),
        ("CS-150", ["named_struct('a', interval '1' year) as value"], "value.a is of type interval year"),
        ("CS-150", ["named_struct('a', make_interval(1)) as value"], "value.a is of type interval"),
        (
            "CS-150",
            ["named_struct('a', array(named_struct('b', 1, 'b', 2))) as value"],
            "value.a has several fields b",
        ),
        ("CS-150", ["1 as key", "2 as value"], "key, key"),
        ("CS-150", ["1 as KEY", "2 as value"], "key, KEY"),
        ("CS-150", ["2 as value", "timestamp as Timestamp"], "takes for timestamp: Timestamp"),
    ],
)
def test_columns_that_are_refused_where_they_are_passed(
    spark: Any, code: str, columns: list[str], told: str
) -> None:
    source = spark.readStream.format("rate").load().selectExpr("'k' as key", *columns)
    with pytest.raises(cs.TopologyError) as caught:
        cs.StreamsBuilder().table_from(source, cs.Consumed(name="rows"))
    assert caught.value.code == code
    assert told in caught.value.what
    assert "test_frames.py" in caught.value.where["line"]


def test_columns_that_nobody_reads_may_be_of_any_kind(spark: Any, world: World) -> None:
    source = frame(spark, world, "key string, value struct<n: bigint>", [{"key": "a", "value": {"n": 1}}])
    more = ["named_struct('a', 1, 'a', 2) as x", "1 as y", "2 as y", "make_interval(1) as z"]
    run(spark, world, source.selectExpr("key", "value", *more))
    assert [record.key for record in world.read("out", TEXT, JSON)] == ["a"]


@pytest.mark.parametrize("kind", ["count", "order"])
def test_rows_that_spark_does_not_append(spark: Any, world: World, kind: str) -> None:
    source = frame(spark, world, "key string, value struct<n: bigint>", [{"key": "a", "value": {"n": 1}}])
    rows = source.groupBy("key").count().withColumnRenamed("count", "value")
    with pytest.raises(cs.TopologyError) as caught:
        run(spark, world, rows if kind == "count" else source.orderBy("key"))
    assert (caught.value.code, caught.value.where["operator"]) == ("CS-150", "rows")
    assert "test_frames.py" in caught.value.where["line"]
    assert not world.state_dir.exists()
    run(spark, world, source)


def test_a_function_of_batches_that_raises(spark: Any, world: World) -> None:
    source = frame(spark, world, "key string, value struct<n: bigint>", [{"key": "a", "value": {"n": 1}}])
    seen: list[int] = []

    def write(records: Any, batch: int) -> None:
        seen.append(batch)
        if len(seen) == 1:
            raise OSError("no such table")

    with pytest.raises(cs.ProcessingError) as caught:
        run(spark, world, source, write)
    assert caught.value.code == "CS-591"
    assert caught.value.what == "the function of rows.for_each_batch raised OSError: no such table"
    assert "test_frames.py" in caught.value.where["line"]
    run(spark, world, source, write)
    assert seen == [0, 0]
    assert [(record.key, record.value) for record in world.read("out", TEXT, JSON)] == [("a", {"n": 1})]


def test_serdes_that_a_function_of_batches_needs(spark: Any, world: World) -> None:
    world.create(words=1)
    world.append("words", [("k", "v", 5)])
    builder = cs.StreamsBuilder()
    words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
    made = words.map_values(lambda word: {"word": word, "length": len(word)})
    with pytest.raises(cs.TopologyError) as caught:
        made.for_each_batch(lambda records, batch: None)
    assert caught.value.next == "put repartition(Repartitioned(value=dict)) before it"
    given: list[Any] = []
    declared = cs.serdes.json({"word": pl.String, "length": pl.Int64})
    moved = made.repartition(cs.Repartitioned(value=declared))
    moved.for_each_batch(lambda records, batch: given.extend(records.collect()))
    with cs.SparkStreams(builder.build(), world.config(), spark) as app:
        app.process_available()
    assert [(row.key, row.value.word, row.value.length) for row in given] == [("k", "v", 1)]


def test_records_without_declared_type_are_a_column_of_their_text(spark: Any, world: World) -> None:
    world.create(orders=2)
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", cs.Consumed(key=TEXT, value=JSON))
    given: list[Any] = []
    orders.for_each_batch(lambda records, batch: given.extend(records.collect()), cs.Named("frames"))
    values = [{"n": 1}, {"n": 2**70}, {"n": [1, "x"]}, "text", None]
    world.append("orders", [(f"k{n}", value, n) for n, value in enumerate(values)], TEXT, JSON)
    with cs.SparkStreams(builder.build(), world.config(), spark) as app:
        app.process_available()
        assert app.progress.dropped == {}
    assert {row.key: row.value and json.loads(row.value) for row in given} == {
        f"k{n}": value for n, value in enumerate(values)
    }


def test_integers_without_a_sign_are_wider_in_a_dataframe(spark: Any, world: World) -> None:
    kinds = {"a": pl.UInt8, "b": pl.UInt16, "c": pl.UInt32, "d": pl.UInt64}
    value = cs.serdes.json({**kinds, "list": pl.List(pl.Struct(kinds)), "none": pl.Struct({"n": pl.UInt8})})
    world.create(numbers=1)
    most = {"a": 2**8 - 1, "b": 2**16 - 1, "c": 2**32 - 1, "d": 2**64 - 1}
    key = cs.serdes.json({"n": pl.UInt32})
    world.append("numbers", [({"n": 7}, {**most, "list": [most, None]}, 1)], key, value)
    builder = cs.StreamsBuilder()
    given: list[Any] = []

    def write(records: Any, batch: int) -> None:
        given.append((dict(records.dtypes), records.collect()))

    builder.stream("numbers", cs.Consumed(key=key, value=value)).for_each_batch(write)
    with cs.SparkStreams(builder.build(), world.config(), spark) as app:
        app.process_available()
    [(types, [row])] = given
    each = "a:smallint,b:int,c:bigint,d:decimal(20,0)"
    assert types["key"] == "struct<n:bigint>"
    assert types["value"] == f"struct<{each},list:array<struct<{each}>>,none:struct<n:smallint>>"
    found = row.value.asDict(recursive=True)
    assert found == {**most, "list": [most, None], "none": None}


class Huge:
    """A serde whose columns Spark has no type for."""

    def __init__(self) -> None:
        self.serde = cs.serdes.int64()

    def __getattr__(self, name: str) -> Any:
        if name == "serde" or name.startswith("__"):  # pickle asks for some
            raise AttributeError(name)
        return getattr(self.serde, name)

    @property
    def dtype(self) -> pl.DataType:
        return pl.Int128()

    def decode_series(self, data: Any, fields: Any = None) -> pl.Series:
        return self.serde.decode_series(data, fields).cast(pl.Int128)


@pytest.mark.parametrize("parallel", [False, True])
def test_a_type_that_spark_has_not(spark: Any, world: World, parallel: bool) -> None:
    world.create(numbers=1)
    world.append("numbers", [("a", 1, 1)], TEXT, cs.serdes.int64())
    builder = cs.StreamsBuilder()
    numbers = builder.stream("numbers", cs.Consumed(key=TEXT, value=Huge()))
    numbers.for_each_batch(lambda records, batch: None, cs.Named("frames"), parallel=parallel)
    with (
        pytest.raises(cs.SerdeError) as caught,
        cs.SparkStreams(builder.build(), world.config(), spark) as app,
    ):
        app.process_available()
    assert (caught.value.code, caught.value.where["operator"]) == ("CS-404", "frames")
    assert "test_frames.py" in caught.value.where["line"]
    with pytest.raises(cs.SerdeError, match="value halffloat") as caught:
        frame_of(spark, {"value": pa.array(np.array([1.5], np.float16))})
    assert caught.value.code == "CS-404"


def test_records_that_come_while_the_rows_are_read_wait_for_the_next_call(
    spark: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `process_available` takes of the topics is what they held when it was called, in batches with rows too."""
    source = frame(spark, world, "key string, value struct<n: bigint>", [{"key": "row", "value": {"n": 1}}])
    world.create(orders=1)
    world.append("orders", [("first", {"n": 1}, 1)], TEXT, JSON)
    builder = cs.StreamsBuilder()
    out = cs.Produced(key=TEXT, value=JSON)
    builder.stream_from(source, cs.Consumed(name="rows")).to("out", out)
    builder.stream("orders", cs.Consumed(key=TEXT, value=JSON)).to("out", out)
    found = engine.united

    def later(*arguments: Any) -> Any:
        world.append("orders", [("later", {"n": 1}, 2)], TEXT, JSON)
        return found(*arguments)

    with cs.SparkStreams(builder.build(), world.config(), spark) as app:
        with monkeypatch.context() as patch:
            patch.setattr(engine, "united", later)
            app.process_available()
        assert sorted(record.key for record in world.read("out", TEXT, JSON)) == ["first", "row"]
        app.process_available()
    assert sorted(record.key for record in world.read("out", TEXT, JSON)) == ["first", "later", "row"]


def test_calls_leave_no_threads_behind(spark: Any, world: World) -> None:
    """Each call of an application that was not started makes a query, whose thread calls by a connection of its own."""
    world.create(out=1)
    rows, builder, running = Rows(spark, world), cs.StreamsBuilder(), []
    rows.put("left", "first")
    stream = builder.stream_from(rows.frame("left"), cs.Consumed(name="left"))
    stream.to("out", cs.Produced(key=TEXT, value=JSON))
    with cs.SparkStreams(builder.build(), world.config(), spark) as app:
        for number in range(6):
            rows.put("left", f"l{number}")
            app.process_available()
            wait_for(lambda: not running or threading.active_count() <= running[0])
            running.append(threading.active_count())
    assert rows.out() == ["first", *(f"l{number}" for number in range(6))]


@pytest.mark.parametrize("most", [None, 10])
def test_rows_meet_all_that_the_topics_hold(spark: Any, world: World, most: int | None) -> None:
    """With a part of the topics stream time would go on without the rest, and the table would not be filled."""
    timed = [{"key": f"k{n}", "value": f"o{n}", "timestamp": 1_000 * n} for n in range(30)]
    rows = frame(spark, world, "key string, value string, timestamp bigint", timed)
    world.create(prices=1, payments=1, paid=1)
    world.append("prices", [(f"k{n}", f"p{n}", 0) for n in range(30)])
    world.append("payments", [(f"k{n}", f"y{n}", 1_000 * n) for n in range(30)])
    builder = cs.StreamsBuilder()
    consumed, produced = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)
    orders = builder.stream_from(rows, cs.Consumed(name="rows"))
    orders.join(builder.table("prices", consumed), "{}@{}".format).to("out", produced)
    windows = cs.JoinWindows.of("3 seconds")
    orders.join(builder.stream("payments", consumed), "{}+{}".format, windows).to("paid", produced)
    with cs.SparkStreams(builder.build(), world.config(max_records_per_batch=most), spark) as app:
        app.process_available()
    assert sorted(world.table("out", TEXT, TEXT).values()) == sorted(f"o{n}@p{n}" for n in range(30))
    assert sorted(world.table("paid", TEXT, TEXT).values()) == sorted(f"o{n}+y{n}" for n in range(30))


class TestProcessAvailable:
    """Of an application that was started: rows that are there when it is called are through when it returns."""

    @pytest.fixture
    def rows(self, spark: Any, world: World) -> Rows:
        world.create(out=1)
        made = Rows(spark, world)
        made.put("left", "l0")
        return made

    def app(
        self, rows: Rows, write: Callable[[Any, int], None] = lambda records, batch: None
    ) -> cs.SparkStreams:
        builder = cs.StreamsBuilder()
        stream = builder.stream_from(rows.frame("left"), cs.Consumed(name="left"))
        stream.to("out", cs.Produced(key=TEXT, value=JSON))
        stream.for_each_batch(write)
        return cs.SparkStreams(builder.build(), rows.world.config(), rows.spark)

    def test_rows_are_through(self, rows: Rows) -> None:
        with self.app(rows) as app:
            app.process_available()
            app.start()
            for number in range(1, 4):
                rows.put("left", f"l{number}")
                app.process_available()
                assert rows.out() == [f"l{n}" for n in range(number + 1)]
            app.process_available()  # nothing is there

    def test_what_the_function_of_a_batch_raises(self, rows: Rows) -> None:
        with self.app(rows, lambda records, batch: [][1]) as app:
            app.start()
            with pytest.raises(cs.ProcessingError) as caught:
                app.process_available()
            assert caught.value.code == "CS-591"

    def test_it_is_stopped_meanwhile(self, rows: Rows) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def write(records: Any, batch: int) -> None:
            begun.set()
            go_on.wait(60)

        app = self.app(rows, write)
        app.start()
        waiting, results = in_background(app.process_available)
        assert begun.wait(60)
        stopping, _ = in_background(app.stop)
        wait_for(lambda: app.status == "stopping")
        go_on.set()
        for thread in (waiting, stopping):
            thread.join(60)
            assert not thread.is_alive()
        [result] = results
        assert getattr(result, "code", result) in ("CS-233", None)  # None: the query was faster to look again
        assert app.status == "stopped"


class TestSilence:
    """Stream time without input: rows that were not read yet are input, too."""

    @pytest.fixture
    def topology(self, spark: Any, world: World) -> cs.Topology:
        """Three micro-batches with a row of each side; the first left one finds its partner in the last of them."""
        world.create(out=1, orders=1)
        builder = cs.StreamsBuilder()
        left, right = (
            builder.stream_from(self.rows(spark, world, side, keys), cs.Consumed(name=side))
            for side, keys in (("left", ("k1", "k2", "k2")), ("right", ("k2", "k2", "k1")))
        )
        joined = left.left_join(right, "{}+{}".format, cs.JoinWindows.of("1 second", grace="1 second"))
        out = cs.Produced(key=TEXT, value=TEXT)
        joined.to("out", out)
        builder.stream("orders", cs.Consumed(key=TEXT, value=TEXT)).to("out", out)
        return builder.build()

    def rows(self, spark: Any, world: World, side: str, keys: tuple[str, ...]) -> Any:
        folder = world.root / side
        folder.mkdir()
        for number, key in enumerate(keys):
            file = folder / f"{number}.json"
            file.write_text(json.dumps({"key": key, "value": side, "timestamp": 100 * number}))
            os.utime(file, (1_000 + number, 1_000 + number))
        read = spark.readStream.schema("key string, value string, timestamp bigint")
        return read.option("maxFilesPerTrigger", 1).json(str(folder))

    @pytest.mark.parametrize("started", [False, True])
    def test_begins_when_all_rows_are_read(
        self, spark: Any, world: World, clock: Clock, topology: cs.Topology, started: bool
    ) -> None:
        """From one micro-batch to the next more time goes by than windows stay open, and records of a topic come."""
        with cs.SparkStreams(topology, world.config(idle_after="1 second", partitions=2), spark) as app:

            def pass_by(progress: cs.Progress) -> None:
                clock.advance(10)
                if progress.rows_in.get("left"):
                    world.append("orders", [("order", "v", 1)])

            app.on_progress(pass_by)
            if started:
                app.start()
                wait_for(lambda: "k1" in world.table("out"))
            else:
                app.process_available()
        assert world.table("out")["k1"] == "left+right"
        assert [record.value for record in world.read("out") if record.key == "k1"] == ["left+right"]

    def test_begins_then(self, spark: Any, world: World, clock: Clock, topology: cs.Topology) -> None:
        (world.root / "right" / "2.json").unlink()

        def is_out() -> bool:
            clock.advance(1)
            return "k1" in world.table("out")

        with cs.SparkStreams(topology, world.config(idle_after="1 second", partitions=2), spark) as app:
            app.start()
            wait_for(lambda: app.progress.total_rows == 5)
            assert "k1" not in world.table("out")
            wait_for(is_out)
        assert world.table("out")["k1"] == "left+None"


@pytest.mark.parametrize(("trigger", "batches"), [(None, 3), (0, 3), ("1000 days", 1), (1 << 61, 1)])
def test_a_trigger_paces_batches_of_rows(spark: Any, world: World, trigger: Any, batches: int) -> None:
    rows = Rows(spark, world)
    world.create(out=1)
    builder = cs.StreamsBuilder()
    for number in range(3):
        rows.put("left", f"l{number}")
    read = spark.readStream.schema("key string, value struct<n: bigint>").option("maxFilesPerTrigger", 1)
    stream = builder.stream_from(read.json(str(world.root / "left")), cs.Consumed(name="left"))
    stream.to("out", cs.Produced(key=TEXT, value=JSON))
    with cs.SparkStreams(builder.build(), world.config(trigger=trigger), spark) as app:
        app.start()
        wait_for(lambda: len(rows.out()) >= batches)
        time.sleep(1 if batches == 1 else 0)
        assert len(rows.out()) == batches
        app.stop()
        app.process_available()
    assert rows.out() == ["l0", "l1", "l2"]


def test_an_interrupt_while_rows_are_read(spark: Any, world: World) -> None:
    """The main thread waits meanwhile, and the batch is run by a thread of Spark's: that one is stopped."""
    rows = Rows(spark, world)
    world.create(out=1, orders=1)
    rows.put("left", "l0")
    world.append("orders", [("o", {"n": 1}, 1)], TEXT, JSON)
    builder, out = cs.StreamsBuilder(), cs.Produced(key=TEXT, value=JSON)
    left = builder.stream_from(rows.frame("left"), cs.Consumed(name="left"))
    calls: list[tuple[int, list[str]]] = []

    def write(records: Any, batch: int) -> None:
        calls.append((batch, sorted(row.key for row in records.collect())))
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    left.for_each_batch(write)
    left.to("out", out)
    builder.stream("orders", cs.Consumed(key=TEXT, value=JSON)).to("out", out)
    with cs.SparkStreams(builder.build(), world.config(), spark) as app:
        with pytest.raises(KeyboardInterrupt):
            app.process_available()
        rows.put("left", "l1")
        app.process_available()
    taken = dict(calls)
    assert sorted(key for keys in taken.values() for key in keys) == ["l0", "l1"]
    assert all(keys == taken[batch] for batch, keys in calls), "the same number, the same records"
    assert rows.out() == ["l0", "l1", "o"]


class TestBatchThatFails:
    """It is the last one of its engine, whoever waits for a turn, and comes again with the same records."""

    @pytest.mark.parametrize("failing", ["topic", "rows"])
    def test_it_comes_again_as_it_was(
        self, spark: Any, world: World, failing: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = Rows(spark, world)
        world.create(orders=1)
        rows.put("left", "l0")
        builder = cs.StreamsBuilder()
        left = builder.stream_from(rows.frame("left"), cs.Consumed(name="left", key=TEXT, value=JSON))
        merged = left.merge(builder.stream("orders", cs.Consumed(key=TEXT, value=JSON)))
        calls: list[tuple[int, list[str]]] = []
        armed = threading.Event()

        def write(records: Any, batch: int) -> None:
            calls.append((batch, sorted(row.key for row in records.collect())))
            if armed.is_set():
                armed.clear()
                rows.put("left", "l2")
                world.append("orders", [("o2", {"n": 1}, 1)], TEXT, JSON)
                time.sleep(2)  # the other thread has seen it, and waits for its turn
                raise OSError("no such table")

        merged.for_each_batch(write)
        topology = builder.build()
        with cs.SparkStreams(topology, world.config(), spark) as app:
            app.start()
            app.process_available()
            runner = app._runner
            fail = runner._fail
            monkeypatch.setattr(runner, "_fail", lambda error: (time.sleep(2), fail(error)))
            armed.set()
            if failing == "rows":
                rows.put("left", "l1")
            else:
                world.append("orders", [("o1", {"n": 1}, 1)], TEXT, JSON)
            with pytest.raises(cs.ProcessingError):
                app.await_termination(60)
        _, failed = calls
        assert failed[1] == ["l1" if failing == "rows" else "o1"]
        with cs.SparkStreams(topology, world.config(), spark) as app:
            app.process_available()
        assert calls[2] == failed
        assert sorted(key for _, keys in calls[2:] for key in keys) == sorted([*failed[1], "l2", "o2"])


class TestOtherPartitions:
    """Spark splits the rows of a batch by the number of cores, and a batch may be repeated on others."""

    @pytest.fixture
    def rows(self, spark: Any, world: World) -> Iterator[Rows]:
        world.create(out=1, orders=1)
        made = Rows(spark, world)
        for number in range(4):
            made.put("left", f"l{number}")
        world.append("orders", [("o", {"n": 1}, 1)], TEXT, JSON)
        yield made
        spark.conf.unset("spark.sql.files.minPartitionNum")

    @pytest.mark.parametrize("partitions", [(4, 1), (1, 4)])
    @pytest.mark.parametrize(
        "point",
        [
            "after it ran",
            "before anything is published",
            "after the second frame is published",
            "before the commit",
        ],
    )
    def test_each_row_is_published_once(self, rows: Rows, point: str, partitions: tuple[int, int]) -> None:
        before, after = partitions
        rows.read_in(before)
        with pytest.MonkeyPatch.context() as patch:
            POINTS[point](patch)
            with pytest.raises(cs.CrossStreamError):
                rows.process("left")
        rows.read_in(after)
        rows.put("left", "late")
        rows.process("left")
        assert rows.out() == ["l0", "l1", "l2", "l3", "late", "o"]
        assert BatchLog(rows.world.state_dir).commits() == [0, 1]
        assert not list(rows.world.state_dir.rglob("*.staged"))

    def test_what_waits_to_be_published_is_gone(self, rows: Rows) -> None:
        with pytest.MonkeyPatch.context() as patch:
            POINTS["before anything is published"](patch)
            with pytest.raises(cs.CrossStreamError):
                rows.process("left")
        kept = rows.world.root / "kept"
        (rows.world.state_dir / "staged").rename(kept)
        for _ in range(2):
            with pytest.raises(cs.SinkError) as caught:
                rows.process("left")
            assert caught.value.code == "CS-665"
        assert rows.out() == []
        kept.rename(rows.world.state_dir / "staged")
        rows.process("left")
        assert rows.out() == ["l0", "l1", "l2", "l3", "o"]

    def test_what_waits_to_be_published_is_of_another_application(self, rows: Rows) -> None:
        with pytest.MonkeyPatch.context() as patch:
            POINTS["before anything is published"](patch)
            with pytest.raises(cs.CrossStreamError):
                rows.process("left")
        other = World(rows.world.root, "other")
        with pytest.raises(cs.StateError) as caught:
            Rows(rows.spark, other).process("left")
        assert caught.value.code == "CS-720"
        assert rows.out() == []


class TestRowsThatSparkKeeps:
    """Operators of Spark's own that keep rows commit them with Spark, which is after the application has."""

    @pytest.fixture(autouse=True)
    def few_partitions(self, spark: Any) -> Iterator[None]:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
        yield
        spark.conf.unset("spark.sql.shuffle.partitions")

    def process(self, spark: Any, world: World, rows: Any) -> None:
        builder = cs.StreamsBuilder()
        kept = builder.stream_from(rows.dropDuplicates(["key"]), cs.Consumed(name="rows"))
        kept.to("out", cs.Produced(key=TEXT, value=JSON))
        with cs.SparkStreams(builder.build(), world.config(), spark) as app:
            app.process_available()

    @pytest.mark.parametrize("point", ["before the commit", "after the commit"])
    def test_each_is_there_once_after_a_crash(
        self, spark: Any, world: World, point: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.create(out=1)
        rows = Rows(spark, world)
        rows.put("left", "a")
        with monkeypatch.context() as patch:
            POINTS[point](patch)
            with pytest.raises(cs.CrossStreamError):
                self.process(spark, world, rows.frame("left"))
        (world.root / "left" / "again.json").write_text(json.dumps({"key": "a", "value": {"n": 2}}))
        rows.put("left", "b")
        self.process(spark, world, rows.frame("left"))
        assert rows.out() == ["a", "b"]


class TestCheckpoint:
    """The checkpoint of the sources is Spark's, and is part of the state."""

    @pytest.fixture
    def rows(self, spark: Any, world: World) -> Rows:
        world.create(out=1, orders=1)
        return Rows(spark, world)

    def test_a_missing_one_is_an_error(self, rows: Rows) -> None:
        for number in range(2):
            rows.put("left", f"a{number}")
            rows.process("left")
        rows.put("left", "late")
        kept = rows.world.root / "kept"
        (rows.world.state_dir / "frames").rename(kept)
        for _ in range(2):
            with pytest.raises(cs.StateError) as caught:
                rows.process("left")
            assert caught.value.code == "CS-701"
            assert caught.value.where["file"].endswith("frames/offsets/1")
        kept.rename(rows.world.state_dir / "frames")
        rows.process("left")
        assert rows.out() == ["a0", "a1", "late"]

    @pytest.mark.parametrize("part", ["metadata", "offsets/0", "sources/0/0", "sources/0/1", "sources"])
    def test_missing_parts_are_errors(self, rows: Rows, part: str) -> None:
        for number in range(2):
            rows.put("left", f"a{number}")
            rows.process("left")
        rows.put("left", "late")
        place, kept = rows.world.state_dir / "frames" / part, rows.world.root / "kept"
        place.rename(kept)
        with pytest.raises(cs.StateError) as caught:
            rows.process("left")
        assert caught.value.code == "CS-701"
        assert str(place) in caught.value.where["file"]
        kept.rename(place)
        rows.process("left")
        assert rows.out() == ["a0", "a1", "late"]

    def test_it_is_in_the_state_whatever_files_spark_has_by_default(self, spark: Any, tmp_path: Path) -> None:
        """As on a cluster with HDFS. A path is Hadoop's text, in which nothing stands for something else."""
        session = spark.newSession()
        session.conf.set("fs.defaultFS", "viewfs://elsewhere/")
        world = World(tmp_path / "a #1 [b] 50% c%20d ü? {e}:*")
        world.create(out=1)
        rows = Rows(session, World(tmp_path))
        for number in range(2):
            rows.put("left", f"l{number}")
            run(session, world, rows.frame("left"))
        assert [record.key for record in world.read("out", TEXT, JSON)] == ["l0", "l1"]
        assert (world.state_dir / "frames" / "commits" / "1").exists()

    def test_sources_of_one_dataframe(self, rows: Rows) -> None:
        """Spark reads it once for all of them, and keeps one list of its files."""
        for source in ("left", "right"):
            (rows.world.root / source).mkdir()
        read = rows.frame("left")
        union = rows.frame("right").union(rows.frame("right"))
        for number in range(3):
            rows.put("left", f"l{number}")
            rows.put("right", f"r{number}")
            rows.process_frames(
                first=read.where("key < 'l1'"),
                twice=read.union(read),
                apart=union,
                last=read.where("key >= 'l1'"),
            )
        counts = {"l0": 3, "l1": 3, "l2": 3, "r0": 2, "r1": 2, "r2": 2}
        assert rows.out() == sorted(key for key, count in counts.items() for _ in range(count))
        with pytest.raises(cs.StateError) as caught:
            rows.process_frames(first=read, twice=rows.frame("left").union(read), apart=union, last=read)
        assert caught.value.code == "CS-701", "another one that reads the same folder has no list of files"

    def test_sources_are_known_by_their_names(self, rows: Rows) -> None:
        rows.put("left", "l0")
        rows.put("right", "r0")
        rows.process("left", "right")
        rows.put("left", "l1")
        rows.process("right", "left")
        assert rows.out() == ["l0", "l1", "r0"]
        rows.put("third", "t0")
        for names, told in ((("left", "right", "third"), "third is new"), (("left",), "right is gone")):
            with pytest.raises(cs.IncompatibleStateError) as caught:
                rows.process(*names)
            assert (caught.value.code, told in caught.value.what) == ("CS-750", True)
        rows.world.append("orders", [("o", {"n": 1}, 1)], TEXT, JSON)
        rows.process()
        rows.put("right", "r1")
        rows.process("left", "right")
        assert rows.out() == ["l0", "l1", "o", "r0", "r1"]

    @pytest.mark.parametrize("sources", [("left", "third"), ("third",), ()])
    def test_sources_may_change_until_something_is_committed(
        self, rows: Rows, sources: tuple[str, ...]
    ) -> None:
        for name in ("left", "right", "third"):
            rows.put(name, name)
        rows.world.append("orders", [("o", {"n": 1}, 1)], TEXT, JSON)
        with pytest.raises(cs.ProcessingError):
            rows.process("left", "right", function=lambda value: 1 / 0)
        assert BatchLog(rows.world.state_dir).batch(0).epoch == 0
        rows.process(*sources)
        assert rows.out() == sorted([*sources, "o"])
        rows.put("left", "late")
        rows.process(*sources)
        assert rows.out() == sorted([*sources, "o", *(["late"] if "left" in sources else [])])

    def test_sources_that_are_gone_with_a_batch_begun(self, rows: Rows) -> None:
        rows.world.append("orders", [("first", {"n": 1}, 1)], TEXT, JSON)
        rows.process()
        rows.put("left", "l0")
        rows.world.append("orders", [("o", {"n": 1}, 1)], TEXT, JSON)
        with pytest.raises(cs.ProcessingError):
            rows.process("left", function=lambda value: 1 / 0)
        with pytest.raises(cs.IncompatibleStateError, match="left") as caught:
            rows.process()
        assert caught.value.code == "CS-750"
        rows.process("left")
        rows.process()
        assert rows.out() == ["first", "l0", "o"]


def meetings(source: Callable[[cs.StreamsBuilder], cs.KStream]) -> cs.Topology:
    """One source on both sides of joins: the stream is looked up before its table, and the right side comes first."""
    builder = cs.StreamsBuilder()
    numbers, out = source(builder), cs.Produced(key=TEXT, value=JSON)
    looking = numbers.map_values(lambda value: value["n"])
    table = numbers.map_values(lambda value: value["n"]).to_table(
        materialized=cs.Materialized(key=TEXT, value=JSON)
    )
    looking.left_join(table, lambda one, row: [one, row], cs.Joined(key=TEXT, value=JSON)).to("table", out)
    right = numbers.map_values(lambda value: value["n"])
    left = numbers.map_values(lambda value: value["n"])
    joined = cs.StreamJoined(key=TEXT, value=JSON, other_value=JSON)
    windows = cs.JoinWindows.of(0, eager=True)
    left.left_join(right, lambda one, other: [one, other], windows, joined).to("window", out)
    return builder.build()


def test_rows_that_reach_both_sides_of_a_join_do_so_in_the_order_of_a_topic(spark: Any, world: World) -> None:
    topic = meetings(lambda builder: builder.stream("rows", cs.Consumed(key=TEXT, value=JSON)))
    with cs.TopologyTestDriver(topic) as driver:
        rows = driver.create_input_topic("rows", TEXT, JSON)
        for n in (1, 2):
            rows.pipe_input("a", {"n": n}, timestamp=n)
        expected = {
            name: [record.value for record in driver.create_output_topic(name, TEXT, JSON).read_records()]
            for name in ("table", "window")
        }
    world.create(table=1, window=1)
    given = [{"key": "a", "value": {"n": n}, "timestamp": n} for n in (1, 2)]
    source = frame(spark, world, "key string, value struct<n: bigint>, timestamp bigint", given)
    topology = meetings(lambda builder: builder.stream_from(source, cs.Consumed(name="rows")))
    with cs.SparkStreams(topology, world.config(), spark) as app:
        app.process_available()
    assert expected == {name: [record.value for record in world.read(name, TEXT, JSON)] for name in expected}
    assert expected["window"] == [[1, 1], [2, 2]]
