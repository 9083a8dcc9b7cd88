"""KStream: the nodes its methods make, their names and serdes, and what is refused in the user's line."""

from __future__ import annotations

import inspect
import re

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.graph import nodes as graph
from tests.api.cases import JSON, TYPED, node_of, refused, serde_names, stream

KEEP = ("string", "json")
VALUE_LOST = ("string", None)
KEY_LOST = (None, "json")
BOTH_LOST = (None, None)


@pytest.mark.parametrize(
    ("act", "kind", "name", "known"),
    [
        (lambda s: s.filter(lambda v: v), graph.Filter, "orders.filter", KEEP),
        (lambda s: s.filter_not(lambda k, v: v), graph.Filter, "orders.filter_not", KEEP),
        (lambda s: s.map(lambda k, v: (k, v)), graph.Map, "orders.map", BOTH_LOST),
        (lambda s: s.map_values(lambda v: v), graph.MapValues, "orders.map_values", VALUE_LOST),
        (lambda s: s.flat_map(lambda k, v: []), graph.FlatMap, "orders.flat_map", BOTH_LOST),
        (
            lambda s: s.flat_map_values(lambda v: []),
            graph.FlatMapValues,
            "orders.flat_map_values",
            VALUE_LOST,
        ),
        (lambda s: s.select_key(lambda v: v), graph.SelectKey, "orders.select_key", KEY_LOST),
        (lambda s: s.peek(print), graph.Peek, "orders.peek", KEEP),
        (lambda s: s.repartition(), graph.Repartition, "orders.repartition", KEEP),
        (lambda s: s.to_table(), graph.ToTable, "orders.to_table", KEEP),
        (lambda s: s.to_table().to_stream(), graph.ToStream, "orders.to_table.to_stream", KEEP),
    ],
)
def test_operators(act, kind, name, known):
    handle = act(stream())
    node = node_of(handle)
    assert type(node) is kind
    assert node.name == name
    assert serde_names(handle) == known
    assert node.shape == ("table" if kind is graph.ToTable else "stream")


def test_handles_are_not_changed_by_what_follows():
    orders = stream()
    orders.filter(lambda v: v)
    assert node_of(orders).name == "orders"


def test_functions_are_kept_in_normal_form():
    orders = stream()
    assert not node_of(orders.filter(lambda v: v)).predicate.with_key
    assert node_of(orders.filter(lambda k, v: v)).predicate.with_key
    assert node_of(orders.filter_not(cs.keyed(lambda k, v: v))).predicate.with_key
    assert node_of(orders.filter_not(lambda v: v)).negate
    typed = stream(consumed=TYPED)
    assert node_of(typed.filter(pl.col("price") > 1)).predicate.expression is not None
    assert node_of(typed.select_key("other")).mapper.expression is not None
    assert node_of(orders.select_key("other")).mapper.call({"other": "x"}) == "x"
    assert node_of(orders.map_values(str)).mapper.call is str
    assert node_of(orders.map(lambda v: (v, v))).mapper.with_key is False


def test_every_node_knows_the_users_line():
    line = inspect.currentframe().f_lineno + 1
    node = node_of(stream().filter(lambda v: v))
    assert (node.location.file, node.location.line) == (__file__, line)


def test_names_from_the_user_and_from_the_path():
    orders = stream(consumed=cs.Consumed(key=serdes.string(), value=serdes.json(), name="in"))
    assert node_of(orders).name == "in"
    assert node_of(orders.filter(lambda v: v, named=cs.Named("paid"))).name == "paid"
    assert node_of(orders.filter(lambda v: v)).name == "in.filter-2"
    assert node_of(orders.filter(lambda v: v).filter(lambda v: v)).name == "in.filter-3.filter"
    assert node_of(orders.filter_not(lambda v: v)).name == "in.filter_not"


def test_names_do_not_depend_on_unrelated_code():
    def build(more):
        builder = cs.StreamsBuilder()
        if more:
            stream("other", builder=builder).filter(lambda v: v).to("elsewhere")
        orders = stream(builder=builder)
        if more:
            orders.map_values(lambda v: v)
        orders.filter(lambda v: v).to("paid")
        return set(builder.build().nodes)

    assert build(more=False) < build(more=True)


def test_an_attempt_that_failed_leaves_no_trace():
    orders = stream()
    refused("CS-102", lambda: orders.filter(lambda v: v).to("no topic"))
    refused("CS-140", lambda: orders.map(lambda k, v: (k, v), named=cs.Named("m")).to("out"))
    refused("CS-120", lambda: orders.peek(print, named=cs.Named("m")))
    assert node_of(orders.peek(print)).name == "orders.peek"


def test_long_paths_stay_usable_as_folder_names():
    orders = stream()
    for _ in range(40):
        orders = orders.filter(lambda v: v)
    name = node_of(orders).name
    assert len(name.encode()) <= 200
    assert name != node_of(orders.filter(lambda v: v)).name


def test_sources():
    builder = cs.StreamsBuilder()
    assert node_of(builder.stream(["b", "a"], JSON)).topics == ("b", "a")
    assert node_of(builder.stream(["b", "a"], JSON)).name == "b+a"
    by_pattern = node_of(builder.stream(re.compile("logs-.*"), JSON))
    assert by_pattern.pattern.pattern == "logs-.*"
    assert by_pattern.name == "pattern(logs-.*)"
    latest = cs.Consumed(key=serdes.string(), value=serdes.json(), offset_reset="latest")
    assert node_of(builder.stream("c", latest)).offset_reset == "latest"


def test_sources_have_text_as_keys_and_json_as_values():
    assert serde_names(cs.StreamsBuilder().stream("orders")) == KEEP
    assert serde_names(stream(consumed=cs.Consumed(key=serdes.int64()))) == ("int64", "json")


def test_two_streams_of_the_same_topics_share_a_source():
    builder = cs.StreamsBuilder()
    assert node_of(stream(["a", "b"], builder=builder)) is node_of(stream(["b", "a"], builder=builder))
    pattern = "logs-.*"
    first = node_of(stream(re.compile(pattern), builder=builder))
    assert node_of(stream(re.compile(pattern), builder=builder)) is first
    assert len(builder.build().nodes) == 2


def test_merge_keeps_the_serdes_that_all_share():
    builder = cs.StreamsBuilder()
    orders, returns = stream(builder=builder), stream("returns", builder=builder)
    numbers = stream("numbers", cs.Consumed(key=serdes.string(), value=serdes.int64()), builder)
    assert serde_names(orders.merge(returns)) == KEEP
    assert serde_names(orders.merge(numbers)) == VALUE_LOST
    assert serde_names(orders.merge(returns.select_key(lambda v: v))) == KEY_LOST
    three = node_of(orders.merge(returns, numbers))
    assert three.parents == ("orders", "returns", "numbers")
    assert three.name == "orders.merge(returns,numbers)"
    assert node_of(orders.merge(returns, named=cs.Named("all"))).name == "all"


def test_split():
    builder = cs.StreamsBuilder()
    orders = stream(builder=builder)
    split = orders.split().branch(lambda v: v > 9, name="big").branch(lambda k, v: k == "x")
    branches = split.default_branch()
    assert {name: node_of(branch).name for name, branch in branches.items()} == {
        "big": "orders.split.big",
        "2": "orders.split.2",
        "0": "orders.split.0",
    }
    made = builder.build()["orders.split"]
    assert [predicate is None for predicate in made.predicates] == [False, False, True]
    assert [node_of(branch).index for branch in branches.values()] == [0, 1, 2]
    assert all(serde_names(branch) == KEEP for branch in branches.values())


def test_split_without_a_default_and_with_a_prefix():
    branches = (
        stream()
        .split(cs.Named("by-size-"))
        .branch(lambda v: v, "big")
        .branch(lambda v: v)
        .no_default_branch()
    )
    assert {key: node_of(branch).name for key, branch in branches.items()} == {
        "by-size-big": "by-size-big",
        "by-size-2": "by-size-2",
    }


def test_splits_must_be_finished_once():
    builder = cs.StreamsBuilder()
    split = stream(builder=builder).split().branch(lambda v: v, "a")
    refused("CS-120", lambda: split.branch(lambda v: v, "a"), "'a'")
    refused("CS-102", lambda: split.branch(lambda v: v, "a b"))
    with pytest.raises(cs.TopologyError, match="not finished") as caught:
        builder.build()
    assert caught.value.code == "CS-127"
    split.default_branch("rest")
    refused("CS-127", lambda: split.no_default_branch(), "finished")
    refused("CS-127", lambda: split.branch(lambda v: v))
    builder.build()


def test_to_falls_back_to_the_serdes_of_the_stream():
    builder = cs.StreamsBuilder()
    orders = stream(builder=builder)
    assert orders.to("copy") is None
    orders.map_values(lambda v: v["n"]).to("numbers", cs.Produced(value=serdes.int64(), name="out"))
    nodes = builder.build()
    assert (nodes["orders.to(copy)"].key.name, nodes["orders.to(copy)"].value.name) == KEEP
    assert nodes["out"].value.name == "int64"
    assert nodes["out"].topic == "numbers"


def test_to_a_topic_of_each_record():
    builder = cs.StreamsBuilder()
    stream(builder=builder).to(
        lambda key, value: value["topic"], cs.Produced(partitioner=lambda t, k, v, n: 0)
    )
    sink = builder.build()["orders.to"]
    assert sink.topic is None
    assert sink.topic_of("k", {"topic": "x"}) == "x"
    assert sink.partitioner("t", "k", "v", 3) == 0


def test_operations_by_key_take_a_key_serde():
    by_customer = stream().select_key(lambda v: v["customer"])
    assert serde_names(by_customer.to_table(materialized=cs.Materialized(key=serdes.string()))) == KEEP
    assert serde_names(by_customer.repartition(cs.Repartitioned(key=serdes.int64()))) == ("int64", "json")
    assert serde_names(stream().repartition(cs.Repartitioned(key=serdes.int64()))) == ("int64", "json")


def test_repartition():
    def partitioner(key, count):
        return 0

    option = cs.Repartitioned(name="again", partitions=3, partitioner=partitioner, value=serdes.bytes())
    node = node_of(stream().repartition(option))
    assert (node.name, node.partitions, node.partitioner, node.value.name) == (
        "again",
        3,
        partitioner,
        "bytes",
    )


def test_to_table_keeps_what_materialized_says():
    table = stream().to_table(cs.Named("orders-table"), cs.Materialized(store="orders", caching=False))
    node = node_of(table)
    assert node.name == "orders-table"
    assert node.store == graph.StoreSpec(name="orders", key=node.key, value=node.value)
    assert table.queryable_store_name == "orders"
    assert node_of(stream().to_table()).store is None


def test_terminal_operators_return_nothing(capsys):
    builder = cs.StreamsBuilder()
    orders = stream(builder=builder)
    assert orders.foreach(lambda v: None) is None
    assert orders.print() is None
    assert orders.print("seen", named=cs.Named("shown")) is None
    nodes = builder.build()
    assert nodes["orders.foreach"].terminal
    assert nodes["orders.foreach"].shape == "none"
    nodes["orders.print"].action.call("k", 1)
    nodes["shown"].action.call("k", 2)
    assert capsys.readouterr().out == "[orders]: k, 1\n[seen]: k, 2\n"


@pytest.mark.parametrize(
    "method", ["filter", "map", "map_values", "flat_map", "flat_map_values", "select_key"]
)
def test_functions_are_checked(method):
    act = getattr(stream(), method)
    refused("CS-104", lambda: act(None), method)
    refused("CS-104", lambda: act(1))
    refused("CS-104", lambda: act(lambda: 1), method, "lambda value: …")
    refused("CS-104", lambda: act(lambda a, b, c: 1))
    refused("CS-101", lambda: act(lambda v: v, named="name"), "Named('name')")


def test_duplicate_names():
    orders = stream()
    orders.filter(lambda v: v, named=cs.Named("paid"))
    error = refused("CS-120", lambda: orders.map_values(lambda v: v, named=cs.Named("paid")), "'paid'")
    assert str(error.where["first used at"]).startswith(__file__)


def test_a_topology_is_a_snapshot():
    builder = cs.StreamsBuilder()
    orders = stream(builder=builder)
    before = builder.build()
    orders.to("copy")
    assert len(before.nodes) == 1
    assert len(builder.build().nodes) == 2
