"""Versioned tables made by operators, looked up as of the times of a stream's records: as Kafka's own driver."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.oracle.cases import EXTRACTOR, JOINERS, KEYS, Case, Facts, Rows, join, records
from tests.oracle.compositions import compare, derive, made, tells_old_rows
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
def test_versions_for_long(oracle: Oracle, fresh: int) -> None:
    for seed in range(fresh, fresh + NIGHTLY):
        compare(oracle, versions(Random(f"versions {seed}")))


def versions(rng: Random) -> Case:
    """The changes of a table with versions, or a stream that looks it up: left, or left ⋈ right, mapped or filtered.

    No two records have one time, and rows that are joined are not deleted: a delete at the timestamp of its row is
    forgotten by Kafka, if an older row follows (`tests/oracle/cases.py`). Time does not go back where a result of a
    table without versions keeps them: Kafka's then has an older row than the table.
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
    grace = None
    if rng.random() < 0.5:
        derive(joins, "to stream", result)
    else:
        sides["third"] = Facts(rng, KEYS, "T")
        kind = rng.choice(["inner", "left"])
        grace = (
            rng.choice([None, 0, 30]) if kind == "inner" else None
        )  # Kafka's left join fails on null keys (8.11)
        joins.append(join("last", "stream-table", kind, "third", result))
    ordered = True if any(keeps_versions_of_none(joins, one) for one in joins) else None
    inputs = records(rng, sides, {"left": 3, "right": 2, "third": 3}, ordered)
    apart = [{**item, "ts": item["ts"] * len(inputs) + number} for number, item in enumerate(inputs)]
    return made(joins, apart, stream_grace_ms=grace)


def keeps_versions_of_none(joins: list[dict[str, Any]], one: dict[str, Any]) -> bool:
    """Whether it maps or filters a table without versions, and keeps them."""
    return one["type"] in ("map with versions", "filter with versions") and not has_versions(
        joins, one["left"]
    )


def has_versions(joins: list[dict[str, Any]], table: str) -> bool:
    made_by = {one["id"]: one for one in joins}.get(table)
    if made_by is None or made_by["type"] not in ("map", "filter"):
        return made_by is not None and made_by["type"].endswith("with versions")
    return has_versions(joins, made_by["left"])


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
