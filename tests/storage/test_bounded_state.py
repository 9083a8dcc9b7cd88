"""State is what somebody may still ask for, however long an application runs; letting go of the rest costs nothing.

What a join of streams keeps is what its window holds; what a versioned table keeps is what its history holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.task.stores import measure
from tests.docs.state_folder import Record, Writer

TEXT = serdes.string()
SIDE, GRACE = 10_000, 2_000
RETENTION = 2 * SIDE + GRACE
SECONDS = 5 * 2 * SIDE // 1000  # five lengths of the window
RATE = 400  # records a second, on each side
KEYS = 2_000
LATE = 3_000
A_DAY_BEFORE = cs.JoinWindows(before="1 day", after="1 second")

Sizes = dict[str, tuple[int, int]]
"""Store → rows, bytes."""

pytestmark = pytest.mark.slow


def topology(kind: str, windows: cs.JoinWindows | None = None) -> cs.Topology:
    builder = cs.StreamsBuilder()
    views, clicks = (
        builder.stream(topic, cs.Consumed(key=TEXT, value=TEXT)) for topic in ("views", "clicks")
    )
    windows = windows or cs.JoinWindows.of(SIDE, grace=GRACE)
    join = getattr(views, kind)
    join(clicks, lambda view, click: "", windows, cs.StreamJoined(name="seen")).foreach(len)
    return builder.build()


def records(second: int, side: int, keys: int) -> list[Record]:
    """A second of one stream; one record in ten is up to three seconds late."""
    chance = np.random.default_rng((second, side))
    times = 1000 * second + np.sort(chance.integers(0, 1000, RATE))
    late = chance.random(RATE) < 0.1
    times = np.maximum(times - late * chance.integers(0, LATE, RATE), 0)
    chosen = chance.integers(0, keys, RATE)
    return [(b"k%05d" % key, b"v" * 80, ts) for key, ts in zip(chosen.tolist(), times.tolist(), strict=True)]


class Life:
    """A run over five window lengths, a batch a second: what was held after each batch, and how long each took."""

    def __init__(self, kind: str, root: Path, keys: int = KEYS) -> None:
        self.held: list[Sizes] = []
        self.seconds: list[float] = []
        self.times: dict[str, list[int]] = {"left": [], "right": []}
        self.required: list[dict[str, int]] = []
        writer = Writer(root, topology(kind), retain=2)
        for second in range(SECONDS):
            given = {"views": records(second, 0, keys), "clicks": records(second, 1, keys)}
            began = time.process_time()
            writer.run(given)
            self.seconds.append(time.process_time() - began)
            sizes, _ = measure(root, writer.versions)
            self.held.append({name.removesuffix("/0"): size for name, size in sizes.items()})
            self._note(given)
        writer.close()

    def _note(self, given: dict[str, list[Record]]) -> None:
        found = {}
        for side, topic in (("left", "views"), ("right", "clicks")):
            self.times[side] += [ts for _, _, ts in given[topic]]
            times = np.array(self.times[side])
            found[side] = int((times > times.max() - RETENTION).sum())
        self.required.append(found)


@pytest.fixture(scope="module")
def life_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Life]:
    """One life of each kind of join for all tests."""
    return cache(lambda kind: Life(kind, tmp_path_factory.mktemp(kind)))


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_state_is_what_the_window_holds(kind: str, life_of: Callable[[str], Life]) -> None:
    """At most an eighth more than the records that may still get partners, and what a merge has not come to yet."""
    life = life_of(kind)
    full = RETENTION // 1000
    for held, required in zip(life.held[full:], life.required[full:], strict=True):
        for side, records_ in required.items():
            rows, size = held[f"seen.{side}"]
            assert rows <= records_ * 1.25, (side, rows, records_)
            assert size <= rows * 200
        if kind != "join":
            assert held["seen.waiting"][0] <= sum(required.values())
    rows = [sum(rows for rows, _ in held.values()) for held in life.held[full:]]
    size = [sum(size for _, size in held.values()) for held in life.held[full:]]
    assert max(rows) < 1.3 * median(rows)
    assert max(size) < 1.3 * median(size)


def test_who_finds_nobody_leaves_little_behind(tmp_path: Path) -> None:
    """Almost all come out alone: that they are out is a row more, without value, until nobody can ask for them."""
    life = Life("outer_join", tmp_path, keys=10_000_000)
    full = RETENTION // 1000
    for held, required in zip(life.held[full:], life.required[full:], strict=True):
        for side, records_ in required.items():
            rows, size = held[f"seen.{side}"]
            assert rows <= 2 * records_, (side, rows, records_)
            assert size <= 1.25 * 200 * records_


def test_no_batch_waits_for_what_expires(life_of: Callable[[str], Life], tmp_path: Path) -> None:
    """Of the same batches in three runs the quickest each: a slow machine is not what is measured."""
    lives = [life_of("left_join"), *(Life("left_join", tmp_path / str(run)) for run in range(2))]
    quickest = np.min([life.seconds for life in lives], axis=0)[2 * RETENTION // 1000 :]
    assert quickest.max() < 2 * median(quickest)


@pytest.mark.parametrize("every", [10, 1000])
def test_a_versioned_table_keeps_its_history_and_no_more(every: int) -> None:
    """Five keys that change once a second for hours, with the versions of a second; others are deleted."""
    builder = cs.StreamsBuilder()
    kept = cs.Materialized(store="table", history_retention="1 second")
    builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), kept)
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        rows, store, held = driver.create_input_topic("rows", TEXT, TEXT), None, []
        for second in range(10_000):
            rows.pipe_input(f"k{second % 5}", f"v{second}", 1000 * second)
            if second % 100 == 0:
                rows.pipe_input(f"gone {second}", "v", 1000 * second)
                rows.pipe_input(f"gone {second}", None, 1000 * second)
            if second % every == every - 1:
                store = driver.get_versioned_store("table")
                held.append(store.approximate_count())
        driver.commit()
        assert max(held) <= 8 * (every + every // 50 + 2) + 64
        assert dict(store.all()) == {f"k{n}": f"v{9995 + n}" for n in range(5)}
        assert store.get("k3", as_of_time=9_998_000) == "v9998"
        assert store.get("k4", as_of_time=9_998_000) == "v9994"


def test_who_waits_is_held_no_longer_than_outer_sides_may(tmp_path: Path) -> None:
    """A day before, a second after: of a left join only left records wait, each for a second."""
    writer = Writer(tmp_path, topology("left_join", A_DAY_BEFORE), retain=2)
    for second in range(40):
        writer.run({"views": [(b"%d %d" % (second, n), b"v", 1000 * second + n // 2) for n in range(2000)]})
    held, _ = measure(tmp_path, writer.versions)
    writer.close()
    assert held["seen.waiting/0"][0] <= 3 * 2000


def test_who_has_come_out_leaves_an_outer_join_long_before_the_longer_side_may(tmp_path: Path) -> None:
    """A day before, a second after: that a left record is out need not be known for a day, once it is merged."""
    writer, held = Writer(tmp_path, topology("outer_join", A_DAY_BEFORE), retain=2), []
    for second in range(160):
        writer.run({"views": [(b"%d %d" % (second, n), b"v", 1000 * second + n) for n in range(1000)]})
        held.append(measure(tmp_path, writer.versions)[0])
    writer.close()
    for store in ("seen.left/0", "seen.waiting/0"):
        assert max(sizes[store][0] for sizes in held[80:]) < 1.3 * max(sizes[store][0] for sizes in held[:80])
