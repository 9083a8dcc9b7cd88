"""Timestamps in seconds are taken as milliseconds of January 1970: an application says so, once for each source."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from tests.application.engines import IN_PROCESS, Engine
from tests.spark.world import World

SECONDS = 1_700_000_000
IN_1980 = 315_532_800_000


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [one.getMessage() for one in caplog.records if one.name == "crossstream.sources"]


def relay(extractor: Any = None) -> cs.Topology:
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=str, value={"at": pl.Int64}, timestamp_extractor=extractor)
    builder.stream("clicks", consumed).to("copies")
    return builder.build()


def run(
    folder: Path,
    batches: list[list[int]],
    extractor: Any = None,
    engine: Engine = IN_PROCESS,
) -> None:
    world = World(folder)
    world.create(clicks=2, copies=1)
    with engine.streams(relay(extractor), world.config()) as app:
        for batch in batches:
            world.append_wire("clicks", [(b"k", b'{"at":%d}' % SECONDS, timestamp) for timestamp in batch])
            app.process_available()


def test_seconds_are_named_once(engine: Engine, tmp_path: Path, said: Callable[[], list[str]]) -> None:
    run(tmp_path, [[SECONDS, SECONDS + 1], [SECONDS + 2]], engine=engine)
    assert said() == [
        "clicks: its first records end at 1970-01-20 (timestamp 1700000001): timestamps are milliseconds since the "
        "epoch. If these are seconds, give Consumed(timestamp_extractor=lambda key, value, timestamp: 1000 * timestamp)"
    ]


@pytest.mark.parametrize(
    "batches",
    [
        [[SECONDS * 1000]],
        [[IN_1980]],
        [[SECONDS, SECONDS * 1000]],  # one old record among others
        [[SECONDS * 1000], [SECONDS]],  # not the first
        [[5, 999_999]],  # counted by a test
        [[0]],
    ],
)
def test_milliseconds_are_not(
    batches: list[list[int]], tmp_path: Path, said: Callable[[], list[str]]
) -> None:
    run(tmp_path, batches)
    assert said() == []


def test_up_to_1980(tmp_path: Path, said: Callable[[], list[str]]) -> None:
    run(tmp_path, [[IN_1980 - 1]])
    assert len(said()) == 1


@pytest.mark.parametrize(
    ("extractor", "warned"),
    [
        (pl.col("at"), 1),
        (pl.col("at") * 1000, 0),
        (lambda key, value, timestamp: 1000 * timestamp, 0),  # the cure of the warning
    ],
)
def test_what_an_extractor_gives_counts(
    extractor: Any, warned: int, tmp_path: Path, said: Callable[[], list[str]]
) -> None:
    run(tmp_path, [[SECONDS]], extractor)
    assert len(said()) == warned


def test_the_test_driver_takes_any_number(caplog: pytest.LogCaptureFixture) -> None:
    with cs.TopologyTestDriver(relay()) as driver:
        driver.create_input_topic("clicks", str, dict).pipe_input("k", {"at": 1}, timestamp=SECONDS)
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
