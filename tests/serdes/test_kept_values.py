"""Values that no serde is named for are kept as JSON: what that does not give back is refused at the first record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.json.plain import InternalJson

TEXT, JSON = serdes.string(), serdes.json()
CONSUMED = cs.Consumed(key=TEXT, value=TEXT)


class Status(Enum):
    OPEN = "open"
    DONE = "done"


@dataclass
class Order:
    status: Status
    price: Decimal = Decimal(1)
    at: datetime | None = None


class Point(msgspec.Struct):
    x: int


OTHERS = [
    Order(Status.OPEN),
    Status.OPEN,
    datetime(2026, 1, 2),
    date(2026, 1, 2),
    Decimal("1.50"),
    UUID(int=1),
    {1, 2},
    frozenset("a"),
    b"bytes",
    Point(1),
    {1: "x"},
    {None: 1},
    {"a": [{"b": Status.DONE}]},
    [1, (2, {3})],
    object(),
    1j,
]


def stored(table: cs.KTable, made: Any, **materialized: Any) -> cs.KTable:
    kept_as = cs.Materialized(store="made", **materialized)
    return table.map_values(lambda value: made, materialized=kept_as)


def joined(table: cs.KTable, made: Any, **materialized: Any) -> cs.KTable:
    kept_as = cs.Materialized(store="made", **materialized)
    return table.join(table, lambda left, right: made, materialized=kept_as, named=cs.Named("made"))


def run(topology: cs.Topology, *values: Any, **settings: Any) -> cs.TopologyTestDriver:
    driver = cs.TopologyTestDriver(topology, commit_every=9, **settings)
    driver.create_input_topic("in", TEXT, TEXT).pipe_records([(f"k{n}", one) for n, one in enumerate(values)])
    driver.commit()
    return driver


def shuffled(builder: cs.StreamsBuilder, made: Any) -> cs.KStream:
    """What is made goes to other partitions, and stays inside the engine."""
    first = builder.stream("in", CONSUMED).map_values(lambda value: made if value == "odd" else value)
    return first.repartition().map_values(lambda value: str(value))


@pytest.mark.parametrize("made", OTHERS, ids=lambda made: type(made).__name__)
def test_what_json_does_not_give_back_is_refused_at_the_first_record(made: Any) -> None:
    builder = cs.StreamsBuilder()
    shuffled(builder, made).to("out", cs.Produced(key=TEXT, value=TEXT))
    topology = builder.build()
    with pytest.raises(cs.SerdeError, match="which does not give back a") as caught:
        run(topology, "fine", "odd", "fine")
    error = caught.value
    assert error.code == "CS-410"
    assert [error.where[name] for name in ("topic", "offset", "key", "part")] == ["in", 1, "k1", "value"]
    assert str(error.where["operator"]).startswith("in.map_values")
    assert "value=serdes.json(Order)" in str(error.next)
    driver = run(topology, "fine", "odd", "fine", processing_errors="skip")
    assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["fine", "fine"]


@pytest.mark.parametrize(
    "made", [None, True, 7, 2**70, -1.5, "text", [], {}, {"a": [None, {"b": 2.5}]}], ids=repr
)
def test_what_json_gives_back_is_kept_as_it_was(made: Any) -> None:
    serde = InternalJson()
    for data in (serde.serialize(made), serde.encode_objects([made])[0].as_py()):
        assert serde.deserialize(data) == made
        assert type(serde.deserialize(data)) is type(made)


def test_a_tuple_comes_back_as_a_list() -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", CONSUMED).map_values(lambda value: (value, (1, 2)))
    stream.repartition().map_values(repr).to("out", cs.Produced(key=TEXT, value=TEXT))
    driver = run(builder.build(), "x")
    assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["['x', [1, 2]]"]


def test_a_value_that_holds_itself_is_refused() -> None:
    made: list[Any] = []
    made.append(made)
    with pytest.raises(cs.SerdeError):
        InternalJson().serialize(made)


@pytest.mark.parametrize("make", [stored, joined])
def test_a_store_without_a_serde_refuses_instances(make: Any) -> None:
    builder = cs.StreamsBuilder()
    make(builder.table("in", CONSUMED), Order(Status.OPEN))
    with pytest.raises(cs.SerdeError, match="which does not give back a Order") as caught:
        run(builder.build(), "x")
    assert (caught.value.code, caught.value.where["key"]) == ("CS-410", "k0")
    assert "Materialized(value=serdes.json(Order))" in str(caught.value.next)


def aggregated(table: cs.KTable, made: Any, **materialized: Any) -> cs.KTable:
    grouped = table.to_stream().group_by_key()
    return grouped.aggregate(lambda: None, lambda old, value: made, store="made", **materialized)


def reduced(table: cs.KTable, made: Any, **materialized: Any) -> cs.KTable:
    stream = table.to_stream()
    twice = stream.merge(stream.filter(lambda value: True))
    return twice.group_by_key().reduce(lambda old, value: made, store="made", **materialized)


@pytest.mark.parametrize("made", OTHERS, ids=lambda made: type(made).__name__)
@pytest.mark.parametrize("make", [stored, joined, aggregated, reduced])
def test_a_named_store_of_an_untyped_source_refuses_instances(make: Any, made: Any) -> None:
    builder = cs.StreamsBuilder()
    make(builder.table("in"), made)
    with pytest.raises(cs.SerdeError, match=r"^\[CS-410\]"):
        run(builder.build(), '"x"')


@pytest.mark.parametrize("make", [stored, joined, aggregated, reduced])
def test_a_named_store_of_an_untyped_source_keeps_json_and_what_a_named_serde_makes(make: Any) -> None:
    for made, kept in (({"a": [1, (2,)]}, {"a": [1, [2]]}), ("x", "x"), (7, 7)):
        builder = cs.StreamsBuilder()
        make(builder.table("in"), made)
        assert run(builder.build(), '"x"').get_key_value_store("made").get("k0") == kept
    builder = cs.StreamsBuilder()
    make(builder.table("in"), Order(Status.OPEN), value=serdes.json(Order))
    assert run(builder.build(), '"x"').get_key_value_store("made").get("k0") == Order(Status.OPEN)
    builder = cs.StreamsBuilder()
    make(
        builder.table("in"), Status.OPEN, value=serdes.json()
    )  # by its own name, it is what JSON makes of it
    assert run(builder.build(), '"x"').get_key_value_store("made").get("k0") == Status.OPEN.value


@pytest.mark.parametrize("make", [stored, joined])
def test_with_a_serde_instances_come_back_as_instances(make: Any) -> None:
    order = Order(Status.OPEN, Decimal("2.50"), datetime(2026, 1, 2))
    builder = cs.StreamsBuilder()
    table = make(builder.table("in", CONSUMED), order, value=serdes.json(Order))
    table.to_stream().map_values(lambda one: f"{one!r}").to("out", cs.Produced(value=TEXT))
    driver = run(builder.build(), "x")
    found = driver.get_key_value_store("made").get("k0")
    assert found == order
    assert found.status is Status.OPEN
    assert driver.create_output_topic("out", TEXT, TEXT).read_values() == [repr(order)]


def ordered(value: str) -> Order:
    return Order(Status(value), Decimal(len(value)))


def told(one: Any) -> str:
    assert isinstance(one, Order)
    assert one.status in (Status.OPEN, Status.DONE)
    return f"{one.status.name} {one.price}"


@pytest.mark.parametrize("every", [1, 9])
def test_an_annotation_declares_the_type(every: int) -> None:
    """Instances come back as instances after a store, a shuffle, a merge and a join."""
    builder = cs.StreamsBuilder()
    made = builder.stream("in", CONSUMED).map_values(ordered)
    moved = made.select_key(lambda key, value: key).repartition(cs.Repartitioned(key=TEXT))
    table = made.merge(moved).to_table(materialized=cs.Materialized(store="orders"))
    joined = made.repartition().join(table, lambda one, row: told(one) + ", " + told(row))
    joined.to("out", cs.Produced(value=TEXT))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records([("a", "open", 1), ("b", "done", 2)])
        driver.commit()
        store = driver.get_key_value_store("orders")
        assert {key: told(one) for key, one in store.all()} == {"a": "OPEN 4", "b": "DONE 4"}
        values = driver.create_output_topic("out", TEXT, TEXT).read_values()
        assert set(values) <= {"OPEN 4, OPEN 4", "DONE 4, DONE 4"}


def test_what_is_not_of_the_annotated_type_is_refused() -> None:
    def wrong(value: str) -> Order:
        return {"status": "no status"}  # type: ignore[return-value]

    builder = cs.StreamsBuilder()
    builder.stream("in", CONSUMED).map_values(wrong).repartition().foreach(lambda key, value: None)
    with pytest.raises(cs.SerdeError, match="CS-401") as caught:
        run(builder.build(), "x")
    assert caught.value.where["key"] == "k0"
