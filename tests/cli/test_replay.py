"""`crossstream replay` and `crossstream state bundle`."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from crossstream.cli.loading import load
from tests.cli.cases import app_file, call
from tests.recompute.world import World

APP = """
import crossstream as cs

config = cs.StreamsConfig(application_id="shop", topics_dir="topics", state_dir="state", partitions=2, durable=False)
JSON = cs.Consumed(key=cs.serdes.string(), value=cs.serdes.json())
builder = cs.StreamsBuilder()
products = builder.table("products", JSON)
merchants = builder.table("merchants", JSON)


def offer(product, merchant):
    price = product["price"]
    return {"price": price, "shop": merchant["name"]}


promotions = products.join(
    merchants,
    offer,
    foreign_key=lambda product: product["merchant"],
    materialized=cs.Materialized(store="promotions"),
)
promotions.to_stream().to("promotions", cs.Produced(key=cs.serdes.string(), value=cs.serdes.json()))
"""
SAME = "it gives what it gave, byte for byte\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    made = World(tmp_path, load(str(app_file(tmp_path, APP))).topology)
    made.process(
        [
            ("products", "p1", {"price": 5, "merchant": "m1"}, 1),
            ("products", "p2", {"price": 6, "merchant": "m2"}, 2),
            ("merchants", "m1", {"name": "Bell"}, 3),
        ],
        [("merchants", "m1", {"name": "Boole"}, 20), ("products", "p2", {"price": 7, "merchant": "m1"}, 21)],
    )
    return made


def test_summary(capsys: Any, world: World) -> None:
    outcome = call(capsys, "replay", "app.py", "state", "--batch", 0)
    assert outcome.code == 0
    assert outcome.err.startswith("batch 0, ")
    assert " UTC, on empty state, partitions: 2, 3 records\n" in outcome.err
    assert outcome.err.endswith(SAME)
    assert [line.split() for line in outcome.out.splitlines()[2:]] == [
        ["read", "products", "2"],
        ["read", "merchants", "1"],
        ["written", "merchants@2", "1"],
        ["written", "products.join(merchants).references", "2"],
        ["written", "products.join(merchants).subscriptions", "2"],
        ["written", "promotions", "1"],
        ["sent", "promotions", "1"],
    ]


def test_as_json(capsys: Any, world: World) -> None:
    outcome = call(capsys, "replay", "app.py", "state", "--batch", 1, "--format", "json")
    assert outcome.lines[0] == {"step": "read", "name": "products", "rows": 1}
    assert outcome.lines[-1] == {"step": "sent", "name": "promotions", "rows": 2}


def test_a_key(capsys: Any, world: World) -> None:
    outcome = call(capsys, "replay", "app.py", "state", "--batch", 1, "--key", "p2", "--format", "json")
    assert outcome.code == 0
    assert [(line["step"], line["key"], line["value"]) for line in outcome.lines] == [
        ("read", "p2", {"price": 7, "merchant": "m1"}),
        ("after", "p2", {"price": 7, "shop": "Boole"}),
        ("sent", "p2", {"price": 7, "shop": "Boole"}),
    ]
    of_p1 = call(capsys, "replay", "app.py", "state", "--batch", 1, "--key", "p1")
    assert [line.split()[:2] for line in of_p1.out.splitlines()[2:]] == [
        ["before", "promotions"],
        ["after", "promotions"],
        ["sent", "promotions,"],
    ]
    nothing = call(capsys, "replay", "app.py", "state", "--batch", 1, "--key", "p9")
    assert "the batch has nothing about 'p9'\n" in nothing.err


def test_results_in_a_file(capsys: Any, world: World, tmp_path: Path) -> None:
    outcome = call(capsys, "replay", "app.py", "state", "--batch", 1, "--output", "out.jsonl")
    assert "2 results written to out.jsonl\n" in outcome.err
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    topic = call(capsys, "topics", "read", "promotions", "--topics-dir", "topics").lines[1:]
    assert lines == [
        {"topic": "promotions", **{k: v for k, v in one.items() if k != "offset"}} for one in topic
    ]
    refused = call(capsys, "replay", "app.py", "state", "--batch", 1, "--output", "no/such/out.jsonl")
    assert (refused.code, "[CS-270]" in refused.err) == (1, True)


def test_what_differs(capsys: Any, world: World, tmp_path: Path) -> None:
    app_file(tmp_path, APP.replace('"shop": merchant["name"]', '"shop": merchant["name"].upper()'), "new.py")
    outcome = call(capsys, "replay", "new.py", "state", "--batch", 1)
    assert outcome.code == 1
    assert '{"price":5,"shop":"Boole"}  {"price":5,"shop":"BOOLE"}' in outcome.out
    assert "store promotions: 2 rows differ\ntopic promotions: 2 rows differ\n" in outcome.err
    assert "it gives something else than it did\n" in outcome.err
    place = f"products.join(merchants) ({tmp_path}/new.py:16)"
    assert outcome.err.endswith(
        f"{place}: its function gives other results than it did: it was changed since, or depends on more than its "
        "arguments\n"
    )
    few = call(capsys, "replay", "new.py", "state", "--batch", 1, "--max", 1, "--format", "json")
    assert few.lines[-1]["ours"]["shop"] == "BOOLE"
    assert "3 more rows that differ: --max shows more\n" in few.err


def test_a_function_that_varies(capsys: Any, world: World, tmp_path: Path) -> None:
    varies = "import itertools\nCOUNT = itertools.count()\n" + APP.replace(
        '"price": price', '"price": next(COUNT)'
    )
    app_file(tmp_path, varies, "new.py")
    outcome = call(capsys, "replay", "new.py", "state", "--batch", 1)
    assert outcome.code == 1
    assert "products.join(merchants) (" in outcome.err
    assert ": a function that gives other results each time: {" in outcome.err


def test_a_bundle_elsewhere(capsys: Any, world: World, tmp_path: Path) -> None:
    packed = call(capsys, "state", "bundle", "state", "--batch", 1, "--topics-dir", "topics")
    assert packed.code == 0
    assert packed.err.startswith("packing batch 1: 0.0 MB of state, 2 records\n")
    assert "crossstream replay app.py shop-1.bundle --batch 1" in packed.err
    in_place = call(capsys, "replay", "app.py", "state", "--batch", 1, "--key", "p2")
    shutil.rmtree("topics")
    shutil.rmtree("state")
    there = call(capsys, "replay", "app.py", "shop-1.bundle", "--batch", 1, "--key", "p2")
    assert (there.code, there.out) == (0, in_place.out)
    assert there.err.endswith(SAME)


def test_where_the_topics_are(capsys: Any, world: World, tmp_path: Path) -> None:
    outcome = call(capsys, "state", "bundle", "state", "--batch", 1)
    assert (outcome.code, "[CS-203]" in outcome.err, "--app app.py" in outcome.err) == (1, True, True)
    by_app = call(
        capsys, "state", "bundle", "state", "--batch", 1, "--app", "app.py", "--output", "my.bundle"
    )
    assert (by_app.code, (tmp_path / "my.bundle").is_file()) == (0, True)


def test_refused(capsys: Any, world: World) -> None:
    later = call(capsys, "replay", "app.py", "state", "--batch", 7)
    assert (later.code, "[CS-714]" in later.err) == (1, True)
    assert call(capsys, "replay", "app.py", "state").code == 2
    alone = call(capsys, "replay", "app.py", "state", "--batch", 1, "--at", "offer")
    assert (alone.code, "--at works with --pdb only" in alone.err) == (2, True)


# -- the debugger ----------------------------------------------------------------------------------------------


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is typed at the prompt of the debugger."""
    return lambda *lines: monkeypatch.setattr(
        "sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines))
    )


def test_stops_at_a_key(capsys: Any, world: World, typed: Any) -> None:
    typed("p product, merchant", "n", "p price", "c")
    outcome = call(capsys, "replay", "app.py", "state", "--batch", 1, "--key", "p2", "--pdb", "--at", "offer")
    assert outcome.code == 0
    assert "({'price': 7, 'merchant': 'm1'}, {'name': 'Boole'})" in outcome.out
    assert "app.py(12)offer()" in outcome.out
    assert "(Pdb) 7\n" in outcome.out
    assert outcome.err.count("a call for the key p2") == 1
    assert outcome.err.endswith(SAME)


def test_stops_where_the_value_of_a_record_comes(capsys: Any, world: World, typed: Any) -> None:
    """The merchant of the key is an argument of the joiner, which is called for products."""
    typed("c", "c")
    outcome = call(
        capsys, "replay", "app.py", "state", "--batch", 1, "--key", "m1", "--pdb", "--at", "promotions"
    )
    assert outcome.err.count("a call for the key p1") == 1
    assert outcome.err.count("a call for the key p2") == 1


def test_stops_at_the_first_call(capsys: Any, world: World, typed: Any) -> None:
    typed("c")
    outcome = call(capsys, "replay", "app.py", "state", "--batch", 0, "--pdb")
    assert (outcome.code, outcome.out.count("-> ")) == (0, 1)


def test_left(capsys: Any, world: World, typed: Any) -> None:
    typed("q")
    outcome = call(capsys, "replay", "app.py", "state", "--batch", 0, "--pdb")
    assert outcome.code == 1
    assert outcome.err.endswith("left the debugger: nothing is compared\n")


def test_no_call(capsys: Any, world: World, typed: Any) -> None:
    typed()
    outcome = call(capsys, "replay", "app.py", "state", "--batch", 0, "--pdb", "--key", "p9")
    assert (outcome.code, "no function was called for the key 'p9'\n" in outcome.err) == (0, True)


def test_after_a_failure(capsys: Any, world: World, typed: Any, tmp_path: Path) -> None:
    app_file(tmp_path, APP.replace('merchant["name"]', 'merchant["nmae"]'), "bad.py")
    typed("p merchant", "q")
    outcome = call(capsys, "replay", "bad.py", "state", "--batch", 0, "--pdb", "--at", "offer", "--key", "p9")
    assert outcome.code == 1
    assert "{'name': 'Bell'}\n" in outcome.out
    assert "its function raised KeyError for the key p1\n" in outcome.err


def test_nothing_to_stop_in(capsys: Any, world: World, typed: Any) -> None:
    outcome = call(capsys, "replay", "app.py", "state", "--batch", 0, "--pdb", "--at", "nowhere")
    assert outcome.code == 2
    assert "no operator or Python function is 'nowhere'" in outcome.err
    assert "products.join(merchants): offer, foreign_key" in outcome.err
