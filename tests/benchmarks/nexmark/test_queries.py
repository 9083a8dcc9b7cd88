"""Each query of Nexmark gives what DuckDB gives, however its input is cut into batches."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from benchmarks.nexmark.events import Events
from benchmarks.nexmark.queries import OURS
from benchmarks.nexmark.reference import QUERIES, expected
from benchmarks.nexmark.results import differs, rows_of

from benchmarks.nexmark import local
from tests.benchmarks.nexmark.stretched import stretched

pytest.importorskip("duckdb")

EVENTS = 10_000
CUT = ("q4", "q5", "q8", "q9", "q20")
"""Queries that run once more in several batches, for state is read again there."""


@pytest.fixture(scope="module")
def rows() -> Events:
    return stretched(EVENTS)


@pytest.fixture(scope="module")
def folder(rows: Events, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("nexmark")
    local.fill(made, rows)
    return made


def given(query: str, folder: Path, wanted: pl.DataFrame) -> pl.DataFrame:
    return rows_of(query, local.results(query, folder), wanted.schema)


def test_every_query_is_there() -> None:
    assert set(OURS) == set(QUERIES) == {f"q{number}" for number in range(24) if number != 10}


@pytest.mark.parametrize("query", OURS)
def test_as_duckdb(query: str, rows: Events, folder: Path) -> None:
    local.run(query, folder)
    wanted = expected(query, rows)
    assert len(wanted)
    assert differs(query, given(query, folder, wanted), wanted) is None


@pytest.mark.parametrize("query", CUT)
def test_in_several_batches(query: str, rows: Events, tmp_path: Path) -> None:
    local.fill(tmp_path, rows)
    local.run(query, tmp_path, partitions=3, max_records=3_000)
    wanted = expected(query, rows)
    assert differs(query, given(query, tmp_path, wanted), wanted) is None
