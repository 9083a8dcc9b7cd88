"""`crossstream why`, `verify` and `shadow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossstream.catalog.planners import plan_topology
from crossstream.cli.loading import load
from tests.cli.cases import app_file, call
from tests.recompute.test_verify import changed
from tests.recompute.world import World

APP = """
import crossstream as cs

config = cs.StreamsConfig(application_id="shop", topics_dir="topics", state_dir="state", partitions=2, durable=False)
JSON = cs.Consumed(key=cs.serdes.string(), value=cs.serdes.json())
OUT = cs.Produced(key=cs.serdes.string(), value=cs.serdes.json())
builder = cs.StreamsBuilder()
products = builder.table("products", JSON)
merchants = builder.table("merchants", JSON)
promotions = products.join(
    merchants,
    lambda product, merchant: {"price": product["price"], "shop": merchant["name"]},
    foreign_key=lambda product: product["merchant"],
    materialized=cs.Materialized(store="promotions"),
)
promotions.to_stream().to("promotions", OUT)
grouped = builder.stream("clicks", JSON).group_by_key(cs.Grouped(key=cs.serdes.string(), value=cs.serdes.json()))
grouped.windowed_by(cs.TimeWindows(size=10, grace=100)).count(materialized=cs.Materialized(store="clicks"))
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    made = World(tmp_path, load(str(app_file(tmp_path, APP))).topology)
    made.process(
        [
            ("products", "p1", {"price": 5, "merchant": "m1"}, 1),
            ("products", "p2", {"price": 6, "merchant": "m2"}, 2),
            ("merchants", "m1", {"name": "Bell"}, 3),
            ("clicks", "u1", 1, 4),
            ("clicks", "u1", 1, 14),
        ],
        [("merchants", "m1", {"name": "Boole"}, 20)],
    )
    return made


OTHER = """
import crossstream as cs

config = cs.StreamsConfig(application_id="shop", topics_dir="topics", state_dir="state", partitions=2, durable=False)
JSON = cs.Consumed(key=cs.serdes.string(), value=cs.serdes.json())
builder = cs.StreamsBuilder()
products = builder.table("products", JSON, cs.Materialized(store="products"))
products.map_values(lambda product: product["price"] * FACTOR, materialized=cs.Materialized(store="prices"))
"""


def test_a_changed_function_is_found_by_a_sample(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file as it will be, against the state of the one before: what its callables change is known beforehand."""
    monkeypatch.chdir(tmp_path)
    app_file(tmp_path, OTHER.replace("FACTOR", "2"))
    world = World(tmp_path, load("app.py").topology)
    world.process([("products", f"p{number}", {"price": number}, number) for number in range(1, 40)])
    kept = call(capsys, "verify", "app.py", "state", "--sample", "30%")
    assert (kept.code, "all are the same" in kept.err) == (0, True)
    app_file(tmp_path, OTHER.replace("FACTOR", "3"), "new.py")
    found = call(capsys, "verify", "new.py", "state", "--sample", "30%", "--format", "json")
    assert found.code == 1
    assert {line["store"] for line in found.lines} == {"prices"}
    assert all(line["theirs"] * 3 == line["ours"] * 2 for line in found.lines)
    line = next(one for one in found.err.splitlines() if one.startswith("a function gives"))
    assert line.startswith(
        "a function gives other results than those that are stored, of: products.map_values ("
    )
    assert line.endswith("new.py:8)")


def test_why_as_a_tree_and_as_json(capsys: Any, world: World) -> None:
    outcome = call(capsys, "why", "app.py", "state", "promotions", "p1")
    assert outcome.code == 0
    assert outcome.out.startswith('promotions p1: {"price":5,"shop":"Boole"}  (after batch 1)\n')
    assert '"name":"Boole"' in outcome.out
    (line,) = call(
        capsys, "why", "app.py", "state", "promotions", "p1", "--format", "json", "--as-of", 0
    ).lines
    assert line["value"] == {"price": 5, "shop": "Bell"}
    assert {record["topic"] for record in line["records"]} == {"products", "merchants"}


def test_why_of_a_missing_row(capsys: Any, world: World) -> None:
    outcome = call(capsys, "why", "app.py", "state", "promotions", "p2")
    assert outcome.code == 1
    assert "no partner for key m2: merchants: no record with the key m2 has arrived" in outcome.out


def test_why_says_first_that_it_is_not_exact(
    capsys: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossstream.recompute.why.SECONDS", 0.0)
    outcome = call(capsys, "why", "app.py", "state", "promotions", "p1")
    assert outcome.code == 3
    first, second, *_ = outcome.out.splitlines()
    assert first.startswith("not exact: there are many records")
    assert second.startswith("promotions p1: ")
    outcome = call(capsys, "why", "app.py", "state", "promotions", "p1", "--format", "json")
    assert (outcome.code, outcome.out.startswith('{"exact":false,')) == (3, True)
    assert call(capsys, "why", "app.py", "state", "promotions", "p2").code == 1


def test_why_of_a_window(capsys: Any, world: World) -> None:
    outcome = call(capsys, "why", "app.py", "state", "clicks", "u1", "--start", 10, "--format", "json")
    assert [record["timestamp"] for record in outcome.lines[0]["records"]] == [14]
    outcome = call(capsys, "why", "app.py", "state", "clicks", "u1", "--start", 7)
    assert outcome.code == 2
    assert "choose one of: 0, 10" in outcome.err
    assert call(capsys, "why", "app.py", "state", "promotions", "p1", "--start", 7).code == 2


def test_why_without_the_functions(capsys: Any, world: World) -> None:
    outcome = call(capsys, "why", "state", "promotions", "p1")
    assert outcome.code == 0
    assert outcome.out.splitlines()[2:] == [
        '    0  {"price":5,"shop":"Bell"}',
        '    1  {"price":5,"shop":"Boole"}',
    ]
    assert "crossstream why app.py STATE_DIR STORE KEY" in outcome.err
    assert call(capsys, "why", "state", "promotions", "p2").code == 1
    assert call(capsys, "why", "state", "promotions", "p2", "--as-of", 7).code == 1
    assert call(capsys, "why", "state", "promotions").code == 2


def test_verify(capsys: Any, world: World) -> None:
    outcome = call(capsys, "verify", "app.py", "state")
    assert (outcome.code, outcome.out) == (0, "")
    assert "batch 1: 6 records read, 3 rows compared" in outcome.err
    assert "all are the same" in outcome.err
    changed(world.state, plan_topology(world.topology), "promotions", lambda data: data.replace(b"5", b"4"))
    outcome = call(capsys, "verify", "app.py", "state")
    assert outcome.code == 1
    assert outcome.out.splitlines()[2].split() == [
        "promotions",
        "p1",
        '{"price":4,"shop":"Boole"}',
        '{"price":5,"shop":"Boole"}',
    ]
    assert "1 row differs" in outcome.err
    (line,) = call(capsys, "verify", "app.py", "state", "--format", "json").lines
    assert line["theirs"] == {"price": 4, "shop": "Boole"}


def test_verify_a_sample(capsys: Any, world: World) -> None:
    outcome = call(capsys, "verify", "app.py", "state", "--sample", "50%")
    assert outcome.code == 0
    assert "note: all keys are compared, not a sample" in outcome.err
    for wrong in ("0%", "101%", "some"):
        assert call(capsys, "verify", "app.py", "state", "--sample", wrong).code == 2


def test_shadow(capsys: Any, world: World) -> None:
    assert call(capsys, "shadow", "app.py", "--against", "promotions").code == 0
    world.write([("theirs", "p1", {"price": 5, "shop": "Bell"}, 0)])
    outcome = call(capsys, "shadow", "app.py", "--against", "theirs")
    assert outcome.code == 1
    assert "theirs" in outcome.out.splitlines()[0]
    assert "the last record of each key: 1 row compared" in outcome.err
    outcome = call(capsys, "shadow", "app.py", "--against", "theirs", "--as", "stream", "--format", "json")
    assert [line["key"] for line in outcome.lines] == ["p1"]
    assert call(capsys, "shadow", "app.py", "--against", "nothing").code == 1


@pytest.mark.parametrize(
    "argv", [("verify", "app.py", "state"), ("shadow", "app.py", "--against", "promotions")]
)
def test_topics_must_be_known(capsys: Any, world: World, argv: tuple[str, ...]) -> None:
    app_file(world.folder, APP.replace('topics_dir="topics", ', ""))
    outcome = call(capsys, *argv)
    assert outcome.code == 1
    assert "[CS-203]" in outcome.err
    assert call(capsys, *argv, "--topics-dir", "topics").code == 0
