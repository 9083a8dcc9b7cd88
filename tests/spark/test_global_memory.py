"""A global table of millions of rows is in memory once for all tasks of a machine, not once for each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import polars as pl
import psutil
import pyarrow as pa
import pytest

import crossstream as cs
from tests.spark.meanwhile import meanwhile
from tests.spark.orders import ordering
from tests.spark.world import NAMES, World

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ORDERS = 100_000
PARTITIONS = 4


@pytest.mark.parametrize(
    "shops",
    [
        pytest.param(300_000, marks=pytest.mark.slow),
        pytest.param(5_000_000, marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
def test_every_task_looks_into_the_same_memory(spark: Any, world: World, shops: int) -> None:
    world.create(shops=2, orders=2, told=2)
    write(world, "shops", "s", pl.int_range(shops, eager=True), '{"city":"' + "C" * 100, "", '"}')
    write(
        world, "orders", "o", pl.int_range(ORDERS, eager=True), '{"item":"I","shop":"s', spread(shops), '"}'
    )
    with cs.SparkStreams(ordering("inner"), world.config(partitions=PARTITIONS), spark) as app:
        started = time.monotonic()
        with watching(world) as seen:
            app.process_available()
        seconds = time.monotonic() - started
        assert sum(app.progress.state_rows.values()) >= shops
        assert app.progress.rows_out["orders.join(shops)"] == ORDERS, "every order found its shop"
        size = app.progress.state_bytes["shops"]
    peaks = {
        name: [max(held.get(worker, NOTHING)[name] for held in seen) for worker in set().union(*seen)]
        for name in NOTHING
    }
    shared = max(sum(worker["pss"] for worker in held.values()) for held in seen)
    shown = {name: [value >> 20 for value in values] for name, values in peaks.items()}
    print(f"\n{shops:,} rows in {seconds:.1f} s; {size >> 20} MiB on disk; MiB by worker: {shown}")
    assert sum(rss > size / 4 for rss in peaks["rss"]) >= 2, "several workers have looked at the table"
    assert shared <= 1.3 * size, "its pages are there once"
    assert not any(peaks["copied"]), "nobody has a copy of a page"
    if shops > 1_000_000:
        assert max(peaks["own"]) < size / 2, "nor of the rows"


NOTHING = {"rss": 0, "pss": 0, "copied": 0, "own": 0}
"""Bytes in a worker's memory: of the table's files all, its share of common pages, copies; and what it owns."""

Moment = dict[int, dict[str, int]]
"""What each worker has, by its process."""


@contextmanager
def watching(world: World) -> Iterator[list[Moment]]:
    """What the workers have at many moments: a worker that has become large gives pages back after its task."""
    seen: list[Moment] = []
    with meanwhile(lambda: seen.append(dict(moment(world))), 0.02):
        yield seen


def moment(world: World) -> Iterator[tuple[int, dict[str, int]]]:
    for worker in workers():
        with suppress(psutil.Error):  # it has ended
            yield worker.pid, mapped(worker, world)


def spread(shops: int) -> pl.Series:
    """Shops all over the table, in no order."""
    return (pl.int_range(ORDERS, eager=True) * 7_919 * max(1, shops // ORDERS)) % shops


def write(
    world: World, topic: str, letter: str, numbers: pl.Series, head: str, named: Any, tail: str
) -> None:
    """Records ``letter + number`` = ``head + named + tail``."""
    writer = world.topics.writer()
    step, binary = 100_000, pa.large_binary()
    for first in range(0, len(numbers), step):
        keys = letter + numbers.slice(first, step).cast(pl.String)
        middle = keys if isinstance(named, str) else named.slice(first, step).cast(pl.String)
        values = head + middle + tail
        columns = [
            keys.to_arrow().cast(pa.large_string()).cast(binary),
            values.to_arrow().cast(pa.large_string()).cast(binary),
            pa.array([0] * len(keys), pa.int64()),
            pa.nulls(len(keys), binary),
        ]
        writer.write(topic, pa.RecordBatch.from_arrays(columns, names=NAMES))
    writer.close()


def mapped(worker: psutil.Process, world: World) -> dict[str, int]:
    found = dict(NOTHING)
    for part in worker.memory_maps(grouped=True):
        if part.path.startswith(str(world.state_dir)):
            found["rss"] += part.rss
            found["pss"] += part.pss
            found["copied"] += part.anonymous
        found["own"] += part.anonymous
    return found


def workers() -> list[psutil.Process]:
    """Spark's Python processes below this one."""
    return [child for child in psutil.Process().children(recursive=True) if "python" in child.name()]
