"""The examples: the command line loads each, and each runs through. Those on Spark: `tests/spark/test_examples.py`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.cli.loading import execute, load
from crossstream.filetopics import FileTopics
from crossstream.topics import TopicPartition
from tests.cli.cases import ENVIRONMENT, ROOT, call

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DESCRIBED = [file for file in EXAMPLES if file.stem != "from_spark"]
"""That one reads DataFrames, so there is no topology before there is a session."""
PORTED = sorted((ROOT / "examples" / "ported").glob("*.py"))
EXAMPLES_TEST = str(ROOT / "examples" / "test_with_the_driver.py")
ON_THE_DRIVER = [file for file in EXAMPLES if "def main() -> None" in file.read_text()]


@pytest.mark.parametrize("file", DESCRIBED + PORTED, ids=lambda file: file.stem)
def test_every_example_can_be_described(capsys, file: Path):
    assert load(str(file)).topology.nodes
    assert "Round 0:" in call(capsys, "describe", file, "--plan").out


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_every_example_says_what_it_shows_how_to_run_it_and_is_on_the_map(file: Path):
    shown, _, how = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")
    assert shown
    assert file.name in how
    assert f"(../examples/{file.name})" in (ROOT / "docs" / "index.md").read_text()


@pytest.mark.parametrize("file", ON_THE_DRIVER, ids=lambda file: file.stem)
def test_the_example_runs_through(capsys, file: Path):
    execute(file).main()
    assert capsys.readouterr().out


@pytest.mark.parametrize("file", PORTED, ids=lambda file: file.stem)
def test_the_ported_example_gives_what_the_original_gives(file: Path):
    execute(file).main()


@pytest.mark.parametrize("file", PORTED, ids=lambda file: file.stem)
def test_the_ported_example_is_on_the_page_with_the_name_of_the_original(file: Path):
    about = ast.get_docstring(ast.parse(file.read_text())) or ""
    original = about.split(":")[0].split(" of ")[0].removeprefix("The tutorial ").strip('"')
    page = (ROOT / "docs" / "java-to-python.md").read_text()
    (line,) = (line for line in page.splitlines() if f"(../examples/ported/{file.name})" in line)
    assert original in line


def test_the_marketplace_is_a_program():
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "marketplace.py")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 5


def test_the_tests_among_the_examples_pass():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", EXAMPLES_TEST],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "6 passed" in done.stdout, done.stdout + done.stderr


@pytest.fixture(scope="module")
def nycflights() -> ModuleType:
    return execute(ROOT / "examples" / "nycflights.py")


@pytest.fixture(scope="module")
def tables(nycflights) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    return dict(nycflights.rows(days=1))


def batch_join(tables: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the three joins give of whole tables."""
    result = {}
    for key, flight in tables["flights"].items():
        airline = tables["airlines"].get(flight["carrier"])
        if airline is None:
            continue
        airport = tables["airports"].get(flight["dest"], {})
        plane = tables["planes"].get(flight["tailnum"])
        result[key] = flight | {
            "airline": airline["name"],
            "destination": airport.get("name"),
            "time_zone": airport.get("tzone"),
            "aircraft": None if plane is None else f"{plane['manufacturer']} {plane['model']}",
        }
    return result


def test_flights_are_joined_as_in_a_batch_and_follow_every_table(nycflights, tables):
    now = {name: dict(rows) for name, rows in tables.items()}
    assert all(len(now[name]) == len(rows) for name, rows in tables.items())
    with cs.TopologyTestDriver(nycflights.build(), partitions=3, commit_every=10_000) as driver:
        topics = {name: driver.create_input_topic(name, serdes.string(), serdes.json()) for name in tables}
        for name, rows in tables.items():
            topics[name].pipe_records([cs.TestRecord(key, value) for key, value in rows])
        driver.commit()
        store = driver.get_key_value_store("flights")
        assert dict(store.all()) == batch_join(now)
        assert len(now["flights"]) == 842

        for name, key, value in (
            ("airlines", "AA", {"name": "American"}),
            ("airports", "LAX", None),
            ("planes", "N619AA", {**now["planes"]["N619AA"], "model": "757"}),
            ("airlines", "B6", None),
        ):
            topics[name].pipe_input(key, value)
            now[name][key] = value
            now[name] = {k: v for k, v in now[name].items() if v is not None}
        driver.commit()
        assert dict(store.all()) == batch_join(now)


def test_topics_are_made(nycflights, tables, tmp_path):
    written = nycflights.make_topics(str(tmp_path), days=1)
    log = FileTopics(str(tmp_path)).log()
    assert log.topics() == dict.fromkeys(sorted([*tables, "named-flights"]), 4)
    for name, rows in tables.items():
        ends = log.end_offsets([TopicPartition(name, partition) for partition in range(4)])
        assert (written[name], sum(ends.values())) == (len(rows), len(rows))
