"""What a state folder notes of a topology, and what its meanings depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.graph.noting import serde_text, type_text
from crossstream.planning.meanings import noted
from crossstream.planning.plan import Plan
from crossstream.serdes.own import known
from crossstream.storage.log_entries import Application
from crossstream.storage.noted import NotedTopology
from tests.evolution.kinds import KINDS
from tests.evolution.shop import ORDER, TEXT, Shop, bill, joined, other_bill, typed
from tests.laws.compositions.building import topology as random_topology
from tests.laws.compositions.drawing import case


def noted_of(topology: cs.Topology) -> NotedTopology:
    return noted(plan_topology(topology))


def stores_of(topology: cs.Topology) -> dict[str, str]:
    return {name: store.meaning for name, store in noted_of(topology).stores.items()}


def kept_in(plan: Plan) -> set[str]:
    """The stores but for copies, which are made again in the next batch (decision 0053)."""
    return {name for name, store in plan.stores.items() if store.copies is None}


@pytest.mark.parametrize("kind", KINDS)
def test_every_store_of_a_plan_is_noted(kind: str) -> None:
    for build in KINDS[kind]:
        plan = plan_topology(build())
        found = noted(plan)
        assert set(found.stores) == kept_in(plan)
        assert [node.name for node in found.nodes] == list(plan.topology.nodes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_note_is_the_same_in_each_build_and_passes_through_json(kind: str) -> None:
    for build in KINDS[kind]:
        found = noted_of(build())
        assert found == noted_of(build())
        wanted = Application("shop", 1, {}, topology=found)
        assert msgspec.json.decode(msgspec.json.encode(wanted), type=Application) == wanted


@given(st.integers(0, 1 << 32))
@example(14)
def test_random_graphs_are_noted_whole_and_the_same_each_time(seed: int) -> None:
    graph = case(Random(seed)).graph
    plan = plan_topology(random_topology(graph))
    found = noted(plan)
    assert set(found.stores) == kept_in(plan)
    assert found == noted_of(random_topology(graph))
    assert msgspec.json.decode(msgspec.json.encode(found), type=NotedTopology) == found


Setting = Callable[[Any], Any]


class Case(NamedTuple):
    """A table in two forms; whether they mean the same."""

    one: Setting
    other: Setting
    same: bool


def _mapped(function: Any, **named: Any) -> Setting:
    return lambda table: table.map_values(function, **named)


BEGUN = "first"
CASES = {
    "a name": Case(_mapped(str), _mapped(str, named=cs.Named("other")), True),
    "a store": Case(
        _mapped(str, value=str),
        _mapped(str, materialized=cs.Materialized(store="kept", value=str)),
        True,
    ),
    "a callable": Case(_mapped(lambda order: order["a"]), _mapped(lambda order: order["b"]), False),
    "a constant": Case(_mapped(lambda order: order["a"] + 1), _mapped(lambda order: order["a"] + 2), False),
    "an expression": Case(_mapped(pl.col("amount") + 1), _mapped(pl.col("amount") + 2), False),
    "the same expression": Case(_mapped(pl.col("amount") + 1), _mapped(pl.col("amount") + 1), True),
    "a long list in an expression": Case(
        _mapped(pl.col("amount").is_in(list(range(50)))),
        _mapped(pl.col("amount").is_in([*range(49), 99])),
        False,
    ),
    "another kind": Case(
        lambda table: table.filter(lambda order: True),
        lambda table: table.filter_not(lambda order: True),
        False,
    ),
    "how long versions are kept": Case(
        _mapped(str, materialized=cs.Materialized(store="kept", value=str, history_retention="1 hour")),
        _mapped(str, materialized=cs.Materialized(store="kept", value=str, history_retention="2 hours")),
        False,
    ),
    "a serde": Case(_mapped(len, value=serdes.int64()), _mapped(len, value=serdes.int32()), False),
}


@pytest.mark.parametrize("name", CASES)
def test_what_decides_rows_decides_the_meaning(name: str) -> None:
    def meaning(build: Setting) -> str:
        shop = Shop.open()
        build(shop.orders)
        return noted_of(shop.builder.build()).nodes[-1].meaning

    case = CASES[name]
    assert (meaning(case.one) == meaning(case.other)) is case.same


@pytest.mark.parametrize(
    ("option", "same"),
    [
        ({"offset_reset": "latest"}, True),
        ({"name": "other"}, True),
        ({"timestamp_extractor": lambda key, value, timestamp: 0}, False),
        ({"value": serdes.json({"amount": pl.Float64})}, False),
    ],
    ids=["where it begins", "its name", "its times", "its type"],
)
def test_what_decides_the_records_of_a_source_decides_its_meaning(option: dict[str, Any], same: bool) -> None:
    def meaning(**options: Any) -> str:
        builder = cs.StreamsBuilder()
        builder.stream("orders", dataclasses.replace(typed(ORDER), **options)).to("copies")
        return noted_of(builder.build()).nodes[-1].meaning

    assert (meaning() == meaning(**option)) is same


def test_a_join_keeps_the_same_with_another_joiner_or_kind() -> None:
    kept = stores_of(joined())
    assert stores_of(joined(joiner=other_bill)) == kept
    left = stores_of(joined("left_join"))
    assert sorted(left.values()) == sorted(kept.values())


def test_a_join_of_streams_keeps_the_same_with_another_joiner_only() -> None:
    def topology(joiner: Any, window: str = "1 minute") -> cs.Topology:
        builder = cs.StreamsBuilder()
        left, right = (builder.stream(name, typed(ORDER)) for name in ("left", "right"))
        left.join(right, joiner, cs.JoinWindows.of(window)).to("bills", value=serdes.json())
        return builder.build()

    first = stores_of(topology(bill))
    assert stores_of(topology(other_bill)) == first
    assert set(stores_of(topology(bill, "2 minutes")).values()).isdisjoint(first.values())


def test_a_partitioner_decides_where_rows_are() -> None:
    def topology(partitioner: Any = None) -> cs.Topology:
        shop = Shop.open()
        placed = cs.TableJoined(partitioner=partitioner)
        shop.orders.join(shop.customers, bill, foreign_key="customer", table_joined=placed).to_stream().to(
            "bills", value=serdes.json()
        )
        return shop.builder.build()

    plain, placed = stores_of(topology()), stores_of(topology(lambda key, count: 0))
    assert plain["orders.join(customers).references"] != placed["orders.join(customers).references"]


def test_operators_that_are_built_in_another_order_mean_the_same() -> None:
    def topology(names: list[str]) -> cs.Topology:
        shop = Shop.open()
        for name in names:
            shop.orders.filter(pl.col("amount") > len(name)).to_stream().to(name, value=serdes.json(ORDER))
        return shop.builder.build()

    one, other = noted_of(topology(["a", "bb"])), noted_of(topology(["bb", "a"]))
    assert {node.meaning for node in one.nodes} == {node.meaning for node in other.nodes}


@dataclass
class Order:
    id: str
    tags: dict[str, str]
    amount: int = 0


@dataclass
class Wider:
    id: str
    tags: dict[str, str]
    amount: float = 0


def test_fields_show_that_no_column_has() -> None:
    text = serde_text(known(serdes.json(Order)))
    assert "Order(id: str, tags: dict[str, str], amount: int = 0)" in text
    assert serde_text(known(serdes.json(Wider))) != text


def test_a_registry_is_no_part_of_a_serde() -> None:
    schema = '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "int"}]}'
    pytest.importorskip("confluent_kafka")
    one, other = (
        known(serdes.confluent_avro(registry=f"http://{host}:8081", schema=schema))
        for host in ("first", "second")
    )
    assert serde_text(one) == serde_text(other)
    assert "8081" not in serde_text(one)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,6}", fullmatch=True).filter(
            lambda name: name not in {"if", "as", "in", "is", "or"}
        ),
        st.sampled_from([int, str, float, list[str], dict[str, int], int | None]),
        min_size=1,
        max_size=4,
    )
)
def test_the_text_of_a_class_has_each_field_with_its_type(fields: dict[str, Any]) -> None:
    import keyword

    usable = {name: kind for name, kind in fields.items() if not keyword.iskeyword(name)}
    made = msgspec.defstruct("Made", list(usable.items()))
    plain = dataclasses.make_dataclass("Made", list(usable.items()))
    assert type_text(made) == type_text(plain)
    for name in usable:
        assert f"{name}: " in type_text(made)


def test_secrets_are_not_noted() -> None:
    builder = cs.StreamsBuilder()
    rows = builder.stream("orders", cs.Consumed(key=TEXT, value=serdes.json(ORDER)))
    rows.to_delta("lake/bills", storage_options={"AWS_SECRET_ACCESS_KEY": "hidden"})
    assert b"hidden" not in msgspec.json.encode(noted_of(builder.build()))
