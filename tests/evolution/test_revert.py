"""A change is taken back: stores, positions and topics are what they were."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import crossstream as cs
from crossstream.errors import StateError
from crossstream.evolution.revert import Code, revert
from crossstream.query.verification import verify_state
from crossstream.storage.commit_log import BatchLog
from tests.evolution.test_evolve import (
    MERCHANTS,
    changed,
    joined,
    long,
    loud,
    market,
    plain,
    rounds,
    rows,
    run,
)
from tests.faults.crash_points import Crash
from tests.faults.simulator import Faults, failing
from tests.spark.world import World

__all__ = ["market"]


def back(world: World, topology: cs.Topology | None = None, **asked: Any) -> Any:
    code = None if topology is None else Code(topology, world.config(partitions=2), rounds)
    return revert(world.state_dir, code, **asked)


def refused(world: World, *arguments: Any, **asked: Any) -> str:
    with pytest.raises(StateError) as refusal:
        back(world, *arguments, **asked)
    return refusal.value.code


def is_as_before(world: World) -> None:
    assert world.table("offers") == rows(plain)
    assert dict(cs.open_store(world.state_dir, "offers").all()) == rows(plain)
    assert not verify_state(world.state_dir).problems
    world.append("merchants", [("m1", "other", 9_000)])
    run(world, joined(plain))
    assert world.table("offers")["p11"] == "m1-11 by other"
    assert not verify_state(world.state_dir).problems


def test_rows_are_sent_back(market: World) -> None:
    before = len(market.read("offers"))
    changed(market, joined(loud))
    done = back(market, joined(loud))
    assert sum(done.sent.values()) == 10
    assert len(market.read("offers")) == before + 20
    is_as_before(market)


def test_appeared_and_gone(market: World) -> None:
    changed(market, joined(plain, sinks=("offers", "more"), keep=long))
    back(market, joined(plain, sinks=("offers", "more"), keep=long))
    assert market.table("more") == {}
    is_as_before(market)


def test_without_the_file(market: World) -> None:
    before = len(market.read("offers"))
    changed(market, joined(loud))
    assert refused(market, joined(plain, sinks=())) == "CS-758"
    assert market.table("offers") == rows(loud)
    back(market)
    assert len(market.read("offers")) == before + 20
    is_as_before(market)


def test_a_partitioner_is_in_the_file(market: World) -> None:
    def placed(joiner: Any) -> cs.Topology:
        topology = joined(joiner)
        sink = next(node for node in topology if node.public_name == "to")
        other = replace(sink, partitioner=lambda topic, key, value, count: 0)
        return cs.Topology({**topology.nodes, sink.name: other})

    run(market, placed(plain))
    changed(market, placed(loud))
    assert refused(market) == "CS-758"
    back(market, placed(loud))
    assert market.table("offers") == rows(plain)


def test_topics_that_were_moved(market: World) -> None:
    changed(market, joined(loud))
    os.rename(market.topics_dir, market.root / "elsewhere")
    moved = cs.StreamsConfig(application_id="any", topics_dir=market.root / "elsewhere")
    back(market, topics=moved)
    os.rename(market.root / "elsewhere", market.topics_dir)
    is_as_before(market)


def test_nothing_to_take_back(market: World) -> None:
    assert refused(market, joined(plain)) == "CS-758"
    assert refused(market, joined(plain), keep_results=True) == "CS-758"
    changed(market, joined(loud))
    back(market, joined(loud))
    assert refused(market, joined(loud)) == "CS-758", "what took a change back is no change"


def test_batches_came_after_it(market: World) -> None:
    changed(market, joined(loud))
    market.append("merchants", [("m2", "third", 9_000)])
    run(market, joined(loud))
    assert refused(market, joined(loud)) == "CS-758"
    back(market, keep_results=True)
    run(market, joined(plain))
    shops = {**{key: value for key, value, _ in MERCHANTS}, "m2": "third"}
    store = dict(cs.open_store(market.state_dir, "offers").all())
    assert store["p2"] == f"m2-2 by {shops['m2']}"
    assert store["p17"] == f"m2-17 by {shops['m2']}" == market.table("offers")["p17"], "its input has changed"
    assert store["p46"] == "m1-46 by shop 1"
    assert market.table("offers")["p47"] == "m2-47 by third"
    changed(market, joined(loud))  # and on again
    assert market.table("offers")["p47"] == "m2-47 BY third"


def test_no_longer_retained(market: World) -> None:
    changed(market, joined(loud))
    for number in range(12):
        market.append("merchants", [("m1", f"name {number}", 9_000 + number)])
        run(market, joined(loud))
        if number == 9:
            log = BatchLog(market.state_dir)
            assert log.commits()[0] == 1, "the change itself, and not what was before"
            assert refused(market, keep_results=True) == "CS-759"
    assert refused(market, keep_results=True) == "CS-758"


@pytest.mark.parametrize("how", ["before", "after", "midst"])
def test_killed_at_any_step(tmp_path: Path, how: str) -> None:
    """The change is there, or it is taken back, and what was sent is exact."""

    def begun(name: str) -> World:
        world = World(tmp_path / name, single_task_rows=100_000)
        world.create(products=2, merchants=1, offers=2)
        world.append("merchants", MERCHANTS)
        world.append("products", [(f"p{number}", f"m{number % 5}-{number}", 1_000) for number in range(30)])
        run(world, joined(plain))
        changed(world, joined(loud))
        return world

    counted = Faults(Random(0), -1, how)
    whole = begun("whole")
    with failing(counted):
        back(whole, joined(loud))
    outcomes = set()
    for at in range(1, counted.done + 1):
        world = begun(str(at))
        sent = len(world.read("offers"))
        with pytest.raises(Crash), failing(Faults(Random(at), at, how)):
            back(world, joined(loud))
        run(world, joined(loud))  # finishes what was being published
        is_back = BatchLog(world.state_dir).commits()[-1] == 2
        outcomes.add(is_back)
        assert len(world.read("offers")) - sent == (3 if is_back else 0), f"operation {at}"
        assert ("m2-7 BY shop 2" in world.table("offers").values()) is not is_back
        assert not verify_state(world.state_dir).problems
    assert outcomes == {True, False}
