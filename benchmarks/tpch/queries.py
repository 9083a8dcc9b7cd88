"""Six queries over TPC-H's tables, each kept up to date: as crossstream says them. ``sql.py`` says them in SQL.

An amount of revenue is price in cents times (100 - discount in per cent): ten thousandths, whole. Page: docs/tpch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

import crossstream as cs
from crossstream import serdes

Int, Text = pl.Int64, pl.String

SCHEMAS: Mapping[str, dict[str, Any]] = {
    "region": {"r_regionkey": Int, "r_name": Text, "r_comment": Text},
    "nation": {"n_nationkey": Int, "n_name": Text, "n_regionkey": Int, "n_comment": Text},
    "supplier": {
        "s_suppkey": Int,
        "s_name": Text,
        "s_address": Text,
        "s_nationkey": Int,
        "s_phone": Text,
        "s_acctbal": Int,
        "s_comment": Text,
    },
    "customer": {
        "c_custkey": Int,
        "c_name": Text,
        "c_address": Text,
        "c_nationkey": Int,
        "c_phone": Text,
        "c_acctbal": Int,
        "c_mktsegment": Text,
        "c_comment": Text,
    },
    "part": {
        "p_partkey": Int,
        "p_name": Text,
        "p_mfgr": Text,
        "p_brand": Text,
        "p_type": Text,
        "p_size": Int,
        "p_container": Text,
        "p_retailprice": Int,
        "p_comment": Text,
    },
    "orders": {
        "o_orderkey": Int,
        "o_custkey": Int,
        "o_orderstatus": Text,
        "o_totalprice": Int,
        "o_orderdate": Text,
        "o_orderpriority": Text,
        "o_clerk": Text,
        "o_shippriority": Int,
        "o_comment": Text,
    },
    "lineitem": {
        "l_orderkey": Int,
        "l_partkey": Int,
        "l_suppkey": Int,
        "l_linenumber": Int,
        "l_quantity": Int,
        "l_extendedprice": Int,
        "l_discount": Int,
        "l_tax": Int,
        "l_returnflag": Text,
        "l_linestatus": Text,
        "l_shipdate": Text,
        "l_commitdate": Text,
        "l_receiptdate": Text,
        "l_shipinstruct": Text,
        "l_shipmode": Text,
        "l_comment": Text,
    },
}
"""Every table's columns, as its records have them. Dates are text: in ISO 8601 they compare as dates do."""


def left(name: str) -> pl.Expr:
    return pl.col("left").struct.field(name)


def right(name: str) -> pl.Expr:
    return pl.col("right").struct.field(name)


def revenue(line: Callable[[str], pl.Expr] = pl.col) -> pl.Expr:
    """Of a line, in ten thousandths."""
    return line("l_extendedprice") * (100 - line("l_discount"))


class Tables:
    """The tables of one topology, read from the topics of a run."""

    def __init__(self, builder: cs.StreamsBuilder, prefix: str) -> None:
        self.builder, self.prefix = builder, prefix

    def __getattr__(self, name: str) -> cs.KTable[Any, Any]:
        key = serdes.string() if name == "lineitem" else serdes.int64()
        value = serdes.json(SCHEMAS[name])
        return self.builder.table(f"{self.prefix}-{name}", key=key, value=value)


def q3(tables: Tables) -> Any:
    """Orders of customers of one segment that were not shipped on a day, with the revenue of what was left to ship."""
    customers = tables.customer.filter(pl.col("c_mktsegment") == "BUILDING")
    orders = tables.orders.filter(pl.col("o_orderdate") < "1995-03-15").join(
        customers, pl.struct(left("o_orderdate"), left("o_shippriority")), foreign_key="o_custkey"
    )
    lines = tables.lineitem.filter(pl.col("l_shipdate") > "1995-03-15")
    revenues = lines.group_by("l_orderkey").agg(revenue=cs.agg.sum(revenue()))
    return revenues.join(orders, pl.struct(left("revenue"), right("o_orderdate"), right("o_shippriority")))


def q5(tables: Tables) -> Any:
    """Revenue of each nation of a region, of lines whose supplier and customer are both of it, within a year."""
    asia = tables.region.filter(pl.col("r_name") == "ASIA")
    nations = tables.nation.join(asia, left("n_name"), foreign_key="n_regionkey")
    suppliers = tables.supplier.join(
        nations, pl.struct(left("s_nationkey"), n_name="right"), foreign_key="s_nationkey"
    )
    year = pl.col("o_orderdate").is_between(pl.lit("1994-01-01"), pl.lit("1995-01-01"), closed="left")
    orders = tables.orders.filter(year).join(
        tables.customer, pl.struct(right("c_nationkey")), foreign_key="o_custkey"
    )
    order, supplier = (pl.col(name).struct.field for name in ("order", "supplier"))
    lines = tables.lineitem.join_many(
        {"order": (orders, "l_orderkey"), "supplier": (suppliers, "l_suppkey")},
        pl.when(order("c_nationkey") == supplier("s_nationkey")).then(
            pl.struct(supplier("n_name"), revenue(left).alias("revenue"))
        ),
    )
    return lines.group_by("n_name").agg(revenue=cs.agg.sum("revenue"))


def q10(tables: Tables) -> Any:
    """Customers who sent parts back that they ordered within a quarter, and the revenue that is lost."""
    quarter = pl.col("o_orderdate").is_between(pl.lit("1993-10-01"), pl.lit("1994-01-01"), closed="left")
    orders = tables.orders.filter(quarter)
    returned = tables.lineitem.filter(pl.col("l_returnflag") == "R")
    lost = returned.join(
        orders,
        pl.struct(right("o_custkey"), revenue(left).alias("revenue")),
        foreign_key="l_orderkey",
    )
    by_customer = lost.group_by("o_custkey").agg(revenue=cs.agg.sum("revenue"))
    shown = ("c_name", "c_acctbal", "c_address", "c_phone", "c_comment")
    customers = tables.customer.join(
        tables.nation, pl.struct(*map(left, shown), right("n_name")), foreign_key="c_nationkey"
    )
    return by_customer.join(customers, pl.struct(left("revenue"), *map(right, shown), right("n_name")))


def q12(tables: Tables) -> Any:
    """Lines that came late by two ways of shipping, and of how many of them the order was urgent."""
    late = tables.lineitem.filter(
        pl.col("l_shipmode").is_in(["MAIL", "SHIP"])
        & (pl.col("l_commitdate") < pl.col("l_receiptdate"))
        & (pl.col("l_shipdate") < pl.col("l_commitdate"))
        & pl.col("l_receiptdate").is_between(pl.lit("1994-01-01"), pl.lit("1995-01-01"), closed="left")
    )
    urgent = right("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    lines = late.join(
        tables.orders, pl.struct(left("l_shipmode"), urgent.alias("urgent")), foreign_key="l_orderkey"
    )
    return lines.group_by("l_shipmode").agg(
        high_line_count=cs.agg.sum("urgent"), low_line_count=cs.agg.sum(~pl.col("urgent"))
    )


def q18(tables: Tables) -> Any:
    """Orders of more than 250 pieces, with their customers."""
    sizes = tables.lineitem.group_by("l_orderkey").agg(quantity=cs.agg.sum("l_quantity"))
    large = sizes.filter(pl.col("quantity") > 250)
    kept = ("o_custkey", "o_orderdate", "o_totalprice")
    orders = large.join(tables.orders, pl.struct(left("quantity"), *map(right, kept)))
    shown = ("quantity", "o_orderdate", "o_totalprice")
    return orders.join(
        tables.customer,
        pl.struct(*map(left, shown), left("o_custkey").alias("c_custkey"), right("c_name")),
        foreign_key="o_custkey",
    )


def lines(tables: Tables) -> Any:
    """Each line with its order, the customer of that, its part, its supplier and the nation of that."""
    orders = tables.orders.join(
        tables.customer,
        pl.struct(left("o_orderdate"), right("c_name"), right("c_mktsegment")),
        foreign_key="o_custkey",
    )
    suppliers = tables.supplier.join(
        tables.nation, pl.struct(left("s_name"), right("n_name")), foreign_key="s_nationkey"
    )
    order, supplier, part = (pl.col(name).struct.field for name in ("order", "supplier", "part"))
    return tables.lineitem.join_many(
        {
            "order": (orders, "l_orderkey"),
            "supplier": (suppliers, "l_suppkey"),
            "part": (tables.part, "l_partkey"),
        },
        pl.struct(
            *map(left, ("l_orderkey", "l_linenumber", "l_quantity")),
            revenue(left).alias("revenue"),
            *map(order, ("o_orderdate", "c_name", "c_mktsegment")),
            *map(supplier, ("s_name", "n_name")),
            *map(part, ("p_name", "p_brand")),
        ),
    )


QUERIES: Mapping[str, Callable[[Tables], Any]] = {
    "q3": q3,
    "q5": q5,
    "q10": q10,
    "q12": q12,
    "q18": q18,
    "lines": lines,
}


def topology(prefix: str, query: str) -> cs.Topology:
    """The query over the topics of a run, its result in PREFIX-results."""
    builder = cs.StreamsBuilder()
    QUERIES[query](Tables(builder, prefix)).to(f"{prefix}-results")
    return builder.build()
