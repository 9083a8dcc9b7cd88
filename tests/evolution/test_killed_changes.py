"""A change that is killed at any step of the file system: the old state or the new one, and topics that are exact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

import crossstream as cs
from crossstream.evolution import adopting
from crossstream.query.verification import verify_state
from tests.evolution.rebuilt import Shop, shop
from tests.evolution.test_committing import PRODUCTS, change, new, old
from tests.faults.crash_points import Crash
from tests.faults.simulator import Faults, failing
from tests.spark.world import World

FEW = PRODUCTS[:40]


def begun(folder: Path) -> Shop:
    world = World(folder, single_task_rows=100_000)
    world.create(products=2)
    world.append("products", FEW)
    made = Shop(world)
    made.run(shop(old))
    return made


@contextmanager
def killing(faults: Faults) -> Iterator[None]:
    """As `failing`, at hard links, too."""
    link = adopting.link_file

    def failing_link(*arguments: Any) -> bool:
        strikes = faults.strikes("link")
        if strikes and faults.how == "before":
            raise Crash
        done = link(*arguments)
        if strikes:
            raise Crash
        return done

    with failing(faults), patch.object(adopting, "link_file", failing_link):
        yield


def rows(mapper: Any) -> dict[str, str]:
    return {key: value for key, name, _ in FEW if (value := mapper(name)) is not None}


def steps_of_a_change(folder: Path) -> int:
    faults = Faults(Random(0), -1, "before")
    made = begun(folder)
    with killing(faults):
        change(made, renamed=True)
    return faults.done


def becomes(made: Shop) -> bool:
    """Starts with the code whose state it is; whether that is the new one.

    The start of either code finishes a change that was being published.
    """
    with suppress(cs.errors.IncompatibleStateError):
        made.run(shop(old))
    found = made.log.application()
    assert found is not None
    if found.stores.keys() == {"products", "offers"}:
        return False
    made.run(shop(new, renamed=True))
    found = made.log.application()
    assert found is not None
    assert found.stores.keys() == {"wares", "goods"}
    assert found.changing < 0
    return True


@pytest.mark.parametrize("how", ["before", "after", "midst"])
def test_the_old_state_or_the_new_one(tmp_path: Path, how: str) -> None:
    was, now = rows(old), rows(new)
    differ = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
    last = steps_of_a_change(tmp_path / "whole")
    assert last > 20
    outcomes = set()
    for at in range(1, last + 1):
        made = begun(tmp_path / str(at))
        before = len(made.world.read("out"))
        with pytest.raises(Crash), killing(Faults(Random(at), at, how)):
            change(made, renamed=True)
        is_new = becomes(made)
        outcomes.add(is_new)
        sent = len(made.world.read("out")) - before
        assert sent == (len(differ) if is_new else 0), f"operation {at}"
        assert made.world.table("out") == (now if is_new else was)
        store = "goods" if is_new else "offers"
        assert dict(cs.open_store(made.world.state_dir, store).all()) == (now if is_new else was)
        assert dict(cs.open_store(made.world.state_dir, "offers", as_of=0).all()) == was
        assert not verify_state(made.world.state_dir).problems
        assert not verify_state(made.world.state_dir).leftovers
        if not is_new:  # once more, whole
            change(made, renamed=True)
            assert made.world.table("out") == now
            assert len(made.world.read("out")) - before == len(differ)
    assert outcomes == {True, False}
