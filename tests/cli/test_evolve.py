"""`crossstream evolve` and `crossstream state revert`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crossstream.cli import main
from tests.spark.world import World

APP = """
import crossstream as cs
from crossstream import serdes

text = serdes.string()
builder = cs.StreamsBuilder()
words = builder.table("words", cs.Consumed(key=text, value=text))
words.map_values({function}, materialized=cs.Materialized(store="shown", key=text, value=text)).to_stream().to(
    "shown", cs.Produced(key=text, value=text)
)
config = cs.StreamsConfig(application_id="app", topics_dir={topics!r}, engine="local", durable=False)
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create(words=1)
    world.append("words", [("a", "one", 1), ("b", "two", 2), ("c", "three", 3)])
    write(world, "str.upper")
    assert typed(world, "run", "--once", "--state-dir", str(world.state_dir), "--format", "json") == 0
    return world


def write(world: World, function: str) -> None:
    (world.root / "app.py").write_text(APP.format(function=function, topics=str(world.topics_dir)))


def typed(world: World, command: str, *more: str) -> int:
    return main([command, str(world.root / "app.py"), *more])


def evolve(world: World, *more: str) -> int:
    return typed(world, "evolve", str(world.state_dir), *more)


OTHER = "lambda value: value.upper() if len(value) == 3 else value"


def test_the_dry_run_then_the_change(world: World, capfd: Any) -> None:
    assert evolve(world) == 0
    assert "nothing: the state is what the new code needs" in capfd.readouterr().out
    write(world, OTHER)
    assert evolve(world, "--dry-run") == 3
    found = capfd.readouterr().out
    assert "What is sent" in found
    assert world.table("shown") == {"a": "ONE", "b": "TWO", "c": "THREE"}
    assert evolve(world) == 0
    shown = capfd.readouterr()
    assert shown.out == found
    assert "this is batch 1: sent 1 row to topic shown" in shown.err
    assert world.table("shown") == {"a": "ONE", "b": "TWO", "c": "three"}
    assert evolve(world, "--dry-run") == 0
    assert "nothing: the state is what the new code needs" in capfd.readouterr().out


def test_as_json(world: World, capfd: Any) -> None:
    write(world, OTHER)
    capfd.readouterr()
    assert evolve(world, "--dry-run", "--format", "json") == 3
    found = json.loads(capfd.readouterr().out)
    assert (found["rebuilt"], found["committed"], found["nothing_to_do"]) == (["shown"], None, False)
    assert evolve(world, "--format", "json") == 0
    done = json.loads(capfd.readouterr().out)
    assert (done["committed"], list(done["sent"].values())) == (1, [1])


def test_what_is_asked_for(world: World, capfd: Any) -> None:
    capfd.readouterr()
    assert evolve(world, "--dry-run", "--changed", "shown") == 3
    assert evolve(world, "--dry-run", "--all") == 3
    assert evolve(world, "--changed", "nothing of it") == 1
    assert "CS-752" in capfd.readouterr().err
    assert evolve(world, "--changed", "shown") == 0
    assert "sent nothing" in capfd.readouterr().err


def test_it_is_taken_back(world: World, capfd: Any) -> None:
    write(world, OTHER)
    evolve(world)
    folder, app = str(world.state_dir), str(world.root / "app.py")
    capfd.readouterr()
    assert main(["state", "revert", folder]) == 0
    assert "this is batch 2: sent 1 row to topic shown" in capfd.readouterr().err
    assert main(["state", "revert", folder]) == 1
    assert "CS-758" in capfd.readouterr().err
    assert evolve(world) == 0
    assert main(["state", "revert", folder, "--app", app]) == 0
    assert "this is batch 4: sent 1 row to topic shown" in capfd.readouterr().err
    assert world.table("shown") == {"a": "ONE", "b": "TWO", "c": "THREE"}
    write(world, "str.upper")
    assert evolve(world) == 0
    assert "nothing: the state is what the new code needs" in capfd.readouterr().out


def test_no_state(world: World, capfd: Any) -> None:
    assert typed(world, "evolve", str(world.root / "none")) == 1
    assert "CS-713" in capfd.readouterr().err
    assert not (world.root / "none").exists()
