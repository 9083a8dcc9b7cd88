"""Any composition of table operators gives the table that the composition of relations gives."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

import crossstream as cs
from tests.conformance.compare import assert_same_table, by_key
from tests.conformance.runner import read
from tests.laws.effort import law
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import Inputs
from tests.laws.trees import TEXT, Builder, Tree, inputs_of_trees, meaning, trees
from tests.reference import Output, fold
from tests.reference.chain import SIDES


@law
@given(trees, inputs_of_trees(), ways(by_record=True))
def test_after_every_record(tree: Tree, inputs: Inputs, way: Way) -> None:
    check(tree, inputs, way)


@law
@given(trees, inputs_of_trees(), ways())
def test_after_every_batch(tree: Tree, inputs: Inputs, way: Way) -> None:
    check(tree, inputs, way)


def check(tree: Tree, inputs: Inputs, way: Way) -> None:
    if tree.what == "table":  # its records go by as they are read, in no order between partitions
        way = replace(way, places=(0,))
    taken = as_taken({"inputs": inputs}, way)["inputs"]
    emitted: list[Output] = []
    topology = Builder().topology(tree)
    with way.driver(topology) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in SIDES}
        results = driver.create_output_topic("results", TEXT, TEXT)
        for count, ended in way.pipe(driver, topics, inputs):
            if ended:
                batch = read(results)
                if tree.what != "table":
                    assert all(len(changes) == 1 for changes in by_key(batch).values()), batch
                emitted += batch
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
