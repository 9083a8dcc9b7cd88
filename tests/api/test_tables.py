"""KTable: its nodes, stores and serdes, its joins, and every wrong combination in the user's line."""

from __future__ import annotations

import pickle

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.graph import nodes as graph
from tests.api.cases import JSON, TYPED, node_of, refused, serde_names, stream, tables


def joiner(left, right):
    return [left, right]


def fk(row):
    return row["other"]


def test_tables():
    (products,) = tables("products")
    node = node_of(products)
    assert (type(node), node.name, node.shape, node.topics) == (
        graph.Source,
        "products",
        "table",
        ("products",),
    )
    assert node.store is None
    assert products.queryable_store_name is None


def test_a_materialised_table():
    builder = cs.StreamsBuilder()
    stored = cs.Materialized(store="all-products")
    products = builder.table("products", JSON, stored)
    assert products.queryable_store_name == "all-products"
    assert node_of(products).store.value == serdes.json()
    serdes_from_store = cs.Materialized(key=serdes.string(), value=serdes.int64())
    assert serde_names(builder.table("numbers", cs.Consumed(), serdes_from_store)) == ("string", "int64")
    contradiction = cs.Materialized(value=serdes.int64())
    refused(
        "CS-140",
        lambda: builder.table("more", JSON, contradiction),
        "the values of its topic are int64, but they are json",
    )
    assert serde_names(builder.table("bare")) == ("string", "json")
    refused("CS-102", lambda: builder.table(["a", "b"], JSON), 'pass one name, such as "orders"')
    refused("CS-101", lambda: builder.table("x", JSON, cs.Named("x")), "must be a Materialized")


def test_a_topic_is_one_table():
    builder = cs.StreamsBuilder()
    products = builder.table("products", JSON)
    refused("CS-122", lambda: builder.table("products", JSON), "joined with itself")
    refused("CS-122", lambda: builder.stream("products", JSON), "to_stream()")
    assert node_of(products.join(products, joiner)).parents == ("products", "products")


def test_stores_have_names_of_their_own():
    first, second = tables("a", "b")
    first.filter(lambda v: v, materialized=cs.Materialized(store="kept"))
    error = refused("CS-120", lambda: second.filter(lambda v: v, materialized=cs.Materialized(store="kept")))
    assert "a.filter" in error.what
    assert node_of(second.filter(lambda v: v)).name == "b.filter"


def test_row_wise_operators():
    (rows,) = tables("rows")
    assert serde_names(rows.filter(lambda v: v)) == ("string", "json")
    assert serde_names(rows.filter_not(lambda k, v: v)) == ("string", "json")
    assert serde_names(rows.map_values(lambda v: v)) == ("string", None)
    (typed,) = tables("rows", consumed=TYPED)
    assert node_of(typed.map_values(pl.col("a") + 1)).mapper.expression is not None
    assert node_of(rows.filter(lambda v: v)).shape == "table"
    kept = rows.filter(lambda v: v, cs.Named("open"), cs.Materialized(store="open-rows"))
    assert (node_of(kept).name, kept.queryable_store_name) == ("open", "open-rows")
    assert node_of(kept).store.value.name == "json"
    refused("CS-101", lambda: rows.filter(lambda v: v, cs.Materialized()), "must be a Named")
    refused("CS-140", lambda: rows.filter(lambda v: v, materialized=cs.Materialized(key=serdes.int64())))


def test_to_stream():
    (rows,) = tables("rows")
    assert serde_names(rows.to_stream()) == ("string", "json")
    by_other = rows.to_stream(lambda key, value: value["other"], cs.Named("by-other"))
    assert serde_names(by_other) == (None, "json")
    assert node_of(by_other).mapper.with_key
    assert isinstance(by_other, cs.KStream)


@pytest.mark.parametrize(
    ("method", "kind"), [("join", "inner"), ("left_join", "left"), ("outer_join", "outer")]
)
def test_primary_key_joins(method, kind):
    left, right = tables("left", "right")
    joined = getattr(left, method)(right, joiner)
    node = node_of(joined)
    assert (type(node), node.kind, node.parents) == (graph.TableJoin, kind, ("left", "right"))
    assert node.name == f"left.{method}(right)"
    assert serde_names(joined) == ("string", None)
    assert node.store is None
    assert node_of(getattr(left, method)(right, joiner, named=cs.Named("both"))).name == "both"
    assert node_of(getattr(left, method)(right, joiner)).name == f"left.{method}(right)-3"


@pytest.mark.parametrize(("method", "kind"), [("join", "inner"), ("left_join", "left")])
def test_foreign_key_joins(method, kind):
    left, right = tables("left", "right", consumed=TYPED)
    option = cs.TableJoined(name="fk", partitioner=lambda k, n: 0, other_partitioner=lambda k, n: 1)
    joined = getattr(left, method)(right, joiner, foreign_key=fk, table_joined=option)
    node = node_of(joined)
    assert (type(node), node.kind, node.parents) == (graph.ForeignKeyJoin, kind, ("left", "right"))
    assert (node.name, node.partitioner("k", 2), node.other_partitioner("k", 2)) == ("fk", 0, 1)
    assert node.foreign_key.call is fk
    for number, foreign_key in enumerate((pl.col("other"), "other"), 2):
        node = node_of(getattr(left, method)(right, joiner, foreign_key=foreign_key))
        assert (node.name, node.foreign_key.call) == (f"left.{method}(right)-{number}", None)


def test_foreign_key_joins_do_not_need_equal_keys():
    builder = cs.StreamsBuilder()
    left = builder.table("left", JSON)
    right = builder.table("right", cs.Consumed(key=serdes.int64(), value=serdes.json()))
    assert serde_names(left.join(right, joiner, foreign_key=fk)) == ("string", None)
    refused("CS-134", lambda: left.join(right, joiner), "string keys", "int64 keys")


def test_joiners_may_take_the_key_and_may_be_expressions():
    left, right = tables("left", "right", consumed=TYPED)
    assert node_of(left.join(right, lambda key, a, b: a)).joiner.with_key
    assert node_of(left.join(right, cs.keyed(lambda key, a, b: a))).joiner.with_key
    assert not node_of(left.join(right, joiner)).joiner.with_key
    expression = pl.struct(pl.col("left").struct.field("a"))
    assert node_of(left.join(right, expression)).joiner.expression is not None
    with_key = left.join(right, joiner, foreign_key=cs.keyed(lambda key, row: key))
    assert node_of(with_key).foreign_key.with_key


def test_the_value_serde_of_a_result():
    left, right = tables("left", "right")
    assert serde_names(left.join(right, joiner, materialized=cs.Materialized())) == ("string", None)
    named = left.join(right, joiner, materialized=cs.Materialized(store="named"))
    assert serde_names(named) == ("string", "json")
    named.to_stream().to("out")
    given = left.join(right, joiner, materialized=cs.Materialized(value=serdes.string()))
    assert serde_names(given) == ("string", "string")


def test_a_result_of_what_is_not_json_has_no_serde_for_a_topic():
    text = cs.Consumed(key=serdes.string(), value=serdes.string())
    left, right = tables("left", "right", consumed=text)
    named = left.join(right, joiner, materialized=cs.Materialized(store="named"))
    refused("CS-140", lambda: named.to_stream().to("out"), "value serde")
    named.to_stream().to("out", cs.Produced(value=serdes.json()))
    mapped = left.map_values(len, materialized=cs.Materialized(store="lengths"))
    refused("CS-140", lambda: mapped.to_stream().to("out"))


@pytest.mark.parametrize("method", ["join", "left_join", "outer_join"])
def test_wrong_joins_by_key(method):
    left, right = tables("left", "right")
    act = getattr(left, method)
    refused("CS-136", lambda: act(right, joiner, table_joined=cs.TableJoined(name="x")), method)
    refused("CS-104", lambda: act(right, 1), "joiner of " + method + " is 1")
    refused("CS-104", lambda: act(right, lambda left: left), "(left, right)")
    refused("CS-104", lambda: act(right, cs.keyed(joiner)))
    refused("CS-135", lambda: act(right.to_stream(), joiner), "not a KStream", "to_table()")
    refused("CS-135", lambda: act("right", joiner), "not a str")
    refused("CS-135", lambda: act(None, joiner))
    refused("CS-135", lambda: act(tables("right")[0], joiner), "different builders")
    refused("CS-101", lambda: act(right, joiner, named="x"), "Named('x')")
    refused("CS-101", lambda: act(right, joiner, materialized="x"), "Materialized")
    refused("CS-140", lambda: act(right, joiner, materialized=cs.Materialized(key=serdes.int64())))


@pytest.mark.parametrize("method", ["join", "left_join", "outer_join", "right_join"])
def test_joins_that_are_not_called_like_that(method):
    left, right = tables("left", "right")
    act = getattr(left, method)
    written = f"write {method}(other, [joiner], [on_merge=…], [foreign_key=…]"
    refused(
        "CS-136",
        lambda: act(right, fk, joiner),
        "joiner comes first",
        f"{method}(other, joiner, foreign_key=",
    )
    refused("CS-136", lambda: act(right, pl.col("other"), joiner), "joiner comes first")
    refused("CS-136", lambda: act(right, joiner, cs.Named("x")), written)
    refused("CS-136", lambda: act(right, joiner, windows=cs.JoinWindows.of(5)), "'windows'", written)
    refused("CS-136", lambda: act(right, joiner, joined=cs.Joined()), "'joined'", written)
    refused("CS-136", lambda: act(), "'other'", written)


def test_options_of_another_join_of_tables():
    left, right = tables("left", "right")
    refused("CS-136", lambda: left.outer_join(right, joiner, key_selector=fk), "'key_selector'")
    refused("CS-136", lambda: left.right_join(right, joiner, foreign_key=fk, named=cs.Named("x")), "'named'")
    many = {"right": (right, fk)}
    refused(
        "CS-136", lambda: left.join_many(many, joiner, foreign_key=fk), "write join_many(others, [joiner]"
    )
    refused(
        "CS-136", lambda: left.left_join_many(many, joiner, joiner), "write left_join_many(others, [joiner]"
    )


@pytest.mark.parametrize("method", ["join", "left_join"])
def test_wrong_joins_by_foreign_key(method):
    left, right = tables("left", "right")
    act = getattr(left, method)
    refused("CS-136", lambda: act(right, joiner, foreign_key=fk, named=cs.Named("x")), "TableJoined(name=")
    refused("CS-101", lambda: act(right, joiner, foreign_key=fk, table_joined=cs.Named("x")), "TableJoined")
    refused("CS-104", lambda: act(right, joiner, foreign_key=1), "foreign_key")
    refused("CS-104", lambda: act(right, "key"), "name the argument: foreign_key='key'")
    refused("CS-104", lambda: act(right, joiner, foreign_key=lambda: 1))
    refused("CS-135", lambda: act(right.to_stream(), joiner, foreign_key=fk))


@pytest.mark.parametrize(("method", "kind"), [("right_join", "right"), ("outer_join", "outer")])
def test_joins_by_foreign_key_with_rows_of_both_tables(method, kind):
    builder = cs.StreamsBuilder()
    left = builder.table("left", JSON)
    right = builder.table("right", cs.Consumed(key=serdes.int64(), value=serdes.json()))
    act = getattr(left, method)
    node = node_of(act(right, joiner, foreign_key=fk, keyed_by=cs.LeftOrRight))
    assert (type(node), node.kind, node.name) == (graph.ForeignKeyJoin, kind, f"left.{method}(right)")
    assert node.key == serdes.left_or_right(serdes.string(), serdes.int64())
    stored = cs.Materialized(store="all", key=serdes.left_or_right(serdes.string(), serdes.int64()))
    assert serde_names(act(right, joiner, foreign_key=fk, keyed_by=cs.LeftOrRight, materialized=stored)) == (
        "left_or_right[string, int64]",
        "json",
    )


@pytest.mark.parametrize("method", ["right_join", "outer_join"])
def test_joins_by_foreign_key_with_rows_of_both_tables_must_say_how_they_are_keyed(method):
    left, right = tables("left", "right")
    act = getattr(left, method)
    refused("CS-136", lambda: act(right, joiner, foreign_key=fk), "left_join", "keyed_by=cs.LeftOrRight")
    refused(
        "CS-136", lambda: act(right, joiner, foreign_key=fk, keyed_by=tuple), f"] {method} by foreign key"
    )
    keyed = {"keyed_by": cs.LeftOrRight}
    refused("CS-104", lambda: act(right, joiner, foreign_key=1, **keyed), "foreign_key")
    refused("CS-135", lambda: act(right.to_stream(), joiner, foreign_key=fk, **keyed))
    text = cs.Materialized(key=serdes.string())
    refused("CS-140", lambda: act(right, joiner, foreign_key=fk, materialized=text, **keyed))


def test_keys_of_either_side_are_for_foreign_keys():
    left, right = tables("left", "right")
    refused("CS-136", lambda: left.outer_join(right, joiner, keyed_by=cs.LeftOrRight), "keyed_by")
    refused("CS-136", lambda: left.right_join(right, joiner), "left_join")


def test_inputs_repartitioned_differently():
    builder = cs.StreamsBuilder()
    sides = [
        stream(topic, builder=builder).repartition(cs.Repartitioned(partitions=count)).to_table()
        for topic, count in (("a", 2), ("b", 3), ("c", 2), ("d", None))
    ]
    a, b, c, d = sides
    refused("CS-128", lambda: a.join(b, joiner), "has 2", "has 3")
    refused("CS-128", lambda: a.filter(lambda v: v).left_join(b.map_values(str), joiner))
    with pytest.raises(cs.CopartitionError):
        a.join(b, joiner)
    a.join(c, joiner)
    a.join(d, joiner)
    a.join(b, joiner, foreign_key=lambda value: value["b"]).join(c, joiner)  # is where the rows of a are
    a.join(b, joiner, foreign_key=fk)


def test_a_topology_can_be_pickled():
    builder = cs.StreamsBuilder()
    builder.table("rows", JSON).to_stream().to("out")
    assert list(pickle.loads(pickle.dumps(builder.build())).nodes) == [
        "rows",
        "rows.to_stream",
        "rows.to_stream.to(out)",
    ]
