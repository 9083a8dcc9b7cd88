"""The twelve kinds of change, one test each: what is kept, rebuilt, read again and sent.

A shop: orders refer to customers and shops. Every test runs the code of yesterday over some records, changes it, and
says what the decision was, which records were written, and that the topics have what a fresh run would have given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.errors import CrossStreamError
from crossstream.evolution.evolve import Evolved, evolve
from crossstream.filetopics import FileTopics
from tests.faults.one_process import process
from tests.filetopics.topics import segments
from tests.spark.world import World, record_batch

TEXT, JSON = serdes.string(), serdes.json()
ORDER = {"customer": pl.String, "shop": pl.String, "amount": pl.Int64}
NAME = {"name": pl.String}
ORDERS = [
    ("o1", {"customer": "c1", "shop": "s1", "amount": 5}, 10),
    ("o2", {"customer": "c2", "shop": "s1", "amount": 20}, 11),
    ("o3", {"customer": "c3", "shop": "s2", "amount": 30}, 12),  # a customer that nobody knows
    ("o4", {"customer": "c1", "shop": "s2", "amount": 40}, 13),
]
CUSTOMERS = [("c1", {"name": "Ada"}, 1), ("c2", {"name": "Bob"}, 2)]
SHOPS = [("s1", {"name": "here"}, 3), ("s2", {"name": "there"}, 4)]

left, right = pl.col("left").struct.field, pl.col("right").struct.field
BILL = pl.struct(name=right("name"), amount=left("amount"))


@dataclass
class Tables:
    """The sources of a topology that is being built."""

    builder: cs.StreamsBuilder
    fields: dict[str, Any]
    history: str | None = None

    @property
    def orders(self) -> cs.KTable:
        kept = cs.Materialized(store="orders", history_retention=self.history)
        return self.builder.table("orders", cs.Consumed(key=TEXT, value=serdes.json(self.fields)), kept)

    @property
    def customers(self) -> cs.KTable:
        return self.builder.table("customers", cs.Consumed(key=TEXT, value=serdes.json(NAME)))

    @property
    def shops(self) -> cs.KTable:
        return self.builder.table("shops", cs.Consumed(key=TEXT, value=serdes.json(NAME)))


def code(
    make: Callable[[Tables], None], fields: dict[str, Any] = ORDER, history: str | None = None
) -> cs.Topology:
    builder = cs.StreamsBuilder()
    make(Tables(builder, fields, history))
    return builder.build()


@dataclass
class Shop:
    world: World

    def run(self, topology: cs.Topology) -> None:
        process(topology, self.world.config(partitions=2))

    def change(self, topology: cs.Topology, **asked: Any) -> Evolved:
        config = self.world.config(partitions=2)
        return evolve(topology, config, lambda made, settings: LocalRounds(2), **asked)

    def written(self, topic: str) -> int:
        return len(self.world.read(topic)) if topic in self.world.topics.log().topics() else 0

    def from_to(
        self, before: cs.Topology, after: cs.Topology, topic: str, key: Any = TEXT
    ) -> tuple[Evolved, dict[Any, Any]]:
        """Runs the code of before, changes it; what was decided, and the rows that were written to a topic."""
        self.run(before)
        there = [len(part) for part in self.parts(topic)]
        found = self.change(after)
        new = [one for part, count in zip(self.parts(topic), there, strict=True) for one in part[count:]]
        sent = [(key.deserialize(k), JSON.deserialize(v)) for k, v, *_ in new]
        assert len(dict(sent)) == len(sent), "each row once"
        assert sum(found.sent.values()) >= len(sent)
        self.run(after)  # which finds nothing to do
        return found, dict(sent)

    def parts(self, topic: str) -> list[Any]:
        return self.world.wire(topic)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    world = World(tmp_path)
    world.create(orders=2, customers=2, shops=1, views=1, bills=2, totals=2, viewed=1, large=1)
    for topic, records in (("orders", ORDERS), ("customers", CUSTOMERS), ("shops", SHOPS)):
        world.append(topic, records, TEXT, JSON)
    return Shop(world)


def bills(joiner: pl.Expr = BILL, kind: str = "join", key: str = "customer") -> Callable[[Tables], None]:
    def make(tables: Tables) -> None:
        others = tables.customers if key == "customer" else tables.shops
        made = getattr(tables.orders, kind)(others, joiner, foreign_key=key, store="bills")
        made.to("bills")

    return make


def test_1_another_joiner(shop: Shop) -> None:
    """All tables are kept: no topic is read again. Of three bills one has another name, and one record goes out."""
    loud = pl.when(left("amount") > 10).then(right("name").str.to_uppercase()).otherwise(right("name"))
    after = code(bills(pl.struct(name=loud, amount=left("amount"))))
    found, sent = shop.from_to(code(bills()), after, "bills")
    assert "orders" in found.decision.kept
    assert found.decision.rebuilt == ("bills",)
    assert not found.decision.read_again
    assert sent == {"o2": {"name": "BOB", "amount": 20}, "o4": {"name": "ADA", "amount": 40}}
    rows = dict(cs.open_store(shop.world.state_dir, "bills").all())
    assert rows == {"o1": {"name": "Ada", "amount": 5}, **sent}


def test_2_a_filter(shop: Shop) -> None:
    """Added, changed and removed: rows that do not pass any more are deleted, those that pass again come back."""

    def only(least: int | None) -> cs.Topology:
        def make(tables: Tables) -> None:
            orders = tables.orders
            orders = orders if least is None else orders.filter(pl.col("amount") > least)
            orders.join(tables.customers, BILL, foreign_key="customer", store="bills").to("bills")

        return code(make)

    added, sent = shop.from_to(only(None), only(10), "bills")
    assert (added.decision.kept["orders"], sent) == ("orders", {"o1": None})
    changed, sent = shop.from_to(only(10), only(30), "bills")
    assert (changed.decision.read_again, sent) == ({}, {"o2": None})
    removed, sent = shop.from_to(only(30), only(None), "bills")
    assert sent == {"o1": {"name": "Ada", "amount": 5}, "o2": {"name": "Bob", "amount": 20}}
    assert not removed.decision.read_again


def test_3_inner_left_and_outer(shop: Shop) -> None:
    """What the join keeps of its inputs stays. The order of an unknown customer appears, and goes again."""
    found, sent = shop.from_to(code(bills()), code(bills(kind="left_join")), "bills")
    assert "orders" in found.decision.kept
    assert sent == {"o3": {"name": None, "amount": 30}}
    found, sent = shop.from_to(code(bills(kind="left_join")), code(bills()), "bills")
    assert (found.decision.read_again, sent) == ({}, {"o3": None})


def test_4_a_column(shop: Shop) -> None:
    """Added to the type of a topic: it is in the bytes that were stored, which are read with the new type."""
    shop.world.append(
        "orders", [("o5", {"customer": "c1", "shop": "s1", "amount": 7, "note": "gift"}, 20)], TEXT, JSON
    )
    noted = pl.struct(name=right("name"), amount=left("amount"), note=left("note"))
    after = code(bills(noted), {**ORDER, "note": pl.String})
    found, sent = shop.from_to(code(bills()), after, "bills")
    assert not found.decision.read_again
    assert sent["o5"] == {"name": "Ada", "amount": 7, "note": "gift"}
    assert sent.keys() == {"o1", "o2", "o4", "o5"}, "every bill has one more field"
    wider = code(bills(noted), {**ORDER, "amount": pl.Float64, "note": pl.String})
    found, sent = shop.from_to(after, wider, "bills")
    assert sent["o1"] == {"name": "Ada", "amount": 5.0, "note": None}


def test_5_another_foreign_key(shop: Shop) -> None:
    """Orders are kept; the shops are a topic that was never read, and is read now. What the join keeps is new."""
    found, sent = shop.from_to(code(bills()), code(bills(key="shop")), "bills")
    assert set(found.decision.read_again) == {"shops"}
    assert sent == {
        "o1": {"name": "here", "amount": 5},
        "o2": {"name": "here", "amount": 20},
        "o3": {"name": "there", "amount": 30},
        "o4": {"name": "there", "amount": 40},
    }
    assert "customers" not in set(found.decision.sources)


def test_6_one_more_dimension(shop: Shop) -> None:
    """The new table is read up to its end; the others are stored."""

    def many(*names: str) -> cs.Topology:
        def make(tables: Tables) -> None:
            others = {"customer": (tables.customers, "customer")}
            if "shop" in names:
                others["shop"] = (tables.shops, "shop")
            fields = {name: pl.col(name).struct.field("name") for name in others}
            made = tables.orders.left_join_many(
                others, pl.struct(amount=left("amount"), **fields), store="bills"
            )
            made.to("bills")

        return code(make)

    found, sent = shop.from_to(many("customer"), many("customer", "shop"), "bills")
    assert set(found.decision.read_again) == {"shops"}
    assert sent["o3"] == {"amount": 30, "customer": None, "shop": "there"}
    assert len(sent) == 4


def test_7_the_order_of_joins(shop: Shop) -> None:
    """The result is the same, whichever comes first: no record goes out."""

    def chain(*names: str) -> cs.Topology:
        def make(tables: Tables) -> None:
            others = {"customer": tables.customers, "shop": tables.shops}
            fields, made = list(ORDER), tables.orders
            for name in names:
                kept = [left(field).alias(field) for field in fields]
                made = made.join(
                    others[name], pl.struct(*kept, right("name").alias(f"{name} name")), foreign_key=name
                )
                fields.append(f"{name} name")
            ordered = [*ORDER, "customer name", "shop name"]
            made.map_values(pl.struct(*map(pl.col, ordered)), store="bills").to("bills")

        return code(make)

    found, sent = shop.from_to(chain("customer", "shop"), chain("shop", "customer"), "bills")
    assert (found.decision.read_again, sent) == ({}, {})
    assert len(shop.world.table("bills", TEXT, JSON)) == 3


def test_8_another_aggregate(shop: Shop) -> None:
    """A column beside the others: groups are computed from the stored rows, and sent."""

    def totals(**columns: Any) -> cs.Topology:
        def make(tables: Tables) -> None:
            tables.orders.group_by("customer").agg(**columns, store="totals").to("totals")

        return code(make)

    before, after = totals(sum=cs.agg.sum("amount")), totals(sum=cs.agg.sum("amount"), count=cs.agg.count())
    found, sent = shop.from_to(before, after, "totals")
    assert (found.decision.rebuilt[0], found.decision.read_again) == ("totals", {})
    assert sent == {
        "c1": {"sum": 45, "count": 2},
        "c2": {"sum": 20, "count": 1},
        "c3": {"sum": 30, "count": 1},
    }


def windowed(size: str) -> cs.Topology:
    def make(tables: Tables) -> None:
        views = tables.builder.stream("views", cs.Consumed(key=TEXT, value=JSON))
        counts = (
            views.group_by_key().windowed_by(cs.TimeWindows(size=size, grace="0 ms")).count(store="viewed")
        )
        counts.to("viewed", key=serdes.windowed(TEXT, size), value=JSON)

    return code(make)


def test_9_the_size_of_windows(shop: Shop) -> None:
    """Windows cannot be cut out of windows: the topic is read again. Old windows go, and new ones come.

    A key has the start of its window: that from 2,000 ms on has two views as before, and is not written.
    """
    shop.world.append("views", [("a", 1, 1_000), ("a", 1, 2_500), ("a", 1, 2_600)], TEXT, JSON)
    key = serdes.windowed(TEXT, "2 seconds")
    found, sent = shop.from_to(windowed("1 second"), windowed("2 seconds"), "viewed", key)
    assert set(found.decision.read_again) == {"views"}
    starts = sorted((window.start, count) for window, count in sent.items())
    assert starts == [(0, 1), (1_000, None)]


def test_10_kept_with_versions(shop: Shop) -> None:
    """The versions of before are nowhere but in the topic, which is read again. Results stay as they were."""
    found, sent = shop.from_to(code(bills()), code(bills(), history="1 day"), "bills")
    assert "orders" in found.decision.read_again
    assert sent == {}
    assert cs.open_store(shop.world.state_dir, "orders").get("o1", as_of_time=10)["amount"] == 5


def test_11_another_serde_of_keys(shop: Shop) -> None:
    """A row under each new key, a delete under each old one."""

    def keyed(key: Any) -> cs.Topology:
        def make(tables: Tables) -> None:
            tables.orders.to_stream().to("bills", cs.Produced(key=key))

        return code(make)

    found, sent = shop.from_to(keyed(TEXT), keyed(JSON), "bills", serdes.bytes())
    assert (found.decision.kept["orders"], found.decision.read_again) == ("orders", {})
    assert sent.keys() == {b"o1", b"o2", b"o3", b"o4", b'"o1"', b'"o2"', b'"o3"', b'"o4"'}
    assert sent[b"o1"] is None
    assert sent[b'"o1"']["amount"] == 5


def test_12_a_sink(shop: Shop) -> None:
    """A new one gets all rows that there are; one that is gone is named, and its topic stays."""

    def to(*topics: str) -> cs.Topology:
        def make(tables: Tables) -> None:
            made = tables.orders.join(tables.customers, BILL, foreign_key="customer", store="bills")
            for topic in topics:
                made.to(topic, cs.Produced(name=f"to-{topic}"))

        return code(make)

    found, sent = shop.from_to(to("bills"), to("bills", "large"), "large")
    assert sent.keys() == {"o1", "o2", "o4"}
    assert found.sent == {"to-large": 3}, "nothing for the others"
    assert not found.decision.rebuilt
    found, sent = shop.from_to(to("bills", "large"), to("bills"), "large")
    assert (found.decision.gone, sent) == (("to-large",), {})
    assert len(shop.world.table("large", TEXT, JSON)) == 3


# What cannot be done, and is said


def test_a_stream_whose_first_records_are_gone(shop: Shop) -> None:
    """Named, with the topic; the old code goes on with the old state."""
    topics = FileTopics(str(shop.world.topics_dir), durable=False, segment_bytes=1)
    for number in range(2):
        writer = topics.writer()
        writer.write("views", record_batch([(b"a", b"1", 1_000 * number)]))
        writer.close()
    shop.run(windowed("1 second"))
    segment, _ = segments(topics, "views")
    segment.unlink()
    with pytest.raises(CrossStreamError) as refused:
        shop.change(windowed("2 seconds"))
    assert refused.value.code == "CS-754"
    assert "views" in str(refused.value)
    shop.world.append("views", [("a", 1, 1_500)], TEXT, JSON)
    shop.run(windowed("1 second"))
    assert len(shop.world.read("viewed", serdes.windowed(TEXT, "1 second"), JSON)) == 3


def test_a_callable_whose_code_looks_the_same_is_computed_again_if_that_is_asked_for(shop: Shop) -> None:
    """A function that reads what its hash does not see: ``--changed`` names the store, which is computed again."""
    label = {"name": "yesterday"}

    def make(tables: Tables) -> None:
        tables.orders.map_values(lambda order: {"is": label["name"]}, store="bills", value=JSON).to("bills")

    shop.run(code(make))
    label["name"] = "today"
    assert shop.change(code(make)).decision.is_empty
    found = shop.change(code(make), changed=["bills"])
    assert found.decision.rebuilt == ("bills",)
    assert sum(found.sent.values()) == 4
    assert shop.world.table("bills", TEXT, JSON)["o1"] == {"is": "today"}
