"""The topologies whose texts are pinned, one for each way the graph can look."""

from __future__ import annotations

import re
from collections.abc import Callable

import crossstream as cs
from crossstream import serdes

JSON = cs.Consumed(key=serdes.string(), value=serdes.json())


def marketplace() -> cs.Topology:
    """A foreign-key join: two sub-topologies, a named store."""
    builder = cs.StreamsBuilder()
    products, merchants = builder.table("products", JSON), builder.table("merchants", JSON)
    promotions = products.join(
        merchants,
        lambda product, merchant: {**product, "shop": merchant["name"]},
        foreign_key=lambda product: product["merchant_id"],
        materialized=cs.Materialized(store="promotions"),
    )
    promotions.to_stream().to("promotions")
    return builder.build()


def views_clicks() -> cs.Topology:
    """The three joins by primary key, a filter and a table joined with itself."""
    builder = cs.StreamsBuilder()
    views, clicks = builder.table("views", JSON), builder.table("clicks", JSON)

    def both(left: object, right: object) -> list[object]:
        return [left, right]

    both_there = views.join(clicks, both, named=cs.Named("both-there"))
    views.left_join(clicks, both).filter(
        lambda pair: pair[1] is None, materialized=cs.Materialized(store="unseen")
    )
    views.outer_join(clicks, both, materialized=cs.Materialized()).map_values(str)
    both_there.join(both_there, both).to_stream(lambda key, pair: pair[0]).foreach(print)
    return builder.build()


def shops() -> cs.Topology:
    """A global table: a sub-topology of its own, looked up without re-keying."""
    builder = cs.StreamsBuilder()
    shops = builder.global_table("shops", JSON, cs.Materialized(store="all-shops"))
    orders = builder.stream("orders", JSON)

    def of_shop(order: object) -> object:
        return order

    told = orders.left_join(shops, lambda order, shop: [order, shop], key_selector=of_shop)
    moved = told.select_key(lambda value: value[1]["city"])
    moved.join(shops, lambda left, right: left, key_selector=of_shop, named=cs.Named("again")).foreach(print)
    return builder.build()


def orders() -> cs.Topology:
    """Every operator of streams: sources of several kinds, re-keying, branches, sinks."""
    builder = cs.StreamsBuilder()
    orders = builder.stream(["orders", "returns"], JSON)
    logs = builder.stream(re.compile("logs-.*"), JSON)
    everything = orders.merge(logs).peek(print).filter_not(lambda value: value["test"])
    by_customer = everything.select_key(lambda value: value["customer"])
    by_customer.to_table(materialized=cs.Materialized(store="last", key=serdes.string()))
    by_customer.repartition(cs.Repartitioned(key=serdes.string(), name="by-customer")).print("customer")
    branches = orders.split().branch(lambda value: value["price"] > 100, "dear").default_branch("cheap")
    dear, cheap = branches["dear"], branches["cheap"]
    dear.map(lambda key, value: (key, 1)).to("dear", cs.Produced(key=serdes.string(), value=serdes.int64()))
    cheap.flat_map(lambda key, value: []).flat_map_values(lambda value: []).foreach(print)
    cheap.to(topic_of, cs.Produced(name="out"))
    cheap.map_values(lambda value: value["price"], named=cs.Named("prices")).to(
        "orders", cs.Produced(value=serdes.json())
    )
    return builder.build()


def lookups() -> cs.Topology:
    """Streams that look up tables: a filtered one, a joined one, one with versions that records wait for."""
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", JSON)
    hour = cs.Materialized(store="customers", history_retention="1 hour")
    customers, shops = builder.table("customers", JSON, hour), builder.table("shops", JSON)

    def both(left: object, right: object) -> list[object]:
        return [left, right]

    told = orders.left_join(customers, both, cs.Joined(grace="5 seconds", name="told"))
    told.join(shops.filter(lambda shop: shop["open"]), both, cs.Joined(value=serdes.json())).foreach(print)
    by_shop = orders.select_key(lambda order: order["shop"])
    by_shop.join(shops.join(shops, both), both).foreach(print)
    return builder.build()


def sightings() -> cs.Topology:
    """The joins of streams: named and not, after a new key, with itself, one after the other."""
    builder = cs.StreamsBuilder()
    views, clicks = builder.stream("views", JSON), builder.stream("clicks", JSON)
    windows = cs.JoinWindows(before=0, after="10 seconds", grace="1 second")

    def both(left: object, right: object) -> list[object]:
        return [left, right]

    seen = views.join(clicks, both, windows, cs.StreamJoined(name="seen", store="recent-views"))
    by_page = clicks.select_key(lambda click: click["page"])
    views.left_join(by_page, both, cs.JoinWindows.of("1 minute", eager=True)).foreach(print)
    views.outer_join(views, both, windows).foreach(print)
    seen.outer_join(clicks, both, windows, cs.StreamJoined(value=serdes.json())).foreach(print)
    return builder.build()


def expiring() -> cs.Topology:
    """Tables whose rows expire: one that is read and joined, one of a stream, by both clocks."""
    builder = cs.StreamsBuilder()
    month = cs.Materialized(store="baskets", ttl="30 days")
    baskets, users = builder.table("baskets", JSON, month), builder.table("users", JSON)
    seen = builder.stream("views", JSON).to_table(
        materialized=cs.Materialized(ttl="90 minutes", clock="wall")
    )

    def both(left: object, right: object) -> list[object]:
        return [left, right]

    baskets.join(users, both, foreign_key=lambda basket: basket["user"]).left_join(seen, both).to_stream()
    return builder.build()


def topic_of(key: str, value: dict[str, str]) -> str:
    """The topic of a record."""
    return value["topic"]


TOPOLOGIES: dict[str, Callable[[], cs.Topology]] = {
    function.__name__: function
    for function in (marketplace, views_clicks, orders, shops, lookups, sightings, expiring)
}
