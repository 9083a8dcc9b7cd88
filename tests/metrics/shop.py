"""Orders and their customers: the application that is watched in these tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import crossstream as cs
from crossstream import serdes
from tests.spark.world import World

TEXT, JSON = serdes.string(), serdes.json()
KEPT = cs.Consumed(key=TEXT, value=JSON)

Record = tuple[str | None, Any, int]


def shop() -> cs.Topology:
    """Orders → topic "details", each with its customer; stores "orders", "customers", "details"."""
    builder = cs.StreamsBuilder()
    orders = builder.table("orders", KEPT, cs.Materialized(store="orders"))
    customers = builder.table("customers", KEPT, cs.Materialized(store="customers"))
    orders.join(
        customers,
        lambda order, customer: {**order, **customer},
        foreign_key=lambda order: order["customer"],
        materialized=cs.Materialized(store="details"),
    ).to_stream().to("details", cs.Produced(key=TEXT, value=JSON))
    return builder.build()


def config_of(folder: Path, **settings: Any) -> cs.StreamsConfig:
    """Its topics and its state are in this folder."""
    settings = {"partitions": 2, "durable": False, **settings}
    world = World(folder)
    return cs.StreamsConfig(
        application_id="shop", topics_dir=world.topics_dir, state_dir=folder / "state", **settings
    )


def write(folder: Path, topic: str, records: list[Record]) -> None:
    """Appends to a topic, which is made if it is not there."""
    world = World(folder)
    if topic not in world.topics.log().topics():
        world.create(**{topic: 1})
    if records:
        world.append(topic, records, TEXT, JSON)
