"""Versioned tables made by operators, looked up as of the times of a stream's records: as Kafka's own driver."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.oracle.cases import EXTRACTOR, JOINERS, KEYS, Case, Facts, Rows, join, records
from tests.oracle.compositions import compare, derive, made
from tests.oracle.oracle import Oracle

pytestmark = pytest.mark.oracle

CASES = 60
NIGHTLY = 1500
UNMAPPED = {**EXTRACTOR, "sep": "'"}  # what a mapping has added is no part of a foreign key


def test_versions(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, versions(Random(f"versions {seed}")))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_versions_for_long(oracle: Oracle) -> None:
    for seed in range(CASES, NIGHTLY):
        compare(oracle, versions(Random(f"versions {seed}")))


def versions(rng: Random) -> Case:
    """The changes of a table with versions, or a stream that looks it up: left, or left ⋈ right, mapped or filtered.

    No two records have one time, and rows that are joined are not deleted: a delete at the timestamp of its row is
    forgotten by Kafka, if an older row follows (`tests/oracle/cases.py`).
    """
    joins: list[dict[str, Any]] = []
    is_joined = rng.random() < 0.5
    nulls = 0.0 if is_joined else 0.15
    sides: dict[str, Rows] = {"left": Rows(rng, KEYS, "L", nulls)}
    result = mapped(rng, joins, "left")
    if is_joined:
        by_key = rng.random() < 0.5
        sides["right"] = Rows(rng, KEYS if by_key else ("L1", "L2", "L3"), "R", nulls)
        result = joined(rng, joins, by_key, result, mapped(rng, joins, "right"))
    result = with_versions(rng, joins, mapped(rng, joins, result))
    if rng.random() < 0.5:
        derive(joins, "to stream", result)
    else:
        sides["third"] = Facts(rng, KEYS, "T")
        joins.append(join("last", "stream-table", rng.choice(["inner", "left"]), "third", result))
    inputs = records(rng, sides, {"left": 3, "right": 2, "third": 3})
    apart = [{**item, "ts": item["ts"] * len(inputs) + number} for number, item in enumerate(inputs)]
    return made(joins, apart)


def joined(rng: Random, joins: list[dict[str, Any]], by_key: bool, left: str, right: str) -> str:
    more = {"joiner": JOINERS[0]} if by_key else {"joiner": JOINERS[0], "fk_extractor": UNMAPPED}
    operator = "table-table" if by_key else "table-table-fk"
    joins.append(join("both", operator, rng.choice(["inner", "left"]), left, right, **more))
    return "both"


def mapped(rng: Random, joins: list[dict[str, Any]], table: str) -> str:
    while rng.random() < 0.4:
        kinds = ["map", "map kept", "map with versions"]
        if tells_old_rows(joins, table):
            kinds += ["filter", "filter kept", "filter with versions"]
        table = derive(joins, rng.choice(kinds), table)
    return table


def with_versions(rng: Random, joins: list[dict[str, Any]], table: str) -> str:
    kind = rng.choice(["filter", "map", "stream"] if tells_old_rows(joins, table) else ["map", "stream"])
    if kind == "stream":
        return derive(joins, "to table with versions", derive(joins, "to stream", table))
    return derive(joins, f"{kind} with versions", table)


def tells_old_rows(joins: list[dict[str, Any]], table: str) -> bool:
    """Whether Kafka keeps a table, or what it is derived from: else its filters know nothing of old rows (2.2.5).

    It keeps what has a name, and joins by key.
    """
    made_by = {one["id"]: one for one in joins}
    while table in made_by and made_by[table]["type"] in ("map", "filter"):
        table = made_by[table]["left"]
    return table in made_by and made_by[table]["operator"] != "table-table-fk"
