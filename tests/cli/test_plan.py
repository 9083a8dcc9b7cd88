"""`crossstream plan --against STATE_DIR`: what it says is what a start then does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.cli.loading import load
from tests.cli.cases import app_file, call
from tests.faults.one_process import process
from tests.spark.world import World

BEFORE = """
import crossstream as cs
from crossstream import serdes

TEXT = cs.Consumed(key=serdes.string(), value=serdes.string())
config = cs.StreamsConfig(application_id="shop", topics_dir="elsewhere")
builder = cs.StreamsBuilder()
names = builder.table("names", TEXT, cs.Materialized(store="names"))
words = builder.stream("words", TEXT)
words.group_by_key().count(materialized=cs.Materialized(store="counts"))
"""
FITS = BEFORE.replace("words.group", "builder.stream('more', TEXT).foreach(print)\nwords.group")
CHANGED = BEFORE.replace("value=serdes.string()", "value=serdes.json()")
NEW = BEFORE + 'builder.table("extra", TEXT, cs.Materialized(store="extra"))\n'
GONE = "".join(line for line in BEFORE.splitlines(True) if not line.startswith("names"))
OTHER = BEFORE.replace('"shop"', '"other"')


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path / "world")
    found.create(words=1, names=2, more=1, extra=1)
    found.append("words", [("a", "x", 1), ("a", "x", 2), ("b", "x", 3)])
    found.append("names", [("a", "Ada", 1)])
    start(found, tmp_path, BEFORE)
    return found


def start(world: World, folder: Path, text: str, **settings: Any) -> None:
    loaded = load(str(app_file(folder, text)))
    name = "other" if loaded.config is not None and loaded.config.application_id == "other" else "shop"
    process(loaded.topology, world.config(application_id=name, **settings))


def plan(capsys: pytest.CaptureFixture[str], world: World, folder: Path, text: str) -> tuple[int, Any]:
    file = app_file(folder, text)
    outcome = call(capsys, "plan", file, "--against", world.state_dir, "--json")
    return outcome.code, json.loads(outcome.out)


@pytest.mark.parametrize(
    ("text", "stores", "topics", "code"),
    [
        (BEFORE, {"unchanged"}, {"names": "continues", "words": "continues"}, None),
        (FITS, {"unchanged"}, {"names": "continues", "words": "continues", "more": "begins"}, None),
        (CHANGED, {"unchanged", "changed"}, {"names": "continues", "words": "continues"}, "CS-750"),
        (
            NEW,
            {"unchanged", "new"},
            {"names": "continues", "words": "continues", "extra": "begins"},
            "CS-750",
        ),
        (GONE, {"unchanged", "gone"}, {"names": "gone", "words": "continues"}, "CS-750"),
        (OTHER, {"unchanged"}, {"names": "continues", "words": "continues"}, "CS-720"),
    ],
)
def test_what_it_says_is_what_a_start_does(
    world: World,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    stores: set[str],
    topics: dict[str, str],
    code: str | None,
) -> None:
    exit_code, said = plan(capsys, world, tmp_path, text)
    assert {one["change"] for one in said["stores"]} == stores
    assert {one["topic"]: one["change"] for one in said["topics"]} == topics
    assert (exit_code, said["starts"]) == (0 if code is None else 1, code is None)
    if code is None:
        start(world, tmp_path, text)
    else:
        assert said["refused"]["code"] == code
        with pytest.raises(cs.StateError, match=code) as error:
            start(world, tmp_path, text)
        assert said["refused"]["what"] == error.value.what


def test_for_people(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = call(capsys, "plan", app_file(tmp_path, NEW), "--against", world.state_dir)
    lines = [line.split() for line in outcome.out.splitlines()]
    assert ["extra", "new", "-", "key-value/string/string/None"] in lines
    assert ["names", "continues", "names", "0:", "0,", "1:", "1"] in lines or [
        "names", "continues", "names", "0:", "1,", "1:", "0",
    ] in lines  # fmt: skip
    assert "would not start on this state: [CS-750]" in outcome.err
    outcome = call(capsys, "plan", app_file(tmp_path, FITS), "--against", world.state_dir)
    assert "it reads more from the beginning" in outcome.err


def test_it_writes_nothing_and_needs_state(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in world.state_dir.rglob("*")}
    plan(capsys, world, tmp_path, NEW)
    assert {path: path.stat().st_mtime_ns for path in world.state_dir.rglob("*")} == before
    outcome = call(capsys, "plan", app_file(tmp_path, NEW), "--against", tmp_path / "none")
    assert (outcome.code, "CS-713" in outcome.err) == (1, True)
