"""Whose session it is: the one that crossstream makes ends with the last application that uses it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import crossstream as cs
from crossstream.spark import session as spark_session
from crossstream.spark.errors import is_stopped
from crossstream.spark.session import has_session
from crossstream.spark.worker import BATCH_PROPERTY
from tests.spark.fixtures import SETTINGS, Sessions, importable_in_workers
from tests.spark.world import TEXT, World

pytestmark = pytest.mark.spark

SPARK = {**SETTINGS, "spark.master": "local[1]"}


@pytest.fixture(autouse=True)
def alone(sessions: Sessions) -> None:
    """No session runs when a test begins."""
    sessions.stop()
    importable_in_workers()
    assert not has_session()


@pytest.fixture
def worlds(tmp_path: Path) -> list[World]:
    """Three applications' folders, with a record in each."""
    found = [World(tmp_path / name, name) for name in ("A", "B", "C")]
    for world in found:
        world.create(words=1, loud=1)
        world.append("words", [("k", "a", 1)])
    return found


def application(world: World, spark: SparkSession | None = None, **settings: Any) -> cs.SparkStreams:
    builder = cs.StreamsBuilder()
    words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
    words.map_values(str.upper).to("loud", cs.Produced(key=TEXT, value=TEXT))
    return cs.SparkStreams(builder.build(), world.config(**{"spark": SPARK, **settings}), spark)


def begin(app: cs.SparkStreams, *, started: bool) -> None:
    if started:
        app.start()
    app.process_available()


@pytest.mark.parametrize("started", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_the_session_lives_until_its_last_application_stops(worlds: list[World], started: bool) -> None:
    first, second, _ = (application(world) for world in worlds)
    begin(first, started=started)
    begin(second, started=started)
    first.stop()
    worlds[1].append("words", [("k", "b", 2)])
    second.process_available()
    assert worlds[1].table("loud") == {"k": "B"}
    worlds[0].append("words", [("k", "c", 3)])
    begin(first, started=started)
    second.stop()
    second.stop()
    worlds[0].append("words", [("k", "d", 4)])
    first.process_available()
    assert worlds[0].table("loud") == {"k": "D"}
    first.stop()
    assert not has_session()


def test_applications_that_start_and_stop_at_one_time(worlds: list[World]) -> None:
    errors: list[Exception] = []

    def again_and_again(world: World) -> None:
        try:
            for number in range(3):
                with application(world) as app:
                    world.append("words", [("k", f"v{number}", number)])
                    app.process_available()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=again_and_again, args=[world]) for world in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [world.table("loud") for world in worlds] == [{"k": "V2"}] * 3
    assert not has_session()


def test_a_start_that_fails_does_not_hold_the_session(worlds: list[World]) -> None:
    running = application(worlds[0])
    running.process_available()
    refused = application(worlds[0])
    for _ in range(2):
        with pytest.raises(cs.StateError) as caught:
            refused.start()
        assert caught.value.code == "CS-720"
    running.process_available()
    running.stop()
    assert not has_session()
    refused.process_available()
    refused.stop()
    assert not has_session()


@pytest.mark.parametrize("started", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_an_application_that_failed_does_not_hold_the_session(worlds: list[World], started: bool) -> None:
    """Nobody needs to stop it: it does not run again."""
    other = application(worlds[1])
    other.process_available()
    failing = application(worlds[0])
    failing.on_progress(lambda progress: 1 / 0)
    if started:
        failing.start()
    with pytest.raises(cs.ProcessingError) as caught:
        (failing.await_termination if started else failing.process_available)()
    assert caught.value.code == "CS-591"
    assert failing.status == "failed"
    other.process_available()
    other.stop()
    assert not has_session()
    with application(worlds[0]) as again:
        again.process_available()
    failing.stop()
    assert failing.status == "failed"


def test_a_session_that_does_not_warm_up_is_not_left_behind(
    worlds: list[World], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(context: Any) -> None:
        raise RuntimeError("no workers")

    with monkeypatch.context() as patched:
        patched.setattr(spark_session, "warm_up", fail)
        with pytest.raises(cs.ConfigError, match="no workers") as caught:
            application(worlds[0]).start()
        assert caught.value.code == "CS-230"
        assert not has_session()
    with application(worlds[0]) as app:
        app.process_available()
    assert not has_session()


def theirs() -> SparkSession:
    session: SparkSession = SparkSession.builder.config(map=SPARK).getOrCreate()
    return session


@pytest.mark.parametrize("passed", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_session_of_the_users_is_never_stopped(worlds: list[World], passed: bool) -> None:
    session = theirs()
    for world in worlds[:2]:
        with application(world, session if passed else None) as app:
            app.process_available()
    assert session.range(3).count() == 3
    session.stop()


TIME_ZONE = "spark.sql.session.timeZone"
SET = {TIME_ZONE: "Asia/Tokyo", "spark.sql.codegen.wholeStage": "true"}


@pytest.mark.parametrize("passed", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_session_of_the_users_keeps_its_settings(worlds: list[World], passed: bool) -> None:
    session = theirs()
    for name, value in SET.items():
        session.conf.set(name, value)
    before = session.conf.getAll
    with application(worlds[0], session if passed else None) as app:
        app.process_available()
        assert session.conf.getAll == before
    assert session.conf.getAll == before
    session.stop()


def test_settings_that_are_asked_for_hold_in_a_session_beside_the_users(worlds: list[World]) -> None:
    session = theirs()
    session.conf.set(TIME_ZONE, "Asia/Tokyo")
    builder = cs.StreamsBuilder()
    words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
    zones: list[str | None] = []
    words.for_each_batch(lambda records, batch: zones.append(records.sparkSession.conf.get(TIME_ZONE)))
    topology = builder.build()
    for number, asked in enumerate([{TIME_ZONE: "Europe/Berlin"}, {}]):
        worlds[0].append("words", [("k", f"v{number}", number)])
        with cs.SparkStreams(topology, worlds[0].config(spark={**SPARK, **asked})) as app:
            app.process_available()
    assert zones == ["Europe/Berlin", "Asia/Tokyo"]
    assert session.conf.get(TIME_ZONE) == "Asia/Tokyo"
    session.stop()


def test_jobs_of_the_users_keep_their_group(worlds: list[World]) -> None:
    """`process_available` runs its batches in the thread that calls it."""
    session = theirs()
    context = session.sparkContext
    context.setJobGroup("mine", "my report", interruptOnCancel=True)
    inside: list[tuple[str | None, ...]] = []
    names = ["jobGroup.id", "job.description", "job.interruptOnCancel"]

    def properties() -> tuple[str | None, ...]:
        properties = [f"spark.{name}" for name in names] + [BATCH_PROPERTY]
        return tuple(map(context.getLocalProperty, properties))

    before = properties()
    with application(worlds[0], session) as app:
        app.on_progress(lambda progress: inside.append(properties()))
        app.process_available()
    assert [*inside, properties()] == [before, before] == [("mine", "my report", "true", None)] * 2
    session.stop()


def test_a_session_that_is_passed_on_is_the_users(worlds: list[World]) -> None:
    first = application(worlds[0])
    first.process_available()
    session = theirs()  # the one that was made for the first
    second = application(worlds[1], session)
    first.stop()
    second.process_available()
    second.stop()
    assert session.range(3).count() == 3
    session.stop()


def test_a_user_who_stops_the_session_is_told(worlds: list[World]) -> None:
    apps = [application(world) for world in worlds]
    for app in apps[:2]:
        app.process_available()
    theirs().stop()
    worlds[0].append("words", [("k", "b", 2)])
    with pytest.raises(cs.ConfigError) as caught:
        apps[0].process_available()
    assert caught.value.code == "CS-232"
    assert apps[0].status == "failed"
    apps[2].process_available()  # in a session of its own
    for app in apps[:2]:
        app.stop()
    worlds[2].append("words", [("k", "c", 3)])
    apps[2].process_available()
    with application(worlds[0]) as mended:
        mended.process_available()
    assert worlds[0].table("loud") == {"k": "B"}
    apps[2].stop()
    assert not has_session()


@pytest.mark.parametrize("how", [cs.SparkStreams.start, cs.SparkStreams.process_available])
def test_a_stopped_session_is_refused(worlds: list[World], how: Callable[[cs.SparkStreams], None]) -> None:
    session = theirs()
    app = application(worlds[0], session)
    session.stop()
    assert is_stopped(session.sparkContext)
    with pytest.raises(cs.ConfigError) as caught:
        how(app)
    assert caught.value.code == "CS-232"
    with pytest.raises(cs.ConfigError) as caught:
        application(worlds[0], session)
    assert caught.value.code == "CS-232"


def test_a_session_that_is_stopped_during_a_batch(worlds: list[World], tmp_path: Path) -> None:
    session, begun = theirs(), tmp_path / "begun"

    def slow(text: str) -> str:
        begun.touch()
        time.sleep(5)
        return text

    builder = cs.StreamsBuilder()
    words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
    words.map_values(slow).to("loud", cs.Produced(key=TEXT, value=TEXT))
    app = cs.SparkStreams(builder.build(), worlds[0].config(), session)
    app.start()
    while not begun.exists():
        time.sleep(0.05)
    session.sparkContext._jsc.stop()  # as session.stop() does first; the batch fails before that goes on
    with pytest.raises(cs.ConfigError) as caught:
        app.await_termination(60)
    assert caught.value.code == "CS-232"
    app.stop()
    session.stop()


KILLED = """
import sys
from pathlib import Path

from pyspark import SparkContext

import crossstream as cs
from tests.spark.test_sessions import application, begin, theirs
from tests.spark.world import World

first, second = (World(Path(sys.argv[1]) / name, name) for name in "AB")
session = theirs() if sys.argv[2] == "passed" else None
started = sys.argv[3] == "started"


def tell(act):
    try:
        print(act())
    except cs.CrossStreamError as error:
        print(type(error).__name__, error.code)


def result_of(app, value):
    first.append("words", [("k", value, 1)])
    begin(app, started=started)
    return first.table("loud")["k"]


def kill_jvm():
    SparkContext._gateway.proc.kill()
    SparkContext._gateway.proc.wait()


app, beside = application(first, session), application(second, session)
begin(beside, started=False)
begin(app, started=started)
kill_jvm()
tell(lambda: result_of(app, "b"))
print(app.status)
tell(beside.stop)
tell(lambda: application(first, session).status)
for value in "cd":
    with application(first) as app:
        tell(lambda: result_of(app, value))
    kill_jvm()
"""


@pytest.mark.parametrize(
    ("passed", "how"),
    [
        ("made", "started"),
        ("passed", "called"),
        pytest.param("made", "called", marks=pytest.mark.nightly),
        pytest.param("passed", "started", marks=pytest.mark.nightly),
    ],
)
def test_a_jvm_that_was_killed(worlds: list[World], passed: str, how: str) -> None:
    """A new application of the process is refused, with a session and without: the process starts again."""
    command = [sys.executable, "-c", KILLED, str(worlds[0].root.parent), passed, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    status = "created" if passed == "made" else "ProcessingError CS-590"
    assert done.stdout.splitlines() == [
        "ProcessingError CS-590",
        "failed",
        "None",
        status,
        *["ProcessingError CS-590"] * 2,
    ]


FAILING = """
import sys
import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()


def unlucky(value):
    return 1 // 0


builder = cs.StreamsBuilder()
words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
words.map_values(unlucky).to("loud", cs.Produced(key=TEXT, value=TEXT))
for more in ({"spark.log.level": "ERROR"}, {}):
    config = cs.StreamsConfig(
        application_id="A",
        topics_dir=sys.argv[1] + "/topics",
        state_dir=sys.argv[1] + "/state",
        spark={"spark.master": "local[1]", "spark.ui.enabled": "false", **more},
    )
    with cs.SparkStreams(builder.build(), config) as app:
        try:
            app.process_available()
        except cs.ProcessingError as error:
            print(error.code, "in unlucky" in str(error.__cause__))
    print("the next session", file=sys.stderr, flush=True)
"""


def test_what_the_error_tells_spark_does_not_log_too(worlds: list[World]) -> None:
    """In a session of crossstream's own, unless it was told how much is to be logged."""
    command = [sys.executable, "-c", FAILING, str(worlds[0].root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    assert done.stdout.splitlines() == ["CS-501 True"] * 2
    loud, _, quiet = done.stderr.partition("the next session")
    for logged in ("ERROR Executor", "ERROR TaskSetManager", "Traceback"):
        assert logged in loud
        assert logged not in quiet
