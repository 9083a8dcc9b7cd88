"""After every batch the join of two Delta tables is that of the versions which the batch has read.

> offers(batch) = orders(v) ⋈ customers(w), where v and w are the positions of the batch.

Random commits (several rows each, deletes and inserts of one key, compactions, settings, new columns), cut at random
into batches; every run is a restart, some after a crash. With and without a change feed. The versions are read by
delta-rs and joined by DuckDB.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.application.inputs import connection_of
from crossstream.application.loop import Loop
from crossstream.catalog.planners import plan_topology
from crossstream.filetopics import FileTopics
from crossstream.recompute.verify import verify_results
from crossstream.records import PRODUCER_RECORDS
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import root_of
from tests.lakehouse.sources.delta_tables import (
    Row,
    Table,
    customer_rows,
    customers_in,
    order_changes,
    order_rows,
    orders_in,
    steps,
)
from tests.laws.effort import cases

SQL = """
select o.id, o.customer_id, o.amount, c.name as customer_name, c.region as customer_region
from orders o join customers c on o.customer_id = c.id
"""


class Crash(Exception):
    """An application that ends in the middle of a batch."""


@given(
    orders=order_rows,
    customers=customer_rows,
    script=steps,
    feed=st.booleans(),
    first=st.none() | st.integers(1, 3),
    crash=st.none() | st.integers(0, 4),
)
@example(
    orders=[{"id": 1, "customer_id": "a", "amount": 0.5}],
    customers=[{"id": "a", "name": "Ada", "region": None}],
    script=[
        ("orders", ("replace", [{"id": 1, "customer_id": "a", "amount": 1.5}])),
        ("customers", ("upsert", [{"id": "a"}, {"id": "b", "name": "Bob", "region": "eu"}])),
        ("run", 1),
    ],
    feed=True,
    first=None,
    crash=1,
)
@cases()
def test_a_join_is_that_of_the_versions_that_were_read(
    orders: list[Row],
    customers: list[Row],
    script: list[Any],
    feed: bool,
    first: int | None,
    crash: int | None,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        left, right = orders_in(Path(folder), feed=feed), customers_in(Path(folder), feed=feed)
        left.create(orders)
        right.create(customers)
        state = Path(folder) / "state"
        run(left, right, state, first, crash)
        for what, change in script:
            if what == "run":
                run(left, right, state, change, None)
            else:
                (left if what == "orders" else right).commit(change)
        run(left, right, state, None, None)
        check_batches(left, right, state)
        assert verified(left, right, state) == 0
        assert newest(state) == (left.opened.version(), right.opened.version())


records = st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from(["Ada", "Bob"]))


@given(
    orders=order_rows,
    script=st.lists(
        st.one_of(
            st.tuples(st.just("orders"), order_changes),
            st.tuples(st.just("customers"), st.lists(records, min_size=1, max_size=3)),
            st.tuples(st.just("run"), st.none() | st.integers(1, 5)),
        ),
        max_size=10,
    ),
    feed=st.booleans(),
)
@cases(0.5)
def test_a_join_with_a_topic_is_that_of_what_was_read(
    orders: list[Row], script: list[Any], feed: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        left, state, topics = (
            orders_in(Path(folder), feed=feed),
            Path(folder) / "state",
            Path(folder) / "topics",
        )
        left.create(orders)
        written: list[tuple[str, Any]] = []
        write(topics, written, [("a", "Ada")])
        for what, change in [*script, ("run", None)]:
            if what == "run":
                run_mixed(left, topics, state, change)
            elif what == "orders":
                left.commit(change)
            else:
                write(topics, written, change)
        log = BatchLog(root_of(state))
        for number in log.commits():
            positions = log.commit(number).positions
            (version,) = {at for topic in positions["orders"].values() for at in topic.values()}
            (read,) = positions["customers"]["customers"].values()
            names = {key: name for key, name in dict(written[:read]).items() if name is not None}
            people = {key: {"id": key, "name": name, "region": None} for key, name in names.items()}
            expected = joined(left.rows(version - 1), people) if version else {}
            found = dict(cs.open_store(state, "offers", as_of=number).all())
            assert found == {
                key: {"amount": row["amount"], "name": row["customer_name"]} for key, row in expected.items()
            }


def write(topics: Path, written: list[tuple[str, Any]], more: list[tuple[str, Any]]) -> None:
    """Writes records of customers, with later times each."""
    now = int(time.time() * 1000)
    batch = pa.RecordBatch.from_pylist(
        [
            {"key": key.encode(), "value": None if name is None else f'{{"name": "{name}"}}'.encode()}
            | {"timestamp": now, "headers": None}
            for key, name in more
        ],
        schema=PRODUCER_RECORDS,
    )
    writer = FileTopics(str(topics)).writer()
    writer.write("customers", batch)
    writer.flush()
    written += more


def run_mixed(orders: Table, topics: Path, state: Path, most: int | None) -> None:
    builder = cs.StreamsBuilder()
    left = builder.table_from_delta(orders.path, key="id", columns=["customer_id", "amount"])
    right = builder.table("customers")
    left.join(
        right,
        lambda order, customer: {"amount": order["amount"], "name": customer["name"]},
        foreign_key="customer_id",
        materialized=cs.Materialized(store="offers"),
    )
    config = cs.StreamsConfig(
        application_id="shop",
        state_dir=state,
        topics_dir=topics,
        engine="local",
        max_records_per_batch=most,
        retain_batches=1_000,
    )
    with cs.SparkStreams(builder.build(), config) as app:
        app.process_available()


def topology(orders: Table, customers: Table) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left = builder.table_from_delta(orders.path, key="id", columns=["customer_id", "amount"], store="orders")
    right = builder.table_from_delta(customers.path, key="id", columns=["name", "region"])
    left.join(right, foreign_key="customer_id", on_merge=cs.prefixed("customer_"), store="offers")
    return builder.build()


def run(orders: Table, customers: Table, state: Path, most: int | None, crash: int | None) -> None:
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
            with pytest.raises(cs.CrossStreamError) if crash == 0 else _perhaps():
                start(orders, customers, config)
    start(orders, customers, config)


def start(orders: Table, customers: Table, config: cs.StreamsConfig) -> None:
    with cs.SparkStreams(topology(orders, customers), config) as app:
        app.process_available()


class _perhaps:
    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, cs.CrossStreamError)


def crashing(after: int) -> Any:
    commit, count = Loop._commit, [after]

    def replaced(self: Loop, *arguments: Any) -> Any:
        if count[0] == 0:
            raise Crash
        count[0] -= 1
        return commit(self, *arguments)

    return replaced


def check_batches(orders: Table, customers: Table, state: Path) -> None:
    log = BatchLog(root_of(state))
    for number in log.commits():
        left, right = versions(log.commit(number).positions)
        found = {}
        for key, value in cs.open_store(state, "offers", as_of=number).all():
            found[key] = value
        assert found == joined(orders.rows(left), customers.rows(right)), (number, left, right)


def verified(orders: Table, customers: Table, state: Path) -> int:
    """How many rows differ from what the versions give when they are read again."""
    graph = topology(orders, customers)
    config = cs.StreamsConfig(application_id="shop", state_dir=state, engine="local")
    return verify_results(state, plan_topology(graph), connection_of(config, graph)).different


def newest(state: Path) -> tuple[int, int]:
    log = BatchLog(root_of(state))
    return versions(log.commit(log.commits()[-1]).positions)


def versions(positions: dict[str, dict[str, dict[int, int]]]) -> tuple[int, int]:
    """The versions of both tables that a commit has read; all shares of a table are at the same one."""
    ends = {
        node: {at for topic in topics.values() for at in topic.values()} for node, topics in positions.items()
    }
    (left,), (right,) = ends["orders"], ends["customers"]
    return left - 1, right - 1


def joined(orders: dict[Any, Row], customers: dict[Any, Row]) -> dict[Any, Row]:
    with duckdb.connect() as database:
        for name, rows, columns in (
            ("orders", orders, "id bigint, customer_id varchar, amount double"),
            ("customers", customers, "id varchar, name varchar, region varchar"),
        ):
            database.execute(f"create table {name} ({columns})")
            wanted = [part.split()[0] for part in columns.split(", ")]
            for row in rows.values():
                marks = ", ".join("?" for _ in wanted)
                database.execute(f"insert into {name} values ({marks})", [row[one] for one in wanted])
        result = database.execute(SQL)
        names = [one[0] for one in result.description]
        found = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    return {row.pop("id"): row for row in found}
