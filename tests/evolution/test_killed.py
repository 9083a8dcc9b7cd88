"""A change that is killed at any step: the old state is there or the new one, and the same change again is exact."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream.errors import StateError
from tests.evolution.changes.cases import drawn
from tests.evolution.changes.kills import HOW, Killed, copied, killed_while_it_ran, steps
from tests.evolution.changes.living import change, check
from tests.evolution.changes.pinned import FOUND
from tests.evolution.changes.worlds import Life, check_rows, check_stores, fresh
from tests.evolution.test_law import once_found

seeds = st.integers(0, 10**9)


@once_found(0.2)
@given(seeds)
def test_a_change_that_is_killed_is_exact_when_it_is_done_again(seed: int) -> None:
    killed = Killed(Random(seed))
    try:
        check(drawn(Random(seed), records=9), killed)
    except Exception as error:
        error.add_note(", ".join(killed.log))
        raise


@once_found(0.2)
@given(seeds)
def test_a_batch_that_was_begun_and_killed_before_the_change(seed: int) -> None:
    """The change finishes it if something of it was seen, and else forgets it: its records are the new code's."""
    rng = Random(seed)
    before, after = drawn(Random(seed), records=9).stages
    with TemporaryDirectory() as folder:
        life = Life(Path(folder), before.app, before.partitions)
        life.feed(before.items)
        life.run(max_records_per_batch=before.every)
        life.feed(after.items)
        killed_while_it_ran(rng, life)
        life.prepare(after.app)
        try:
            life.evolve(after.app)
        except StateError as error:
            if error.code != "CS-757":  # only the old code can finish it
                raise
            life.run()
            life.evolve(after.app)
        life.app = after.app
        life.run()
        (wanted,) = fresh(life.app, life.read)
        check_rows(life.app, life.topics(), wanted)
        check_stores(life, wanted)


EVERY = ("a group below a kept join", "keys of another kind that are gone", "windows of another size")


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.slow
def test_killed_at_every_step(tmp_path: Path, name: str) -> None:
    """Before, after and in the midst of each: `change` counts what all of it wrote together."""
    before, after = FOUND[name].stages
    life = Life(tmp_path / "whole", before.app, 2)
    life.feed(before.items)
    life.run()
    life.prepare(after.app)
    last = steps(life, after.app)
    assert last > 20
    for at in range(1, last + 1):
        how = HOW[at % 3]
        with TemporaryDirectory() as folder:

            def once(killed: Life, app: object, at: int = at, how: str = how) -> None:
                Killed(Random(at)).kill(killed, after.app, at)
                killed.evolve(after.app)

            change(copied(life, folder), after.app, once)
