"""Products that belong to merchants: the topology of most tests of running applications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import crossstream as cs
from crossstream import serdes

JSON = serdes.json()
TEXT = serdes.string()

Product = Mapping[str, Any] | None
Change = tuple[str, Any, int]
"""Key, value (None deletes), timestamp (ms)."""


def offer(product: Any, merchant: Any) -> dict[str, Any]:
    """The joiner of these tests."""
    return {"name": product["name"], "shop": merchant["shop"]}


def marketplace(joiner: Any = offer, foreign_key: Any = None, table_joined: Any = None, **sink: Any) -> Any:
    """products ⋈ merchants → store "offers" and topic "offers"."""
    builder = cs.StreamsBuilder()
    products = builder.table("products", cs.Consumed(key=TEXT, value=JSON))
    merchants = builder.table("merchants", cs.Consumed(key=TEXT, value=JSON))
    offers = products.join(
        merchants,
        joiner,
        foreign_key=foreign_key or (lambda product: product["merchant"]),
        table_joined=table_joined,
        materialized=cs.Materialized(store="offers"),
    )
    offers.to_stream().to("offers", cs.Produced(key=TEXT, value=JSON, **sink))
    return builder.build()


def products(count: int, merchants: int, first: int = 0, name: str = "P") -> list[Change]:
    return [
        (f"p{n}", {"name": f"{name}{n}", "merchant": f"m{n % merchants}"}, n)
        for n in range(first, first + count)
    ]


def merchants(count: int, shop: str = "shop") -> list[Change]:
    return [(f"m{n}", {"shop": f"{shop}{n}"}, n) for n in range(count)]


def random_changes(rng: Random, count: int, keys: int, merchant_count: int) -> dict[str, list[Change]]:
    """Changes of both tables: new rows, renamings, moves to merchants known or not, deletes."""
    changes: dict[str, list[Change]] = {"products": [], "merchants": []}
    for _ in range(count):
        ts = rng.randrange(10_000)
        if rng.random() < 0.8:
            merchant = None if rng.random() < 0.05 else f"m{rng.randrange(merchant_count + 2)}"
            value = {"name": f"P{rng.randrange(1000)}", "merchant": merchant}
            changes["products"].append((f"p{rng.randrange(keys)}", gone_or(rng, value), ts))
        else:
            value = {"shop": f"shop{rng.randrange(1000)}"}
            changes["merchants"].append((f"m{rng.randrange(merchant_count)}", gone_or(rng, value), ts))
    return changes


def gone_or(rng: Random, value: dict[str, Any]) -> dict[str, Any] | None:
    return None if rng.random() < 0.1 else value


def folded(changes: Iterable[Change]) -> dict[str, Any]:
    """The table that changes leave, in order."""
    table: dict[str, Any] = {}
    for key, value, _ in changes:
        table.pop(key, None)
        if value is not None:
            table[key] = value
    return table


def joined(product_changes: Iterable[Change], merchant_changes: Iterable[Change]) -> dict[str, Any]:
    """The relational join of the folded inputs."""
    shops = folded(merchant_changes)
    return {
        key: offer(product, shops[product["merchant"]])
        for key, product in folded(product_changes).items()
        if product["merchant"] in shops
    }
