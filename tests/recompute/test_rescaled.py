"""State that was cut into other partitions between batches is what the topics give, also of windows."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from tests.laws.effort import cases
from tests.recompute.world import BOTH, TEXT, Item, World

WINDOWS: Any = st.sampled_from(
    [
        cs.TimeWindows(size=10, grace=3),
        cs.SessionWindows(gap=5, grace=3),
        cs.SlidingWindows(difference=4, grace=0),
        cs.SlidingWindows(difference=6, grace=3),
    ]
)


def counts(windows: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    grouped = builder.stream("clicks", BOTH).group_by_key()
    made = grouped.windowed_by(windows).count(materialized=cs.Materialized(store="counts"))
    made.suppress(cs.Suppressed.until_window_closes()).to_stream(lambda key, n: key.key).to(
        "out", cs.Produced(key=TEXT, value=cs.serdes.int64())
    )
    return builder.build()


def clicks(random: Random, count: int) -> list[Item]:
    now, found = 0, []
    for _ in range(count):
        now += random.randrange(5)
        found.append(("clicks", random.choice("abcdefgh"), 1, max(0, now - random.choice((0, 0, 8, 30)))))
    return found


@cases(0.2)
@given(WINDOWS, st.integers(0, 10**9), st.lists(st.integers(1, 7), min_size=2, max_size=3))
def test_verify_is_content_after_a_rescale(windows: Any, seed: int, partitions: list[int]) -> None:
    random = Random(seed)
    with TemporaryDirectory() as folder:
        world = World(Path(folder), counts(windows), topic_partitions=1)
        world.topics.log().create_topic("out", 1)
        for number in partitions:
            world.partitions = number
            world.process(clicks(random, 12))
        found = world.verify()
        assert [one.different for one in found.stores] == [0], found
