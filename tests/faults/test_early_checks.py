"""What can be known in a second stops a start before Spark is started."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application import inputs as connections
from crossstream.application.inputs import check_written
from crossstream.spark import session as spark_session
from tests.faults.one_process import process
from tests.spark.world import World

TEXT = serdes.string()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.create(rows=1, out=1)
    return made


def topology(
    store: str = "rows", topic: str = "rows", change: Callable[[str], str] = str.upper
) -> cs.Topology:
    builder = cs.StreamsBuilder()
    rows = builder.table(topic, cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store=store))
    rows.to_stream().map_values(change).to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> NoReturn:
        pytest.fail("Spark is asked for")

    monkeypatch.setattr(spark_session.SHARED, "use", refuse)


def refused(made: cs.Topology, config: cs.StreamsConfig) -> cs.CrossStreamError:
    """What both ways to start raise; the state is free afterwards."""
    found = []
    for start in (cs.SparkStreams.start, cs.SparkStreams.process_available):
        with pytest.raises(cs.CrossStreamError) as caught, cs.SparkStreams(made, config) as app:
            start(app)
        found.append(caught.value)
    assert str(found[0]) == str(found[1])
    assert found[0].next
    return found[0]


@pytest.mark.usefixtures("no_spark")
def test_an_input_topic_that_is_missing(world: World) -> None:
    error = refused(topology(topic="rosw"), world.config())
    assert error.code == "CS-602"
    assert "'rosw' does not exist" in error.what
    assert "test_early_checks.py" in error.where["line"]


@pytest.mark.usefixtures("no_spark")
def test_a_function_that_holds_a_lock(world: World) -> None:
    lock = threading.Lock()

    def change(value: str) -> str:
        with lock:
            return value

    error = refused(topology(change=change), world.config())
    assert error.code == "CS-112"
    assert error.where["operator"] == "rows.to_stream.map_values"
    assert "test_early_checks.py" in error.where["line"]


@pytest.mark.usefixtures("no_spark")
def test_a_state_folder_of_another_application(world: World) -> None:
    process(topology(), world.config())
    error = refused(topology(), world.config(application_id="other"))
    assert (error.code, error.where["application"]) == ("CS-720", "other")


@pytest.mark.usefixtures("no_spark")
def test_a_topology_that_the_state_does_not_fit(world: World) -> None:
    world.append("rows", [("a", "v", 1)])
    process(topology(), world.config())
    error = refused(topology(store="lines"), world.config())
    assert error.code == "CS-750"
    assert "store lines is new" in error.what


@pytest.mark.usefixtures("no_spark")
def test_a_state_folder_that_lacks_its_commits(world: World) -> None:
    for key in ("a", "b"):
        world.append("rows", [(key, "v", 1)])
        process(topology(), world.config())
    for path in (world.state_dir / "commits").iterdir():
        path.unlink()
    assert refused(topology(), world.config()).code == "CS-701"


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No JVM runs, and none is started; nothing says where Spark or Java is."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_API_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(spark_session.SparkContext, "_gateway", None)
    monkeypatch.setattr(spark_session.SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(
        spark_session.SparkSession.Builder, "getOrCreate", lambda builder: pytest.fail("starts")
    )
    return monkeypatch


def test_java_that_is_not_in_java_home(world: World, no_jvm: pytest.MonkeyPatch) -> None:
    no_jvm.setenv("JAVA_HOME", str(world.root))
    error = refused(topology(), world.config())
    assert error.code == "CS-230"
    assert error.what == f"there is no Java in JAVA_HOME ({world.root})"


def test_no_java_at_all(world: World, no_jvm: pytest.MonkeyPatch) -> None:
    no_jvm.delenv("JAVA_HOME", raising=False)
    no_jvm.setenv("PATH", str(world.root))
    error = refused(topology(), world.config())
    assert (error.code, error.what) == ("CS-230", "there is no Java on this machine")
    assert "install Java 17" in (error.next or "")


def java_in(folder: Path, version: str, below: str = "bin") -> Path:
    """A folder with a program called java, and what an installation notes of its version."""
    (folder / below).mkdir(parents=True)
    (folder / below / "java").write_text("#!/bin/sh\nexit 1\n")
    os.chmod(folder / below / "java", 0o700)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(("version", "number"), [("11.0.20", 11), ("1.8.0_402", 8)])
def test_java_that_is_too_old(world: World, no_jvm: pytest.MonkeyPatch, version: str, number: int) -> None:
    no_jvm.setenv("JAVA_HOME", str(java_in(world.root / "jdk", version)))
    error = refused(topology(), world.config())
    assert error.code == "CS-230"
    assert f"is Java {number}; Spark needs 17 or later" in error.what


def test_a_jre_of_java_8_lies_one_folder_deeper(world: World, no_jvm: pytest.MonkeyPatch) -> None:
    no_jvm.setenv("JAVA_HOME", str(java_in(world.root / "jdk", "1.8.0_402", "jre/bin") / "jre"))
    assert "is Java 8;" in refused(topology(), world.config()).what


def test_java_is_not_looked_for_where_a_script_of_spark_may_name_it(
    tmp_path: Path, no_jvm: pytest.MonkeyPatch
) -> None:
    no_jvm.setenv("JAVA_HOME", str(tmp_path))
    for name, folder in (("SPARK_HOME", tmp_path / "conf"), ("SPARK_CONF_DIR", tmp_path)):
        with no_jvm.context() as patch:
            folder.mkdir(exist_ok=True)
            (folder / "spark-env.sh").write_text("JAVA_HOME=/opt/java\n")
            patch.setenv(name, str(tmp_path))
            spark_session.check_java()
    no_jvm.setenv("PYSPARK_GATEWAY_PORT", "1")
    spark_session.check_java()


@pytest.mark.parametrize(
    ("settings", "environment", "named"),
    [
        ({"spark.remote": "sc://host"}, {}, "spark.remote"),
        ({"spark.api.mode": "connect"}, {}, "spark.api.mode"),
        ({"spark.master": "sc://host"}, {}, "spark.master"),
        ({}, {"SPARK_REMOTE": "local"}, "SPARK_REMOTE"),
        ({}, {"SPARK_API_MODE": "Connect"}, "SPARK_API_MODE"),
        ({}, {"SPARK_CONNECT_MODE_ENABLED": "1"}, "SPARK_CONNECT_MODE_ENABLED"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_spark_connect_is_asked_for(
    world: World,
    no_jvm: pytest.MonkeyPatch,
    settings: dict[str, str],
    environment: dict[str, str],
    named: str,
) -> None:
    for name, value in environment.items():
        no_jvm.setenv(name, value)
    error = refused(topology(), world.config(spark=settings))
    assert error.code == "CS-232"
    assert f" {named} asks for a Spark Connect session" in error.what


def test_a_classic_mode_is_none_of_them(no_jvm: pytest.MonkeyPatch) -> None:
    no_jvm.setenv("SPARK_API_MODE", "connect")
    spark_session.check_remote({"spark.api.mode": "classic", "spark.master": "local[2]"})


class Topics:
    """The log of a broker that knows more topics when it is asked again."""

    def __init__(self, *more: str) -> None:
        self.more = more
        self.asked = 0

    def topics(self) -> dict[str, int]:
        self.asked += 1
        return dict.fromkeys(self.more, 1) if self.asked > 2 else {}


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SETTLE_SECONDS", 0.0)


def on_kafka(**settings: Any) -> cs.StreamsConfig:
    return cs.StreamsConfig(application_id="app", bootstrap_servers="nowhere:1", **settings)


def check(config: cs.StreamsConfig, *known: str, more: tuple[str, ...] = ()) -> None:
    log: Any = Topics(*more)
    check_written(topology(), config, log, dict.fromkeys(known, 1))


@pytest.mark.usefixtures("impatience")
def test_an_output_topic_that_is_missing() -> None:
    with pytest.raises(cs.SinkError, match="'out' to write to does not exist") as caught:
        check(on_kafka(), "rows")
    assert caught.value.code == "CS-652"
    assert caught.value.where["operator"] == "rows.to_stream.map_values.to(out)"
    assert "test_early_checks.py" in caught.value.where["line"]


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("setting", ["deserialization_errors", "processing_errors"])
def test_a_dead_letter_topic_that_is_missing(setting: str) -> None:
    with pytest.raises(cs.SinkError, match="'bad' to write to does not exist") as caught:
        check(on_kafka(**{setting: cs.DeadLetter("bad")}), "rows", "out")
    assert (caught.value.code, caught.value.where) == ("CS-652", {"setting": setting})


def test_output_topics_that_are_there_or_will_be(world: World) -> None:
    check(on_kafka(processing_errors=cs.DeadLetter("bad")), "rows", "out", "bad")
    check(on_kafka(), "rows", more=("out",))  # a broker that has not heard of it yet
    check(on_kafka(kafka={"allow.auto.create.topics": "true"}), "rows")
    check(world.config(), "rows")
    with pytest.raises(cs.SinkError):
        check(on_kafka(kafka={"allow.auto.create.topics": "false"}), "rows")
