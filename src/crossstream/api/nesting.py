"""`nest`: rows of a table with those of another one that refer to them, as a list.

It is made of what there is: the children's rows with their keys are collected by parent (`operators/aggregate`), and
the parents are joined with these lists (`operators/table_join`). All of it is expressions, so no Python runs for a
row. Rules: semantics 3.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from crossstream import agg
from crossstream.api.checks import check_option, function_of, reference_of
from crossstream.api.draft import check_same_builder, child, given_name, table_result
from crossstream.api.options import Grouped, Materialized, Named, materialized_of
from crossstream.api.types import AsSerde
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.graph.nodes import Node, TableJoin

_NAME = "nest"
_KEY, _ROW = "child", "row"


def nest(
    parents: Any,
    children: Any,
    foreign_key: Any,
    into: Any,
    named: Named | None,
    materialized: Materialized | None,
    store: str | None,
    value: AsSerde | None,
) -> Node:
    """Adds the nodes; see `KTable.nest`."""
    if not isinstance(children, type(parents)):
        step = "pass the table that builder.table(…) returned; of a stream: stream.to_table()"
        what = f"nest takes the rows of a KTable, not of a {type(children).__name__}"
        raise refuse("CS-135", what, step, **caller_location(_NAME))
    check_same_builder(_NAME, parents._draft, children._draft)
    option = materialized_of(_NAME, materialized, store, value)
    fields, row = _fields(parents._node), _declared(children._node)
    _check_into(into, fields)
    if not isinstance(foreign_key, str | pl.Expr):
        what = f"the foreign_key of nest is {foreign_key!r}, neither a field nor an expression"
        step = 'name the field of the children that has the parent\'s key: foreign_key="customer_id"'
        raise refuse("CS-104", what, step, **caller_location(_NAME))
    reference = reference_of(_NAME, "foreign_key", foreign_key, children._node, parents._node)
    assert reference.expression is not None
    name = given_name(_NAME, check_option(_NAME, "named", named, Named))
    keyed = pl.struct(
        reference.expression.alias("parent"), pl.col("key").alias(_KEY), pl.col("value").alias(_ROW)
    )
    lists = (
        children.map_values(keyed, _named(name, "children"))
        .group_by(pl.col("parent"), Grouped(key=parents._node.key, name=_part(name, "by-parent")))
        .agg(named=_named(name, "lists"), rows=agg.collect(pl.struct(_KEY, _ROW)))
    )
    mine = [pl.col("left").struct.field(field) for field in fields]
    joiner = pl.struct(*mine, _in_order_of_keys(row).alias(into))
    sides = {"left": parents._node, "right": lists._node}
    result = table_result(_NAME, parents._node, function_of(_NAME, "joiner", joiner, sides), option)
    path = f"{_NAME}({children._node.name})"
    return child(parents._draft, TableJoin, path, parents._node, name, lists._node, kind="left", **result)


def _in_order_of_keys(row: pl.DataType) -> pl.Expr:
    """The rows of a parent, or none of them."""
    item = pl.element()
    lists = pl.col("right").struct.field("rows")
    sorted_ = lists.list.eval(item.sort_by(item.struct.field(_KEY)).struct.field(_ROW))
    return sorted_.fill_null(pl.lit([], dtype=pl.List(row)))


def _named(name: str | None, part: str) -> Named | None:
    made = _part(name, part)
    return None if made is None else Named(made)


def _part(name: str | None, part: str) -> str | None:
    return None if name is None else f"{name}-{part}"


def _declared(node: Node) -> pl.DataType:
    """The type of the rows of a table, which has fields."""
    serde = node.value or node.value_type
    dtype = None if serde is None else serde.dtype
    if not isinstance(dtype, pl.Struct):
        what = f"nest needs rows with declared fields, and the type of those of {node.name} is not declared"
        if dtype is not None and serde is not None:
            what = f"nest needs rows with fields, and those of {node.name} are {serde.name}"
        raise refuse("CS-113", what, "declare it: value=serdes.json(Order)", **caller_location(_NAME))
    return dtype


def _fields(node: Node) -> Mapping[str, pl.DataType]:
    dtype = _declared(node)
    assert isinstance(dtype, pl.Struct)
    return {field.name: field.dtype for field in dtype.fields}  # type: ignore[misc]


def _check_into(into: Any, fields: Mapping[str, pl.DataType]) -> None:
    if not isinstance(into, str) or not into:
        raise _error(f"into={into!r} is not the name of a field", 'write into="orders"')
    if into in fields:
        raise _error(f"the rows have a field {into!r} already", "give the list another name: into=…")


def _error(what: str, step: str) -> CrossStreamError:
    return refuse("CS-136", what, step, **caller_location(_NAME))
