"""The demo with Postgres: what it prints, and its application."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path

import pytest

from crossstream.cli.arguments import make_parser
from crossstream.cli.loading import load
from crossstream.dev import cdc
from crossstream.dev.demo import DemoFolder, DemoView, compared
from crossstream.dev.demo_postgres import RESULT, SOURCES, Table, _show, load_servers

BEFORE: Table = {
    1: ("Ada", "London", Decimal("12.5")),
    2: ("Ada", None, Decimal(7)),
    3: ("Bo", "Oslo", Decimal(1)),
}
AFTER: Table = {
    1: ("Ada", "Paris", Decimal("12.50")),
    3: ("Bo", "Oslo", Decimal(1)),
    4: ("Bo", "Oslo", Decimal(2)),
}


def test_changed_rows_are_shown_with_what_they_were() -> None:
    changed = [line for line in compared(BEFORE, AFTER) if line.kind != "same"]
    assert [(line.kind, line.cells) for line in changed] == [
        ("changed", ("~", "1", "Ada", "Paris", "12.50", "was London")),
        ("gone", ("-", "2", "Ada", "", "7.00", "deleted")),
        ("new", ("+", "4", "Bo", "Oslo", "2.00", "new")),
    ]
    assert {line.kind for line in compared(AFTER, AFTER)} == {"same"}


class Servers:
    """Jars that are there, or are fetched into a folder."""

    def __init__(self, folder: Path, title: str, *, there: bool) -> None:
        self.folder, self.title, self._there = folder / title, title, there

    def find(self) -> Path | None:
        return self.folder if self._there else None

    def fetch(self) -> Path:
        self.folder.mkdir()
        (self.folder / "one.jar").write_bytes(bytes(3_000_000))
        return self.folder


def test_what_is_loaded_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    servers = (Servers(tmp_path, "Kafka", there=True), Servers(tmp_path, "Registry", there=False))
    monkeypatch.setattr(cdc, "SERVERS", servers)
    out = io.StringIO()
    load_servers(DemoView(out))
    assert out.getvalue().splitlines() == [
        "Loading Registry, which is done once…",
        "   Registry: 3 MB in Registry",
    ]


def test_a_result_that_does_not_follow_is_said() -> None:
    out = io.StringIO()
    _show(DemoView(out), BEFORE, BEFORE, True, 0.25)
    _show(DemoView(out), BEFORE, BEFORE, False, 60)
    assert out.getvalue().splitlines() == [
        "   no row of the result changes",
        "   0.2 s after the COMMIT",
        "   no row of the result changes",
        "   The result is not that of SQL",
    ]


def test_its_application_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY", "mock://shop")
    folder = DemoFolder(tmp_path / "demo")
    folder.empty()
    folder.write_shop()
    loaded = load(str(folder.shop))
    assert loaded.config is not None
    assert loaded.config.processing_guarantee == "exactly_once"
    described = str(loaded.topology.describe())
    assert all(topic in described for topic in (*SOURCES, RESULT))
    folder.empty()
    assert not folder.shop.exists()


def test_the_command_line_names_it() -> None:
    assert make_parser().parse_args(["demo", "--postgres"]).command == "crossstream.dev.demo_postgres:main"
    assert make_parser().parse_args(["demo"]).command == "crossstream.dev.demo:main"
