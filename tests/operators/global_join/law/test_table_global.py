"""The join of a table and a global table, through the driver: what a foreign-key join of two tables gives."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.conformance.compare import assert_same_table
from tests.conformance.runner import per_batch, read
from tests.laws.effort import law
from tests.laws.engine import Way, as_taken, rows_of, run_engine, ways
from tests.laws.strategies import (
    Case,
    Inputs,
    foreign_key_cases,
    foreign_keys,
    keys,
    known_keys,
    left_rows,
    records,
    rows,
)

TEXT = serdes.string()


def with_global(case: Case) -> Case:
    """The foreign-key join with its right table as a global one, which keeps no versions."""
    params: dict[str, Any] = {**case["params"], "right_versioned_ms": None, "global": True}
    return {**case, "params": params}


table_global_cases = foreign_key_cases().map(with_global)


@law
@given(foreign_key_cases(versioned=False), ways(), st.booleans())
def test_a_global_table_joins_like_a_table(case: Case, way: Way, every: bool) -> None:
    """Also batch by batch, with timestamps, as long as one thing happens in a batch."""
    way = Way(way.partitions, 1, places=way.places, bits=way.bits, stored=way.stored) if every else way
    here, there = run_engine(case, way), run_engine(with_global(case), way)
    assert rows_of(here) == rows_of(there)
    if every:
        assert [sorted(map(str, outputs)) for outputs in here.outputs] == [
            sorted(map(str, outputs)) for outputs in there.outputs
        ]


KEPT_THEN_CHANGED = {"side": "left", "key": "a", "value": "1;x", "ts": 0}
CHANGE = {"side": "right", "key": "1", "value": "y", "ts": 1}
MIXED = {"left": (keys, left_rows), "right": (foreign_keys, rows), "third": (known_keys, st.just("x"))}


@law
@given(records(MIXED, max_size=24), ways(), st.sampled_from(["join", "left_join"]))
def test_streams_see_every_change_of_the_result_in_any_batches(inputs: Inputs, way: Way, kind: str) -> None:
    """A stream that looks the result up, and one that is made of its changes, are cut anywhere and stay the same."""
    ends = way.ends(len(inputs))
    in_order = as_taken({"inputs": inputs}, way)["inputs"]
    cut, single = downstream(inputs, way, kind, ends), downstream(in_order, Way(), kind, None)
    found, wanted = ([by_topic_and_key(batch) for batch in per_batch(made, ends)] for made in (cut, single))
    assert found == wanted


def by_topic_and_key(batch: list[Any]) -> dict[Any, list[Any]]:
    """The records of each key of a topic, in order."""
    found: dict[Any, list[Any]] = {}
    for topic, record in batch:
        found.setdefault((topic, record.key), []).append(record)
    return found


def downstream(inputs: Inputs, way: Way, kind: str, ends: list[int] | None) -> list[list[Any]]:
    """What comes out after each input; ``ends``: where batches end, None: after each."""
    every = 1 if ends is None else len(inputs) + 1
    made: list[list[Any]] = []
    with cs.TopologyTestDriver(
        followed(kind), partitions=way.partitions, commit_every=every, hash_bits=way.bits
    ) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in MIXED}
        results = [driver.create_output_topic(name, TEXT, TEXT) for name in ("looked-up", "followed")]
        for number, item in enumerate(inputs):
            place = way.place(number)
            topics[item["side"]].pipe_input(item["key"], item["value"], item["ts"], partition=place)
            if ends is not None and number + 1 in ends:
                driver.commit()
            made.append([(name, one) for name, topic in enumerate(results) for one in topic.read_records()])
    return made


def followed(kind: str) -> cs.Topology:
    """left ⋈ right (global) by foreign key; looked up by the stream third, and followed by another look-up."""
    builder = cs.StreamsBuilder()
    consumed, produced = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)
    left, right = builder.table("left", consumed), builder.global_table("right", consumed)
    third = builder.stream("third", consumed)
    result = getattr(left, kind)(right, paired, foreign_key=named)
    third.left_join(result, paired).to("looked-up", produced)
    result.to_stream().left_join(right, paired, key_selector=lambda key, value: "2").to("followed", produced)
    return builder.build()


LEFTS: dict[str, Any] = {
    "mapped": lambda left, other, right, kept: left.map_values(lambda row: row, materialized=kept),
    "filtered": lambda *tables: LEFTS["mapped"](*tables).filter(lambda row: True),
    "joined": lambda left, other, right, kept: left.left_join(other, first, materialized=kept),
    "with many": lambda left, other, right, kept: left.left_join_many(
        {"other": (other, named)}, first, materialized=kept
    ),
    "with a global one": lambda left, other, right, kept: left.left_join(
        right, first, foreign_key=named, materialized=kept
    ),
}
"""Left tables whose rows a function makes, and which are those of ``left``."""
SERDES = st.sampled_from([None, TEXT, serdes.json()])
CHANGING = {"left": (known_keys, left_rows), "right": (foreign_keys, rows), "other": (known_keys, rows)}


@law
@given(records(CHANGING, max_size=16), ways(), st.sampled_from(sorted(LEFTS)), SERDES, SERDES, st.booleans())
@example([KEPT_THEN_CHANGED, CHANGE], Way(), "mapped", TEXT, None, False)
@example([KEPT_THEN_CHANGED, CHANGE], Way(), "mapped", None, TEXT, True)
def test_serdes_of_left_rows_change_no_row(
    inputs: Inputs, way: Way, made: str, kept: Any, copied: Any, stored: bool
) -> None:
    """Nor does who else wants bytes of them. ``kept``: the serde of the left table; ``copied``: of a topic of it."""
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=TEXT)
    left, other = builder.table("left", consumed), builder.table("other", consumed)
    right = builder.global_table("right", consumed)
    store = cs.Materialized(store="kept" if stored else None, key=TEXT, value=kept)
    table = LEFTS[made](left, other, right, store)
    if copied is not None:
        table.to_stream().to("copies", cs.Produced(key=TEXT, value=copied))
    joined = table.left_join(right, paired, foreign_key=named)
    joined.to_stream().to("results", cs.Produced(key=TEXT, value=TEXT))
    found: list[Any] = []
    with way.driver(builder.build()) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in CHANGING}
        results = driver.create_output_topic("results", TEXT, TEXT)
        for _ in way.pipe(driver, topics, inputs):
            found += read(results)
    taken = as_taken({"inputs": inputs}, way, tuple(CHANGING))["inputs"]
    lefts, rights = (last_rows(taken, side) for side in ("left", "right"))
    assert_same_table(found, {key: paired(row, rights.get(named(row))) for key, row in lefts.items()})


def last_rows(inputs: Inputs, side: str) -> dict[Any, Any]:
    values = {item["key"]: item["value"] for item in inputs if item["side"] == side}
    return {key: value for key, value in values.items() if value is not None and key is not None}


def first(left: str, right: Any) -> str:
    return left


def paired(left: str, right: str | None) -> str:
    return f"{left},{right}"


def named(row: str) -> str | None:
    name = row.split(";")[0]
    return None if name == "-" else name
