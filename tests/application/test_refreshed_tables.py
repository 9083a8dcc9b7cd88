"""Static tables that are read again by a running application: each batch sees one reading, whole."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.application import refreshing
from crossstream.application.inputs import connection_of
from crossstream.application.loop import Loop
from crossstream.errors import ConfigError, CrossStreamError, SourceError
from crossstream.filetopics.refreshed import RefreshLog, topic_of
from crossstream.query.store import StoreReader
from crossstream.recompute.verify import verify_results
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.copying import copy_state
from crossstream.storage.root import root_of
from tests.application.engines import IN_PROCESS
from tests.application.waiting import wait_for
from tests.laws.effort import cases
from tests.spark.world import World

TEXT = serdes.string()
TYPES = {"code": pl.String, "rate": pl.Int64}
TABLES = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 3), max_size=5)
NUMBERS = itertools.count()


class Database:
    """A table that changes under the application. ``fails``: what a reading raises; ``frame``: what it gives."""

    def __init__(self, **rows: int) -> None:
        self.rows: dict[Any, int] = dict(rows)
        self.fails: Exception | None = None
        self.frame: Callable[[], pl.DataFrame] = self._frame
        self.readings = 0

    def read(self) -> pl.DataFrame:
        self.readings += 1
        if self.fails is not None:
            raise self.fails
        return self.frame()

    def _frame(self) -> pl.DataFrame:
        return pl.DataFrame({"code": list(self.rows), "rate": list(self.rows.values())}, schema=TYPES)

    def topology(self, refresh: str | None = "1 ms") -> cs.Topology:
        """Orders, each with the rate of its currency."""
        builder = cs.StreamsBuilder()
        rates = builder.global_table_from(self.read, key="code", refresh=refresh, name="rates", store="rates")
        orders = builder.stream("orders", cs.Consumed(key=TEXT, value=TEXT))
        told = orders.left_join(
            rates, lambda code, rate: f"{code} {rate and rate['rate']}", key_selector=lambda code: code
        )
        told.to("told", cs.Produced(key=TEXT, value=TEXT))
        return builder.build()

    def streams(self, world: World, refresh: str | None = "1 ms", **settings: Any) -> cs.SparkStreams:
        return IN_PROCESS.streams(self.topology(refresh), world.config(partitions=2, **settings))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return new_world(tmp_path)


def new_world(folder: Path) -> World:
    world = World(folder)
    world.create(orders=1, told=1)
    return world


def order(world: World, *codes: str) -> None:
    world.append("orders", [(code, code, 1) for code in codes], TEXT, TEXT)


def told(world: World) -> list[str]:
    return [one.value for one in world.read("told", TEXT, TEXT)]


def rates(store: StoreReader) -> dict[str, int]:
    return {key: value["rate"] for key, value in store.all()}


def process(app: cs.SparkStreams) -> None:
    time.sleep(0.002)  # a refresh of 1 ms is due
    app.process_available()


def log_of(world: World) -> RefreshLog:
    return RefreshLog(root_of(world.state_dir), topic_of("rates"))


def differing(world: World, app: cs.SparkStreams, as_of: int | None = None) -> int:
    """Rows of the state that a run over all that was read gives otherwise."""
    connection = connection_of(world.config(), app.topology, world.state_dir)
    return verify_results(world.state_dir, app.plan, connection, as_of=as_of).different


class Crash(Exception):
    pass


def crash_at(patch: pytest.MonkeyPatch, method: str) -> None:
    def crash(*_: Any) -> None:
        raise Crash(method)

    patch.setattr(Loop, method, crash)


STEPS = st.lists(
    st.tuples(TABLES, st.sampled_from(["on", "restart", "_run_rounds", "_commit"])), min_size=1, max_size=6
)


@cases(0.3)
@given(steps=STEPS, start=TABLES)
@example(steps=[({}, "_commit"), ({"a": 1}, "on")], start={"a": 1})
@example(steps=[({"a": 2}, "_run_rounds"), ({"a": 1}, "on")], start={"a": 1})
def test_the_table_is_the_newest_reading_after_every_batch(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[dict[str, int], str]], start: dict[str, int]
) -> None:
    """Only rows that differ are changes, across restarts, and crashes after a reading is logged: before its batch has
    run, and before that is committed."""
    world = new_world(tmp_path_factory.getbasetemp() / f"refreshed-{next(NUMBERS)}")
    database = Database(**start)
    app = database.streams(world, retain_batches=1000)
    process(app)
    before, changes = start, len(start)
    for table, event in steps:
        database.rows = dict(table)
        changes += sum(before.get(key) != table.get(key) for key in before.keys() | table.keys())
        before = table
        if event != "on":
            app.stop()
            app = database.streams(world, retain_batches=1000)
        if event.startswith("_"):
            with pytest.MonkeyPatch.context() as patch:
                crash_at(patch, event)
                order(world, "a")
                with pytest.raises(CrossStreamError, match=f"Crash: {event}"):
                    process(app)
            app = database.streams(world, retain_batches=1000)
        process(app)
        assert rates(app.store("rates")) == table
        order(world, "a", "b")
        process(app)
        assert told(world)[-2:] == [f"a {table.get('a')}", f"b {table.get('b')}"]
    app.stop()
    log = log_of(world)
    assert sum(records.num_rows for _, _, records in log.read(0, log.extent().end)) == changes
    assert differing(world, app) == 0


def test_without_a_refresh_it_is_read_at_each_start_only(world: World) -> None:
    database = Database(a=1)
    with database.streams(world, None) as app:
        process(app)
        database.rows = {"a": 2}
        process(app)
        assert rates(app.store("rates")) == {"a": 1}
    with database.streams(world, None) as app:
        process(app)
        assert rates(app.store("rates")) == {"a": 2}
    assert database.readings == 4, "twice for the columns, as the topologies were built"


def test_an_application_does_not_start_without_the_table(world: World) -> None:
    database = Database(a=1)
    app = database.streams(world)
    database.fails = ConnectionError("the database is away")
    with pytest.raises(
        SourceError, match=r"\[CS-621\] it cannot be read: ConnectionError(?s:.)*operator rates"
    ):
        app.start()
    database.fails = None
    with database.streams(world) as again:
        process(again)
        assert rates(again.store("rates")) == {"a": 1}


def test_two_rows_of_a_key_are_refused(world: World) -> None:
    database = Database()
    app = database.streams(world)
    database.frame = lambda: pl.DataFrame({"code": ["a", "b", "b"], "rate": [1, 2, 3]}, schema=TYPES)
    with pytest.raises(SourceError, match=r"\[CS-621\] it has 2 rows with the key code='b'"):
        app.process_available()


def test_a_later_failure_keeps_the_rows_and_is_shown(world: World, caplog: pytest.LogCaptureFixture) -> None:
    database = Database(a=1)
    with (
        caplog.at_level(logging.WARNING, "crossstream.sources"),
        database.streams(world, health_port=0) as app,
    ):
        app.start()
        app.process_available()
        database.fails = ConnectionError("the database is away")
        wait_for(lambda: bool(caplog.records))
        order(world, "a")
        app.process_available()
        assert told(world) == ["a 1"]
        (warning,) = app.progress.warnings
        assert warning.startswith("rates has the rows of 2")
        assert warning.endswith("read again: it cannot be read: ConnectionError: the database is away")
        with urlopen(f"http://127.0.0.1:{app._runner._health.port}/health") as answer:
            assert json.load(answer)["warnings"] == [warning]
        database.fails, database.rows = None, {"a": 2}
        wait_for(lambda: rates(app.store("rates")) == {"a": 2})
        order(world, "a")
        app.process_available()
        assert told(world) == ["a 1", "a 2"]
        assert app.progress.warnings == ()


def test_a_slow_reading_holds_no_batch_up(world: World) -> None:
    database, gate, begun = Database(a=1), threading.Event(), threading.Event()

    def slow() -> pl.DataFrame:
        begun.set()
        gate.wait(60)
        return pl.DataFrame({"code": ["a"], "rate": [2]}, schema=TYPES)

    with database.streams(world) as app:
        app.start()
        database.frame = slow
        begun.wait(60)
        order(world, "a")
        app.process_available()
        assert told(world) == ["a 1"]
        gate.set()
        wait_for(lambda: rates(app.store("rates")) == {"a": 2})


def test_a_reading_that_ends_after_the_application_logs_nothing(world: World) -> None:
    database, gate, begun = Database(a=1), threading.Event(), threading.Event()

    def slow() -> pl.DataFrame:
        begun.set()
        gate.wait(60)
        return pl.DataFrame({"code": ["a"], "rate": [2]}, schema=TYPES)

    with database.streams(world) as app:
        app.start()
        app.process_available()
        database.frame = slow
        begun.wait(60)
        app.stop()
    gate.set()
    wait_for(lambda: not any(thread.name == "crossstream reads rates" for thread in threading.enumerate()))
    assert log_of(world).extent().end == 1


def test_rows_without_a_key_are_counted_once(world: World) -> None:
    database = Database(a=1)
    database.rows |= {None: 5}
    with database.streams(world) as app:
        process(app)
        database.rows["a"] = 2
        process(app)
        assert app.progress.total_dropped == {"rates: null-key": 1}
        assert rates(app.store("rates")) == {"a": 2}


def test_no_batch_takes_half_of_a_reading(world: World) -> None:
    """Though a batch takes one record at most."""
    database = Database()
    with database.streams(world, max_records_per_batch=1) as app:
        process(app)
        database.rows = dict.fromkeys("abcde", 1)
        order(world, *"abcde")
        process(app)
        log = BatchLog(world.state_dir)
        spans = [span for number in log.batches() for span in log.batch(number).ranges]
        assert [(s.start, s.end) for s in spans if s.topic == "refreshed:rates"] == [(0, 1)]
        assert rates(app.store("rates")) == database.rows


def test_the_log_is_folded_behind_every_retained_batch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a retained batch had can be computed again as before."""
    monkeypatch.setattr(refreshing, "MANY", 3)
    database = Database()
    with database.streams(world, retain_batches=2) as app:
        for number in range(12):
            database.rows = {"a": number, f"b{number}": 1}
            process(app)
            held = log_of(world).extent()
            assert held.end - held.begin <= 3 + 4
        assert held.is_table
        assert held.begin > 4
        for batch in BatchLog(world.state_dir).commits():
            assert differing(world, app, as_of=batch) == 0
    with database.streams(world, retain_batches=2) as app:
        process(app)
        assert rates(app.store("rates")) == {"a": 11, "b11": 1}


def test_a_copy_of_the_state_goes_on(world: World, tmp_path: Path) -> None:
    database = Database(a=1, b=2)
    with database.streams(world) as app:
        process(app)
        copy_state(world.state_dir, tmp_path / "copy", links=True)
    database.rows = {"b": 3}
    config = world.config(partitions=2, state_dir=tmp_path / "copy")
    with IN_PROCESS.streams(database.topology(), config) as app:
        process(app)
        assert rates(app.store("rates")) == {"b": 3}


def test_a_log_that_was_deleted_is_noticed(world: World) -> None:
    database = Database(a=1)
    with database.streams(world) as app:
        process(app)
        database.rows = {"a": 2}
        process(app)
    for file in (world.state_dir / "refreshed/rates").iterdir():
        file.unlink()
    with pytest.raises(SourceError, match="CS-603"), database.streams(world) as app:
        process(app)


def test_state_on_an_object_store_is_refused(world: World) -> None:
    config = world.config(state_dir="s3://bucket/state")
    with pytest.raises(ConfigError, match=r"\[CS-201\] rates: .* needs state in a folder"):
        IN_PROCESS.streams(Database(a=1).topology(), config).process_available()


def test_why_names_the_reading(world: World) -> None:
    database = Database(a=1)
    with database.streams(world) as app:
        process(app)
        database.rows = {"a": 2}
        process(app)
        assert "refreshed:rates, version 1" in str(app.why("rates", "a"))


def test_an_application_may_read_such_a_table_alone(tmp_path: Path) -> None:
    database, builder = Database(a=1), cs.StreamsBuilder()
    builder.global_table_from(database.read, key="code", refresh=None, name="rates", store="rates")
    config = cs.StreamsConfig(application_id="alone", state_dir=tmp_path / "state")
    with IN_PROCESS.streams(builder.build(), config) as app:
        app.process_available()
        assert rates(app.store("rates")) == {"a": 1}
