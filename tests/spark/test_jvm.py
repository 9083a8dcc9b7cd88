"""The JVM of a session: the archive of its classes, and a JVM that starts before its session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crossstream import jvm
from crossstream.jvm import JAVA_OPTIONS, EarlyJvm, archive_of_classes, settings_of
from tests.cli.cases import ENVIRONMENT, app_file
from tests.spark.world import World

SCRIPT = """#!/bin/sh
printf '\\000\\000\\060\\071\\000\\000\\000\\003abc' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
exec cat
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path / "a cache"))


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark whose JVM says where it listens, and waits until its input ends."""
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    for name in jvm._ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    (home / "jars").mkdir()
    (home / "bin" / "spark-submit").write_text(SCRIPT)
    (home / "bin" / "spark-submit").chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", jvm.LAUNCHER_OPTIONS)
    return home


@contextmanager
def begun() -> Iterator[EarlyJvm]:
    """One with an archive. (Not a fixture: pytest changes the environment before it runs the test.)"""
    archive = archive_of_classes()
    assert archive is not None
    archive.touch()
    early = EarlyJvm.begin({"spark.driver.memory": "1g"})
    assert early is not None
    try:
        yield early
    finally:
        early.end()
        early.process.kill()
        early.process.communicate()
        os.close(early.output)


def test_the_first_jvm_writes_the_archive_and_the_next_ones_use_it() -> None:
    archive = archive_of_classes()
    assert archive is not None
    assert f'"-XX:ArchiveClassesAtExit={archive}"' in settings_of({})[JAVA_OPTIONS]
    archive.touch()
    assert f'"-XX:SharedArchiveFile={archive}"' in settings_of({})[JAVA_OPTIONS]


def test_another_spark_has_another_archive(spark_home: Path) -> None:
    before = archive_of_classes()
    os.utime(spark_home / "jars", (1, 1))
    assert archive_of_classes() != before


def test_java_options_of_the_user_stay_unchanged() -> None:
    assert settings_of({JAVA_OPTIONS: "-Xss1m"})[JAVA_OPTIONS] == "-Xss1m"


def test_without_a_cache_there_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a cache").write_text("a file")
    assert archive_of_classes() is None
    assert settings_of({})[JAVA_OPTIONS] == jvm.DEFAULTS[JAVA_OPTIONS]


@pytest.mark.usefixtures("spark_home")
def test_a_process_that_uses_pyspark_begins_no_jvm_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", jvm)
    assert EarlyJvm.begin({JAVA_OPTIONS: ""}) is None


@pytest.mark.usefixtures("spark_home")
def test_a_first_start_begins_no_jvm_early() -> None:
    assert EarlyJvm.begin({}) is None


@pytest.mark.usefixtures("spark_home")
@pytest.mark.parametrize("name", jvm._ELSEWHERE)
def test_where_a_variable_decides_how_spark_starts_no_jvm_begins_early(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    assert EarlyJvm.begin({JAVA_OPTIONS: ""}) is None


@pytest.mark.usefixtures("spark_home")
def test_a_cluster_begins_no_jvm_early() -> None:
    assert EarlyJvm.begin({JAVA_OPTIONS: "", "spark.master": "spark://host:7077"}) is None


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"spark.driver.memory": "1g"}, True),
        (
            {"spark.driver.memory": "1g", "spark.master": "local[3]", "spark.sql.shuffle.partitions": "7"},
            True,
        ),
        ({"spark.driver.memory": "1g", "spark.master": "yarn"}, False),
        ({"spark.driver.memory": "1g", "spark.jars": "a.jar"}, False),
        ({"spark.driver.memory": "4g"}, False),
        ({}, False),
    ],
)
@pytest.mark.usefixtures("spark_home")
def test_it_fits_a_session_with_the_same_settings(settings: dict[str, str], fits: bool) -> None:
    with begun() as early:
        assert early.fits(settings_of(settings)) == fits


@pytest.mark.usefixtures("spark_home")
def test_it_does_not_fit_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers would have that of the JVM."""
    with begun() as early:
        monkeypatch.setenv("SECRET_OF_A_FUNCTION", "x")
        assert not early.fits(settings_of({"spark.driver.memory": "1g"}))
        early.note_environment()  # it was a library
        assert early.fits(settings_of({"spark.driver.memory": "1g"}))


@pytest.mark.usefixtures("spark_home")
def test_one_that_has_ended_does_not_fit() -> None:
    with begun() as early:
        early.process.kill()
        early.process.wait()
        assert not early.fits(settings_of({"spark.driver.memory": "1g"}))


@pytest.mark.usefixtures("spark_home")
def test_an_adopted_one_is_connected_to_and_stays() -> None:
    with begun() as early:
        with early.adopted():
            found = [os.environ[name] for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")]
        assert found == ["12345", "abc"]
        assert "PYSPARK_GATEWAY_PORT" not in os.environ
        early.end()
        assert early.process.poll() is None
        assert not Path(early._folder).exists()


@pytest.mark.usefixtures("spark_home")
def test_where_the_early_one_has_ended_pyspark_starts_another() -> None:
    with begun() as early:
        early.process.kill()
        early.process.wait()
        early._file.unlink(missing_ok=True)
        with early.adopted():
            assert "PYSPARK_GATEWAY_PORT" not in os.environ


@pytest.mark.usefixtures("spark_home")
def test_one_that_was_not_adopted_is_ended() -> None:
    with begun() as early:
        early.end()
        assert early.process.poll() is not None
        assert not Path(early._folder).exists()


APPLICATION = """
import os
import crossstream as cs
from crossstream import serdes

def loud(value):
    is_early = "crossstream-jvm-" in os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]  # inherited from the JVM
    return f"{value.upper()} {is_early} {os.environ.get('SET_BY_THE_FILE')}"

builder = cs.StreamsBuilder()
words = builder.stream("words", cs.Consumed(key=serdes.string(), value=serdes.string()))
words.map_values(loud).to("loud", cs.Produced(key=serdes.string(), value=serdes.string()))
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    "first",
    [pytest.param("", marks=pytest.mark.nightly), 'import os; os.environ["SET_BY_THE_FILE"] = "!"\n'],
    ids=["used", "unfit"],
)
def test_a_run_with_an_early_jvm_and_a_damaged_archive(tmp_path: Path, first: str) -> None:
    """The archive is a file of zeros, as one that is being written; and the file may change what workers see."""
    archive = archive_of_classes()
    assert archive is not None
    archive.write_bytes(bytes(1 << 20))
    world = World(tmp_path / "world", "shouting")
    world.create(words=1, loud=1)
    world.append("words", [("k", "a", 1)])
    done = run(tmp_path, world, first)
    assert done.returncode == 0, done.stderr
    assert world.table("loud") == {"k": "A False !" if first else "A True None"}
    assert [json.loads(line)["rows"] for line in done.stdout.splitlines()] == [1]


def run(folder: Path, world: World, first: str = "") -> subprocess.CompletedProcess[str]:
    options = [
        "--topics-dir",
        str(world.topics_dir),
        "--state-dir",
        str(folder / "state"),
        "--once",
        "--json",
    ]
    command = [
        sys.executable,
        "-m",
        "crossstream",
        "run",
        str(app_file(folder, first + APPLICATION)),
        *options,
    ]
    master = ["--spark", "spark.master=local[1]"]
    environment = {**ENVIRONMENT, "CROSSSTREAM_CACHE": os.environ["CROSSSTREAM_CACHE"]}
    return subprocess.run(
        [*command, *master], env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )


@pytest.mark.spark
@pytest.mark.nightly
def test_an_archive_is_written_and_used(tmp_path: Path) -> None:
    world = World(tmp_path / "world", "shouting")
    world.create(words=1, loud=1)
    archive = archive_of_classes()
    assert archive is not None
    for number in range(2):
        world.append("words", [(f"k{number}", "a", 1)])
        done = run(tmp_path, world)
        assert done.returncode == 0, done.stderr
        end = time.monotonic() + 120
        while not (archive.exists() and archive.stat().st_size) and time.monotonic() < end:
            time.sleep(0.2)
        assert archive.stat().st_size > 10 << 20
    assert world.table("loud") == {"k0": "A False None", "k1": "A True None"}
