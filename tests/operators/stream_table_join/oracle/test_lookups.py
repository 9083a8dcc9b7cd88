"""Streams that look up tables made of the same records, or of other joins: Kafka's own driver and ours agree.

Where one record changes a table and looks it up, the order is that in which a record goes through the topology:
depth first, children in the order they were built, repartition topics last.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.oracle.cases import EXTRACTOR, JOINERS, Case, Rows, records
from tests.oracle.compositions import DERIVED, TURNS, compare, made
from tests.oracle.oracle import Oracle

pytestmark = pytest.mark.oracle

CASES = 60
NIGHTLY = 1500


def test_ways_of_one_record(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, one_source(Random(f"ways {seed}")), drops=False)


def test_tables_of_joins(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, joined_table(Random(f"joins {seed}")))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", ["ways", "joins"])
def test_for_long(oracle: Oracle, make: str, fresh: int) -> None:
    for seed in range(fresh, fresh + NIGHTLY):
        rng = Random(f"{make} {seed}")
        case = one_source(rng) if make == "ways" else joined_table(rng)
        compare(oracle, case, drops=make == "joins")


def one_source(rng: Random) -> Case:
    """Operators on one source, of which a stream joins a table at last.

    Kafka drops more, where the tombstones that its filters repeat (2.2.5) come to be a stream.
    """
    shapes = {"left": rng.choice(["stream", "table"])}
    joins: list[dict[str, Any]] = []
    while len(joins) < 6 and not (set(shapes.values()) == {"stream", "table"} and rng.random() < 0.3):
        parent = rng.choice(sorted(shapes))
        type_ = rng.choice(sorted(DERIVED[shapes[parent]]))
        name = f"n{len(joins)}"
        joins.append({"id": name, "operator": "derived", "type": type_, "left": parent, "right": parent})
        shapes[name] = TURNS.get(type_, shapes[parent])
    stream = rng.choice([name for name, shape in shapes.items() if shape == "stream"] or ["none"])
    table = rng.choice([name for name, shape in shapes.items() if shape == "table"] or ["none"])
    if "none" in (stream, table):
        return one_source(rng)
    case = made([*joins, looking_up(rng, stream, table)], records(rng, {"left": Rows(rng, ("a", "b"), "L")}))
    return case if moves(case["joins"]) <= 2 else one_source(rng)


def moves(joins: list[dict[str, Any]]) -> int:
    """How often records go through a repartition topic. Which of three such topics is read first is up to a heap."""
    re_keyed: dict[str, bool] = {}
    count = 0
    for one in joins:
        marked = re_keyed.get(one["left"], False)
        count += one["type"] == "repartition" or (marked and one["type"] in ("to table", "inner", "left"))
        re_keyed[one["id"]] = one["type"] == "re-key" or (marked and one["type"] == "same")
    return count


def joined_table(rng: Random) -> Case:
    """A stream that looks up a join of two tables, by key or by foreign key, perhaps mapped or filtered."""
    joins: list[dict[str, Any]] = [
        {
            "id": "first",
            "operator": "table-table",
            "type": rng.choice(["inner", "left", "outer"]),
            "left": "left",
            "right": "right",
            "joiner": rng.choice(JOINERS),
        }
    ]
    keys: tuple[str, ...] = ("a", "b")
    if rng.random() < 0.5:
        joins[0] |= {"operator": "table-table-fk", "type": rng.choice(["inner", "left"])}
        joins[0] |= {"fk_extractor": EXTRACTOR}
        keys = ("L1", "L2", "L3", "L4")
    if rng.random() < 0.5:
        type_ = rng.choice(["map", "map kept", "filter", "filter kept"])
        joins.append(
            {"id": "second", "operator": "derived", "type": type_, "left": "first", "right": "first"}
        )
    joins.append(looking_up(rng, "third", joins[-1]["id"]))
    sides = {
        "left": Rows(rng, ("a", "b"), "L"),
        "right": Rows(rng, keys, "R"),
        "third": Rows(rng, ("a", "b"), "T"),
    }
    return made(joins, records(rng, sides, {"left": 2, "right": 2, "third": 3}))


def looking_up(rng: Random, stream: str, table: str) -> dict[str, Any]:
    ends = {"left": stream, "right": table}
    return {"id": "last", "operator": "stream-table", "type": rng.choice(["inner", "left"]), **ends}
