"""Delta tables of a test: random commits, as delta-rs makes them, and what a version holds, read by delta-rs too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from hypothesis import strategies as st

FEED = {"delta.enableChangeDataFeed": "true"}
Row = dict[str, Any]
Change = tuple[str, Any]
"""What a commit does: its kind, and the rows or keys."""


@dataclass(slots=True)
class Table:
    """A table with a key ``id``. ``feed``: it has a change feed."""

    path: str
    schema: pa.Schema
    feed: bool = False
    partition_by: tuple[str, ...] = ()

    def create(self, rows: list[Row]) -> None:
        write_deltalake(
            self.path,
            self._arrow(rows),
            configuration=FEED if self.feed else {},
            partition_by=list(self.partition_by) or None,
        )

    @property
    def opened(self) -> DeltaTable:
        return DeltaTable(self.path)

    def rows(self, version: int | None = None) -> dict[Any, Row]:
        """The rows of a version by key."""
        found = DeltaTable(self.path, version=version).to_pyarrow_table().to_pylist()
        rows = {row["id"]: row for row in found}
        assert len(rows) == len(found)
        return rows

    def commit(self, change: Change) -> None:
        kind, what = change
        getattr(self, f"_{kind}")(what)

    def _upsert(self, rows: list[Row]) -> None:
        """One commit that inserts and updates; rows without ``customer_id`` and the like are deleted."""
        there = [row for row in rows if len(row) > 1]
        gone = {row["id"] for row in rows if len(row) == 1}
        whole = [*there, *({"id": key} for key in gone)]
        source = self._arrow(whole).append_column("gone", pa.array([row["id"] in gone for row in whole]))
        merge = self.opened.merge(source, "s.id = t.id", source_alias="s", target_alias="t")
        merge = merge.when_matched_delete("s.gone")
        names = {name: f"s.{name}" for name in self.schema.names}
        merge.when_matched_update(names, predicate="not s.gone").when_not_matched_insert(
            names, predicate="not s.gone"
        ).execute()

    def _replace(self, rows: list[Row]) -> None:
        """One commit that deletes rows of these keys and inserts others with the same keys."""
        keys = ", ".join(repr(row["id"]) for row in rows)
        write_deltalake(self.path, self._grown(rows), mode="overwrite", predicate=f"id in ({keys})")

    def _append(self, rows: list[Row]) -> None:
        """Inserts those rows whose keys are not there."""
        known = self.rows()
        new = [row for row in rows if row["id"] not in known]
        if new:
            write_deltalake(self.path, self._grown(new), mode="append")

    def _delete(self, keys: list[Any]) -> None:
        self.opened.delete(f"id in ({', '.join(map(repr, keys))})")

    def _optimize(self, _: Any) -> None:
        self.opened.optimize.compact()

    def _settings(self, name: str) -> None:
        self.opened.alter.set_table_name(name)

    def _grow(self, rows: list[Row]) -> None:
        """Adds a column, with rows whose keys are not there."""
        known = self.rows()
        new = self._arrow([row for row in rows if row["id"] not in known])
        grown = new.append_column("extra", pa.array(["x"] * new.num_rows, pa.string()))
        write_deltalake(self.path, grown, mode="append", schema_mode="merge")

    def _grown(self, rows: list[Row]) -> pa.Table:
        """With the columns that were added."""
        more = [field for field in pa.schema(self.opened.schema()) if field.name not in self.schema.names]
        return pa.Table.from_pylist(rows, pa.schema([*self.schema, *more]))

    def _arrow(self, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, self.schema)


ORDERS = pa.schema([("id", pa.int64()), ("customer_id", pa.string()), ("amount", pa.float64())])
CUSTOMERS = pa.schema([("id", pa.string()), ("name", pa.string()), ("region", pa.string())])

_ids = st.integers(1, 6)
_people = st.sampled_from("abc")
_order = st.fixed_dictionaries(
    {
        "id": _ids,
        "customer_id": st.none() | st.sampled_from("abcx"),
        "amount": st.none() | st.sampled_from([0.5, 1.5, -0.0]),
    }
)
_customer = st.fixed_dictionaries(
    {
        "id": _people,
        "name": st.none() | st.sampled_from(["Ada", "Bob", ""]),
        "region": st.none() | st.sampled_from(["eu", "a b/c=d%"]),
    }
)


def _some(row: st.SearchStrategy[Row]) -> st.SearchStrategy[list[Row]]:
    return st.lists(row, min_size=1, max_size=4, unique_by=lambda one: one["id"])


def _changes(row: st.SearchStrategy[Row]) -> st.SearchStrategy[Change]:
    rows = _some(row)
    mixed = _some(row | row.map(lambda one: {"id": one["id"]}))
    keys = rows.map(lambda found: [one["id"] for one in found])
    return st.one_of(
        st.tuples(st.just("upsert"), mixed),
        st.tuples(st.just("upsert"), mixed),
        st.tuples(st.just("replace"), rows),
        st.tuples(st.just("append"), rows),
        st.tuples(st.just("delete"), keys),
        st.tuples(st.just("grow"), rows),
        st.tuples(st.just("optimize"), st.none()),
        st.tuples(st.just("settings"), st.sampled_from(["orders", "others"])),
    )


order_changes = _changes(_order)
order_rows = st.lists(_order, max_size=5, unique_by=lambda row: row["id"])
customer_rows = st.lists(_customer, max_size=3, unique_by=lambda row: row["id"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("orders"), order_changes),
        st.tuples(st.just("customers"), _changes(_customer)),
        st.tuples(st.just("run"), st.none() | st.integers(1, 5)),
    ),
    max_size=10,
)
"""Commits of either table, and runs of the application with ``max_records_per_batch``."""


def orders_in(folder: Path, *, feed: bool) -> Table:
    return Table(str(folder / "orders"), ORDERS, feed)


def customers_in(folder: Path, *, feed: bool) -> Table:
    return Table(str(folder / "customers"), CUSTOMERS, feed, ("region",))
