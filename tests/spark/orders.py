"""Orders that name a shop: a stream that looks its shops up in a global table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()

Record = tuple[str, Any, int]
"""Key, value, timestamp (ms)."""


def told(order: Any, shop: Any) -> dict[str, Any]:
    """The joiner of these tests."""
    return {"item": order["item"], "city": shop and shop["city"]}


def shop_of(order: Any) -> Any:
    return order and order["shop"]


def ordering(kind: str = "left", keep: bool = True, joiner: Any = told) -> Any:
    """orders → topic "told", each with the city of its shop; the shops are the store "shops"."""
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", cs.Consumed(key=TEXT, value=JSON))
    stored = cs.Materialized(store="shops") if keep else None
    shops = builder.global_table("shops", cs.Consumed(key=TEXT, value=JSON), stored)
    join = orders.join if kind == "inner" else orders.left_join
    join(shops, joiner, key_selector=shop_of).to("told", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def shops(count: int, city: str = "C", ts: int = 1000) -> list[Record]:
    return [(f"s{number}", {"city": f"{city}{number}"}, ts + number) for number in range(count)]


def orders(count: int, shop_count: int, first: int = 0, ts: int = 0) -> list[Record]:
    return [
        (f"o{number}", {"item": f"I{number}", "shop": f"s{number % shop_count}"}, ts + number)
        for number in range(first, first + count)
    ]


def found(given: list[Record], held: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of orders, by their keys, if the shops are these."""
    return {key: told(order, held.get(order["shop"])) for key, order, _ in given}
