"""Streams that look up tables made of the same records, or of other joins: Kafka's own driver and ours agree.

Where one record changes a table and looks it up, the order is that in which a record goes through the topology:
depth first, children in the order they were built, repartition topics last.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from tests.conformance.functions import user_extractor, user_joiner
from tests.conformance.runner import METHODS, read
from tests.oracle.cases import EXTRACTOR, JOINERS, Case, Rows, records
from tests.oracle.compare import same
from tests.oracle.oracle import Oracle

pytestmark = pytest.mark.oracle

CASES = 60
NIGHTLY = 1500
TEXT = serdes.string()
DERIVED: dict[str, dict[str, Any]] = {
    "stream": {
        "same": lambda stream, _: stream.map_values(lambda value: value),
        "re-key": lambda stream, _: stream.select_key(lambda key, value: key),
        "repartition": lambda stream, _: stream.repartition(cs.Repartitioned(key=TEXT, value=TEXT)),
        "to table": lambda stream, _: stream.to_table(materialized=cs.Materialized(key=TEXT, value=TEXT)),
    },
    "table": {
        "to stream": lambda table, _: table.to_stream(),
        "map": lambda table, _: table.map_values(lambda value: value + "'"),
        "map kept": lambda table, name: table.map_values(
            lambda value: value + "'", materialized=cs.Materialized(store=name, value=TEXT)
        ),
        "filter": lambda table, _: table.filter(lambda value: "3" not in value),
        "filter kept": lambda table, name: table.filter(
            lambda value: "3" not in value, materialized=cs.Materialized(store=name)
        ),
    },
}
TURNS = {"to table": "table", "to stream": "stream"}


def test_ways_of_one_record(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, one_source(Random(f"ways {seed}")))


def test_tables_of_joins(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, joined_table(Random(f"joins {seed}")))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("make", ["ways", "joins"])
def test_for_long(oracle: Oracle, make: str) -> None:
    for seed in range(CASES, NIGHTLY):
        rng = Random(f"{make} {seed}")
        compare(oracle, one_source(rng) if make == "ways" else joined_table(rng))


def compare(oracle: Oracle, case: Case) -> None:
    kafka, ours = oracle.run(case)["expected"], run(case)
    for input_, theirs, own in zip(case["inputs"], kafka, ours, strict=True):
        assert same(theirs, own), f"{input_}: Kafka gives {theirs}, we {own}\n{case['joins']}"


def one_source(rng: Random) -> Case:
    """Operators on one source, of which a stream joins a table at last."""
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


def made(joins: list[dict[str, Any]], inputs: list[dict[str, Any]]) -> Case:
    last = joins[-1]
    params = {"joiner": JOINERS[0]}
    return {
        "operator": last["operator"],
        "type": last["type"],
        "params": params,
        "joins": joins,
        "inputs": inputs,
    }


def run(case: Case) -> list[list[dict[str, Any]]]:
    """The case through our driver, one record at a time."""
    with cs.TopologyTestDriver(topology(case)) as driver:
        used = {name for one in case["joins"] for name in (one["left"], one["right"])}
        topics = {
            side: driver.create_input_topic(side, TEXT, TEXT) for side in {"left", "right", "third"} & used
        }
        results = driver.create_output_topic("results", TEXT, TEXT)
        found = []
        for item in case["inputs"]:
            topics[item["side"]].pipe_input(item["key"], item["value"], item["ts"])
            found.append([{"key": o.key, "value": o.value, "ts": o.ts} for o in read(results)])
    return found


def topology(case: Case) -> cs.Topology:
    builder, consumed = cs.StreamsBuilder(), cs.Consumed(key=TEXT, value=TEXT)
    nodes: dict[str, Any] = {}

    def node(name: str, shape: str) -> Any:
        if name not in nodes:
            nodes[name] = getattr(builder, shape)(name, consumed)
        return nodes[name]

    for one in case["joins"]:
        joiner = user_joiner(one.get("joiner", case["params"]["joiner"]), "callables")
        if one["operator"] == "derived":
            shape = next(shape for shape, ways in DERIVED.items() if one["type"] in ways)
            made_ = DERIVED[shape][one["type"]](node(one["left"], shape), f"{one['id']}-kept")
        elif one["operator"] == "stream-table":
            method = getattr(node(one["left"], "stream"), METHODS[one["type"]])
            made_ = method(node(one["right"], "table"), joiner, cs.Joined(key=TEXT, value=TEXT))
        else:
            by = {"foreign_key": user_extractor(EXTRACTOR, "callables")} if "fk_extractor" in one else {}
            method = getattr(node(one["left"], "table"), METHODS[one["type"]])
            made_ = method(node(one["right"], "table"), joiner, **by)
        nodes[one["id"]] = made_
    made_.to("results", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()
