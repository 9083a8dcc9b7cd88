"""What each operator says of itself, as one table. A new operator needs a row: planning, names and `why` ask for it."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest

from crossstream import serdes
from crossstream.columns.functions import Function
from crossstream.graph import nodes as graph
from crossstream.graph.lasting import Lasting

BASES = {"Node", "RowWise", "Join", "PairJoin"}
"""Classes that no topology has."""

TRAITS: dict[str, str] = {
    "Source": "is_of_bytes reads_input reads_topics keeps_rows rows_are_records",
    "FrameSource": "reads_input keeps_rows rows_are_records stops_tracing",
    "Filter": "from_rows row_wise forwards_values keeps_place derives_rows computed_from may_drop forwards_tombstones "
    "needs_old",
    "MapValues": "from_rows row_wise keeps_place derives_rows computed_from",
    "Map": "row_wise changes_key may_drop",
    "SelectKey": "row_wise forwards_values changes_key gives_key_alone may_drop",
    "FlatMap": "row_wise changes_key multiplies may_drop",
    "FlatMapValues": "row_wise multiplies may_drop",
    "Peek": "row_wise forwards_values keeps_place only_acts",
    "Merge": "row_wise forwards_values one_for_one needs_any_parent",
    "Split": "row_wise forwards_values keeps_place",
    "Branch": "row_wise forwards_values keeps_place may_drop",
    "Repartition": "by_key always_moves forwards_values one_for_one",
    "ToTable": "by_key forwards_values keeps_rows rows_are_records upserts_stream",
    "ToStream": "forwards_values keeps_place one_for_one gives_key_alone",
    "Sink": "writes_rows writes_bytes forwards_values",
    "FrameSink": "writes_rows",
    "TableSink": "writes_rows",
    "TableJoin": "from_rows computed_from keeps side_labels",
    "ForeignKeyJoin": "from_rows by_foreign_key answers_by_key references keeps side_labels",
    "StreamGlobalJoin": "looks_up joins_stream references side_labels",
    "GlobalJoin": "from_rows is_view references computed_from side_labels",
    "StreamTableJoin": "by_key looks_up as_of_record joins_stream keeps side_labels",
    "StreamStreamJoin": "by_key joins_stream multiplies depends_on_time inner_stores side_stores side_labels",
    "ManyJoin": "from_rows by_foreign_key references keeps side_labels",
    "GroupTable": "from_rows takes_every_record changes_key may_drop needs_old",
    "Aggregate": "from_rows by_key takes_every_record keeps_rows needs_any_parent",
    "Deduplicate": "by_key takes_every_record may_drop depends_on_time inner_stores",
    "Process": "by_key takes_every_record multiplies runs_processor stops_tracing changes_key may_drop "
    "depends_on_time",
    "TransformBatches": "by_key takes_every_record multiplies runs_processor stops_tracing changes_key may_drop "
    "depends_on_time",
    "Suppress": "takes_every_record old_of_versions depends_on_time inner_stores",
}
"""The traits that each operator has as it is made without options."""

_NAMES = (
    "reads_input reads_topics upserts_stream is_view "
    "by_key always_moves looks_up as_of_record takes_every_record row_wise joins_stream by_foreign_key "
    "answers_by_key runs_processor multiplies forwards_values keeps_place one_for_one keeps_rows rows_are_records "
    "derives_rows changes_key may_drop depends_on_time forwards_tombstones references side_labels computed_from "
    "inner_stores side_stores gives_key_alone stops_tracing needs_any_parent old_of_versions "
    "from_rows writes_rows writes_bytes is_of_bytes only_acts"
)
NAMES = frozenset(_NAMES.split())


OPERATORS = [
    one
    for one in vars(graph).values()
    if isinstance(one, type) and issubclass(one, graph.Node) and one.__name__ not in BASES
]


def example(kind: type[graph.Node]) -> graph.Node:
    """An operator on two tables or streams, with what it cannot be made without."""
    function = Function.of(lambda value: value, arguments=1)
    known: dict[str, Any] = {
        "kind": "inner",
        "foreign_keys": (function,),
        "names": ("other",),
        "operator": "count",
    }
    known |= {"group_key": serdes.string(), "store": None, "columns": (), "topic": "out"}
    known |= (
        {"store": graph.StoreSpec(), "other_store": graph.StoreSpec()}
        if "other_store" in names_of(kind)
        else {}
    )
    given = {
        one.name: known.get(one.name, 1 if one.type == "int" else function)
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING and one.name != "name"
    }
    table = kind.__name__ in ("Filter", "MapValues", "TableJoin", "ForeignKeyJoin", "ManyJoin", "Suppress")
    given |= {"shape": "table" if table else "global" if kind is graph.GlobalJoin else "stream"}
    return kind(name="made", parents=() if kind.reads_input else ("left", "right"), **given)


def names_of(kind: type[graph.Node]) -> set[str]:
    return {one.name for one in fields(kind)}


@pytest.mark.parametrize("kind", OPERATORS, ids=lambda kind: kind.__name__)
def test_each_operator_says_what_it_needs(kind: type[graph.Node]) -> None:
    node = example(kind)
    has = {name for name in NAMES if getattr(node, name)}
    has |= {"needs_old"} if node.needs_old(False) else set()
    has |= {"keeps"} if node.keeps(1) else set()
    assert has == set(TRAITS[kind.__name__].split())


def test_every_operator_has_a_row() -> None:
    assert {one.__name__ for one in OPERATORS} == set(TRAITS)


def test_every_trait_of_the_base_is_in_the_table() -> None:
    texts = {"where", "queryable_name", "queryable_names", "history", "ttl", "described", "public_name"}
    values = {
        "topics",
        "pattern",
        "unwrap",
        "lake",
        "loads_first",
        "past",
        "timestamp_extractor",
        "joiner",
        "over_values",
        "also_reads",
        "partitions",
    }
    lists = {
        "rows_with_headers",
        "part_names",
        "words",
        "forwarders",
        "needed_parents",
        "side_names",
        "by_other_key",
        "keys_of_either",
    }
    said = {**vars(graph.Node), **vars(Lasting)}
    public = {name for name, one in said.items() if isinstance(one, bool | property)}
    assert public - texts - lists - values == NAMES


def test_options_change_what_an_operator_needs() -> None:
    function = Function.of(lambda value: value, arguments=1)
    assert graph.ToStream(name="a", parents=("t",), mapper=function).changes_key
    assert not graph.Process(name="a", parents=("s",), supplier=list, keeps_key=True).changes_key
    by_id = graph.Deduplicate(name="a", parents=("s",), within=1, identity=function)
    assert by_id.by_other_key
    assert by_id.always_moves
    named = graph.Filter(name="a", parents=("t",), shape="table", predicate=function)
    assert named.computed_from == ("t",)
    kept = graph.Filter(
        name="a", parents=("t",), shape="table", predicate=function, store=graph.StoreSpec(name="kept")
    )
    assert kept.computed_from == ()
    outer = graph.ForeignKeyJoin(
        name="a",
        parents=("l", "r"),
        shape="table",
        kind="outer",
        joiner=function,
        foreign_key=function,
        headers="both",
    )
    assert outer.keys_of_either
    assert outer.needs_any_parent
    assert outer.needs_headers(False) == ("r",)
    assert outer.public_name == "outer_join"
    placed = graph.ForeignKeyJoin(
        name="a",
        parents=("l", "r"),
        kind="inner",
        joiner=function,
        foreign_key=function,
        other_partitioner=lambda key, count: 0,
    )
    assert not placed.keeps(1)


def test_joins_say_which_parents_fill_what_they_keep() -> None:
    function = Function.of(lambda value: value, arguments=1)
    settings: Any = {
        "name": "a",
        "parents": ("l", "r"),
        "shape": "table",
        "kind": "inner",
        "joiner": function,
    }
    by_key = graph.ForeignKeyJoin(foreign_key=function, headers="right", **settings)
    assert by_key.fills("references") == ("l",)
    assert (by_key.holds("subscriptions"), by_key.holds("references")) == ("l", None)
    assert by_key.rows_with_headers == ("r",)
    many = graph.ManyJoin(names=("r",), foreign_keys=(function,), **settings)
    assert (many.fills("rows"), many.fills("partners")) == (("l",), ("l", "r"))
    assert (many.holds("rows"), many.holds("partners")) == ("l", None)
    assert graph.GroupTable(name="a", parents=("t",), mapper=function).holds("latest") == "t"


def test_what_has_a_time_does_not_follow_from_rows() -> None:
    function = Function.of(lambda value: value, arguments=1)
    kept = graph.StoreSpec(history_retention=1)
    assert not graph.Filter(name="a", parents=("t",), shape="table", predicate=function, store=kept).from_rows
    assert not graph.Filter(name="a", parents=("s",), predicate=function).from_rows
    assert not graph.Aggregate(
        name="a", parents=("g",), shape="table", operator="reduce", group_key=serdes.string()
    ).from_rows
