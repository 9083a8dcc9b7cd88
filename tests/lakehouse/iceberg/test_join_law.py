"""After every batch the join of two Iceberg tables is that of the versions which the batch has read.

> offers(batch) = orders(v) ⋈ customers(w), where v and w are the positions of the batch.

Random commits (copied on write, merged on read by delete files, compactions, new columns and partitions), cut at random
into batches; every run is a restart, some after a crash. The versions are read by PyIceberg and joined by DuckDB.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.expressions import In
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

import crossstream as cs
from crossstream.application.inputs import connection_of
from crossstream.application.loop import Loop
from crossstream.catalog.planners import plan_topology
from crossstream.recompute.verify import verify_results
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import root_of
from tests.lakehouse.iceberg.tables import Tables, compact, delete_positions, files_of
from tests.lakehouse.sources.test_join_law import crashing, joined, newest, versions
from tests.laws.effort import cases

Row = dict[str, Any]
ORDERS = pa.schema([("id", pa.int64()), ("customer_id", pa.string()), ("amount", pa.float64())])
CUSTOMERS = pa.schema([("id", pa.string()), ("name", pa.string()), ("region", pa.string())])


class CrashedOrDone:
    """Passes over the error of an application that has crashed."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        return isinstance(error, cs.CrossStreamError) and "Crash" in error.what


@dataclass(frozen=True, slots=True)
class Writer:
    """Commits to one of the tables."""

    tables: Tables
    name: str

    @contextmanager
    def table(self) -> Iterator[Table]:
        with self.tables.table(self.name) as table:
            yield table

    def commit(self, kind: str, rows: list[Row]) -> None:
        with self.table() as table:
            getattr(self, f"_{kind}")(table, rows)

    def rows(self, version: int) -> dict[Any, Row]:
        """The rows of a version by key, as PyIceberg reads them."""
        with self.table() as table:
            ids = [one.snapshot_id for one in table.snapshots() if one.sequence_number == version]
            found = table.scan(snapshot_id=ids[0]).to_arrow().to_pylist() if ids else []
            assert ids or version == 0
        rows = {row["id"]: row for row in found}
        assert len(rows) == len(found)
        return rows

    def newest(self) -> int:
        with self.table() as table:
            return table.metadata.last_sequence_number

    def _copy(self, table: Table, rows: list[Row]) -> None:
        """Rows without other fields are deleted; a snapshot that deletes, and one that appends."""
        keys = [row["id"] for row in rows]
        there = self._arrow(table, [row for row in rows if len(row) > 1])
        table.overwrite(there, overwrite_filter=In("id", keys))

    def _merge(self, table: Table, rows: list[Row]) -> None:
        """As one snapshot: old rows of the keys are in a delete file."""
        keys = pa.array([row["id"] for row in rows], table.schema().as_arrow().field("id").type)
        gone = {}
        for file in files_of(table):
            ids = pq.ParquetFile(file.file_path.removeprefix("file://")).read(["id"])["id"].to_pylist()
            positions = [place for place, one in enumerate(ids) if one in keys.to_pylist()]
            if positions:
                gone[file.file_path] = positions
        there = [row for row in rows if len(row) > 1]
        delete_positions(table, gone, self._arrow(table, there) if there else None)

    def _append(self, table: Table, rows: list[Row]) -> None:
        known = set(table.scan().to_arrow()["id"].to_pylist())
        table.append(self._arrow(table, [row for row in rows if row["id"] not in known and len(row) > 1]))

    def _compact(self, table: Table, _: list[Row]) -> None:
        if table.current_snapshot() is not None:
            compact(table)

    def _grow(self, table: Table, rows: list[Row]) -> None:
        with table.update_schema() as update:
            update.add_column(f"extra_{len(table.schema().fields)}", StringType())
        self._merge(table, rows)

    def _partition(self, table: Table, _: list[Row]) -> None:
        with table.update_spec() as update:
            if table.spec().fields:
                update.remove_field(table.spec().fields[0].name)
            else:
                column = table.schema().fields[-1].name
                transform = (
                    BucketTransform(3) if len(table.specs()) > 1 and "amount" not in column else "identity"
                )
                update.add_field(column, transform, f"part_{len(table.specs())}")

    def _arrow(self, table: Table, rows: list[Row]) -> pa.Table:
        return pa.Table.from_pylist(rows, table.schema().as_arrow())


_order = st.fixed_dictionaries(
    {
        "id": st.integers(1, 6),
        "customer_id": st.none() | st.sampled_from("abcx"),
        "amount": st.none() | st.sampled_from([0.5, 1.5]),
    }
)
_customer = st.fixed_dictionaries(
    {
        "id": st.sampled_from("abc"),
        "name": st.none() | st.sampled_from(["Ada", "Bob", ""]),
        "region": st.none() | st.sampled_from(["eu", "a b/c=d%"]),
    }
)
KINDS = ("copy", "merge", "merge", "append", "grow", "compact", "partition")


def _commits(name: str, row: st.SearchStrategy[Row]) -> st.SearchStrategy[Any]:
    mixed = st.lists(row | row.map(lambda one: {"id": one["id"]}), min_size=1, max_size=4, unique_by=_id)
    return st.tuples(st.just(name), st.sampled_from(KINDS), mixed)


def _id(row: Row) -> Any:
    return row["id"]


STEPS = st.lists(
    st.one_of(
        _commits("orders", _order),
        _commits("customers", _customer),
        st.tuples(st.just("run"), st.none() | st.integers(1, 5), st.none() | st.integers(0, 3)),
    ),
    max_size=9,
)
"""Commits, and runs with ``max_records_per_batch``, which crash before the commit of a batch."""
AN_ORDER, ADA = {"id": 1, "customer_id": "a", "amount": 0.5}, {"id": "a", "name": "Ada", "region": None}


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@given(steps=STEPS)
@example(
    steps=[
        ("orders", "append", [AN_ORDER, {"id": 2, "customer_id": "a", "amount": None}]),
        ("customers", "append", [ADA]),
        ("run", None, 0),
        ("orders", "merge", [{**AN_ORDER, "amount": 1.5}, {"id": 2}]),
        ("customers", "partition", []),
        ("customers", "copy", [{**ADA, "name": "Eve"}]),
        ("orders", "compact", []),
        ("run", 1, 1),
        ("orders", "grow", [AN_ORDER]),
        ("customers", "merge", [{"id": "a"}]),
    ]
)
@example(steps=[("run", None, None), ("customers", "append", [ADA]), ("orders", "merge", [AN_ORDER])])
@cases(0.4)
def test_a_join_is_that_of_the_versions_that_were_read(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables(Path(folder))
        tables.create("orders", ORDERS)
        tables.create("customers", CUSTOMERS)
        orders, customers = Writer(tables, "orders"), Writer(tables, "customers")
        state = Path(folder) / "state"
        for what, kind, rows in steps:
            if what == "run":
                run(tables, state, kind, rows)
            else:
                (orders if what == "orders" else customers).commit(kind, rows)
        run(tables, state, None, None)
        log = BatchLog(root_of(state))
        for number in log.commits():
            left, right = versions(log.commit(number).positions)
            found = dict(cs.open_store(state, "offers", as_of=number).all())
            assert found == joined(orders.rows(left), customers.rows(right)), (number, left, right)
        assert newest(state) == (orders.newest(), customers.newest())
        assert verified(tables, state) == 0


def topology(tables: Tables) -> cs.Topology:
    builder = cs.StreamsBuilder()
    read = builder.table_from_iceberg
    orders = read("shop.orders", tables.options, key="id", columns=["customer_id", "amount"], store="orders")
    customers = read("shop.customers", tables.options, key="id", columns=["name", "region"])
    orders.join(customers, foreign_key="customer_id", on_merge=cs.prefixed("customer_"), store="offers")
    return builder.build()


def verified(tables: Tables, state: Path) -> int:
    """How many rows differ from what the versions give when they are read again."""
    graph = topology(tables)
    config = cs.StreamsConfig(application_id="shop", state_dir=state, engine="local")
    return verify_results(state, plan_topology(graph), connection_of(config, graph)).different


def run(tables: Tables, state: Path, most: int | None, crash: int | None) -> None:
    """Runs what there is; with ``crash``, after that many batches one ends before its commit, and then again."""
    config = cs.StreamsConfig(
        application_id="shop",
        state_dir=state,
        engine="local",
        max_records_per_batch=most,
        retain_batches=1_000,
        partitions=2,
    )
    if crash is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Loop, "_commit", crashing(crash))
            with CrashedOrDone():
                start(tables, config)
    start(tables, config)


def start(tables: Tables, config: cs.StreamsConfig) -> None:
    with cs.SparkStreams(topology(tables), config) as app:
        app.process_available()
