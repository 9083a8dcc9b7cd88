"""A shop whose code changes: topologies before and after, and the state that the one before left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import structs

import crossstream as cs
from crossstream import serdes
from crossstream.application.open_state import wanted_of
from crossstream.catalog.planners import plan_topology
from crossstream.evolution.decide import decide
from crossstream.evolution.decision import Decision
from crossstream.evolution.text import dry_run
from crossstream.graph.node import Graph
from crossstream.planning.meanings import noted
from crossstream.storage.commit_log import BatchLog
from tests.faults.one_process import process
from tests.spark.world import World

TEXT = serdes.string()
ORDER = {"customer": pl.String, "shop": pl.String, "amount": pl.Int64}
NAMED = {"name": pl.String}
PAID = {"amount": pl.Int64, "name": pl.String}


def typed(fields: Mapping[str, Any]) -> cs.Consumed:
    """A topic with text as keys and JSON of these fields as values."""
    return cs.Consumed(key=TEXT, value=serdes.json(dict(fields)))


@dataclass(frozen=True)
class Shop:
    """The tables of a topology that is being built."""

    builder: cs.StreamsBuilder
    orders: cs.KTable
    customers: cs.KTable

    @classmethod
    def open(cls, fields: Mapping[str, Any] = ORDER, **settings: Any) -> Shop:
        builder = cs.StreamsBuilder()
        return cls(
            builder,
            builder.table("orders", typed(fields), **settings),
            builder.table("customers", typed(NAMED)),
        )

    @property
    def shops(self) -> cs.KTable:
        return self.builder.table("shops", typed(NAMED))


Build = Callable[[], cs.Topology]


def bill(left: dict[str, Any], right: dict[str, Any] | None) -> dict[str, Any]:
    return {"amount": left["amount"], "name": None if right is None else right["name"]}


def other_bill(left: dict[str, Any], right: dict[str, Any] | None) -> dict[str, Any]:
    return {"amount": left["amount"] * 2, "name": None if right is None else right["name"]}


def joined(
    kind: str = "join",
    joiner: Callable[..., Any] = bill,
    by: str | None = "customer",
    only: pl.Expr | None = None,
    fields: Mapping[str, Any] = ORDER,
    store: str | None = None,
    key: Any = None,
    batches: bool = False,
    **settings: Any,
) -> cs.Topology:
    """Orders with their customers, to the topic "bills", or in ``batches`` to a function."""
    shop = Shop.open(fields, **settings)
    if by is None:
        return _by_key(shop, kind)
    orders = shop.orders if only is None else shop.orders.filter(only)
    kept = {} if store is None else {"materialized": cs.Materialized(store=store, value=serdes.json())}
    result = getattr(orders, kind)(shop.customers, joiner, foreign_key=by, **kept)
    if batches:
        result.map_values(lambda row: row, value=serdes.json(PAID)).to_stream().for_each_batch(write)
    else:
        result.to_stream().to("bills", cs.Produced(key=key, value=serdes.json()))
    return shop.builder.build()


def write(frame: Any, batch: int) -> None:
    """Takes a batch of bills."""


def _by_key(shop: Shop, kind: str) -> cs.Topology:
    result = getattr(shop.orders, kind)(shop.customers, lambda order, name: [order, name])
    result.to_stream().to("bills", cs.Produced(value=serdes.json()))
    return shop.builder.build()


def many(*names: str) -> cs.Topology:
    """Orders with several tables."""
    shop = Shop.open()
    tables = (
        {"customer": shop.customers, "shop": shop.shops} if "shop" in names else {"customer": shop.customers}
    )
    dimensions = {name: (table, name) for name, table in tables.items()}
    result = shop.orders.join_many(dimensions, lambda order, rows: {**order, **{n: rows[n] for n in rows}})
    result.to_stream().to("bills", cs.Produced(value=serdes.json()))
    return shop.builder.build()


def chained(first: str, second: str) -> cs.Topology:
    """Orders with one table, and the result with another one."""
    shop = Shop.open()
    tables = {"customer": shop.customers, "shop": shop.shops}
    one = shop.orders.join(
        tables[first], lambda order, row: {**order, first + "_name": row["name"]}, foreign_key=first
    )
    two = one.join(
        tables[second],
        lambda order, row: {**order, second + "_name": row["name"]},
        foreign_key=lambda o: o[second],
    )
    two.to_stream().to("bills", cs.Produced(value=serdes.json()))
    return shop.builder.build()


def totals(*names: str) -> cs.Topology:
    """Aggregates of orders by customer, each in a store and a topic of its own."""
    shop = Shop.open()
    grouped = shop.orders.group_by(
        lambda key, order: (order["customer"], order), cs.Grouped(key=TEXT, value=serdes.json(ORDER))
    )
    made = {"counts": cs.agg.count(), "sums": cs.agg.sum("amount"), "first": cs.agg.first("amount")}
    for name in names:
        table = grouped.agg(of=made[name], materialized=cs.Materialized(store=name))
        table.to_stream().to(f"to-{name}", cs.Produced(value=serdes.json()))
    return shop.builder.build()


def windowed(size: str) -> cs.Topology:
    """Orders of a stream, counted in windows."""
    builder = cs.StreamsBuilder()
    counts = builder.stream("orders", typed(ORDER)).group_by_key().windowed_by(size).count(store="per-window")
    counts.to_stream().to("bills", cs.Produced(value=serdes.int64()))
    return builder.build()


def clicked(only: pl.Expr, *more: str) -> cs.Topology:
    """Some of the records of a stream, to "bills" and more topics."""
    builder = cs.StreamsBuilder()
    large = builder.stream("orders", typed(ORDER)).filter(only)
    for topic in ("bills", *more):
        large.to(topic, cs.Produced(value=serdes.json(ORDER)))
    return builder.build()


def copied(*topics: str, key: Any = None, beside: str | None = None) -> cs.Topology:
    """Orders, unchanged, to some topics; ``beside``: and counts of a stream."""
    shop = Shop.open()
    if beside is not None:
        clicks = shop.builder.stream(beside, typed(NAMED))
        clicks.group_by_key().count(store="per-page").to_stream().to("pages", value=serdes.int64())
    for topic in topics:
        shop.orders.to_stream().to(topic, cs.Produced(key=key))
    return shop.builder.build()


@dataclass(frozen=True)
class Before:
    """State that a topology left."""

    world: World

    def decide(self, topology: Graph, **asked: Any) -> Decision:
        plan = plan_topology(topology)
        return decide(BatchLog(self.world.state_dir), topology, plan, self.world.config(), **asked)

    def text(self, topology: Graph, **asked: Any) -> str:
        return dry_run(BatchLog(self.world.state_dir), self.decide(topology, **asked))


ROWS = [(f"o{n}", {"customer": f"c{n % 3}", "shop": f"s{n % 2}", "amount": n}, n) for n in range(20)]


def left_by(topology: cs.Topology, orders: Any = ROWS, root: Path | None = None) -> Before:
    """Runs a topology on the topics of the shop, and gives what it left."""
    world = World(root or Path(tempfile.mkdtemp()), application_id="shop")
    world.create(orders=2, customers=2, shops=2, clicks=2, bills=2)
    world.append("orders", orders, value=serdes.json())
    for topic, letter in (("customers", "c"), ("shops", "s")):
        world.append(
            topic, [(f"{letter}{n}", {"name": f"{letter} {n}"}, n) for n in range(3)], value=serdes.json()
        )
    process(topology, world.config())
    return Before(world)


def noted_by(topology: Graph, root: Path | None = None) -> Before:
    """State that says whose it is, and has no batch yet: for sources that a test cannot run."""
    world = World(root or Path(tempfile.mkdtemp()), application_id="shop")
    plan = plan_topology(topology)
    BatchLog(world.state_dir).write_application(wanted_of(plan, world.config(), None, 1, noted(plan)))
    return Before(world)


def note_another_python(state_dir: Path, built: cs.Topology) -> None:
    """Makes state say that another version of Python wrote it, with hashes of its own."""
    log = BatchLog(state_dir)
    found = log.application()
    assert found is not None
    nodes = tuple(
        structs.replace(
            node,
            functions={
                role: one if one.is_expression else structs.replace(one, code=f"{one.code[::-1]}")
                for role, one in node.functions.items()
            },
        )
        for node in found.topology.nodes
    )
    older = renoted(structs.replace(found.topology, nodes=nodes, python="3.9"), built)
    log.write_application(structs.replace(found, topology=older))


def renoted(topology: Any, built: cs.Topology) -> Any:
    """What is noted, with the meanings that its own codes give."""
    codes = {(node.name, role): one.code for node in topology.nodes for role, one in node.functions.items()}
    meant = noted(plan_topology(built), codes)
    nodes = tuple(structs.replace(node, meaning=meant.node(node.name).meaning) for node in topology.nodes)
    return structs.replace(topology, nodes=nodes, stores=meant.stores)


@cache
def state_of(build: Build) -> Before:
    """The state of a topology, made once for all tests of a process."""
    return left_by(build())
