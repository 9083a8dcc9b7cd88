"""Applications whose keys become hot all the time (decision 0053): restarts, other numbers, crashes, changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.planning.meanings import noted
from crossstream.query.verification import verify_state
from crossstream.storage.commit_log import BatchLog
from tests.application.engines import Engine
from tests.docs.state_reader import StateFolder, hash_of
from tests.evolution.test_evolve import MERCHANTS, PRODUCTS, changed, loud, plain
from tests.faults.one_process import process, streams
from tests.laws.crashes import PARTITIONS, some_crashes, some_places, some_rows, weathered, what_is_left
from tests.laws.effort import law
from tests.laws.engine import Way, build
from tests.laws.hot_keys import hot_from
from tests.laws.strategies import Case, chain_cases, foreign_key_cases
from tests.recompute.replay import test_law as again
from tests.spark.marketplace import JSON, TEXT, Change, joined, marketplace, random_changes
from tests.spark.world import World

TEXT_VALUE = serdes.string()
SUBSCRIPTIONS = "products.join(merchants).subscriptions"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def early() -> Iterator[None]:
    with hot_from(8):
        yield


def test_without_a_setting(engine: Engine, world: World) -> None:
    """As many rows as it takes. Half of them are changed when they have been spread, and then what they refer to."""
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", [("m0", {"shop": "old"}, 0), ("m1", {"shop": "small"}, 0)], TEXT, JSON)
    rows = [
        (f"p{number}", {"name": str(number), "merchant": f"m{number % 10 == 0:d}"}, number)
        for number in range(90_000)
    ]
    log = BatchLog(world.state_dir)
    with engine.streams(marketplace(), world.config(partitions=2)) as app:
        for part in (rows[:70_000], rows[70_000:], rows[:45_000]):
            world.append("products", part, TEXT, JSON)
            app.process_available()
        (hot,) = log.newest().hot.values()
        assert list(hot.values()) == [True], "the key that most rows have, and no other"
        world.append("merchants", [("m0", {"shop": "new"}, 1)], TEXT, JSON)
        app.process_available()
        assert app.progress.fan_out["products.join(merchants)"] < 50_000, "two tasks answered"
        found = dict(app.store("offers").all())
    shops = {"m0": "new", "m1": "small"}
    assert found == {key: {"name": row["name"], "shop": shops[row["merchant"]]} for key, row, _ in rows}
    assert verify_state(world.state_dir).problems == []


@law
@given(
    foreign_key_cases(("inner", "left", "right", "outer")) | chain_cases(),
    some_places,
    st.integers(1, 6),
    some_crashes,
    some_rows,
    st.integers(1, 3),
)
def test_crashes_change_nothing(
    case: Case, places: list[int], size: int, crashes: list[int], rows: int, least: int
) -> None:
    topology = build(case, Way(PARTITIONS, stored=frozenset(range(3))))
    with (
        hot_from(least),
        weathered(topology, case, places, size, crashes, rows) as (calm, stormy),
    ):
        assert what_is_left(stormy, case) == what_is_left(calm, case)


def test_restarts_with_other_numbers(early: None, world: World) -> None:
    """After each of them: the table, the topic, where the rows lie, and that nothing is wrong with the folder."""
    rng = Random(3)
    world.create(products=3, merchants=2, offers=2)
    given: dict[str, list[Change]] = {"products": [], "merchants": []}
    for partitions in (2, 5, None, 1, 3, 4):
        with streams(marketplace(), world.config(partitions=partitions)) as app:
            for _ in range(3):
                for topic, changes in random_changes(rng, 300, 100, 6).items():
                    given[topic] += changes
                    world.append(topic, changes, TEXT, JSON)
                app.process_available()
                wanted = joined(given["products"], given["merchants"])
                assert dict(app.store("offers").all()) == wanted
                assert world.table("offers", TEXT, JSON) == wanted
    commit, folder = BatchLog(world.state_dir).newest(), StateFolder(world.state_dir)
    (store,) = commit.hot
    assert len(commit.hot[store]) > 2, "keys became hot"
    for place, row in folder.rows(store, commit.id):
        is_spread = commit.hot[store].get(hash_of(row["key"]), False)
        decides = hash_of(row["key2"] if is_spread else row["key"])
        assert place == (decides >> 32) * commit.partitions >> 32
    found = verify_state(world.state_dir)
    assert (found.problems, found.leftovers) == ([], [])


def test_batches_run_again_byte_for_byte() -> None:
    with hot_from(1):
        again.test_equal_bytes("foreign_key_join")


@pytest.mark.parametrize("joiner", [loud, plain])
def test_a_changed_application_takes_spread_rows_over(early: None, world: World, joiner: Any) -> None:
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", MERCHANTS)
    before = joined_as(plain)
    for first in range(0, 100, 25):
        world.append("products", PRODUCTS[first : first + 25])
        process(before, world.config(partitions=2))
    log = BatchLog(world.state_dir)
    assert sum(log.newest().hot[SUBSCRIPTIONS].values()) == 5
    changed(world, joined_as(joiner))
    assert log.newest().hot.keys() == {SUBSCRIPTIONS}
    world.append("merchants", [(key, value + "!", ts + 10_000) for key, value, ts in MERCHANTS])
    process(joined_as(joiner), world.config(partitions=2))
    shops = {key: value + "!" for key, value, _ in MERCHANTS}
    wanted = {key: joiner(value, shops[value.partition("-")[0]]) for key, value, _ in PRODUCTS}
    assert dict(cs.open_store(world.state_dir, "offers").all()) == wanted
    assert verify_state(world.state_dir).problems == []


def test_rows_that_are_read_again_are_spread_again(early: None, world: World) -> None:
    """Another foreign key: the subscriptions are new, made in several batches."""
    world.create(products=2, merchants=1, offers=2)
    world.append("merchants", MERCHANTS)
    world.append("products", PRODUCTS)

    def topology(place: int) -> cs.Topology:
        def merchant(product: str) -> str:
            return f"m{product.partition('-')[2][-place:]}"

        return joined_by(merchant)

    process(topology(1), world.config(partitions=2))
    changed(world, topology(2))
    world.append("products", PRODUCTS[:50])
    process(topology(2), world.config(partitions=2))
    world.append("merchants", [(key, value + "!", ts + 10_000) for key, value, ts in MERCHANTS])
    process(topology(2), world.config(partitions=2))
    rows = dict(cs.open_store(world.state_dir, "offers").all())
    assert rows == {f"p{number}": f"m{number % 5}-{number} by shop {number}!" for number in range(5)}
    assert verify_state(world.state_dir).problems == []


def test_a_join_that_does_not_spread_makes_its_subscriptions_anew(early: None, world: World) -> None:
    """Versions of the right table: subscriptions are all where the right rows are."""
    plain_, versioned = (plan_topology(joined_with(history)) for history in (None, "1 hour"))
    stores = [noted(plan).stores[SUBSCRIPTIONS] for plan in (plain_, versioned)]
    assert stores[0].meaning != stores[1].meaning


def joined_as(joiner: Any) -> cs.Topology:
    return joined_by(lambda product: product.partition("-")[0], joiner)


def joined_with(history: str | None) -> cs.Topology:
    return joined_by(lambda product: product.partition("-")[0], history=history)


def joined_by(foreign_key: Any, joiner: Any = plain, history: str | None = None) -> cs.Topology:
    builder = cs.StreamsBuilder()
    given = cs.Consumed(key=TEXT, value=TEXT_VALUE)
    kept = None if history is None else cs.Materialized(store="versions", history_retention=history)
    products, merchants = builder.table("products", given), builder.table("merchants", given, kept)
    offers = products.join(
        merchants,
        joiner,
        foreign_key=foreign_key,
        materialized=cs.Materialized(store="offers", key=TEXT, value=TEXT_VALUE),
    )
    offers.to_stream().to("offers", cs.Produced(key=TEXT, value=TEXT_VALUE))
    return builder.build()
