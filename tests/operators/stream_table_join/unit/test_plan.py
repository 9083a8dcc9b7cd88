"""Where a table that streams look up is kept, and who hands on every change because of them, or of versions."""

from __future__ import annotations

import polars as pl

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.planning.steps import (
    AnswerManyStep,
    MaterializeStep,
    OrderStep,
    ReadStep,
    ReferManyStep,
    ResolveManyStep,
    ResolveStep,
    StreamTableJoinStep,
    TableJoinStep,
)
from tests.api.cases import JSON


def joiner(left, right):
    return [left, right]


def steps_of(builder, kind):
    return {step.node: step for step in plan_topology(builder.build()).steps if isinstance(step, kind)}


def test_a_table_is_kept_once_for_all_joins_of_a_round():
    builder = cs.StreamsBuilder()
    orders, returns = builder.stream("orders", JSON), builder.stream("returns", JSON)
    customers = builder.table("customers", JSON)
    for stream in (orders, returns, orders.filter(lambda order: order["big"])):
        stream.join(customers, joiner).foreach(print)
    customers.join(customers, joiner).to_stream().foreach(print)
    plan = plan_topology(builder.build())
    assert [name for name, store in plan.stores.items()] == ["customers@1"]
    looking = [step for step in plan.steps if isinstance(step, StreamTableJoinStep)]
    assert {step.store for step in looking} == {"customers@1"}
    assert {step.round for step in looking} == {1}


def test_joins_of_one_stream_stay_in_one_round():
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", JSON)
    for topic in ("customers", "shops"):
        orders = orders.left_join(builder.table(topic, JSON), joiner)
    orders.foreach(print)
    assert plan_topology(builder.build()).rounds == 2


def test_nobody_hands_on_every_change_where_no_stream_wants_it():
    builder = cs.StreamsBuilder()
    one, other = builder.table("one", JSON), builder.table("other", JSON)
    joined = one.join(other, joiner).join(other, joiner, foreign_key=lambda row: row["to"])
    joined.filter(lambda row: True).to_stream().foreach(print)
    assert not any(step.changelog for step in steps_of(builder, MaterializeStep).values())
    assert not any(step.changelog for step in steps_of(builder, TableJoinStep).values())
    assert not any(step.changelog for step in steps_of(builder, ResolveStep).values())


def test_a_table_of_a_topic_keeps_to_the_last_changes():
    """The join reads the topic's records beside the step that keeps the table."""
    builder = cs.StreamsBuilder()
    builder.stream("orders", JSON).join(builder.table("customers", JSON), joiner).foreach(print)
    assert steps_of(builder, MaterializeStep)["customers"].changelog is None


def test_all_that_a_table_is_made_of_hands_on_every_change():
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", JSON)
    one, other, third = (builder.table(topic, JSON) for topic in ("one", "other", "third"))
    joined = one.join(other, joiner, named=cs.Named("both"))
    referring = joined.filter(lambda row: True).left_join(
        other, joiner, foreign_key=lambda row: row["to"], table_joined=cs.TableJoined(name="named")
    )
    orders.join(referring, joiner).foreach(print)
    third.filter(lambda row: True).to_stream().foreach(print)
    kept = steps_of(builder, MaterializeStep)
    assert kept["one"].changelog is not None
    assert kept["other"].changelog is not None
    assert kept["third"].changelog is None
    assert steps_of(builder, TableJoinStep)["both"].changelog
    assert steps_of(builder, ResolveStep)["named"].changelog


def orders_of(builder):
    """Where changes are put in order: of which join, in which round."""
    return {node: step.round for node, step in steps_of(builder, OrderStep).items()}


def test_what_was_made_by_foreign_key_is_put_in_order_where_every_change_is_handed_on():
    builder = cs.StreamsBuilder()
    orders, visits = builder.table("orders", JSON), builder.stream("visits", JSON)
    customers, shops = builder.table("customers", JSON), builder.global_table("shops", JSON)
    named = cs.TableJoined(name="named")
    by_customer = orders.join(customers, joiner, foreign_key=lambda row: row["c"], table_joined=named)
    by_customer.to_stream().foreach(print)
    assert orders_of(builder) == {}
    visits.join(by_customer, joiner, cs.Joined(name="looking")).foreach(print)
    assert steps_of(builder, StreamTableJoinStep)["looking"].round == 3
    by_shop = orders.join(shops, joiner, foreign_key=lambda row: row["s"], named=cs.Named("placed"))
    by_shop.to_stream().join(customers, joiner).foreach(print)
    assert orders_of(builder) == {"named": 3, "placed": 1}


def test_a_result_that_is_kept_is_put_in_order_where_it_is_kept():
    builder = cs.StreamsBuilder()
    orders, visits = builder.table("orders", JSON), builder.stream("visits", JSON)
    customers, kept = builder.table("customers", JSON), cs.Materialized(store="kept")
    named = orders.join(customers, joiner, foreign_key=lambda row: row["c"], materialized=kept)
    named.to_stream().join(customers, joiner).foreach(print)
    visits.join(named, joiner).foreach(print)
    assert orders_of(builder) == {}


def test_so_do_all_rounds_of_a_join_of_many():
    for wanted in (True, False):
        builder = cs.StreamsBuilder()
        orders, visits = builder.table("orders", JSON), builder.stream("visits", JSON)
        customers, products = builder.table("customers", JSON), builder.table("products", JSON)
        by = {"customer": (customers, lambda row: row["c"]), "product": (products, lambda row: row["p"])}
        many = orders.join_many(by, joiner)
        visits.join(many if wanted else customers, joiner).foreach(print)
        many.to_stream().foreach(print)
        rounds = (ReferManyStep, AnswerManyStep, ResolveManyStep)
        assert [step.changelog for kind in rounds for step in steps_of(builder, kind).values()] == [
            wanted
        ] * 3
        kept = steps_of(builder, MaterializeStep)
        assert (kept["products"].changelog is not None) == wanted


def test_a_stream_made_of_a_table_has_every_change_if_it_is_joined():
    builder = cs.StreamsBuilder()
    named = cs.Materialized(store="rows")
    table, other = builder.table("table", JSON, named), builder.table("other", JSON)
    table.to_stream().map_values(lambda row: row, named=cs.Named("mapped")).join(other, joiner).foreach(print)
    assert steps_of(builder, MaterializeStep)["table"].changelog is not None


def test_so_does_all_that_a_table_with_versions_is_made_of():
    for history in (None, "1 hour"):
        builder = cs.StreamsBuilder()
        one, other, third = (builder.table(topic, JSON) for topic in ("one", "other", "third"))
        referring = one.join(other, joiner, named=cs.Named("both")).left_join(
            other, joiner, foreign_key=lambda row: row["to"], table_joined=cs.TableJoined(name="named")
        )
        kept = cs.Materialized(value=serdes.json(), history_retention=history)
        referring.to_stream().map_values(lambda row: row).to_table(materialized=kept)
        third.filter(lambda row: True).to_stream().foreach(print)
        every = history is not None
        tables = steps_of(builder, MaterializeStep)
        assert (tables["one"].changelog is not None) == (tables["other"].changelog is not None) == every
        assert tables["third"].changelog is None
        assert steps_of(builder, TableJoinStep)["both"].changelog == every
        assert steps_of(builder, ResolveStep)["named"].changelog == every


def test_what_is_derived_from_versions_keeps_versions():
    builder = cs.StreamsBuilder()
    hour = cs.Materialized(store="customers", history_retention="1 hour")
    customers = builder.table("customers", JSON, hour)
    derived = customers.filter(lambda row: True).map_values(
        lambda row: row["name"], materialized=cs.Materialized(value=serdes.string())
    )
    builder.stream("orders", JSON).join(derived, joiner, cs.Joined(grace="1 hour", name="told")).foreach(
        print
    )
    stores = plan_topology(builder.build()).stores
    assert stores[f"{derived._node.name}@1"].history == 3_600_000
    assert (stores["told.buffer"].layout.kind, stores["told.buffer"].history) == ("buffer", 3_600_000)


def fields_of(builder):
    return {
        step.node: step.fields for step in plan_topology(builder.build()).steps if isinstance(step, ReadStep)
    }


def declared(*names):
    return cs.Consumed(key=serdes.string(), value=serdes.json(dict.fromkeys(names, pl.Int64)))


def test_of_a_declared_type_the_fields_become_columns_that_joiners_read():
    left, right = pl.col("left").struct, pl.col("right").struct
    total = pl.struct(sum=left.field("a") + right.field("c"))
    builder = cs.StreamsBuilder()
    orders, customers = (
        builder.stream("orders", declared("a", "b")),
        builder.table("customers", declared("c", "d")),
    )
    orders.join(customers, total).foreach(print)
    assert fields_of(builder) == {"orders": {"a"}, "customers": set()}
    orders.to("copies")
    orders.join(customers, pl.col("left")).foreach(print)
    assert fields_of(builder) == {"orders": None, "customers": set()}


def test_what_meets_stored_values_is_checked_and_decoded_there():
    total = pl.struct(sum=pl.col("left").struct.field("a") + pl.col("right").struct.field("c"))
    builder = cs.StreamsBuilder()
    orders, returns = builder.stream("orders", declared("a", "b")), builder.stream("returns", declared("c"))
    orders.join(returns, total, cs.JoinWindows.of("1 minute")).foreach(print)
    assert fields_of(builder) == {"orders": set(), "returns": set()}
    orders.left_join(returns, total, cs.JoinWindows.of("1 minute")).foreach(print)
    assert fields_of(builder) == {"orders": {"a"}, "returns": set()}


def test_where_a_value_is_read_more_than_once_the_fields_of_all_become_columns():
    left, right = pl.col("left").struct, pl.col("right").struct
    builder = cs.StreamsBuilder()
    orders = builder.stream("orders", declared("a", "b", "c", "d", "e"))
    shops = builder.global_table("shops", declared("s"))
    big = orders.filter(pl.col("a") > 1).filter(pl.col("b") > 1)
    joined = pl.struct(sum=left.field("d") + right.field("s"))
    big.join(shops, joined, key_selector=pl.col("c").cast(pl.String)).foreach(print)
    assert fields_of(builder)["orders"] == {"a", "b", "c", "d"}
    customers = builder.table("customers", declared("x", "y"))
    rows = builder.table("rows", declared("k", "v", "w"))
    rows.join(
        customers, pl.struct(v=left.field("v"), x=right.field("x")), foreign_key=pl.col("k").cast(pl.String)
    )
    assert fields_of(builder) == {"orders": {"a", "b", "c", "d"}, "rows": {"k"}, "customers": {"x"}}
