"""The demo with tables of a lake: its commits, its story without Spark, what it prints; all of it on Spark."""

from __future__ import annotations

import io
import re
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

import crossstream as cs
from crossstream.cli.arguments import make_parser
from crossstream.cli.loading import load
from crossstream.dev import demo_spark, lake
from crossstream.dev.demo import DemoFolder, DemoView, Line
from crossstream.dev.demo_spark import Followed, _announce, _show, farewell
from crossstream.dev.lake import SCENES, SCHEMAS, TABLES, Insert, Statement, check_deltalake
from tests.cli.cases import call, start

JOIN = """
    SELECT o.id, c.name, c.city, o.item, o.price
    FROM orders o JOIN customers c ON c.id = o.customer_id ORDER BY o.id
"""
STATEMENTS = [*TABLES, *(statement for scene in SCENES for statement in scene.statements)]
Rows = list[tuple[Any, ...]]


def joined(folder: Path) -> Rows:
    """DuckDB's join of the Delta tables."""
    database = duckdb.connect()
    for name in SCHEMAS:
        database.register(name, DeltaTable(folder / name).to_pyarrow_table())
    return database.execute(JOIN).fetchall()


def tables(folder: Path) -> dict[str, Rows]:
    database = duckdb.connect()
    found = {}
    for name in SCHEMAS:
        database.register(name, DeltaTable(folder / name).to_pyarrow_table())
        found[name] = database.execute(f"SELECT * FROM {name} ORDER BY id").fetchall()
    return found


def test_a_statement_does_what_its_sql_says(tmp_path: Path) -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE customers (id bigint, name text, city text)")
    database.execute("CREATE TABLE orders (id bigint, customer_id bigint, item text, price double)")
    for number, statement in enumerate(STATEMENTS):
        statement.run(tmp_path)
        database.execute(statement.sql)
        if number:
            expected = {
                name: database.execute(f"SELECT * FROM {name} ORDER BY id").fetchall() for name in SCHEMAS
            }
            assert tables(tmp_path) == expected, statement.sql


def test_the_story_is_true(tmp_path: Path) -> None:
    """The application of the demo in this process: after every scene its result is the join of the tables."""
    folder = DemoFolder(tmp_path / "demo")
    folder.empty()
    folder.write_sales()
    results = []
    for scene in ((), *(scene.statements for scene in SCENES)):
        run([*TABLES, *scene] if not results else scene, folder.lake)
        loaded = load(str(folder.sales))
        assert loaded.config is not None
        with cs.SparkStreams(loaded.topology, replace(loaded.config, engine="local")) as app:
            app.process_available()
            rows = app.store("sales").all()
            found = [
                (key, row["customer_name"], row["customer_city"], row["item"], row["price"])
                for key, row in rows
            ]
        assert sorted(found) == joined(folder.lake)
        results.append(sorted(found))
    assert all(before != after for before, after in pairwise(results))
    third = DeltaTable(folder.lake / "sales").to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["customer_name"]) for row in third] == [(row[0], row[1]) for row in results[-1]]


def run(statements: list[Statement] | tuple[Statement, ...], folder: Path) -> None:
    for statement in statements:
        statement.run(folder)


def test_without_deltalake_it_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lake, "find_spec", lambda name: None)
    outcome = call(capsys, "demo", "--spark", "--dir", tmp_path / "demo")
    assert outcome.code != 0
    assert "CS-201" in outcome.err
    assert 'pip install "crossstream[delta]"' in outcome.err
    assert not (tmp_path / "demo").exists()


def test_what_is_shown_of_a_scene() -> None:
    out = io.StringIO()
    view = DemoView(out)
    _announce(view, 1, SCENES[0])
    before = {10: ("Ada", "London", "tea", 12.5), 12: ("Grace", "Arlington", "mug", 7.25)}
    after = {10: ("Ada", "Paris", "tea", 12.5)}
    _show(view, Followed(before, after, 3, 0.25, 1.5))
    assert out.getvalue().splitlines() == [
        "",
        "1. A customer moves",
        "   UPDATE customers SET city = 'Paris' WHERE id = 1;",
        "",
        "      key  customer_name  customer_city  item  price",
        "   -  ---  -------------  -------------  ----  -----  ----------",
        "   ~   10  Ada            Paris          tea   12.50  was London",
        "   -   12  Grace          Arlington      mug    7.25  deleted",
        "   batch 3: 0.25 s, and 1.50 s for a query of Spark",
    ]


def test_its_lines_fit_a_terminal_of_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    view, folder = DemoView(out), DemoFolder(tmp_path / "crossstream-demo")
    for statement in STATEMENTS:
        view.say(f"   {statement.sql};")
    for number, scene in enumerate(SCENES, 1):
        _announce(view, number, scene)
        view.say(f"   {scene.remark}")
    demo_spark._say_reading(view, "spark.read", folder)
    demo_spark._say_reading(view, "spark.readStream", folder, **demo_spark.CHANGED)
    changes = [Line("new", ("3", "update_postimage", "10", "Barbara", "Arlington", "scarf"))]
    view.table(demo_spark.STREAM_HEAD, changes, demo_spark.STREAM_RIGHT)
    for line in farewell(folder, "crossstream"):
        view.say(line)
    assert [line for line in out.getvalue().splitlines() if len(line) > 80] == []


def test_the_option_is_a_command_of_its_own() -> None:
    assert make_parser().parse_args(["demo", "--spark"]).command == "crossstream.dev.demo_spark:main"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_runs(tmp_path: Path) -> None:
    began = time.monotonic()
    with start("demo", "--spark", "--dir", "demo", cwd=tmp_path) as process:
        out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    print(f"{time.monotonic() - began:.0f} s")
    assert [scene.title for scene in SCENES if scene.title in out] == [scene.title for scene in SCENES]
    last = out[out.index(SCENES[-1].title) : out.index("a stream of Spark")]
    for key, name, city, item, price in joined(tmp_path / "demo" / "lake"):
        assert re.search(rf"^ +\+? +{key} +{name} +{city} +{item} +{price:.2f}( |$)", last, re.MULTILINE)
    changes = out[out.index("a stream of Spark") :]
    assert re.search(r"^ +1 +update_preimage +10 +Ada +London +tea", changes, re.MULTILINE)
    assert re.search(r"^ +1 +update_postimage +10 +Ada +Paris +tea", changes, re.MULTILINE)
    assert re.search(r"delete +11 +Edsger", changes)


def test_an_insert_makes_the_table_of_its_columns(tmp_path: Path) -> None:
    Insert("orders", ((1, 2, "tea", 3.0),)).run(tmp_path)
    assert DeltaTable(tmp_path / "orders").schema().to_arrow().names == SCHEMAS["orders"].names


def test_deltalake_is_there() -> None:
    check_deltalake()
