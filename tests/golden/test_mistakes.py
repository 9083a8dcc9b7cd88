"""What a newcomer's mistakes are answered with, and how soon. ``UPDATE_GOLDEN=1`` writes the texts; read them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossstream.spark import session
from tests.golden.answers import SECONDS, Answers, answer
from tests.golden.mistakes import JAVA, MISTAKES, Place

ANSWERS = Answers(Path(__file__).parent / "mistakes.txt", MISTAKES)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Nothing starts a JVM, and nothing says where Spark is."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_API_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(session.SparkContext, "_gateway", None)
    monkeypatch.setattr(session.SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(
        session.SparkSession.Builder, "getOrCreate", lambda builder: pytest.fail("Spark is started")
    )
    return Place(tmp_path)


def java_home(folder: Path, version: str) -> Path:
    if version:
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "java").write_text("#!/bin/sh\n")
        (folder / "bin" / "java").chmod(0o755)
        (folder / "release").write_text(f'JAVA_VERSION="{version}.0.1"\n')
    return folder


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_at_once(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in JAVA:
        monkeypatch.setenv("JAVA_HOME", str(java_home(place.folder / "java", JAVA[name])))
    text, seconds = answer(lambda: MISTAKES[name](place), place.folder)
    ANSWERS.check(name, text)
    assert seconds.wall < SECONDS


def test_every_text_is_of_a_mistake() -> None:
    assert list(ANSWERS.pinned()) == list(MISTAKES)
    assert len(MISTAKES) >= 40
