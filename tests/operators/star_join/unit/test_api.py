"""join_many and left_join_many: the node, its names and serdes, and everything that is refused."""

from __future__ import annotations

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.graph import nodes as graph
from crossstream.graph.describe import to_dict
from crossstream.graph.picture import to_mermaid
from crossstream.planning.layouts import layout_of
from tests.api.cases import JSON, TYPED, node_of, refused, serde_names, tables


def joiner(left, rows):
    return {**left, **rows}


def customer(row):
    return row["customer"]


@pytest.mark.parametrize(("method", "kind"), [("join_many", "inner"), ("left_join_many", "left")])
def test_the_node(method, kind):
    orders, products, customers = tables("orders", "products", "customers", consumed=TYPED)
    act = getattr(orders, method)
    others = {"product": (products, pl.col("other")), "customer": (customers, customer)}
    node = node_of(act(others, joiner))
    assert (type(node), node.kind, node.name) == (
        graph.ManyJoin,
        kind,
        f"orders.{method}(customer,product)",
    )
    assert (node.names, node.parents) == (("customer", "product"), ("orders", "customers", "products"))
    assert node.foreign_keys[0].call is customer
    assert node.foreign_keys[1].expression is not None
    assert serde_names(act(others, joiner)) == ("string", None)
    stored = act(others, joiner, named=cs.Named("bills"), materialized=cs.Materialized(store="all-bills"))
    assert (node_of(stored).name, serde_names(stored)) == ("bills", ("string", "json"))
    assert stored.queryable_store_name == "all-bills"


def test_the_right_tables_may_have_keys_of_other_serdes():
    builder = cs.StreamsBuilder()
    orders = builder.table("orders", JSON)
    stores = builder.table("stores", cs.Consumed(key=serdes.int64(), value=serdes.json()))
    assert serde_names(orders.join_many({"store": (stores, customer)}, joiner)) == ("string", None)


def test_a_table_may_be_joined_twice_and_with_itself():
    orders, addresses = tables("orders", "addresses")
    others = {"bill": (addresses, customer), "ship": (addresses, customer), "before": (orders, customer)}
    node = node_of(orders.join_many(others, joiner))
    assert node.parents == ("orders", "orders", "addresses", "addresses")
    assert node.names == ("before", "bill", "ship")


@pytest.mark.parametrize(
    "others",
    [
        {},
        [("customer", customer)],
        None,
        {"key": 1},
        {"left": 1},
        {"right": 1},
        {"value": 1},
        {"a b": 1},
        {"": 1},
        {1: 1},
        {"customer": customer},
        {"customer": ("table",)},
    ],
)
def test_what_is_no_dict_of_tables_and_foreign_keys(others):
    (orders,) = tables("orders")
    refused("CS-136", lambda: orders.join_many(others, joiner), "join_many")


def test_a_name_that_is_taken_is_refused_with_a_table_too():
    orders, customers = tables("orders", "customers")
    refused("CS-136", lambda: orders.left_join_many({"left": (customers, customer)}, joiner), "'left'")
    many = {f"t{number}": (customers, customer) for number in range(63)}
    refused("CS-136", lambda: orders.join_many(many, joiner), "62")


def test_values_without_fields_need_a_joiner_of_all_rows():
    builder = cs.StreamsBuilder()
    orders, customers = builder.table("orders", value=dict), builder.table("customers", value=str)
    for method in (orders.join_many, orders.left_join_many):
        with pytest.raises(cs.TopologyError, match="the values of customers are string") as raised:
            method({"customer": (customers, customer)})
        assert raised.value.next == "pass a joiner, such as lambda left, rows: …"


@pytest.mark.parametrize("expressed", [False, True])
@pytest.mark.parametrize("name", ["function", "rows", "joiner", "self"])
def test_any_other_name_gives_results_and_tombstones(name, expressed):
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=serdes.string(), value=serdes.json({"name": pl.String, "customer": pl.String}))
    orders, customers = (builder.table(topic, consumed) for topic in ("orders", "customers"))
    by_column, by_call = pl.col(name), lambda left, rows: rows[name]
    bills = orders.join_many({name: (customers, customer)}, by_column if expressed else by_call)
    bills.to_stream().to("bills", cs.Produced(value=serdes.json()))
    with cs.TopologyTestDriver(builder.build()) as driver:
        inputs = {
            topic: driver.create_input_topic(topic, serdes.string(), serdes.json())
            for topic in ("orders", "customers")
        }
        ada = {"name": "Ada", "customer": None}
        inputs["customers"].pipe_input("c1", ada)
        inputs["orders"].pipe_input("o1", {"customer": "c1"})
        inputs["customers"].pipe_input("c1", None)
        results = driver.create_output_topic("bills", serdes.string(), serdes.json())
        assert results.read_key_values() == [("o1", ada), ("o1", None)]


def test_other_things_that_are_refused():
    orders, customers = tables("orders", "customers")
    pairs = {"customer": (customers, customer)}
    refused("CS-135", lambda: orders.join_many({"customer": ("customers", customer)}, joiner))
    refused("CS-135", lambda: orders.join_many({"customer": (customers.to_stream(), customer)}, joiner))
    refused("CS-135", lambda: orders.join_many({"customer": (tables("customers")[0], customer)}, joiner))
    refused("CS-104", lambda: orders.join_many({"customer": (customers, 1)}, joiner), "'customer'")
    refused("CS-104", lambda: orders.join_many({"customer": (customers, lambda: 1)}, joiner))
    refused("CS-104", lambda: orders.join_many(pairs, 1), "joiner")
    refused("CS-104", lambda: orders.join_many(pairs, lambda left: left), "(left, rows)")
    refused(
        "CS-104", lambda: orders.join_many(pairs, pl.col("right")), "'right'; it has left, customer and key"
    )
    refused("CS-101", lambda: orders.join_many(pairs, joiner, named="x"), "Named")
    refused(
        "CS-140", lambda: orders.join_many(pairs, joiner, materialized=cs.Materialized(key=serdes.int64()))
    )


def bills() -> cs.Topology:
    builder = cs.StreamsBuilder()
    orders, customers, products = (builder.table(name, JSON) for name in ("orders", "customers", "products"))
    others = {"customer": (customers, customer), "product": (products, customer)}
    orders.join_many(others, joiner, named=cs.Named("bills")).to_stream().to(
        "bills", cs.Produced(value=serdes.json())
    )
    return builder.build()


def test_how_it_is_described_and_drawn():
    topology = bills()
    assert "Processor: bills (stores: [])" in topology.describe()
    entry = next(node for node in to_dict(topology)["nodes"] if node["name"] == "bills")
    assert (entry["operator"], entry["foreign_keys"]) == ("join_many", ["customer", "product"])
    picture = to_mermaid(topology)
    assert '{{"bills"}}' in picture
    assert [label in picture for label in ("|foreign keys|", "|customer|", "|product|")] == [True] * 3


def test_the_plan_has_three_rounds_and_one_copy_of_the_left_rows():
    plan = plan_topology(bills())
    assert plan.rounds == 4
    kept = {store.name: store.layout.kind for store in plan.stores.values()}
    assert kept == {
        "customers@2": "key-value",
        "products@2": "key-value",
        "bills.references": "references(customer,product)",
        "bills.interest": "referrers",
        "bills.interested": "interested",
        "bills.rows": "rows(customer,product)",
        "bills.referrers": "index",
        "bills.partners": "key-value",
    }
    assert plan.derived == ("bills.interest", "bills.interested", "bills.partners", "bills.referrers")
    text = plan.text(3)
    assert "shuffle bills rows -> round 3, staying in its partition" in text
    assert "shuffle bills answers -> round 3, back to who asked" in text


def test_layouts_are_found_by_their_kinds():
    plan = plan_topology(bills())
    assert all(layout_of(store.layout.kind) == store.layout for store in plan.stores.values())
    assert layout_of("rows()") is None
    assert layout_of("something") is None
