"""What is known of snapshots outlives the process, and goes along when state is cut into other partitions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.operators.debezium.snapshots import NEWS, cut_of, folded
from crossstream.serdes.debezium.events import NO_POSITION
from tests.recompute.world import Item, World


@dataclass
class Note:
    id: int
    text: str


def shown(key: int, mark: str, lsn: int, time: int) -> Item:
    event = {
        "op": "r",
        "after": {"id": key, "text": f"text {key}"},
        "source": {"snapshot": mark, "lsn": lsn, "table": "notes"},
    }
    return "notes", f'{{"id": {key}}}', event, time


FIRST = [shown(key, {1: "first", 9: "last"}.get(key, "true"), 5, 10) for key in range(1, 10)]
SECOND = [shown(key, {2: "first", 8: "last"}.get(key, "true"), 7, 20) for key in range(2, 9)]


@pytest.mark.parametrize("ordered_by", [None, "source.lsn"])
@pytest.mark.parametrize("numbers", [(2, 2, 2), (2, 5, 3), (1, 4, 1), (4, 2, 2)])
def test_the_end_of_a_snapshot_comes_after_a_restart(tmp_path: Path, ordered_by: Any, numbers: Any) -> None:
    builder = cs.StreamsBuilder()
    builder.table("notes", source=cs.debezium(Note, ordered_by=ordered_by), store="notes")
    world = World(tmp_path, builder.build())
    parts = FIRST + SECOND[:2], SECOND[2:5], SECOND[5:]
    for number, (part, world.partitions) in enumerate(zip(parts, numbers, strict=True)):
        assert not number or keys(world) == list(range(1, 10))
        world.process(part)
    assert keys(world) == list(range(2, 9))
    assert world.verify().different == 0


def keys(world: World) -> list[int]:
    return sorted(key for key, _ in cs.open_store(world.state, "notes").all())


some_news = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()).map(
        lambda one: [1 << 32 | one[0], 10 * one[0] + one[1], 10 * one[0] + 9 if one[2] else -1]
    ),
    max_size=12,
)
"""Of four snapshots, one after the other: the time of a row, and whether the end was seen."""


@given(some_news, st.randoms(use_true_random=False))
def test_what_is_known_does_not_depend_on_the_order(given_: Any, random: Any) -> None:
    """The same snapshot counts in every order, and in every cut."""
    rows = np.array([[*one, NO_POSITION, 0, 0, 0] for one in given_], np.int64).reshape(-1, NEWS)
    whole = cut_of(folded({}, rows))
    random.shuffle(given_)
    marks: Any = {}
    for one in given_:
        marks = folded(marks, np.array([[*one, NO_POSITION, 0, 0, 0]], np.int64))
    assert cut_of(marks) == whole
