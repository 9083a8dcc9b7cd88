"""The demo: its folder, its application in the test driver, what it prints; and the whole of it on Spark."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import time
from argparse import Namespace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.cli.loading import load
from crossstream.dev import broker
from crossstream.dev.broker import BrokerInfo
from crossstream.dev.demo import MADE, MARK, DemoFolder, DemoTopics, DemoView, _topics, compared, farewell
from crossstream.dev.market import STEPS, Change, Outcome, Step
from crossstream.errors import ConfigError
from tests.cli.cases import ENVIRONMENT, start

ADVICE = re.compile(r"(\S*python\S* -m )?\S*crossstream(?= (query|topics|run|describe) )")
"""How the demo tells to call the command line: as it is installed."""


def expected(changes: list[Change]) -> dict[str, Any]:
    """The join of the tables that all changes so far give."""
    tables: dict[str, dict[str, Any]] = {"products": {}, "merchants": {}}
    for change in changes:
        tables[change.topic][change.key] = change.value
    products = {key: value for key, value in tables["products"].items() if value is not None}
    merchants = {key: value for key, value in tables["merchants"].items() if value is not None}
    return {
        key: {"product": p["name"], "price": p["price"], "shop": merchants[p["merchant_id"]]["display_name"]}
        for key, p in sorted(products.items())
        if p["merchant_id"] in merchants
    }


def test_the_folder_is_made_and_emptied_of_what_the_demo_made(tmp_path):
    folder = DemoFolder(tmp_path / "demo")
    folder.empty()
    folder.write_application()
    (folder.path / "mine.txt").touch()
    (folder.path / "state" / "x").mkdir(parents=True)
    folder.empty()
    assert sorted(entry.name for entry in folder.path.iterdir()) == [MARK, "mine.txt"]


@pytest.mark.parametrize("runs", [True, False])
def test_it_uses_a_broker_that_runs_and_stops_only_its_own(tmp_path, monkeypatch, runs):
    folder, view = DemoFolder(tmp_path), DemoView(io.StringIO())
    info, stopped = BrokerInfo(9099, 7, "/broker"), []
    monkeypatch.setattr(broker, "status", lambda port: info if runs else None)
    monkeypatch.setattr(broker, "start", lambda port: info)
    monkeypatch.setattr(broker, "stop", stopped.append)
    with _topics(Namespace(kafka=True, port=9099), folder, view) as topics:
        assert topics.options == "--bootstrap-servers 127.0.0.1:9099"
        assert topics.restart == (None if runs else "broker start --port 9099")
        assert f"merchants{topics.suffix}" in folder.application.read_text()
        assert stopped == []
    assert stopped == ([] if runs else [9099])


@pytest.mark.parametrize("kind", ["a folder with something in it", "a file"])
def test_somebody_elses_folder_is_left_alone(tmp_path, kind):
    place = tmp_path / "place"
    if kind == "a file":
        place.touch()
    else:
        (place / "topics").mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        DemoFolder(place).empty()
    assert caught.value.code == "CS-281"
    assert place.exists()


def test_an_empty_folder_may_be_used(tmp_path):
    DemoFolder(tmp_path).empty()
    assert (tmp_path / MARK).is_file()


def test_the_application_is_a_file_of_the_users(tmp_path):
    folder = DemoFolder(tmp_path)
    folder.empty()
    folder.write_application()
    loaded = load(str(folder.application))
    assert loaded.config is not None
    assert (loaded.config.topics_path, loaded.config.state_path) == (str(folder.topics), str(folder.state))
    folder.write_application("127.0.0.1:9", "-1")
    loaded = load(str(folder.application))
    assert loaded.config is not None
    assert (loaded.config.servers, loaded.config.topics_path) == ("127.0.0.1:9", None)
    assert {"products-1", "merchants-1"} <= {
        t for node in loaded.topology for t in getattr(node, "topics", ())
    }


def test_the_story_is_true(tmp_path):
    folder = DemoFolder(tmp_path)
    folder.empty()
    folder.write_application()
    done: list[Change] = []
    with cs.TopologyTestDriver(load(str(folder.application)).topology, partitions=2) as driver:
        topics = {
            name: driver.create_input_topic(name, serdes.string(), serdes.json())
            for name in ("products", "merchants")
        }
        for step in STEPS:
            for change in step.changes:
                topics[change.topic].pipe_input(change.key, change.value)
            done += step.changes
            assert dict(driver.get_key_value_store("promotions").all()) == expected(done), step.title


def test_every_step_changes_the_result():
    tables = [
        expected([c for step in STEPS[:count] for c in step.changes]) for count in range(len(STEPS) + 1)
    ]
    assert all(before != after for before, after in pairwise(tables))


def test_changed_rows_are_told_from_the_others():
    old, new = ("Mug", 12.0, "Clay"), ("Mug", 9.5, "Tea")
    lines = compared({"a": old, "b": old, "c": old}, {"a": old, "b": new, "d": new})
    assert [(line.kind, line.cells[1], line.cells[-1]) for line in lines] == [
        ("same", "a", ""),
        ("changed", "b", "was 12.00, Clay"),
        ("gone", "c", "deleted"),
        ("new", "d", "new"),
    ]


def test_without_a_terminal_it_is_plain_text():
    row = {"product": "Mug", "price": 12.0, "shop": "Clay"}
    step = Step("A title", "A remark.", (Change("products", "mug", None),))
    out = io.StringIO()
    view = DemoView(out)
    view.announce(1, step)
    view.show(step, Outcome({"mug": row}, {}, 3, 1, 1, 0.25))
    assert out.getvalue() == (
        "\n1. A title\n   products  <- mug  null\n\n"
        "      key  product  price  shop\n"
        "   -  ---  -------  -----  ----  -------\n"
        "   -  mug  Mug      12.00  Clay  deleted\n"
        "   batch 3: 1 record in, 1 result out, 0.25 s\n"
        "   A remark.\n"
    )


def test_paths_to_type_are_as_short_as_they_can_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = farewell(DemoFolder(tmp_path / "my demo"), DemoTopics("--topics-dir x"), "crossstream")
    assert "  crossstream query 'my demo/state' promotions" in here
    far = farewell(DemoFolder(Path("/elsewhere")), DemoTopics("--topics-dir x"), "crossstream")
    assert "  crossstream query /elsewhere/state promotions" in far
    kafka = farewell(
        DemoFolder(tmp_path), DemoTopics("--bootstrap-servers h:1", "-9", "broker start"), "crossstream"
    )
    assert any(line.startswith("  crossstream broker start") for line in kafka)
    assert any("topics write merchants-9 --bootstrap-servers h:1" in line for line in kafka)


def test_what_is_made_is_what_is_deleted(tmp_path):
    folder = DemoFolder(tmp_path)
    made = (folder.application, folder.topics, folder.state, folder.log)
    assert {path.name for path in made} <= set(MADE)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_runs_and_what_it_advises_works(tmp_path):
    began = time.monotonic()
    with start("demo", "--dir", "demo", cwd=tmp_path) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert [step.title for step in STEPS if step.title in out] == [step.title for step in STEPS]
    final = expected([change for step in STEPS for change in step.changes])
    last_table = out[out.index(f"7. {STEPS[-1].title}") :]
    for key, row in final.items():
        assert re.search(
            rf"^ +{key} +{row['product']} +{row['price']:.2f} +{row['shop']}$", last_table, re.MULTILINE
        )
    print(f"{time.monotonic() - began:.0f} s")

    told = {}
    for line in filter(ADVICE.search, out.splitlines()):
        command = ADVICE.sub(f"{shlex.quote(sys.executable)} -m crossstream", line)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, command + done.stderr
        told[command] = done.stdout
    assert any("Best Knits" in text for text in told.values())
    assert any("Round 0" in text for text in told.values())


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        cs.ConfigError, match="the folder of the demo cannot be made: Not a directory"
    ) as caught:
        DemoFolder(tmp_path / "file" / "demo").empty()
    assert caught.value.code == "CS-281"
