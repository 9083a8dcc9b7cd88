"""``engine="local"``: batches in the process of the application, without Spark."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.cli.arguments import make_parser
from crossstream.cli.begin import main
from crossstream.errors import ConfigError, SourceError
from crossstream.jvm import EarlyJvm
from crossstream.spark.session import has_session
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import BatchEntry
from tests.spark.world import World

TEXT, NUMBER = serdes.string(), serdes.int64()
BOTH = cs.Consumed(key=TEXT, value=TEXT)


def counting() -> cs.Topology:
    builder = cs.StreamsBuilder()
    words = builder.stream("words", BOTH)
    counts = words.group_by_key().count(store="counts")
    counts.to_stream().to("counts", cs.Produced(key=TEXT, value=NUMBER))
    return builder.build()


def counted(world: World) -> dict[str, int]:
    return {one.key: one.value for one in world.read("counts", value=NUMBER)}


@pytest.mark.parametrize("single_task_rows", [0, 10_000])
def test_results_are_in_the_topics_and_the_state(tmp_path: Path, single_task_rows: int) -> None:
    world = World(tmp_path)
    world.create(words=2, counts=2)
    config = world.config(engine="local", single_task_rows=single_task_rows, partitions=3)
    for keys in ("aab", "ac"):
        world.append("words", [(key, "x", 1) for key in keys])
        with cs.SparkStreams(counting(), config) as app:
            app.process_available()
            assert app.spark_ui_address is None
            stored = dict(app.store("counts").all())
        assert app.status == "stopped"
    assert stored == counted(world) == {"a": 3, "b": 1, "c": 1}


def test_it_runs_in_the_background(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(words=1, counts=1)
    with cs.SparkStreams(counting(), world.config(engine="local")) as app:
        app.start()
        world.append("words", [("a", "x", 1)])
        app.process_available()
        assert app.status == "running"
        assert counted(world) == {"a": 1}


def test_functions_are_not_copied(tmp_path: Path) -> None:
    """They run in this process, so they may hold what cannot be sent to another one."""
    world, seen = World(tmp_path), []
    world.create(words=1, out=1)
    world.append("words", [("a", "x", 1)])
    builder = cs.StreamsBuilder()
    builder.stream("words", BOTH).peek(lambda key, value: seen.append(key)).to("out")
    with cs.SparkStreams(builder.build(), world.config(engine="local")) as app:
        app.process_available()
    assert seen == ["a"]


def test_neither_pyspark_nor_java_is_needed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(words=1, counts=1)
    world.append("words", [("a", "x", 1)])
    script = f"""
import sys
import crossstream as cs
from tests.application.test_local import counting
for name in [name for name in sys.modules if name.startswith("pyspark")]:
    del sys.modules[name]
config = cs.StreamsConfig(application_id="app", topics_dir={str(world.topics_dir)!r},
                          state_dir={str(tmp_path / "state")!r}, engine="local")
with cs.SparkStreams(counting(), config) as app:
    app.process_available()
    print(dict(app.store("counts").all()), "pyspark" in sys.modules)
"""
    environment = {"PATH": "", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.stdout == "{'a': 1} False\n", done.stderr


def refused(builder: cs.StreamsBuilder, world: World) -> None:
    with pytest.raises(ConfigError) as caught:
        cs.SparkStreams(builder.build(), world.config(engine="local"))
    error = caught.value
    assert error.code == "CS-201"
    assert 'engine="local"' in error.what
    assert error.where["setting"] == "engine"
    assert str(error.where["line"]).startswith(__file__)
    assert error.next


@pytest.mark.parametrize("parallel", [False, True])
def test_a_function_with_dataframes_is_refused(tmp_path: Path, parallel: bool) -> None:
    builder = cs.StreamsBuilder()
    builder.stream("words", BOTH).for_each_batch(lambda frame, batch: None, parallel=parallel)
    refused(builder, World(tmp_path))


def test_a_dataframe_source_is_refused(spark: Any, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load().selectExpr("string(value) key", "string(value) value")
    builder = cs.StreamsBuilder()
    builder.stream_from(rows, BOTH).to("out")
    refused(builder, World(tmp_path))


def test_a_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        cs.SparkStreams(counting(), World(tmp_path).config(engine="local"), object())  # type: ignore[arg-type]
    assert caught.value.code == "CS-232"
    assert str(caught.value.where["line"]).startswith(__file__)


def test_another_engine_does_not_exist() -> None:
    with pytest.raises(ConfigError) as caught:
        cs.StreamsConfig(application_id="app", engine="flink")  # type: ignore[arg-type]
    assert caught.value.code == "CS-201"
    assert caught.value.next == "choose 'spark' or 'local'"


def test_errors_of_ours_stay_and_others_get_a_code() -> None:
    rounds, ours = LocalRounds(), SourceError("gone", code="CS-601")
    assert rounds.ours(ours) is ours
    other = rounds.ours(ValueError("no"))
    assert (other.code, "ValueError: no" in other.what) == ("CS-590", True)
    assert rounds.lost_worker(ValueError("no")) is None


def test_the_place_of_an_error_is_what_it_is_on_spark() -> None:
    """A key is text, whatever its type: who reads errors need not know the engine."""
    where = {"partition": 1, "key": b"\0\1", "offset": None}
    found = LocalRounds().ours(SourceError("gone", code="CS-601", where=where))
    assert found.where == {"partition": 1, "key": str(b"\0\1"), "offset": None}


def test_a_failure_ends_the_application(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(words=1, out=1)
    world.append("words", [("a", "x", 1)])
    builder = cs.StreamsBuilder()
    builder.stream("words", BOTH).map_values(lambda value: 1 / 0).to("out", cs.Produced(key=TEXT, value=TEXT))
    app = cs.SparkStreams(builder.build(), world.config(engine="local"))
    with pytest.raises(cs.ProcessingError) as caught:
        app.process_available()
    assert caught.value.code == "CS-501"
    assert app.status == "failed"
    app.stop()


@pytest.mark.parametrize("by", ["option", "file"])
def test_the_command_line_starts_no_jvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], by: str
) -> None:
    """Where only the file says so, the JVM that began to load meanwhile is ended."""
    world = World(tmp_path)
    world.create(words=1, counts=1)
    world.append("words", [("a", "x", 1)])
    file = tmp_path / "app.py"
    setting = "config = cs.StreamsConfig(application_id='app', engine='local')\n" if by == "file" else ""
    file.write_text(
        "import crossstream as cs\nfrom tests.application.test_local import counting\n"
        f"{setting}topology = counting()\n"
    )
    ended: list[str] = []
    early = type(
        "Early",
        (),
        {"note_environment": lambda self: None, "end": lambda self: ended.append("ended"), "output": -1},
    )()
    monkeypatch.setattr(EarlyJvm, "begin", lambda given: early)
    words = ["run", str(file), "--once", "--topics-dir", str(world.topics_dir)]
    words += ["--state-dir", str(tmp_path / "state"), *(["--engine", "local"] if by == "option" else [])]
    had = has_session()
    assert main(make_parser().parse_args(words)) == 0
    assert has_session() == had
    assert bool(ended) == (by == "file")
    assert counted(world) == {"a": 1}
    assert "Spark" not in capfd.readouterr().err


def test_state_continues_on_the_other_engine(spark: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(words=2, counts=2)
    config = world.config()
    for engine, session in (("local", None), ("spark", spark), ("local", None)):
        world.append("words", [("a", "x", 1), ("b", "x", 1)])
        with cs.SparkStreams(counting(), replace(config, engine=engine), session) as app:  # type: ignore[arg-type]
            app.process_available()
    assert counted(world) == {"a": 3, "b": 3}


def test_rows_of_dataframes_that_wait_are_not_forgotten(tmp_path: Path) -> None:
    """A batch with rows was begun on Spark: this engine cannot repeat it."""
    world = World(tmp_path)
    world.create(words=1, counts=1)
    config = world.config(engine="local")
    with cs.SparkStreams(counting(), config) as app:
        app.process_available()
    log = BatchLog(config.state_path)
    log.lock("app", config.state_rights)
    log.write_batch(BatchEntry(0, (), 0.0, epoch=0))
    log.settled()
    log.unlock()
    with pytest.raises(cs.IncompatibleStateError) as caught, cs.SparkStreams(counting(), config) as app:
        app.process_available()
    assert caught.value.code == "CS-750"
