"""Foreign-key joins that Kafka Streams lacks: right, outer, and of many; restarted with other partitions.

After each batch the store, the topic of results and the test driver hold what the relational join of the rows so far
holds, and the state is sound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.query.verification import verify_state
from tests.application.engines import Engine
from tests.spark.marketplace import JSON, TEXT, Change, folded, random_changes
from tests.spark.world import World

TOPICS = ("products", "merchants", "colours")
Table = dict[Any, Any]


def field(side: str, name: str) -> pl.Expr:
    return pl.col(side).struct.field(name)


SHOP = serdes.json({"shop": pl.String})
PRODUCT = serdes.json({"name": pl.String, "merchant": pl.String, "colour": pl.String})
TYPED = {"products": PRODUCT, "merchants": SHOP, "colours": SHOP}


def tables(builder: cs.StreamsBuilder, join: Join) -> list[Any]:
    values = TYPED if join.expressed else dict.fromkeys(TOPICS, JSON)
    return [builder.table(topic, cs.Consumed(key=TEXT, value=values[topic])) for topic in TOPICS]


@dataclass(frozen=True)
class Join:
    """A join whose result is stored, and what it means. ``key``: serde of the result."""

    build: Callable[[list[Any], dict[str, Any]], Any]
    meaning: Callable[[Table, Table, Table], Table]
    expressed: bool
    key: Any = TEXT


def full(kind: str, expressed: bool) -> Join:
    """Products with their merchants: right_join or outer_join."""

    def build(named: list[Any], more: dict[str, Any]) -> Any:
        products, merchants, _ = named
        if expressed:
            joiner: Any = pl.struct(name=field("left", "name"), shop=field("right", "shop"))
            foreign_key: Any = pl.col("merchant")
        else:
            joiner = lambda p, m: {"name": p and p["name"], "shop": m and m["shop"]}  # noqa: E731
            foreign_key = lambda p: p["merchant"]  # noqa: E731
        join = getattr(products, kind)
        return join(merchants, joiner, foreign_key=foreign_key, keyed_by=cs.LeftOrRight, **more)

    def meaning(products: Table, merchants: Table, _: Table) -> Table:
        rows: Table = {}
        for key, product in products.items():
            merchant = merchants.get(product["merchant"])
            if merchant is not None or kind == "outer_join":
                rows[key, None] = {"name": product["name"], "shop": merchant and merchant["shop"]}
        named = {product["merchant"] for product in products.values()}
        alone = {
            (None, key): {"name": None, "shop": m["shop"]} for key, m in merchants.items() if key not in named
        }
        return {**rows, **alone}

    return Join(build, meaning, expressed, serdes.left_or_right(TEXT, TEXT))


def many(kind: str, expressed: bool) -> Join:
    """Products with their merchants and colours: join_many or left_join_many."""

    def build(named: list[Any], more: dict[str, Any]) -> Any:
        products, merchants, colours = named
        if expressed:
            keys: list[Any] = [pl.col("merchant"), pl.col("colour")]
            joiner: Any = pl.struct(
                name=field("left", "name"), shop=field("merchant", "shop"), colour=field("colour", "shop")
            )
        else:
            keys = [lambda product: product["merchant"], lambda product: product["colour"]]
            joiner = lambda product, rows: {  # noqa: E731
                "name": product["name"],
                "shop": rows["merchant"] and rows["merchant"]["shop"],
                "colour": rows["colour"] and rows["colour"]["shop"],
            }
        others = {"merchant": (merchants, keys[0]), "colour": (colours, keys[1])}
        return getattr(products, kind)(others, joiner, **more)

    def meaning(products: Table, merchants: Table, colours: Table) -> Table:
        rows = {}
        for key, product in products.items():
            partners = merchants.get(product["merchant"]), colours.get(product["colour"])
            if None not in partners or kind == "left_join_many":
                shop, colour = (partner and partner["shop"] for partner in partners)
                rows[key] = {"name": product["name"], "shop": shop, "colour": colour}
        return rows

    return Join(build, meaning, expressed)


JOINS = {
    "right join, callables": full("right_join", False),
    "outer join, expressions": full("outer_join", True),
    "join of many, expressions": many("join_many", True),
    "left join of many, callables": many("left_join_many", False),
}


def changes(rng: Random) -> dict[str, list[Change]]:
    found = random_changes(rng, 400, 150, 15)
    colours = random_changes(rng, 100, 1, 15)["merchants"]
    for _, product, _ in found["products"]:
        if product is not None:
            product["colour"] = None if rng.random() < 0.05 else f"m{rng.randrange(17)}"  # type: ignore[index]
    return {**found, "colours": colours}


@pytest.mark.parametrize("name", JOINS)
def test_batches_and_restarts(engine: Engine, world: World, name: str) -> None:
    join, rng = JOINS[name], Random(name)
    builder = cs.StreamsBuilder()
    stored = {"materialized": cs.Materialized(store="offers", value=JSON)}
    join.build(tables(builder, join), stored).to_stream().to("offers", cs.Produced(value=JSON))
    topology = builder.build()
    world.create(products=3, merchants=2, colours=1, offers=2)
    given: dict[str, list[Change]] = {topic: [] for topic in TOPICS}
    with cs.TopologyTestDriver(topology, partitions=3, commit_every=10**9) as driver:
        inputs = {topic: driver.create_input_topic(topic, TEXT, JSON) for topic in TOPICS}
        for partitions in (2, 5, 1):
            with engine.streams(topology, world.config(partitions=partitions)) as app:
                for _ in range(2):
                    for topic, made in changes(rng).items():
                        given[topic] += made
                        world.append(topic, made, TEXT, JSON)
                        inputs[topic].pipe_records(made)
                    app.process_available()
                    driver.commit()
                    wanted = join.meaning(*(folded(given[topic]) for topic in TOPICS))
                    assert dict(app.store("offers").all()) == wanted
                    assert dict(driver.get_key_value_store("offers").all()) == wanted
                    assert world.table("offers", join.key, JSON) == wanted
    assert verify_state(world.state_dir).problems == []


@pytest.mark.parametrize("name", ["join of many, expressions", "left join of many, callables"])
def test_a_stream_looks_a_join_of_many_up_as_it_is_when_a_record_comes(
    engine: Engine, world: World, name: str
) -> None:
    """Also amid a batch: the order of records over all topics is that of their timestamps."""
    join, rng = JOINS[name], Random(name)
    builder = cs.StreamsBuilder()
    looked_up = join.build(tables(builder, join), {"materialized": cs.Materialized(value=JSON)})
    visits = builder.stream("visits", cs.Consumed(key=TEXT, value=TEXT))
    visits.left_join(looked_up, lambda visit, offer: [visit, offer]).to("seen", cs.Produced(value=JSON))
    world.create(products=3, merchants=2, colours=1, visits=2, seen=2)
    rows: dict[str, Table] = {topic: {} for topic in TOPICS}
    wanted: list[tuple[Any, Any]] = []
    clock = 0
    with engine.streams(builder.build(), world.config(partitions=3)) as app:
        for _ in range(3):
            given = mixed(rng)
            for topic, key, value in given:
                if topic == "visits":
                    wanted.append((key, [value, join.meaning(*rows.values()).get(key)]))
                elif value is None:
                    rows[topic].pop(key, None)
                else:
                    rows[topic][key] = value
            for topic in (*TOPICS, "visits"):
                mine = [(key, value, clock + at) for at, (of, key, value) in enumerate(given) if of == topic]
                world.append(topic, mine, TEXT, TEXT if topic == "visits" else JSON)
            clock += len(given)
            app.process_available()
    seen = [(one.key, one.value) for one in world.read("seen", TEXT, JSON)]
    assert sorted(map(repr, seen)) == sorted(map(repr, wanted))


def mixed(rng: Random) -> list[tuple[str, Any, Any]]:
    """Changes of all tables and visits of products in one order: topic, key, value."""
    made = [(topic, key, value) for topic, of in changes(rng).items() for key, value, _ in of]
    keys = [key for topic, key, _ in made if topic == "products"]
    made += [("visits", rng.choice(keys), f"visit {number}") for number in range(200)]
    rng.shuffle(made)
    return made
