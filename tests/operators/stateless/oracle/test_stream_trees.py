"""Joins of streams, of their results with a stream or a table, re-keyed and repartitioned: as Kafka's own driver.

Left and outer joins are eager here: what comes out alone when its window closes, Kafka may give later
(`tests/oracle/cases.py`). No bound is 0, where Kafka forgets a record a millisecond too soon.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.oracle.cases import JOINERS, JOINS, Case, Facts, Rows, join, records
from tests.oracle.compositions import compare, made
from tests.oracle.oracle import Oracle

pytestmark = pytest.mark.oracle

CASES = 60
NIGHTLY = 1500
KEYS = ("a", "b")


def test_stream_trees(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, stream_tree(Random(f"stream tree {seed}")))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_stream_trees_for_long(oracle: Oracle, fresh: int) -> None:
    for seed in range(fresh, fresh + NIGHTLY):
        compare(oracle, stream_tree(Random(f"stream tree {seed}")))


def stream_tree(rng: Random) -> Case:
    """left ⋈ right, often joined once more with a third stream or table."""
    joins: list[dict[str, Any]] = []
    sides: dict[str, Rows] = {side: Facts(rng, KEYS, side[0].upper()) for side in ("left", "right")}
    result = in_window(rng, joins, *(moved(rng, joins, side) for side in sides))
    third = rng.choice(["none", "table", "stream"])
    if third != "none":
        result = moved(rng, joins, result)
    if third == "table":
        sides["third"] = Rows(rng, KEYS, "T")
        kind = rng.choice(JOINS["stream-table"])
        joins.append(join("last", "stream-table", kind, result, "third", joiner=JOINERS[0]))
    elif third == "stream":
        sides["third"] = Facts(rng, KEYS, "T")
        ends = [result, moved(rng, joins, "third")]
        rng.shuffle(ends)
        in_window(rng, joins, *ends)
    return made(joins, records(rng, sides))


def in_window(rng: Random, joins: list[dict[str, Any]], left: str, right: str) -> str:
    eager = rng.random() < 0.5
    kind = rng.choice(JOINS["stream-stream"] if eager else ("inner",))
    window = {
        "before_ms": rng.choice([3, 10]),
        "after_ms": rng.choice([3, 10]),
        "grace_ms": rng.choice([0, 5, 20]),
    }
    more = {"window": window, "eager": eager, "joiner": JOINERS[0]}
    joins.append(join(f"n{len(joins)}", "stream-stream", kind, left, right, **more))
    return str(joins[-1]["id"])


def moved(rng: Random, joins: list[dict[str, Any]], stream: str) -> str:
    """The stream, or what up to two operators with one parent make of it."""
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        kind = rng.choice(["same", "re-key", "repartition"])
        joins.append(join(f"n{len(joins)}", "derived", kind, stream, stream))
        stream = str(joins[-1]["id"])
    return stream
