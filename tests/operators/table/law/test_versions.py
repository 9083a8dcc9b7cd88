"""A versioned table keeps the versions that it would keep record by record, whatever operators it is made by.

So whoever asks what was valid at a time gets the same for every cut into batches, and so do those who ask for the rows
that are valid now, also where later changes of the batch have older timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from tests.laws.effort import cases, law
from tests.laws.engine import Way, as_taken, ways
from tests.laws.strategies import KEYS, Inputs
from tests.laws.trees import SIDES, SOURCES, TEXT, Builder, Tree, extract, inputs_of_trees, join_values, trees

LEFT, RIGHT, _ = SOURCES
FILTER = Tree("filter", (LEFT,), ("has x",))
BY_REFERENCE = Tree("foreign key", (LEFT, RIGHT), ("left", 0, "hash", "hash"))
EITHER = [cs.LeftOrRight(*pair) for key in KEYS for pair in ((key, None), (None, key))]
BATCH = Way(every=1000)
RESULT_ONLY = (None, None, None, 1000)  # of the three sources and the one operator

histories = st.lists(st.sampled_from([None, None, 4, 1000, 1000]), min_size=1, max_size=5).map(tuple)
"""For how long (ms) the tables keep versions, one after the other, over and over; None: they keep none."""


@dataclass
class Versioned(Builder):
    """Sources and results may have versions. ``kept``: stores with a name, and the keys to ask versioned ones for."""

    histories: Sequence[int | None] = (1000,)
    kept: dict[str, Sequence[Any] | None] = field(default_factory=dict)
    turns: Iterator[int | None] = field(init=False)

    def __post_init__(self) -> None:
        self.turns = cycle(self.histories)

    def result(self, tree: Tree) -> None:
        self.table_of(replace(tree, stored=bool(tree.parts)))

    def _store(self, tree: Tree) -> cs.Materialized:
        history, name = next(self.turns), None
        if tree.stored or (history is not None and not tree.parts):
            name = f"store-{len(self.made)}"
            keys = EITHER if tree.what == "either" else KEYS
            self.kept[name] = None if history is None else keys
        return cs.Materialized(store=name, key=TEXT, value=TEXT, history_retention=history)

    def _table(self, tree: Tree) -> Any:
        consumed = cs.Consumed(key=TEXT, value=TEXT)
        return self.builder.table(tree.settings[0], consumed, self._store(tree))


@dataclass
class WithGlobal(Versioned):
    """The right table is a global one, which keeps no versions."""

    def _table(self, tree: Tree) -> Any:
        if tree != RIGHT:
            return super()._table(tree)
        return self.builder.global_table("right", cs.Consumed(key=TEXT, value=TEXT))

    def _foreign_key(self, tree: Tree) -> Any:
        left, right = map(self.table, tree.parts)
        join = left.join if tree.settings[0] == "inner" else left.left_join
        return join(right, join_values, foreign_key=extract(0), materialized=self._store(tree))


@dataclass
class WithRowsOfEither(Versioned):
    """Trees may be joined by foreign key so that rows of the right table are in the result too."""

    def _either(self, tree: Tree) -> Any:
        left, right = map(self.table, tree.parts)
        join = left.right_join if tree.settings[0] == "right" else left.outer_join
        kept = replace(self._store(tree), key=None)
        return join(right, join_values, foreign_key=extract(0), keyed_by=cs.LeftOrRight, materialized=kept)


def given_(*records: tuple[str, str, str, int]) -> Inputs:
    return [dict(zip(("side", "key", "value", "ts"), record, strict=True)) for record in records]


TOMBSTONES = given_(
    *(("left", "a", value, ts) for value, ts in zip("yxyyyx", (20, 10, 5, 30, 40, 35), strict=True))
)
"""For a filter "has x": of no row at 20; after a row at 10 behind it, and then of that row; again of none."""


@law
@given(trees, inputs_of_trees(), histories, ways())
@example(FILTER, given_(("left", "a", "x1", 10), ("left", "a", "x2", 20)), (1000,), BATCH)
@example(FILTER, given_(("left", "a", "x1", 20), ("left", "a", "x2", 10)), RESULT_ONLY, BATCH)
@example(FILTER, TOMBSTONES, RESULT_ONLY, BATCH)
@example(
    BY_REFERENCE,
    given_(("left", "a", "b;x", 26), ("right", "b", "new", 30), ("right", "b", "late", 3)),
    RESULT_ONLY,
    BATCH,
)
def test_compositions_of_operators(tree: Tree, inputs: Inputs, of: Sequence[int | None], way: Way) -> None:
    check(tree, inputs, way, lambda: Versioned(histories=of))


@cases(0.5)
@given(st.sampled_from(["inner", "left"]), inputs_of_trees(), histories, ways())
def test_joins_with_a_global_table(kind: str, inputs: Inputs, of: Sequence[int | None], way: Way) -> None:
    check(Tree("foreign key", (LEFT, RIGHT), (kind,)), inputs, way, lambda: WithGlobal(histories=of))


@cases(0.5)
@given(trees, trees, st.sampled_from(["right", "outer"]), inputs_of_trees(), histories, ways())
def test_right_and_outer_joins_by_foreign_key(
    left: Tree, right: Tree, kind: str, inputs: Inputs, of: Sequence[int | None], way: Way
) -> None:
    check(Tree("either", (left, right), (kind,)), inputs, way, lambda: WithRowsOfEither(histories=of))


def check(tree: Tree, inputs: Inputs, way: Way, build: Callable[[], Versioned]) -> None:
    found = run(tree, inputs, way, build())
    taken = as_taken({"inputs": inputs}, way, SIDES)["inputs"]
    each = run(tree, taken, Way(way.partitions, bits=way.bits), build())
    assert found == [each[end - 1] for end in way.ends(len(inputs))]


def run(tree: Tree, inputs: Inputs, way: Way, build: Versioned) -> list[Any]:
    """After each batch: what the stores hold, and how many versions have been dropped so far."""
    build.result(tree)
    found = []
    with way.driver(build.builder.build()) as driver:
        topics = {side: driver.create_input_topic(side, TEXT, TEXT) for side in SIDES}
        times = sorted({item["ts"] for item in inputs})
        for _, ended in way.pipe(driver, topics, inputs):
            if ended:
                held = {name: contents(driver, name, build, times) for name in build.kept}
                dropped = driver.metrics()["dropped"]
                found.append((held, {why: rows for why, rows in dropped.items() if why.endswith("-version")}))
    return found


def contents(driver: cs.TopologyTestDriver, name: str, build: Versioned, times: Sequence[int]) -> Any:
    """The rows of a store; of a versioned one with their timestamps, and with those that were valid at each time."""
    keys = build.kept[name]
    if keys is None:
        return dict(driver.get_key_value_store(name).all())
    store = driver.get_versioned_store(name)
    valid = {time: {key: store.get(key, as_of_time=time) for key in keys} for time in times}
    return store.to_arrow().to_pylist(), valid
