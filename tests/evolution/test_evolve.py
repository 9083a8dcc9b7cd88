"""A changed application, from the decision to the commit, on the engine of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.errors import StateError
from crossstream.evolution.evolve import Evolved, evolve
from crossstream.query.verification import verify_state
from crossstream.storage.commit_log import BatchLog
from tests.evolution.shop import note_another_python
from tests.faults.crash_points import POINTS, Crash
from tests.faults.one_process import process
from tests.spark.world import World

TEXT = serdes.string()
GIVEN = cs.Consumed(key=TEXT, value=TEXT)
WRITTEN = cs.Produced(key=TEXT, value=TEXT)


def rounds(topology: Any, config: Any) -> LocalRounds:
    return LocalRounds(2)


def run(world: World, topology: cs.Topology) -> None:
    process(topology, world.config(partitions=2))


def changed(world: World, topology: cs.Topology, **asked: Any) -> Evolved:
    return evolve(topology, world.config(partitions=2), rounds, **asked)


def joined(joiner: Any, *, sinks: tuple[str, ...] = ("offers",), keep: Any = None) -> cs.Topology:
    builder = cs.StreamsBuilder()
    products, merchants = (builder.table(topic, GIVEN) for topic in ("products", "merchants"))
    offers = products.join(
        merchants,
        joiner,
        foreign_key=lambda product: product.partition("-")[0],
        materialized=cs.Materialized(store="offers", key=TEXT, value=TEXT),
    )
    if keep is not None:
        offers = offers.filter(keep)
    for sink in sinks:
        offers.to_stream().to(sink, WRITTEN)
    return builder.build()


PRODUCTS = [(f"p{number}", f"m{number % 5}-{number}", 1_000 + number) for number in range(100)]
MERCHANTS = [(f"m{number}", f"shop {number}", 500 + number) for number in range(5)]


def plain(product: str, merchant: str) -> str:
    return f"{product} by {merchant}"


def loud(product: str, merchant: str) -> str:
    return f"{product} BY {merchant}" if product.endswith("7") else f"{product} by {merchant}"


def long(value: str) -> bool:
    return not value.startswith("m1")


def rows(joiner: Any, keep: Any = lambda value: True) -> dict[str, str]:
    shops = {key: value for key, value, _ in MERCHANTS}
    found = {key: joiner(value, shops[value.partition("-")[0]]) for key, value, _ in PRODUCTS}
    return {key: value for key, value in found.items() if keep(value)}


@pytest.fixture
def market(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", MERCHANTS)
    world.append("products", PRODUCTS)
    run(world, joined(plain))
    return world


def test_another_joiner(market: World) -> None:
    before = len(market.read("offers"))
    done = changed(market, joined(loud))
    assert market.table("offers") == rows(loud)
    assert len(market.read("offers")) - before == 10 == sum(done.sent.values())
    assert dict(cs.open_store(market.state_dir, "offers").all()) == rows(loud)
    assert not verify_state(market.state_dir).problems
    market.append("merchants", [("m1", "other", 9_000)])
    run(market, joined(loud))
    assert market.table("offers")["p1"] == "m1-1 by other"
    assert changed(market, joined(loud)).commit is None


def test_a_dry_run_writes_nothing(market: World) -> None:
    there = {path: path.read_bytes() for path in market.root.rglob("*") if path.is_file()}
    found = changed(market, joined(loud), dry_run=True)
    assert found.commit is None
    assert not found.decision.is_empty
    assert {path: path.read_bytes() for path in market.root.rglob("*") if path.is_file()} == there


def test_a_filter_and_a_new_sink(market: World) -> None:
    before = len(market.read("offers"))
    changed(market, joined(plain, sinks=("offers", "more"), keep=long))
    assert market.table("offers") == market.table("more") == rows(plain, long)
    assert len(market.read("offers")) - before == 20, "those that are gone"
    assert len(market.read("more")) == 80
    run(market, joined(plain, sinks=("offers", "more"), keep=long))


def test_a_start_takes_the_state_over(market: World) -> None:
    before = len(market.read("offers"))
    config = market.config(partitions=2, engine="local", on_change="evolve")
    for _ in range(2):
        with cs.SparkStreams(joined(loud), config) as app:
            app.process_available()
            assert dict(app.store("offers").all()) == rows(loud)
    assert len(market.read("offers")) - before == 10


def test_a_start_names_functions_that_it_cannot_compare(
    market: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Hashes of another version of Python say nothing: the functions count as unchanged, and the log says so once."""
    note_another_python(market.state_dir, joined(plain))
    config = market.config(partitions=2, engine="local", on_change="evolve")
    found = []
    for _ in range(2):
        caplog.clear()
        with cs.SparkStreams(joined(plain), config) as app:
            app.process_available()
        found.append([one.getMessage() for one in caplog.records if one.levelname == "WARNING"])
    ((said,), nothing) = found
    assert not nothing
    assert said.startswith(
        "app: functions of products.join(merchants) count as unchanged: the hash is of Python 3.9"
    )
    assert said.endswith("if one changed: crossstream evolve --changed, or --all")


def test_a_first_start_has_nothing_to_take_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create(products=1, merchants=1)
    world.append("merchants", MERCHANTS)
    world.append("products", PRODUCTS)
    with cs.SparkStreams(joined(plain), world.config(engine="local", on_change="evolve")) as app:
        app.process_available()
    assert world.table("offers") == rows(plain)


def told(function: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.stream("words", GIVEN).map_values(function).to("told", WRITTEN)
    return builder.build()


@pytest.fixture
def words(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create(words=2, told=2)
    world.append("words", [("a", "one", 1_000), ("b", "two", 2_000), ("a", "three", 3_000)])
    run(world, told(str.upper))
    return world


FIRST = [("a", "ONE"), ("a", "THREE"), ("b", "TWO")]


def records(world: World) -> list[tuple[Any, Any]]:
    return [(one.key, one.value) for one in world.read("told")]


def test_events_are_not_sent_again(words: World) -> None:
    changed(words, told(str.title))
    assert sorted(records(words)) == FIRST
    words.append("words", [("c", "four", 4_000)])
    run(words, told(str.title))
    assert sorted(records(words)) == sorted([*FIRST, ("c", "Four")])


@pytest.mark.parametrize(("since", "again"), [(0, 3), (2_000, 2), (9_000, 0)])
def test_events_are_sent_again_where_that_is_asked_for(words: World, since: int, again: int) -> None:
    done = changed(words, told(str.title), replay_from=since)
    new = [("a", "One"), ("b", "Two"), ("a", "Three")][3 - again :]
    assert sorted(records(words)) == sorted([*FIRST, *new])
    assert sum(done.sent.values()) == again
    assert [value for key, value in records(words) if key == "a"][2:] == [v for k, v in new if k == "a"]
    run(words, told(str.title))
    assert len(records(words)) == 3 + again


@pytest.mark.parametrize(
    ("point", "is_seen"),
    [
        ("after the batch is logged", False),
        ("after it ran", False),
        ("after the first frame is published", True),
        ("before the commit", True),
    ],
)
def test_a_batch_that_the_old_code_has_begun(market: World, point: str, is_seen: bool) -> None:
    market.append("merchants", [("m1", "other", 9_000)])
    with pytest.MonkeyPatch.context() as patch:
        POINTS[point](patch)
        with pytest.raises(Crash):
            run(market, joined(plain))
    if is_seen:
        with pytest.raises(StateError, match="CS-757"):
            changed(market, joined(loud))
        run(market, joined(plain))
    changed(market, joined(loud))
    run(market, joined(loud))
    assert market.table("offers")["p17"] == "m2-17 BY shop 2"
    assert market.table("offers")["p1"] == "m1-1 by other"
    assert dict(cs.open_store(market.state_dir, "offers").all()) == market.table("offers")


def test_state_in_use(market: World) -> None:
    log = BatchLog(market.state_dir)
    log.lock("app")
    try:
        with pytest.raises(StateError, match="CS-720"):
            changed(market, joined(loud))
        assert changed(market, joined(loud), dry_run=True).commit is None
    finally:
        log.unlock()
