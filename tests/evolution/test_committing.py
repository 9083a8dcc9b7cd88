"""A change is committed: its stores, and the rows that differ, once."""

from __future__ import annotations

from pathlib import Path

import pytest

import crossstream as cs
from crossstream.application.local import LocalRounds
from crossstream.evolution.committing import Changed, change_of, commit_change
from crossstream.query.verification import verify_state
from tests.evolution.rebuilt import Mapper, Shop, shop
from tests.spark.world import World

PRODUCTS = [(f"p{number}", f"name {number}", 1_000 + number) for number in range(200)]


def old(name: str) -> str | None:
    """No offer of every tenth."""
    return None if name.endswith("0") else name.upper()


def new(name: str) -> str | None:
    """Another offer where a 7 is in the name, none of what ends with 5, and one of every tenth."""
    if name.endswith("5"):
        return None
    return f"new {name}" if "7" in name else name.upper()


@pytest.fixture
def opened(tmp_path: Path) -> Shop:
    world = World(tmp_path)
    world.create(products=2)
    world.append("products", PRODUCTS)
    made = Shop(world)
    made.run(shop(old))
    return made


def change(made: Shop, mapper: Mapper = new, *, renamed: bool = False) -> Changed:
    topology, log = shop(mapper, renamed=renamed), made.log
    log.lock("app")
    try:
        decision = made.decided(topology)
        done = change_of(log, topology, made.config(), decision, made.rebuilt(mapper, decision))
        return commit_change(log, topology, made.config(), LocalRounds(2), done)
    finally:
        log.unlock()


def offers(mapper: Mapper) -> dict[str, str]:
    found = {key: mapper(name) for key, name, _ in PRODUCTS}
    return {key: value for key, value in found.items() if value is not None}


def test_sends_what_differs_alone(opened: Shop) -> None:
    before = len(opened.world.read("out"))
    done = change(opened)
    was, now = offers(old), offers(new)
    differ = {key for key in was.keys() | now.keys() if was.get(key) != now.get(key)}
    assert len(opened.world.read("out")) - before == len(differ) == sum(done.sent.values())
    assert opened.world.table("out") == now
    assert dict(cs.open_store(opened.world.state_dir, "offers").all()) == now


def test_continues_as_if_it_had_always_been_so(opened: Shop) -> None:
    change(opened)
    assert not verify_state(opened.world.state_dir).problems
    later = [(key, f"{name}7", ts + 10_000) for key, name, ts in PRODUCTS[:50]]
    opened.world.append("products", later)
    opened.run(shop(new))
    names = {**{key: name for key, name, _ in PRODUCTS}, **{key: name for key, name, _ in later}}
    now = {key: value for key, name in names.items() if (value := new(name)) is not None}
    assert opened.world.table("out") == now
    assert dict(cs.open_store(opened.world.state_dir, "offers").all()) == now
    assert dict(cs.open_store(opened.world.state_dir, "offers", as_of=0).all()) == offers(old)
    assert not (opened.world.state_dir / "evolving").exists()
    verified = verify_state(opened.world.state_dir)
    assert not verified.problems
