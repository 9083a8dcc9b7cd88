"""A stream looks up any composition of table operators as it is after all that came before the record.

The table is what the composition of relations gives for the inputs so far, for every cut into batches: no change
may be left out on the way, whatever operators it passes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from tests.conformance.compare import assert_same_by_input, by_key
from tests.conformance.runner import read
from tests.laws.effort import law
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import KEYS, VALUES, Inputs
from tests.laws.trees import SIDES, SOURCES, TEXT, Builder, Tree, extract, join_values, meaning, trees
from tests.reference import Output

STREAM = "stream"

REFERRING: Inputs = [
    *({"side": "right", "key": key, "value": f"{key};x", "ts": 0} for key in KEYS[:2]),
    *({"side": "left", "key": KEYS[0], "value": f"{KEYS[n % 2]};{n}", "ts": n} for n in range(1, 8)),
]
"""A row that refers to one right row and to the other in turn."""

ONE_OF_EACH: Inputs = [
    {"side": side, "key": KEYS[n], "value": f"s{n}", "ts": 0} for n, side in enumerate(["left", STREAM])
]


@st.composite
def inputs(draw: st.DrawFn) -> Inputs:
    """Some dozens of records about three keys; they come from a seed, for drawing each would take too long."""
    rng = Random(draw(st.integers(0, 2**32)))
    part = [*KEYS, "-"]
    found, clock = [], 0
    for number in range(draw(st.integers(0, 50))):
        clock += rng.randint(0, 3)
        side = rng.choice([*SIDES, STREAM, STREAM])
        value = f"{rng.choice(part)};{rng.choice(part)};{rng.choice(VALUES)}{number}"
        given_ = {"side": side, "key": rng.choice([*KEYS, *KEYS, None])}
        given_["value"] = None if rng.random() < 0.15 else f"s{number}" if side == STREAM else value
        found.append({**given_, "ts": max(0, clock - rng.choice([0, 0, 0, 5]))})
    return found


@law
@given(trees, inputs(), st.sampled_from(["inner", "left"]), ways(by_record=True))
def test_one_record_at_a_time(tree: Tree, given_: Inputs, kind: str, way: Way) -> None:
    check(tree, given_, kind, way)


@law
@given(trees, inputs(), st.sampled_from(["inner", "left"]), ways())
def test_no_cut_into_batches_changes_a_record(tree: Tree, given_: Inputs, kind: str, way: Way) -> None:
    check(tree, given_, kind, way)


@law
@given(st.sampled_from(["inner", "left"]), inputs(), st.sampled_from(["inner", "left"]), ways())
def test_a_table_joined_with_a_global_one(by: str, given_: Inputs, kind: str, way: Way) -> None:
    left, right, _ = SOURCES
    check(Tree("foreign key", (left, right), (by, 0, "hash", "hash")), given_, kind, way, WithGlobal())


@law
@given(trees, trees, inputs(), ways())
def test_the_changes_of_a_table_as_a_stream(one: Tree, other: Tree, given_: Inputs, way: Way) -> None:
    """In any batches a stream made of a table has every change; so it finds what it finds record by record."""
    ends = way.ends(len(given_))
    found = run(one, given_, "left", way, Builder(), other)
    taken = as_taken({"inputs": given_}, way, (*SIDES, STREAM))["inputs"]
    each = run(one, taken, "left", Way(way.partitions, bits=way.bits), Builder(), other)
    wanted = [
        [output for single in each[a:b] for output in single] for a, b in zip([0, *ends], ends, strict=False)
    ]
    assert_same_by_input(found, wanted)


@law
@given(trees, inputs(), ways(), st.booleans())
@example(
    Tree("foreign key", tuple(SOURCES[:2]), ("inner", 0, "hash", "hash")), REFERRING, Way(every=100), False
)
@example(Tree("foreign key", tuple(SOURCES[:2]), ("left", 0, "hash", "hash")), REFERRING, Way(3, 100), True)
def test_the_changes_of_a_table_reach_everyone_in_order(
    tree: Tree, given_: Inputs, way: Way, looked_up: bool
) -> None:
    check_order(tree, given_, way, Builder(), looked_up)


@law
@given(st.sampled_from(["inner", "left"]), inputs(), ways(), st.booleans())
@example("inner", REFERRING, Way(every=100), True)
def test_so_do_those_of_a_join_with_a_global_table(
    by: str, given_: Inputs, way: Way, looked_up: bool
) -> None:
    left, right, _ = SOURCES
    tree = Tree("foreign key", (left, right), (by, 0, "hash", "hash"))
    check_order(tree, given_, way, WithGlobal(), looked_up)


SORTED_OUT: dict[str, Callable[[cs.KStream], cs.KStream]] = {
    "filter": lambda changes: changes.filter(lambda value: value is None or zlib.crc32(value.encode()) % 2),
    "flat_map_values": lambda changes: changes.flat_map_values(
        lambda value: [value] * (zlib.crc32((value or "").encode()) % 3)
    ),
    "branch": lambda changes: (
        changes.split().branch(lambda value: value and "x" in value, "some").no_default_branch()["some"]
    ),
    "select_key": lambda changes: changes.select_key(lambda value: value and value[-1]),
    "mapped": lambda changes: changes.map(lambda key, value: (value and value[-1], value)),
}
"""What may leave a change of a row out, or give it the key of another row."""


@law
@given(trees, st.sampled_from(sorted(SORTED_OUT)), inputs(), ways())
@example(Tree("map_values", tuple(SOURCES[:1]), ("mark",)), "filter", REFERRING, Way(every=100))
@example(Tree("join", tuple(SOURCES[:2]), ("left",)), "select_key", REFERRING, Way(every=100))
def test_some_changes_of_a_table_make_another_one(tree: Tree, by: str, given_: Inputs, way: Way) -> None:
    """No change may be missing where the last one of a row is not the one that counts."""
    if by in ("select_key", "mapped"):  # rows of several partitions get one key, in no order between these
        way = replace(way, partitions=1)
    if tree.what == "table":  # its records go by as they are read, in no order between partitions
        way = replace(way, places=(0,))
    taken = as_taken({"inputs": given_}, way, (*SIDES, STREAM))["inputs"]
    each = run_sorted_out(tree, by, taken, Way(way.partitions, bits=way.bits))
    ends = way.ends(len(given_))
    assert run_sorted_out(tree, by, given_, way) == [each[end - 1] for end in ends]


def run_sorted_out(tree: Tree, by: str, given_: Inputs, way: Way) -> list[dict[str, str]]:
    """After each batch the table that is made of some changes of the tree."""
    build = Builder()
    changes = build.table_of(tree).to_stream()
    SORTED_OUT[by](changes).to_table(materialized=cs.Materialized(store="sorted-out", key=TEXT, value=TEXT))
    found = []
    with way.driver(build.builder.build()) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in SIDES}
        for _, ended in way.pipe(driver, topics, given_):
            if ended:
                found.append(dict(driver.get_key_value_store("sorted-out").all()))
    return found


@law
@given(trees, trees, inputs(), ways(), st.booleans())
@example(SOURCES[0], SOURCES[1], ONE_OF_EACH, Way(every=100), True)
def test_the_changes_of_a_table_meet_other_streams(
    one: Tree, other: Tree, given_: Inputs, way: Way, versioned: bool
) -> None:
    """Merged with what another stream looks up they make a table: in any batches the same changes of it."""
    if one.what == "table":
        way = replace(way, places=(0,))
    ends = way.ends(len(given_))
    taken = as_taken({"inputs": given_}, way, (*SIDES, STREAM))["inputs"]
    cut = run_merged(one, other, given_, way, versioned)
    each = run_merged(one, other, taken, Way(way.partitions, bits=way.bits), versioned)
    parts = zip([0, *ends], ends, strict=False)
    assert_same_by_input(cut, [[output for single in each[a:b] for output in single] for a, b in parts])


@dataclass
class Versioned(Builder):
    """The left table keeps versions."""

    def _table(self, tree: Tree) -> Any:
        kept = cs.Materialized(history_retention="1 hour") if tree.settings[0] == "left" else None
        return self.builder.table(tree.settings[0], cs.Consumed(key=TEXT, value=TEXT), kept)


def run_merged(one: Tree, other: Tree, given_: Inputs, way: Way, versioned: bool) -> list[list[Output]]:
    """What each batch gives where the changes of one tree are merged with a stream that looks another one up."""
    build = Versioned() if versioned else Builder()
    changes, table = build.table_of(one).to_stream(), build.table(other)
    stream = build.builder.stream(STREAM, cs.Consumed(key=TEXT, value=TEXT)).left_join(table, join_values)
    nothing = build.builder.global_table("nothing", cs.Consumed(key=TEXT, value=TEXT))
    kept = cs.Materialized(store="merged", key=TEXT, value=TEXT)
    merged = changes.merge(stream).to_table(materialized=kept).to_stream()
    followed = merged.left_join(nothing, join_values, key_selector=lambda value: None)
    followed.to("results", cs.Produced(key=TEXT, value=TEXT))
    return of_each_batch(build, given_, way)


def of_each_batch(build: Builder, given_: Inputs, way: Way) -> list[list[Output]]:
    """What comes to ``results`` in each batch."""
    found = []
    with way.driver(build.builder.build()) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in (*SIDES, STREAM)}
        results = driver.create_output_topic("results", TEXT, TEXT)
        for _, ended in way.pipe(driver, topics, given_):
            if ended:
                found.append(read(results))
    return found


@dataclass
class WithGlobal(Builder):
    """The right table as a global one."""

    def _table(self, tree: Tree) -> Any:
        consumed = cs.Consumed(key=TEXT, value=TEXT)
        if tree.settings[0] == "right":
            return self.builder.global_table("right", consumed)
        return self.builder.table(tree.settings[0], consumed)

    def _foreign_key(self, tree: Tree) -> Any:
        left, right = map(self.table, tree.parts)
        join = left.join if tree.settings[0] == "inner" else left.left_join
        return join(right, join_values, foreign_key=extract(tree.settings[1]))


def check_order(tree: Tree, given_: Inputs, way: Way, build: Builder, looked_up: bool) -> None:
    """A topic has for each key changes of one record after the other, the last one last; a stream join all of them."""
    if tree.what == "table":  # its records go by as they are read, in no order between partitions
        way = replace(way, places=(0,))
    ends = way.ends(len(given_))
    taken = as_taken({"inputs": given_}, way, (*SIDES, STREAM))["inputs"]
    cut = run_changes(tree, given_, way, build, looked_up)
    each = run_changes(tree, taken, Way(way.partitions, bits=way.bits), type(build)(), looked_up)
    starts = [0, *ends]
    for name in ("changes", "followed"):
        wanted = [
            [output for single in each[name][a:b] for output in single]
            for a, b in zip(starts, ends, strict=False)
        ]
        if name == "followed":
            assert_same_by_input(cut[name], wanted)
            continue
        for found, all_of_them in zip(cut[name], wanted, strict=True):
            assert_in_order(by_key(found), by_key(all_of_them))


def assert_in_order(found: dict[Any, list[Output]], wanted: dict[Any, list[Output]]) -> None:
    """Of each key changes in order, the last one among them."""
    for key, changes in found.items():
        assert changes[-1] == wanted[key][-1]
        rest = iter(wanted[key])
        assert all(change in rest for change in changes), (changes, wanted[key])


def run_changes(
    tree: Tree, given_: Inputs, way: Way, build: Builder, looked_up: bool
) -> dict[str, list[list[Output]]]:
    """What each batch gives to a topic of the changes, and to a join that reads them as a stream."""
    changes = build.table_of(tree).to_stream()
    other = build.builder.global_table("other", cs.Consumed(key=TEXT, value=TEXT))
    stream = build.builder.stream(STREAM, cs.Consumed(key=TEXT, value=TEXT))
    if looked_up:
        stream.join(build.table(tree), join_values).foreach(lambda key, value: None)
    produced = cs.Produced(key=TEXT, value=TEXT)
    changes.to("changes", produced)
    changes.left_join(other, join_values, key_selector=lambda value: None).to("followed", produced)
    found: dict[str, list[list[Output]]] = {"changes": [], "followed": []}
    with way.driver(build.builder.build()) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in (*SIDES, STREAM)}
        results = {name: driver.create_output_topic(name, TEXT, TEXT) for name in found}
        for _, ended in way.pipe(driver, topics, given_):
            for name in found if ended else ():
                found[name].append(read(results[name]))
    return found


def check(tree: Tree, given_: Inputs, kind: str, way: Way, build: Builder | None = None) -> None:
    ends = way.ends(len(given_))
    found = run(tree, given_, kind, way, build or Builder())
    taken = as_taken({"inputs": given_}, way, (*SIDES, STREAM))["inputs"]
    wanted = [result(tree, taken, number, kind) for number in range(len(taken))]
    batches = [wanted[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert_same_by_input(found, [[output for one in batch for output in one] for batch in batches])


def run(
    tree: Tree, given_: Inputs, kind: str, way: Way, build: Builder, changes: Tree | None = None
) -> list[list[Output]]:
    """What each batch gives. ``changes``: a tree whose changes are the stream, instead of a topic's records."""
    table = build.table_of(tree)
    stream = build.builder.stream(STREAM, cs.Consumed(key=TEXT, value=TEXT))
    if changes is not None:
        stream = build.table(changes).to_stream()
    joined = (stream.join if kind == "inner" else stream.left_join)(table, join_values)
    joined.to("results", cs.Produced(key=TEXT, value=TEXT))
    return of_each_batch(build, given_, way)


def result(tree: Tree, taken: list[Any], number: int, kind: str) -> list[Output]:
    """What one input gives: what its key has in the table that all inputs before it make."""
    item = taken[number]
    if item["side"] != STREAM or item["value"] is None or (item["key"] is None and kind == "inner"):
        return []
    row = meaning(tree, taken[:number]).get(item["key"])
    if row is None and kind == "inner":
        return []
    return [Output(item["key"], join_values(item["value"], row), item["ts"])]
