"""The same queries in SQL, as TPC-H has them but for `ORDER BY … LIMIT`: what DuckDB, Flink and Spark are given.

A limit of ten rows is taken by the reader of the result, on every side. ``queries.py`` says the queries as we do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import polars as pl

from benchmarks.tpch.data import Rows
from benchmarks.tpch.queries import SCHEMAS


@dataclass(frozen=True, slots=True)
class Query:
    """A query: its tables, its text, and the columns that are the key of its result.

    ``shaped``: the same result in the shape that ours has, with the sums of each order before the joins.
    """

    tables: tuple[str, ...]
    text: str
    key: tuple[str, ...]
    shaped: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the result, in order."""
        empty = {name: pl.DataFrame(schema=SCHEMAS[name]) for name in self.tables}
        return tuple(run(self.text, self.tables, empty).columns)

    @property
    def first_key(self) -> str:
        return self.key[0]


SQL: Mapping[str, Query] = {
    "q3": Query(
        ("customer", "orders", "lineitem"),
        """
SELECT l_orderkey, o_orderdate, o_shippriority, SUM(l_extendedprice * (100 - l_discount)) AS revenue
FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
  AND o_orderdate < '1995-03-15' AND l_shipdate > '1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority
""",
        ("l_orderkey", "o_orderdate", "o_shippriority"),
        """
SELECT l_orderkey, o_orderdate, o_shippriority, revenue
FROM customer, orders, (
  SELECT l_orderkey, SUM(l_extendedprice * (100 - l_discount)) AS revenue
  FROM lineitem WHERE l_shipdate > '1995-03-15' GROUP BY l_orderkey
) AS open_lines
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate < '1995-03-15'
""",
    ),
    "q5": Query(
        ("region", "nation", "supplier", "customer", "orders", "lineitem"),
        """
SELECT n_name, SUM(l_extendedprice * (100 - l_discount)) AS revenue
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
  AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
  AND r_name = 'ASIA' AND o_orderdate >= '1994-01-01' AND o_orderdate < '1995-01-01'
GROUP BY n_name
""",
        ("n_name",),
    ),
    "q10": Query(
        ("nation", "customer", "orders", "lineitem"),
        """
SELECT c_custkey, c_name, SUM(l_extendedprice * (100 - l_discount)) AS revenue,
  c_acctbal, n_name, c_address, c_phone, c_comment
FROM customer, orders, lineitem, nation
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND c_nationkey = n_nationkey
  AND o_orderdate >= '1993-10-01' AND o_orderdate < '1994-01-01' AND l_returnflag = 'R'
GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
""",
        ("c_custkey", "c_name", "c_acctbal", "c_phone", "n_name", "c_address", "c_comment"),
    ),
    "q12": Query(
        ("orders", "lineitem"),
        """
SELECT l_shipmode,
  SUM(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high_line_count,
  SUM(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 0 ELSE 1 END) AS low_line_count
FROM orders, lineitem
WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
  AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
  AND l_receiptdate >= '1994-01-01' AND l_receiptdate < '1995-01-01'
GROUP BY l_shipmode
""",
        ("l_shipmode",),
    ),
    "q18": Query(
        ("customer", "orders", "lineitem"),
        """
SELECT o_orderkey, c_name, c_custkey, o_orderdate, o_totalprice, SUM(l_quantity) AS quantity
FROM customer, orders, lineitem
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING SUM(l_quantity) > 250)
  AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY o_orderkey, c_name, c_custkey, o_orderdate, o_totalprice
""",
        ("o_orderkey", "c_name", "c_custkey", "o_orderdate", "o_totalprice"),
        """
SELECT o_orderkey, c_name, c_custkey, o_orderdate, o_totalprice, quantity
FROM customer, orders, (
  SELECT l_orderkey, SUM(l_quantity) AS quantity FROM lineitem GROUP BY l_orderkey HAVING SUM(l_quantity) > 250
) AS large_orders
WHERE c_custkey = o_custkey AND o_orderkey = l_orderkey
""",
    ),
    "lines": Query(
        ("nation", "supplier", "customer", "part", "orders", "lineitem"),
        """
SELECT l_orderkey, l_linenumber, l_quantity, l_extendedprice * (100 - l_discount) AS revenue,
  o_orderdate, c_name, c_mktsegment, s_name, p_name, p_brand, n_name
FROM lineitem, orders, customer, supplier, part, nation
WHERE l_orderkey = o_orderkey AND o_custkey = c_custkey AND l_suppkey = s_suppkey
  AND l_partkey = p_partkey AND s_nationkey = n_nationkey
""",
        ("l_orderkey", "l_linenumber"),
    ),
}


def expected(query: str, rows: Rows) -> pl.DataFrame:
    """The result on these tables, by DuckDB, in order of all columns."""
    return in_order(run(SQL[query].text, SQL[query].tables, rows))


def run(text: str, tables: tuple[str, ...], rows: Rows) -> pl.DataFrame:
    """What DuckDB gives."""
    with duckdb.connect() as connection:
        for name in tables:
            connection.register(name, rows[name].to_arrow())
        found: pl.DataFrame = connection.sql(text).pl()
        return found


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows by all columns, these by their names; whole numbers in 64 bits."""
    names = sorted(rows.columns)
    wide = [pl.col(n).cast(pl.Int64) if t.is_numeric() else pl.col(n) for n, t in rows.schema.items()]
    return rows.with_columns(wide).select(names).sort(names)
