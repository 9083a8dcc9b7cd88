"""A batch that is run again gives what it gave, byte for byte: runs and manifests of stores, records of topics.

Of every operator, in random batches; one task or several, any number of state partitions; and of random graphs.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings

from tests.laws.compositions import functions as f
from tests.laws.compositions.building import topology as built
from tests.laws.compositions.drawing import case
from tests.laws.compositions.graphs import SOURCES, kinds_of
from tests.recompute.replay.lives import OPERATORS, Given, Life, drawn, folder
from tests.spark.world import ALONE, SPREAD, World

BATCHES, NIGHTLY = 12, 200
"""Batches of each operator that are run again."""
GRAPHS, NIGHTLY_GRAPHS = 20, 500


def is_nightly() -> bool:
    default = settings.default
    return default is not None and default.max_examples > 1000


@pytest.mark.parametrize("operator", OPERATORS)
def test_equal_bytes(operator: str) -> None:
    done, seed, wanted = 0, 0, NIGHTLY if is_nightly() else BATCHES
    while done < wanted:
        seed += 1
        rng = Random(f"{operator} {seed}")
        builds = OPERATORS[operator]
        with folder() as root:
            life, batches = drawn(rng, builds[seed % len(builds)], root)
            life.live(batches)
            done += check(life, f"{operator}, seed {seed}")


def check(life: Life, what: str) -> int:
    """Runs each batch again; how many there were."""
    numbers = life.batches()
    assert numbers, what
    for number in numbers:
        rerun, found = life.again(number)
        assert found.is_same, (what, number, found.partings)
        assert not found.notes, (what, number, found.notes)
        assert life.from_bundle(number)[1] == found, (what, number)
        assert rerun.past.after is not None
    return len(numbers)


@pytest.mark.parametrize("part", range(4))
def test_graphs(part: int) -> None:
    count = NIGHTLY_GRAPHS if is_nightly() else GRAPHS
    for seed in range(1 + part, count + 1, 4):
        with folder() as root:
            check(*of_a_graph(seed, root))


def of_a_graph(seed: int, root) -> tuple[Life, str]:
    rng = Random(seed)
    made = case(rng)
    kinds, graph = kinds_of(made.graph), made.graph
    partitions = made.way.partitions
    world = World(root, single_task_rows=rng.choice([SPREAD, ALONE]))
    pairs = {
        f"in-{number}": (f.TEXT, f.DECLARED[kind.value] if kind.typed else f.JSON)
        for number, kind in enumerate(kinds)
        if graph[number].op in SOURCES
    }
    errors = "skip" if any(step.fails for step in graph) else "fail"
    settings = {"partitions": partitions, "processing_errors": errors}
    life = Life(world, built(graph), dict.fromkeys(pairs, partitions), settings, pairs)
    batches: list[list[Given]] = [
        [
            (f"in-{item.source}", item.key, item.value, item.ts, item.place % partitions)
            for item in (made.items[one] for one in batch)
        ]
        for batch in made.way.batches(len(made.items))
    ]
    life.live(batches)
    return life, f"graph of seed {seed}: {made!r}"
