"""Any composition of table operators gives the table that the composition of relations gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.conformance.compare import assert_same_table, by_key
from tests.conformance.runner import read
from tests.laws.effort import law
from tests.laws.engine import Way, as_taken, ways
from tests.laws.rescaling import rescaling
from tests.laws.strategies import Inputs
from tests.laws.trees import SIDES, SOURCES, TEXT, Builder, Tree, inputs_of_trees, many_inputs, meaning, trees
from tests.reference import Output, fold

MANY = Tree("many", (SOURCES[0],) * 3, ("left",))
MANY_OF_MANY = Tree("many", (SOURCES[1], MANY, SOURCES[0]), ("left",))
ONE_OF_TWO: Inputs = [
    *({"side": "left", "key": key, "value": "-;-;x", "ts": 0} for key in "ba"),
    {"side": "right", "key": "c", "value": "a;-;y", "ts": 0},
]
"""Two rows, in another order than that of their hashes, and one that refers to one of them."""


@law
@given(trees, inputs_of_trees(), ways(by_record=True))
def test_after_every_record(tree: Tree, inputs: Inputs, way: Way) -> None:
    check(tree, inputs, way)


@law
@given(trees, inputs_of_trees(), ways())
def test_after_every_batch(tree: Tree, inputs: Inputs, way: Way) -> None:
    check(tree, inputs, way)


@law
@given(trees, many_inputs(), ways(), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_with_other_numbers_of_partitions_between_batches(
    tree: Tree, inputs: Inputs, way: Way, numbers: list[int]
) -> None:
    check(tree, inputs, way, between=rescaling(numbers))


SERDES = [None, TEXT, serdes.json(str)]


@dataclass
class Kept(Builder):
    """Each table keeps its values in ``kept``, and goes to a topic too, in ``copied`` (None: it does not)."""

    kept: Any = None
    copied: Any = None

    def _store(self, tree: Tree) -> cs.Materialized:
        return replace(super()._store(tree), value=self.kept)

    def table(self, tree: Tree) -> Any:
        if tree not in self.made:
            table = super().table(tree)
            if self.copied is not None:
                table.to_stream().to(f"copy-{len(self.made)}", cs.Produced(key=TEXT, value=self.copied))
        return self.made[tree]


@law
@given(trees, inputs_of_trees(), ways(), st.sampled_from(SERDES), st.sampled_from(SERDES))
@example(MANY_OF_MANY, ONE_OF_TWO, Way(every=100), TEXT, None)
def test_serdes_change_no_row(tree: Tree, inputs: Inputs, way: Way, kept: Any, copied: Any) -> None:
    """Nor does it matter who else wants bytes of a value, in which serde. Without one nothing declares its type."""
    check(by_callables(tree) if kept is None else tree, inputs, way, Kept(kept=kept, copied=copied))


def by_callables(tree: Tree) -> Tree:
    return replace(tree, parts=tuple(map(by_callables, tree.parts)), expressed=False)


def check(
    tree: Tree,
    inputs: Inputs,
    way: Way,
    build: Builder | None = None,
    between: Callable[[cs.TopologyTestDriver], None] = lambda driver: None,
) -> None:
    """``between``: is called after each batch."""
    if tree.what == "table":  # its records go by as they are read, in no order between partitions
        way = replace(way, places=(0,))
    taken = as_taken({"inputs": inputs}, way, SIDES)["inputs"]
    emitted: list[Output] = []
    topology = (build or Builder()).topology(tree)
    with way.driver(topology) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in SIDES}
        results = driver.create_output_topic("results", TEXT, TEXT)
        for count, ended in way.pipe(driver, topics, inputs):
            if ended:
                batch = read(results)
                if tree.what != "table":
                    assert all(len(changes) == 1 for changes in by_key(batch).values()), batch
                emitted += batch
                between(driver)
                rows = meaning(tree, taken[:count])
                assert_same_table(emitted, rows)
        rows = meaning(tree, taken)
        for store in stores(topology) if tree.stored else []:
            assert dict(driver.get_key_value_store(store).all()) == rows
    assert {key: value for key, (value, _) in fold(emitted).items()} == rows


def stores(topology: cs.Topology) -> list[str]:
    """The store of the tree itself: the last one that was named."""
    found = [node.store.name for node in topology if getattr(node, "store", None) is not None]
    return [name for name in found if name is not None][-1:]
