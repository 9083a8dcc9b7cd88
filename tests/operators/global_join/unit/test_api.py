"""Global tables and the joins with them: nodes, serdes, names, and every wrong combination in the user's line."""

from __future__ import annotations

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.graph import nodes as graph
from tests.api.cases import JSON, ROW, TYPED, node_of, refused, serde_names


def joiner(left, right):
    return [left, right]


def key_of(value):
    return value["shop"]


@pytest.fixture
def builder():
    return cs.StreamsBuilder()


@pytest.fixture
def shops(builder):
    return builder.global_table("shops", JSON)


@pytest.fixture
def orders(builder):
    return builder.stream("orders", JSON)


def test_a_global_table(builder, shops):
    node = node_of(shops)
    assert (type(node), node.name, node.shape, node.topics) == (graph.Source, "shops", "global", ("shops",))
    assert shops.queryable_store_name is None
    assert repr(shops) == "<GlobalKTable shops>"
    named = builder.global_table(
        "cities",
        cs.Consumed(key=serdes.int64(), value=serdes.json(), name="places"),
        cs.Materialized(store="all"),
    )
    assert (node_of(named).name, named.queryable_store_name) == ("places", "all")
    assert serde_names(named) == ("int64", "json")


def test_what_a_global_table_cannot_be(builder, shops):
    versioned = cs.Materialized(history_retention="1 hour")
    refused("CS-101", lambda: builder.global_table("x", JSON, versioned), "no versions", "builder.table")
    late = cs.Consumed(key=serdes.string(), value=serdes.json(), offset_reset="latest")
    refused("CS-101", lambda: builder.global_table("x", late), "whole topic")
    refused("CS-102", lambda: builder.global_table("not a topic", JSON))
    refused("CS-101", lambda: builder.global_table("x", cs.Named("x")), "must be a Consumed")


def test_a_topic_is_a_global_table_and_nothing_else(builder, shops, orders):
    refused("CS-122", lambda: builder.global_table("shops", JSON), "use the result twice")
    refused("CS-122", lambda: builder.table("shops", JSON), "already read as a global table")
    refused("CS-122", lambda: builder.stream("shops", JSON), "already read as a global table")
    refused("CS-122", lambda: builder.global_table("orders", JSON), "already read as a stream")


def test_stores_have_names_of_their_own(builder, shops):
    builder.global_table("a", JSON, cs.Materialized(store="kept"))
    refused("CS-120", lambda: builder.table("b", JSON, cs.Materialized(store="kept")), "kept by a")


def test_joins_of_streams(shops, orders):
    joined = orders.join(shops, joiner, key_selector=key_of)
    node = node_of(joined)
    assert (type(node), node.name, node.kind, node.parents) == (
        graph.StreamGlobalJoin,
        "orders.join(shops)",
        "inner",
        ("orders", "shops"),
    )
    assert serde_names(joined) == ("string", None)
    named = orders.left_join(shops, joiner, key_selector="shop", named=cs.Named("told"))
    assert (node_of(named).name, node_of(named).kind) == ("told", "left")
    with_key = orders.join(shops, cs.keyed(lambda key, left, right: key), key_selector=lambda key, value: key)
    assert node_of(with_key).joiner.with_key
    assert node_of(with_key).key_selector.with_key


def test_expressions_in_a_join_of_a_stream():
    builder = cs.StreamsBuilder()
    orders, shops = builder.stream("orders", TYPED), builder.global_table("shops", TYPED)
    for key_selector in (pl.col("other"), "other"):
        node = node_of(orders.left_join(shops, pl.col("left"), key_selector=key_selector))
        assert node.key_selector.expression is not None
        assert node.value_type == ROW


def test_a_key_that_changed_stays_a_changed_one(shops, orders):
    moved = orders.select_key(key_of).join(shops, joiner, key_selector=key_of)
    assert serde_names(moved) == (None, None)
    refused("CS-140", lambda: moved.to_table(), "the key serde was lost")


def test_wrong_joins_of_streams(shops, orders):
    refused("CS-104", lambda: orders.join(shops, joiner), "key_selector of join is missing")
    refused("CS-104", lambda: orders.join(shops, joiner, key_selector=1), "not a function")
    refused("CS-104", lambda: orders.join(shops, lambda one: one, key_selector=key_of), "(left, right)")
    refused("CS-104", lambda: orders.join(shops, joiner, key_selector=lambda: 1), "(value)")
    refused("CS-136", lambda: orders.join(shops, key_of, joiner), "join(other, [joiner], key_selector=…")
    refused("CS-136", lambda: orders.join(shops, joiner, key_selector=key_of, windows=1), "windows")
    refused("CS-101", lambda: orders.join(shops, joiner, key_selector=key_of, named="x"), "Named")
    refused("CS-136", lambda: orders.outer_join(shops, joiner, key_selector=key_of), "left_join")
    refused("CS-135", lambda: orders.join("shops", joiner), "joined with a str", "GlobalKTable")
    other = cs.StreamsBuilder().global_table("shops", JSON)
    refused("CS-135", lambda: orders.join(other, joiner, key_selector=key_of), "different builders")
    refused("CS-135", lambda: orders.merge(shops))


def test_joins_of_tables(builder, shops):
    rows = builder.table("rows", JSON)
    stored = cs.Materialized(store="kept")
    joined = rows.left_join(shops, joiner, foreign_key=key_of, named=cs.Named("told"), materialized=stored)
    node = node_of(joined)
    assert (type(node), node.name, node.kind, node.parents) == (
        graph.ForeignKeyJoin,
        "told",
        "left",
        ("rows", "shops"),
    )
    assert (joined.queryable_store_name, serde_names(joined)) == ("kept", ("string", "json"))
    same = rows.join(shops, joiner, key_selector=lambda key, value: key)
    assert node_of(same).foreign_key.with_key


def test_wrong_joins_of_tables(builder, shops):
    rows = builder.table("rows", JSON)
    refused("CS-136", lambda: rows.join(shops, joiner), "none is given", "cs.keyed")
    both = {"foreign_key": key_of, "key_selector": key_of}
    refused("CS-136", lambda: rows.join(shops, joiner, **both), "one of them")
    partitioned = cs.TableJoined(partitioner=lambda key, count: 0)
    refused(
        "CS-136",
        lambda: rows.join(shops, joiner, foreign_key=key_of, table_joined=partitioned),
        "no partitioners",
    )
    for by in ({}, {"foreign_key": key_of}, {"foreign_key": key_of, "keyed_by": cs.LeftOrRight}):
        for join in (rows.outer_join, rows.right_join):
            refused("CS-135", lambda join=join, by=by: join(shops, joiner, **by), "GlobalKTable", "left_join")
    refused("CS-136", lambda: rows.join(rows, joiner, key_selector=key_of), "foreign_key=")
    refused("CS-104", lambda: rows.join(shops, joiner, foreign_key=lambda: 1), "foreign_key of join")
    other = cs.StreamsBuilder().global_table("shops", JSON)
    refused("CS-135", lambda: rows.join(other, joiner, foreign_key=key_of), "different builders")
    many = {"shop": (shops, key_of)}
    refused("CS-135", lambda: rows.join_many(many, joiner), "GlobalKTable")
