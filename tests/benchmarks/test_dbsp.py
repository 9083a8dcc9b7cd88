"""The circuits on dbsp give what they must, in batches small and large. Skipped where they are not built."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from benchmarks.nexmark.events import events
from benchmarks.nexmark.side_dbsp import QUERIES
from benchmarks.nexmark.topics import TABLES
from benchmarks.nexmark.write import write
from benchmarks.peers import dbsp

from benchmarks import fk_results
from benchmarks.nexmark import reference, results

SMALL, LARGE = 700, 500_000
"""Records of a batch."""
EVENTS = 20_000

built = pytest.mark.skipif(
    not dbsp.PROGRAM.is_built(), reason="the circuits are not built, which takes minutes"
)


@built
@pytest.mark.parametrize("batch", [SMALL, LARGE])
@pytest.mark.parametrize("side", dbsp.SIDES)
@pytest.mark.parametrize("figure", ["left", "fan-out"])
def test_foreign_key_join(figure: str, side: str, batch: int, tmp_path: Path) -> None:
    records = (
        fk_results.left(tmp_path, customers=80, orders=500, updates=2_000)
        if figure == "left"
        else fk_results.fan_out(tmp_path, customers=20, subscribers=50)
    )
    rows = tmp_path / "rows"
    took = dbsp.measure("fk", side, records.input, rows, before=records.before, batch=batch)
    assert fk_results.differs(fk_results.of_file(rows), records.expected()) is None
    assert took.core_seconds > 0
    assert took.changes > 0
    assert took.batches == -(-(2_000 if figure == "left" else 20) // batch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events as files."""
    made = tmp_path_factory.mktemp("events")
    write(made, EVENTS)
    return made


@built
@pytest.mark.parametrize("batch", [SMALL, LARGE])
@pytest.mark.parametrize("side", dbsp.SIDES)
@pytest.mark.parametrize("query", sorted(QUERIES))
def test_nexmark(query: str, side: str, batch: int, folder: Path, tmp_path: Path) -> None:
    files = {table: folder / f"{table}.json" for table in TABLES}
    dbsp.measure(query, side, files, tmp_path / "rows", batch=batch, keys=False)
    expected = reference.expected(query, events(EVENTS))
    lines = pl.Series((tmp_path / "rows").read_bytes().splitlines(), dtype=pl.Binary)
    assert results.differs(query, results.parsed(lines, expected.schema), expected) is None


def test_without_cargo_the_reason_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path))
    assert dbsp.available() == "no cargo on the path, and circuits has not been built yet"


def test_an_old_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cargo", "rustc"):
        (tmp_path / name).write_text("#!/bin/sh\necho rustc 1.70.0\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CROSSSTREAM_CACHE", str(tmp_path))
    assert replace(dbsp.PROGRAM, rust=(1, 70)).missing() is None
    assert replace(dbsp.PROGRAM, rust=(1, 71)).missing() == "rustc 1.70.0: Rust 1.71 or newer is needed"
