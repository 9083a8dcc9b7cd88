"""Law: `nest` gives each parent with its children as both tables are, after every batch, in any cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.conformance.compare import assert_same_table
from tests.conformance.runner import per_batch, read
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import Inputs, records
from tests.reference import Output

TEXT = serdes.string()
PARENT = serdes.json({"name": pl.String})
CHILD = serdes.json({"parent": pl.String, "note": pl.String})
SIDES: dict[str, Any] = {
    "left": (st.sampled_from("abc"), st.sampled_from("123")),
    "right": (st.sampled_from("xyzw"), st.sampled_from(["a1", "a2", "b1", "c1", "-1", "d1"])),
}
"""A child's value is the key of its parent and a note; "-": it has none."""
MOVED: Inputs = [
    {"side": "left", "key": "a", "value": "1", "ts": 0},
    {"side": "left", "key": "b", "value": "1", "ts": 0},
    {"side": "right", "key": "y", "value": "a1", "ts": 0},
    {"side": "right", "key": "x", "value": "a1", "ts": 0},
    {"side": "right", "key": "y", "value": "b1", "ts": 0},
    {"side": "left", "key": "a", "value": None, "ts": 0},
    {"side": "left", "key": "a", "value": "2", "ts": 0},
    {"side": "right", "key": "x", "value": None, "ts": 0},
]


@given(records(SIDES, max_size=24), ways())
@example(MOVED, Way())
@example(MOVED, Way(partitions=3, every=1000, places=(0, 1, 2)))
def test_a_parent_has_its_children_after_every_batch(inputs: Inputs, way: Way) -> None:
    taken = as_taken({"inputs": inputs}, way, ("left", "right"))["inputs"]
    ends = way.ends(len(inputs))
    emitted: list[Output] = []
    for end, batch in zip(ends, per_batch(outputs_of(inputs, way), ends), strict=True):
        emitted += batch
        assert_same_table(emitted, nested(taken[:end]))


def nested(inputs: Inputs) -> dict[str, Any]:
    """The parents with their children, computed from what both tables are in the end."""
    sides: dict[str, dict[str, Any]] = {"left": {}, "right": {}}
    for item in inputs:
        if item["key"] is None:
            continue
        if item["value"] is None:
            sides[item["side"]].pop(item["key"], None)
        else:
            sides[item["side"]][item["key"]] = row(item)
    children = sorted(sides["right"].items())
    return {
        key: {**parent, "children": [child for _, child in children if child["parent"] == key]}
        for key, parent in sides["left"].items()
    }


def row(item: Mapping[str, Any]) -> Any:
    value = item["value"]
    if value is None:
        return None
    if item["side"] == "left":
        return {"name": value}
    return {"parent": None if value[0] == "-" else value[0], "note": value[1:]}


def outputs_of(inputs: Sequence[Any], way: Way) -> list[list[Output]]:
    builder = cs.StreamsBuilder()
    parents = builder.table("left", cs.Consumed(key=TEXT, value=PARENT))
    children = builder.table("right", cs.Consumed(key=TEXT, value=CHILD))
    parents.nest(children, foreign_key="parent", into="children").to("out")
    outputs: list[list[Output]] = []
    with way.driver(builder.build()) as driver:
        topics = {
            "left": driver.create_input_topic("left", TEXT, PARENT),
            "right": driver.create_input_topic("right", TEXT, CHILD),
        }
        results = driver.create_output_topic("out")
        for _ in way.pipe(driver, topics, [{**item, "value": row(item)} for item in inputs]):
            outputs.append(read(results))
    return outputs
