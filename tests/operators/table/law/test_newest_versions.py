"""A result that keeps versions is the table that the operator makes, whatever times its changes have.

    law    after any input the newest versions in the store, the rows that a further join and a look-up see, and what
           the topic of the changes ends with are the same; and those are what the operator makes of the rows there are
           now, if the tables it is made of keep no versions

A topic ends with its last record of a key; of tables with versions with that of the newest time, for late versions of
theirs are among its records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from tests.conformance.runner import read
from tests.laws.effort import law
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import KEYS, Inputs
from tests.laws.trees import SIDES, SOURCES, TEXT, Tree, inputs_of_trees, meaning, trees
from tests.operators.table.law.test_versions import (
    EITHER,
    Versioned,
    WithGlobal,
    WithRowsOfEither,
    given_,
    histories,
)
from tests.reference import Output

LEFT, RIGHT, _ = SOURCES
KEY = cs.serdes.left_or_right(TEXT, TEXT)
RETENTION = st.sampled_from([1, 4, 1000])
BY_REFERENCE = Tree("foreign key", (LEFT, RIGHT), ("left", 0, "hash", "hash"))
BACK = given_(("right", "b", "b1", 2), ("left", "a", "b;x", 26), ("right", "b", "b2", 3))
"""The result of the last one has the time 3, and that before it 26."""
LATER = 10_000
"""A time after all others."""

Contents = dict[Any, Any]


@dataclass
class Found:
    """What there is after a batch, asked for in all ways: the rows of the table, as ``topic`` ends with them too."""

    store: Contents
    joined: Contents
    looked_up: Contents
    topic: list[Output]


results = trees.filter(lambda tree: tree.what not in ("table", "through", "re-keyed"))
"""Not what is made of records, each of which has a time of its own."""


@law
@given(results, inputs_of_trees(), RETENTION, ways())
@example(BY_REFERENCE, BACK, 1000, Way())
@example(Tree("filter", (LEFT,), ("has x",)), given_(("left", "a", "x", 9), ("left", "a", "y", 5)), 1, Way())
def test_the_rows_of_a_result_are_those_there_are_now(
    tree: Tree, inputs: Inputs, retention: int, way: Way
) -> None:
    """Of tables without versions."""
    taken = as_taken({"inputs": inputs}, way, SIDES)["inputs"]
    for end, found in zip(
        way.ends(len(inputs)),
        run(tree, inputs, way, Kept(histories=(None,), retention=retention)),
        strict=True,
    ):
        assert found.store == meaning(tree, taken[:end])
        check(found, by_arrival=True)


@law
@given(trees, inputs_of_trees(), histories, RETENTION, ways())
def test_tables_with_versions_under_it(
    tree: Tree, inputs: Inputs, of: Sequence[int | None], retention: int, way: Way
) -> None:
    for found in run(tree, inputs, way, Kept(histories=of, retention=retention)):
        check(found)


@law
@given(st.sampled_from(["inner", "left"]), inputs_of_trees(), histories, RETENTION, ways())
@example("left", BACK, (None,), 1000, Way())
def test_joins_with_a_global_table(
    kind: str, inputs: Inputs, of: Sequence[int | None], retention: int, way: Way
) -> None:
    tree = Tree("foreign key", (LEFT, RIGHT), (kind,))
    for found in run(tree, inputs, way, KeptWithGlobal(histories=of, retention=retention)):
        check(found, by_arrival=not any(of))


@law
@given(trees, trees, st.sampled_from(["right", "outer"]), inputs_of_trees(), histories, RETENTION, ways())
@example(LEFT, RIGHT, "right", BACK, (None,), 1000, Way())
def test_right_and_outer_joins_by_foreign_key(
    left: Tree, right: Tree, kind: str, inputs: Inputs, of: Sequence[int | None], retention: int, way: Way
) -> None:
    tree = Tree("either", (left, right), (kind,))
    for found in run(tree, inputs, way, KeptWithRowsOfEither(histories=of, retention=retention), KEY):
        check(found, by_arrival=not any(of))


def check(found: Found, *, by_arrival: bool = False) -> None:
    """``by_arrival``: the topic ends with these rows also for a reader that does not look at times."""
    if by_arrival:
        assert last(found.topic, lambda _: 0) == found.store
    assert found.joined == found.store
    assert found.looked_up == found.store
    assert last(found.topic, lambda output: output.ts) == found.store


def last(topic: Sequence[Output], by: Callable[[Output], int]) -> Contents:
    """The rows that the last records make; ``by``: of those records of a key that are last by it."""
    rows = {output.key: output.value for output in sorted(topic, key=by)}
    return {key: value for key, value in rows.items() if value is not None}


@dataclass
class Kept(Versioned):
    """The ``outermost`` tree keeps versions for ``retention`` ms, in a store of the name "result"."""

    retention: int = 1000
    outermost: Tree | None = None

    def _store(self, tree: Tree) -> cs.Materialized:
        kept = super()._store(tree)
        if tree != self.outermost:
            return kept
        return replace(kept, store="result", history_retention=self.retention)


@dataclass
class KeptWithGlobal(Kept, WithGlobal):
    """The right table is a global one."""


@dataclass
class KeptWithRowsOfEither(Kept, WithRowsOfEither):
    """Rows of the right table are in the result too."""


def run(tree: Tree, inputs: Inputs, way: Way, build: Kept, key: Any = TEXT) -> list[Found]:
    """What there is after each batch."""
    build.outermost = tree
    table, of_key = build.table_of(tree), cs.Consumed(key=key, value=TEXT)
    produced = cs.Produced(key=key, value=TEXT)
    table.to_stream().to("results", produced)
    joined = cs.Materialized(store="joined", key=key, value=TEXT)
    table.left_join(build.builder.table("nothing", of_key), lambda row, nothing: row, materialized=joined)
    build.builder.stream("probes", of_key).join(table, lambda probe, row: row).to("seen", produced)
    found, topic = [], []
    with way.driver(build.builder.build()) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in SIDES}
        probes = driver.create_input_topic("probes", key, TEXT)
        results, seen = (driver.create_output_topic(name, key, TEXT) for name in ("results", "seen"))
        for _, ended in way.pipe(driver, topics, inputs):
            if ended:
                for one in KEYS if key is TEXT else EITHER:
                    probes.pipe_input(one, "", LATER)
                driver.commit()
                topic += read(results)
                stores = driver.get_versioned_store("result"), driver.get_key_value_store("joined")
                looked_up = {output.key: output.value for output in read(seen)}
                found.append(Found(*(dict(store.all()) for store in stores), looked_up, list(topic)))
    return found
