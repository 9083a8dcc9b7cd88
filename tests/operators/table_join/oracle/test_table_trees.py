"""Two joins of tables, by key and by foreign key, mapped and filtered before, between and after: as Kafka's own driver.

Filtered is what Kafka keeps: of other tables its filters may say once more that there is no row (semantics 2.2.5).
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.oracle.cases import (
    EXTRACTOR,
    FOREIGN_KEYS,
    JOINERS,
    JOINS,
    KEYS,
    Case,
    References,
    Rows,
    join,
    records,
)
from tests.oracle.compositions import compare, derive, made, tells_old_rows
from tests.oracle.oracle import Oracle

pytestmark = pytest.mark.oracle

CASES = 60
NIGHTLY = 1500


def test_table_trees(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, table_tree(Random(f"table tree {seed}")))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_table_trees_for_long(oracle: Oracle, fresh: int) -> None:
    for seed in range(fresh, fresh + NIGHTLY):
        compare(oracle, table_tree(Random(f"table tree {seed}")))


def table_tree(rng: Random) -> Case:
    """(left ⋈ right) ⋈ third, any of them mapped or filtered, as a stream at last."""
    joins: list[dict[str, Any]] = []
    sides: dict[str, Rows] = {"left": References(rng, KEYS, "L")}
    result = mapped(rng, joins, "left")
    for place, side in enumerate(("right", "third")):
        operator = rng.choice(["table-table", "table-table-fk"])
        by_reference = operator == "table-table-fk"
        sides[side] = Rows(rng, FOREIGN_KEYS if by_reference else KEYS, side[0].upper())
        ends = [result, mapped(rng, joins, side)]
        if not by_reference and rng.random() < 0.5:
            ends.reverse()
        more = {"fk_extractor": {**EXTRACTOR, "index": place}} if by_reference else {}
        kind, joiner = rng.choice(JOINS[operator]), rng.choice(JOINERS)
        joins.append(join(f"n{len(joins)}", operator, kind, *ends, joiner=joiner, **more))
        result = mapped(rng, joins, joins[-1]["id"])
    derive(joins, "to stream", result)
    return made(joins, records(rng, sides, {"left": 3, "right": 2, "third": 2}))


def mapped(rng: Random, joins: list[dict[str, Any]], table: str) -> str:
    while rng.random() < 0.45:
        kinds = ["map", "map kept", "map some", "map some kept"]
        if tells_old_rows(joins, table):
            kinds += ["filter", "filter kept", "filter not", "filter not kept"]
        table = derive(joins, rng.choice(kinds), table)
    return table
