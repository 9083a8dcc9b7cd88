"""What a newcomer's mistakes are answered with, and how soon. ``UPDATE_GOLDEN=1`` writes the texts; read them again."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

import crossstream as cs
from crossstream.spark import session
from tests.golden.mistakes import JAVA, MISTAKES, Place

TEXTS = Path(__file__).parent / "mistakes.txt"
SECONDS = 1.0


def pinned() -> dict[str, str]:
    parts = re.split(r"^## (.*)\n", TEXTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


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


def answer(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> tuple[str, float]:
    """The error of a mistake, without what differs from run to run, and the seconds that it took."""
    if name in JAVA:
        monkeypatch.setenv("JAVA_HOME", str(java_home(place.folder / "java", JAVA[name])))
    began = time.monotonic()
    with pytest.raises(cs.CrossStreamError) as caught:
        MISTAKES[name](place)
    seconds = time.monotonic() - began
    text = str(caught.value).replace(str(place.folder), "FOLDER")
    text = re.sub(r"\S*mistakes\.py:\d+", "mistakes.py", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:7077", text)
    text = re.sub(r"(process|pid) \d+", r"\1 N", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text), seconds


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_at_once(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    text, seconds = answer(name, place, monkeypatch)
    if os.environ.get("UPDATE_GOLDEN"):
        known = {**(pinned() if TEXTS.exists() else {}), name: text}
        kept = "".join(f"## {one}\n\n{known[one]}\n\n" for one in MISTAKES if one in known)
        TEXTS.write_text(kept.rstrip() + "\n", encoding="utf-8")
    assert text == pinned()[name]
    assert "next:" in text
    assert seconds < SECONDS


def test_every_text_is_of_a_mistake() -> None:
    assert list(pinned()) == list(MISTAKES)
    assert len(MISTAKES) >= 40
