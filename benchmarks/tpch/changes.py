"""What changes in the tables of TPC-H after the snapshot: its refresh functions, updates and moves; seeded.

New orders with their lines come (RF1), and old ones go with theirs (RF2), as TPC-H has it. TPC-H changes no row. Here
lines and orders change, a line goes to another part and supplier, an order to another customer; customers, suppliers
and parts change, and some of them go to another nation. Three times a nation changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from benchmarks.tpch.data import TABLES, Change, Rows

EVENTS = {
    "insert_order": 10,
    "delete_order": 10,
    "change_line": 40,
    "move_line": 15,
    "change_order": 12,
    "move_order": 8,
    "change_customer": 3,
    "change_part": 1.5,
    "change_supplier": 0.1,
}
"""How often each of these happens. An order that comes or goes is about five records, all others are one."""

NATION_CHANGES = 3
NEW_ORDERS_PER_RECORD = 0.07
"""Somewhat more than the share of the records that are new orders."""
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")

Row = dict[str, Any]
Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The tables at first, and changes of them in the parts that were asked for."""

    first: Rows
    parts: tuple[list[Change], ...]


def scenario(rows: Rows, counts: tuple[int, ...], seed: int = 1) -> Scenario:
    """Changes of at least so many records in each part; some of the orders are no rows at first, but come later."""
    rng = np.random.default_rng(seed)
    orders = rows["orders"]["o_orderkey"].to_numpy()
    held = min(int(sum(counts) * NEW_ORDERS_PER_RECORD) + 1, len(orders) // 2)
    later = pl.Series(rng.choice(orders, held, replace=False))
    first = {**rows}
    for name, column in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
        first[name] = rows[name].filter(~pl.col(column).is_in(later.implode()))
    changing = Changing(rows, later.to_list(), rng)
    return Scenario(first, tuple(changing.part(count) for count in counts))


class Changing:
    """The tables as they are by now. Only rows that were touched are dicts."""

    def __init__(self, rows: Rows, later: list[int], rng: np.random.Generator) -> None:
        self.rows, self.later, self.rng = rows, later, rng
        self.places = {name: {key: at for at, key in enumerate(keys_of(rows[name], name))} for name in rows}
        self.touched: dict[str, dict[Key, Row]] = {name: {} for name in rows}
        ahead = set(later)
        self.alive = [key for key in rows["orders"]["o_orderkey"].to_list() if key not in ahead]
        lines = rows["lineitem"].group_by("l_orderkey").len()
        self.lines: dict[int, int] = dict(lines.iter_rows())
        self.sent: list[tuple[str, Row, bool]] = []
        weights = np.array(list(EVENTS.values()))
        self.shares = weights / weights.sum()

    def part(self, count: int) -> list[Change]:
        """The next changes, as one `Change` of each table that they touch."""
        self.sent = []
        events: list[Callable[[], None]] = [getattr(self, name) for name in EVENTS]
        every = max(1, count // (NATION_CHANGES + 1))
        nations = 0
        while len(self.sent) < count:
            for which in self.rng.choice(len(events), min(1_000, count), p=self.shares).tolist():
                if len(self.sent) >= count:
                    break
                if nations < NATION_CHANGES and len(self.sent) >= every * (nations + 1):
                    self.change_nation(nations)
                    nations += 1
                events[which]()
        return [self._change(name) for name in TABLES if any(sent[0] == name for sent in self.sent)]

    def _change(self, table: str) -> Change:
        mine = [(row, at, gone) for at, (name, row, gone) in enumerate(self.sent) if name == table]
        rows = pl.DataFrame([row for row, _, _ in mine], schema=self.rows[table].schema)
        at, gone = pl.Series("at", [one[1] for one in mine]), pl.Series("gone", [one[2] for one in mine])
        return Change(table, rows.with_columns(at, gone))

    # -- rows

    def _row(self, table: str, key: Key) -> Row:
        """A copy of a row as it is."""
        there = self.touched[table].get(key)
        return dict(there) if there else self.rows[table].row(self.places[table][key], named=True)

    def _put(self, table: str, key: Key, row: Row, gone: bool = False) -> None:
        self.touched[table][key] = row
        self.sent.append((table, row, gone))

    def _below(self, bound: int) -> int:
        return int(self.rng.integers(bound))

    def _any(self, table: str) -> Key:
        """One of the rows of a table of which none comes or goes; its keys have no gaps."""
        (smallest,) = next(iter(self.places[table]))
        return (smallest + self._below(len(self.places[table])),)

    def _order(self) -> int:
        order: int = self.alive[self._below(len(self.alive))]
        return order

    def _line(self) -> tuple[Key, Row]:
        order = self._order()
        key = (order, 1 + self._below(self.lines[order]))
        return key, self._row("lineitem", key)

    # -- events

    def insert_order(self) -> None:
        if not self.later:
            return self.change_line()
        order = self.later.pop()
        self._put("orders", (order,), self._row("orders", (order,)))
        for number in range(1, self.lines[order] + 1):
            self._put("lineitem", (order, number), self._row("lineitem", (order, number)))
        return self.alive.append(order)

    def delete_order(self) -> None:
        place = self._below(len(self.alive))
        order, self.alive[place] = self.alive[place], self.alive[-1]
        self.alive.pop()
        for number in range(1, self.lines[order] + 1):
            self._put("lineitem", (order, number), self._row("lineitem", (order, number)), gone=True)
        self._put("orders", (order,), self._row("orders", (order,)), gone=True)

    def change_line(self) -> None:
        """Another quantity at the same price of a piece; a fifth are returned, a fifth sent in another way."""
        key, row = self._line()
        quantity = 1 + self._below(50)
        row["l_extendedprice"] = row["l_extendedprice"] // row["l_quantity"] * quantity
        row["l_quantity"], row["l_discount"] = quantity, self._below(11)
        chance = self._below(5)
        if chance == 0:
            row["l_returnflag"] = "R"
        elif chance == 1:
            row["l_shipmode"] = MODES[self._below(len(MODES))]
        self._put("lineitem", key, row)

    def move_line(self) -> None:
        key, row = self._line()
        (row["l_partkey"],), (row["l_suppkey"],) = self._any("part"), self._any("supplier")
        self._put("lineitem", key, row)

    def change_order(self) -> None:
        order = (self._order(),)
        row = self._row("orders", order)
        row["o_orderstatus"] = "FOP"[self._below(3)]
        row["o_orderpriority"] = PRIORITIES[self._below(len(PRIORITIES))]
        self._put("orders", order, row)

    def move_order(self) -> None:
        order = (self._order(),)
        row = self._row("orders", order)
        (row["o_custkey"],) = self._any("customer")
        self._put("orders", order, row)

    def change_customer(self) -> None:
        """Another balance; three of ten come into another segment, and three into another nation."""
        key = self._any("customer")
        row = self._row("customer", key)
        row["c_acctbal"] = self._below(1_100_000) - 100_000
        chance = self._below(10)
        if chance < 3:
            row["c_mktsegment"] = SEGMENTS[self._below(len(SEGMENTS))]
        elif chance < 6:
            (row["c_nationkey"],) = self._any("nation")
        self._put("customer", key, row)

    def change_part(self) -> None:
        key = self._any("part")
        row = self._row("part", key)
        row["p_retailprice"] = 90_000 + self._below(110_000)
        row["p_brand"] = f"Brand#{1 + self._below(5)}{1 + self._below(5)}"
        self._put("part", key, row)

    def change_supplier(self) -> None:
        """Another balance; a third go to another nation."""
        key = self._any("supplier")
        row = self._row("supplier", key)
        row["s_acctbal"] = self._below(1_100_000) - 100_000
        if self._below(3) == 0:
            (row["s_nationkey"],) = self._any("nation")
        self._put("supplier", key, row)

    def change_nation(self, number: int) -> None:
        """Another name, or every third time another region."""
        key = self._any("nation")
        row = self._row("nation", key)
        if number % 3 == 2:
            (row["n_regionkey"],) = self._any("region")
        else:
            row["n_name"] = f"{row['n_name'].partition(' OF ')[0]} OF {self._below(1_000)}"
        self._put("nation", key, row)


def keys_of(rows: pl.DataFrame, table: str) -> list[Key]:
    return list(rows.select(TABLES[table]).iter_rows())
