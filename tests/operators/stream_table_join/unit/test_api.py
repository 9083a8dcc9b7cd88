"""The join of a stream with a table: its node, serdes and names, and every wrong combination in the user's line."""

from __future__ import annotations

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.graph import nodes as graph
from tests.api.cases import JSON, TYPED, node_of, refused, serde_names, stream

HOUR = cs.Materialized(store="customers", history_retention="1 hour")


def joiner(left, right):
    return [left, right]


def orders_and(table="customers", materialized=None, consumed=JSON):
    """A stream and a table of one builder."""
    builder = cs.StreamsBuilder()
    return builder.stream("orders", TYPED if consumed is TYPED else JSON), builder.table(
        table, consumed, materialized
    )


def test_the_node():
    orders, customers = orders_and()
    node = node_of(orders.join(customers, joiner))
    assert type(node) is graph.StreamTableJoin
    assert (node.name, node.parents, node.shape) == (
        "orders.join(customers)",
        ("orders", "customers"),
        "stream",
    )
    assert (node.kind, node.grace) == ("inner", None)
    left = node_of(orders.left_join(customers, joiner, cs.Joined(name="enriched")))
    assert (left.name, left.kind) == ("enriched", "left")


@pytest.mark.parametrize(
    "function", [joiner, lambda key, left, right: key, cs.keyed(lambda *a: a), pl.col("left")]
)
def test_joiners(function):
    orders, customers = orders_and(consumed=TYPED)
    assert node_of(orders.join(customers, function)).joiner is not None


def test_serdes():
    orders, customers = orders_and()
    assert serde_names(orders.join(customers, joiner)) == ("string", None)
    lost = orders.map(lambda key, value: (value["customer"], value))
    assert serde_names(lost.join(customers, joiner)) == ("string", None)  # the table's
    assert node_of(lost.join(customers, joiner, cs.Joined(value=serdes.json()))).stream_value == serdes.json()
    assert (
        node_of(orders.join(customers, joiner, cs.Joined(other_value=serdes.json()))).stream_value
        == JSON.value
    )
    refused(
        "CS-140",
        lambda: orders.join(customers, joiner, cs.Joined(value=serdes.int64())),
        "the values of its stream are int64, but they are json",
        "leave value= out",
    )
    refused(
        "CS-140",
        lambda: orders.join(customers, joiner, cs.Joined(other_value=serdes.int64())),
        "the rows of its table are int64",
        "leave other_value= out",
    )
    refused(
        "CS-140", lambda: orders.join(customers, joiner, cs.Joined(key=serdes.int64())), "they are string"
    )


def test_rows_that_only_the_engine_has_a_form_for_take_any_serde():
    _, customers = orders_and()
    named = customers.map_values(
        lambda row: {"name"}, materialized=cs.Materialized(store="names", value=None)
    )
    changes = named.filter(lambda row: True).to_stream()
    changes.join(customers, joiner, cs.Joined(value=serdes.json(), other_value=serdes.json()))


def test_keys_of_different_serdes():
    orders, customers = orders_and(consumed=cs.Consumed(key=serdes.int64(), value=serdes.json()))
    refused(
        "CS-134",
        lambda: orders.join(customers, joiner),
        "orders has string keys, customers has int64 keys",
        "select_key",
    )


def test_an_outer_join():
    orders, customers = orders_and()
    refused("CS-136", lambda: orders.outer_join(customers, joiner), "left_join", "to_table()")


def test_grace():
    orders, customers = orders_and(materialized=HOUR)
    assert node_of(orders.join(customers, joiner, cs.Joined(grace="10 seconds"))).grace == 10_000
    assert node_of(orders.left_join(customers, joiner, cs.Joined(grace=0))).grace == 0
    derived = customers.filter(lambda row: row["here"]).map_values(lambda row: row["name"])
    assert node_of(orders.join(derived, joiner, cs.Joined(grace="1 hour"))).grace == 3_600_000
    refused("CS-110", lambda: cs.Joined(grace="a while"))
    refused("CS-110", lambda: cs.Joined(grace=-1))
    refused(
        "CS-136",
        lambda: orders.join(customers, joiner, cs.Joined(grace="2 hours")),
        "wait 7200000 ms",
        "history_retention",
    )


def test_grace_needs_versions():
    orders, customers = orders_and()
    refused(
        "CS-136",
        lambda: orders.join(customers, joiner, cs.Joined(grace=5)),
        "keeps no versions",
        "history_retention",
    )
    orders, customers = orders_and(materialized=HOUR)
    kept = customers.filter(lambda row: True, materialized=cs.Materialized(store="kept"))
    refused(
        "CS-136", lambda: orders.join(kept, joiner, cs.Joined(grace=5)), "customers.filter keeps no versions"
    )
    joined = customers.join(customers, joiner)
    refused("CS-136", lambda: orders.join(joined, joiner, cs.Joined(grace=5)))


def test_wrong_calls():
    orders, customers = orders_and()
    refused("CS-104", lambda: orders.join(customers, 1), "joiner")
    refused("CS-104", lambda: orders.join(customers, lambda left: left), "(left, right)")
    refused(
        "CS-104",
        lambda: orders.join(customers, pl.struct("name", pl.col("left", "city"), "key")),
        "columns 'city', 'name'; it has left, right and key",
        'pl.col("left").struct.field("city")',
    )
    refused("CS-101", lambda: orders.join(customers, joiner, cs.JoinWindows.of(5)), "Joined")
    refused(
        "CS-136",
        lambda: orders.join(customers, joiner, key_selector=lambda v: v),
        "join(other, [joiner], [joined]",
    )
    refused("CS-101", lambda: cs.Joined(graze=5), "grace")
    refused("CS-101", lambda: cs.Joined(key=serdes.string), "call it")
    refused("CS-102", lambda: cs.Joined(name="no blanks"))
    refused("CS-135", lambda: stream("others").join(customers, joiner))
    refused("CS-120", lambda: orders.join(customers, joiner, cs.Joined(name="orders")))


def test_partitions_of_both_sides():
    builder = cs.StreamsBuilder()
    orders, returns = builder.stream("orders", JSON), builder.stream("returns", JSON)
    three, four = (cs.Repartitioned(partitions=count) for count in (3, 4))
    table = returns.repartition(four).to_table()
    refused("CS-128", lambda: orders.repartition(three).join(table, joiner), "has 3", "has 4")
    orders.repartition(four).join(table, joiner)
