"""Topologies of joins and of operators with one parent, through Kafka's own driver and ours.

A case as in `cases.py`, whose joins may also have the operator "derived": ``type`` says which of `DERIVED` it is.
"""

from __future__ import annotations

from typing import Any

import crossstream as cs
from crossstream import serdes
from tests.conformance.functions import user_extractor, user_joiner, user_selector
from tests.conformance.runner import METHODS, read
from tests.oracle.cases import JOINERS, Case, join
from tests.oracle.compare import same
from tests.oracle.oracle import Oracle
from tests.reference import Output
from tests.reference.chain import headers_of

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
WITH_VERSIONS: dict[str, dict[str, Any]] = {
    "stream": {
        "to table with versions": lambda stream, name: stream.to_table(materialized=versions(name)),
    },
    "table": {
        "map with versions": lambda table, name: table.map_values(
            lambda value: value + "'", materialized=versions(name)
        ),
        "filter with versions": lambda table, name: table.filter(
            lambda value: "3" not in value, materialized=versions(name)
        ),
    },
}
"""Beside `DERIVED`: what has a versioned store of its own."""
CHANGING: dict[str, dict[str, Any]] = {
    "stream": {
        "key of value": lambda stream, _: stream.select_key(lambda key, value: named(value)),
        "map both": lambda stream, _: stream.map(
            lambda key, value: (named(value), None if value is None else value + "^")
        ),
        "only some": lambda stream, _: stream.filter(lambda value: value is None or "3" not in value),
        "some to null": lambda stream, _: stream.map_values(
            lambda value: None if value is None or "2" in value else value
        ),
        "twice": lambda stream, _: stream.flat_map_values(
            lambda value: [] if value is None else [value, value + "!"]
        ),
        "under both keys": lambda stream, _: stream.flat_map(
            lambda key, value: [(key, value), (named(value), value)]
        ),
    },
    "table": {
        "to stream by value": lambda table, _: table.to_stream(lambda key, value: named(value)),
        "map some": lambda table, _: table.map_values(lambda value: None if "2" in value else value),
        "map some kept": lambda table, name: table.map_values(
            lambda value: None if "2" in value else value,
            materialized=cs.Materialized(store=name, value=TEXT),
        ),
        "filter not": lambda table, _: table.filter_not(lambda value: "3" in value),
        "filter not kept": lambda table, name: table.filter_not(
            lambda value: "3" in value, materialized=cs.Materialized(store=name)
        ),
    },
}
"""Beside `DERIVED`: what makes other keys, nulls, or another number of records."""


def named(value: str | None) -> str | None:
    """The key that a value begins with; None for "-" and for no value."""
    return None if value is None or value.startswith("-") else value[0]


def versions(name: str) -> cs.Materialized:
    return cs.Materialized(store=name, key=TEXT, value=TEXT, history_retention="1 hour")


def compare(oracle: Oracle, case: Case, drops: bool = True) -> None:
    """``drops``: how many records are dropped is compared too."""
    kafka, (ours, dropped) = oracle.run(case), run(case)
    for input_, theirs, own in zip(case["inputs"], kafka["expected"], ours, strict=True):
        assert same(theirs, own), f"{input_}: Kafka gives {theirs}, we {own}\n{case['joins']}"
    assert not drops or joins_itself(case) or dropped == kafka["dropped"], case


def joins_itself(case: Case) -> bool:
    """Whether a stream is joined with itself: Kafka then counts what it drops twice (semantics 2.1.8)."""
    return any(one["operator"] == "stream-stream" and one["left"] == one["right"] for one in case["joins"])


def derive(joins: list[dict[str, Any]], kind: str, parent: str) -> str:
    """Adds an operator of one parent to the joins of a case; its name."""
    joins.append(join(f"n{len(joins)}", "derived", kind, parent, parent))
    return str(joins[-1]["id"])


def tells_old_rows(joins: list[dict[str, Any]], table: str) -> bool:
    """Whether Kafka keeps a table, or what it is derived from: else its filters know nothing of old rows (2.2.5).

    It keeps what has a name, and joins by key.
    """
    made_by = {one["id"]: one for one in joins}
    while table in made_by and made_by[table]["type"] in ("map", "map some", "filter", "filter not"):
        table = made_by[table]["left"]
    return table in made_by and made_by[table]["operator"] != "table-table-fk"


def made(joins: list[dict[str, Any]], inputs: list[dict[str, Any]], **params: Any) -> Case:
    last = joins[-1]
    params = {"joiner": JOINERS[0], **params}
    return {
        "operator": last["operator"],
        "type": last["type"],
        "params": params,
        "joins": joins,
        "inputs": inputs,
    }


def run(case: Case) -> tuple[list[list[dict[str, Any]]], int]:
    """The case through our driver, one record at a time: what each input gives, and how many records were dropped."""
    made_ = {one["id"] for one in case["joins"]}
    sides = {name for one in case["joins"] for name in (one["left"], one["right"])} - made_
    with cs.TopologyTestDriver(topology(case)) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in sides}
        results = driver.create_output_topic("results", TEXT, TEXT)
        found = []
        for item in case["inputs"]:
            topics[item["side"]].pipe_input(item["key"], item["value"], item["ts"], headers_of(item))
            found.append([row(output) for output in read(results)])
        return found, driver.metrics()["dropped-records-total"]


def row(output: Output) -> dict[str, Any]:
    found: dict[str, Any] = {"key": output.key, "value": output.value, "ts": output.ts}
    headers = {name: value.hex() for name, value in output.headers}
    return {**found, "headers": headers} if headers else found


def topology(case: Case) -> cs.Topology:
    builder, consumed = cs.StreamsBuilder(), cs.Consumed(key=TEXT, value=TEXT)
    nodes: dict[str, Any] = {}

    def node(name: str, shape: str) -> Any:
        if name not in nodes:
            nodes[name] = getattr(builder, shape)(name, consumed)
        return nodes[name]

    ways = {shape: DERIVED[shape] | WITH_VERSIONS[shape] | CHANGING[shape] for shape in DERIVED}
    for one in case["joins"]:
        joiner = user_joiner(one.get("joiner", case["params"]["joiner"]), "callables")
        if one["type"] == "merge":
            made_ = node(one["left"], "stream").merge(node(one["right"], "stream"))
        elif one["operator"] == "derived":
            shape = next(shape for shape in ways if one["type"] in ways[shape])
            made_ = ways[shape][one["type"]](node(one["left"], shape), f"{one['id']}-kept")
        elif one["operator"] == "stream-table":
            method = getattr(node(one["left"], "stream"), METHODS[one["type"]])
            joined = cs.Joined(key=TEXT, value=TEXT, grace=case["params"].get("stream_grace_ms"))
            made_ = method(node(one["right"], "table"), joiner, joined)
        elif one["operator"] == "stream-globaltable":
            method = getattr(node(one["left"], "stream"), METHODS[one["type"]])
            selector = user_selector(one["key_mapper"], "callables")
            made_ = method(node(one["right"], "global_table"), joiner, key_selector=selector)
        elif one["operator"] == "stream-stream":
            method = getattr(node(one["left"], "stream"), METHODS[one["type"]])
            serdes_ = cs.StreamJoined(key=TEXT, value=TEXT, other_value=TEXT)
            made_ = method(node(one["right"], "stream"), joiner, windows(one), serdes_)
        else:
            extractor = one.get("fk_extractor")
            by = {} if extractor is None else {"foreign_key": user_extractor(extractor, "callables")}
            method = getattr(node(one["left"], "table"), METHODS[one["type"]])
            made_ = method(node(one["right"], "table"), joiner, **by)
        nodes[one["id"]] = made_
    made_.to("results", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def windows(one: dict[str, Any]) -> cs.JoinWindows:
    before, after, grace = (one["window"][name] for name in ("before_ms", "after_ms", "grace_ms"))
    return cs.JoinWindows(before=before, after=after, grace=grace, eager=one["eager"])
