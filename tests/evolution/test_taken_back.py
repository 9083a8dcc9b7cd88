"""Random changes that are taken back, or made by a start: results and stores are those of the code that goes on."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.application.local import LocalRounds
from crossstream.errors import StateError
from crossstream.evolution.revert import Code, revert
from tests.evolution.changes.applications import App
from tests.evolution.changes.building import topology
from tests.evolution.changes.cases import drawn
from tests.evolution.changes.living import REFUSED, check
from tests.evolution.changes.worlds import Life, check_events, check_rows, check_stores, fold, fresh
from tests.evolution.test_law import once_found
from tests.faults.one_process import CORES

seeds = st.integers(0, 10**9)


@once_found(0.3)
@given(seeds)
def test_a_change_that_is_taken_back(seed: int) -> None:
    before, after = drawn(Random(seed), records=10).stages
    with TemporaryDirectory() as folder:
        life = Life(Path(folder), before.app, before.partitions)
        life.feed(before.items)
        life.run(max_records_per_batch=before.every)
        life.prepare(after.app)
        try:
            done = life.evolve(after.app)
        except StateError as error:
            if error.code not in REFUSED:
                raise
            return
        if done.commit is None:
            return
        code = Code(topology(after.app), life.config(), lambda made, config: LocalRounds(CORES))
        revert(life.world.state_dir, code)
        (wanted,) = fresh(before.app, before.items)
        check_rows(before.app, life.topics(), wanted, "taken back: ")
        check_stores(life, wanted)
        new = {sink.topic for sink in after.app.sinks} - {sink.topic for sink in before.app.sinks}
        for topic in new:
            assert not fold(one for part in life.topic(topic) for one in part), f"{topic} had no rows before"
        life.feed(after.items)
        life.run()
        (wanted,) = fresh(before.app, life.read)
        check_rows(before.app, life.topics(), wanted)
        check_events(before.app, life.topics(), wanted.topics)
        check_stores(life, wanted)


@once_found(0.2)
@given(seeds)
def test_a_start_changes_the_state(seed: int) -> None:
    check(drawn(Random(seed), records=10), by_a_start)


def by_a_start(life: Life, app: App) -> None:
    """``on_change="evolve"``: the application starts, and finds nothing to read."""
    with cs.SparkStreams(topology(app), life.config(engine="local", on_change="evolve")) as started:
        started.process_available()
