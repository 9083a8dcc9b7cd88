"""`to_delta` and `to_iceberg` in the driver: columns, upserts, deletes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from time import perf_counter
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.api import lakehouse
from crossstream.serdes import Serde
from tests.lakehouse.lake import FORMATS, Lake

TEXT = serdes.string()
ORDER = serdes.json({"customer": pl.String, "amount": pl.Float64})


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path, request.param)


def topology(
    lake: Lake, kind: str = "table", of: tuple[Serde, Serde] = (TEXT, ORDER), **settings: Any
) -> cs.Topology:
    builder = cs.StreamsBuilder()
    made = getattr(builder, kind)("orders", cs.Consumed(key=of[0], value=of[1]))
    lake.sink(made, "orders", **settings)
    return builder.build()


def pipe(
    built: cs.Topology, rows: list[Any], key: Serde = TEXT, value: Serde = ORDER, **settings: Any
) -> None:
    """One batch of (key, value), each a millisecond later."""
    with cs.TopologyTestDriver(built, commit_every=max(1, len(rows)), **settings) as driver:
        orders = driver.create_input_topic("orders", key, value)
        orders.pipe_records([cs.TestRecord(k, v, at) for at, (k, v) in enumerate(rows)])


def order(customer: str | None, amount: float) -> dict[str, Any]:
    return {"customer": customer, "amount": amount}


def test_a_table_is_upserted_and_deleted(lake: Lake) -> None:
    built = topology(lake, key="order_id", timestamp="at")
    with cs.TopologyTestDriver(built) as driver:
        orders = driver.create_input_topic("orders", TEXT, ORDER)
        orders.pipe_input("o1", order("c1", 1.0), timestamp=1)
        orders.pipe_input("o2", order("c2", 2.0), timestamp=2)
        orders.pipe_input("o1", order(None, 3.0), timestamp=3)
        orders.pipe_input("o2", None, timestamp=4)
        orders.pipe_input("gone", None, timestamp=5)
    rows = lake.rows("orders")
    assert rows.columns == ["order_id", "customer", "amount", "at"]
    assert rows.rows() == [("o1", None, 3.0, datetime(1970, 1, 1, 0, 0, 0, 3000, timezone.utc))]


def test_one_key_several_times_in_a_batch(lake: Lake) -> None:
    pipe(topology(lake), [("a", order("x", 0.0))])
    changes = [
        ("a", order("x", 1.0)),
        ("b", order("y", 1.0)),
        ("a", None),
        ("b", order("y", 2.0)),
        ("c", None),
    ]
    pipe(topology(lake), [*changes, ("d", None), ("d", order("z", 1.0))])
    assert lake.tuples("orders") == [("b", "y", 2.0), ("d", "z", 1.0)]
    assert lake.commits("orders") == 2


def test_changes_of_a_versioned_table(lake: Lake) -> None:
    """Each change comes out there; the last one of a key counts."""
    builder = cs.StreamsBuilder()
    consumed, kept = (
        cs.Consumed(key=TEXT, value=ORDER),
        cs.Materialized(store="s", history_retention="1 hour"),
    )
    lake.sink(builder.table("orders", consumed, kept), "orders")
    pipe(
        builder.build(), [("a", order("x", 1.0)), ("a", order("x", 2.0)), ("b", order("y", 1.0)), ("b", None)]
    )
    assert lake.tuples("orders") == [("a", "x", 2.0)]


def test_a_stream_is_appended(lake: Lake) -> None:
    pipe(
        topology(lake, "stream"),
        [("a", order("x", 1.0)), ("a", order("x", 1.0)), (None, order("y", 2.0)), ("b", None)],
    )
    assert lake.tuples("orders") == [("a", "x", 1.0), ("a", "x", 1.0), ("b", None, None), (None, "y", 2.0)]
    assert lake.commits("orders") == 1


def test_a_stream_without_its_keys(lake: Lake) -> None:
    pipe(topology(lake, "stream", key=None), [("a", order("x", 1.0))])
    assert lake.rows("orders").columns == ["customer", "amount"]


EVERY = {
    "small": pl.Int8,
    "whole": pl.UInt64,
    "ratio": pl.Float32,
    "flag": pl.Boolean,
    "day": pl.Date,
    "at": pl.Datetime("ms", "Europe/Berlin"),
    "local": pl.Datetime("us"),
    "price": pl.Decimal(10, 2),
    "tags": pl.List(pl.Struct({"name": pl.String, "n": pl.UInt8})),
    "inner": pl.Struct({"a": pl.Int32}),
}


def test_types(lake: Lake) -> None:
    value = serdes.json(EVERY)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    row = {
        "small": -5,
        "whole": 2**64 - 1,
        "ratio": 0.5,
        "flag": True,
        "day": at.date(),
        "at": at,
        "local": at.replace(tzinfo=None),
        "price": Decimal("1.50"),
        "tags": [{"name": "t", "n": 200}],
        "inner": {"a": None},
    }
    pipe(topology(lake, of=(TEXT, value)), [("a", row), ("b", dict.fromkeys(row))], value=value)
    full, empty = lake.tuples("orders")
    assert full == ("a", *row.values())
    nulls: dict[str, Any] = dict.fromkeys(row)
    if lake.form == "iceberg":
        nulls["tags"] = []  # PyIceberg 0.12 writes a list of structs that is null as an empty one
    assert empty == ("b", *nulls.values())


def test_values_that_are_no_structs_and_keys_of_windows(lake: Lake) -> None:
    builder = cs.StreamsBuilder()
    words = builder.stream("orders", cs.Consumed(key=TEXT, value=TEXT))
    windows = cs.TimeWindows(size="10 ms")
    lake.sink(words.group_by_key().windowed_by(windows).count(), "orders", key=("word", "begin", "end"))
    pipe(builder.build(), [("a", "")] * 12 + [("b", "")] * 2, value=TEXT)
    pipe(builder.build(), [("b", "")], value=TEXT)
    assert lake.rows("orders").columns == ["word", "begin", "end", "value"]
    assert lake.tuples("orders") == [("a", 0, 10, 10), ("a", 10, 20, 2), ("b", 0, 10, 1), ("b", 10, 20, 2)]


def test_fields_of_a_key_may_be_null(lake: Lake) -> None:
    key = serdes.json({"a": pl.String, "b": pl.Int64})
    built = topology(lake, of=(key, ORDER))
    one, other = {"a": None, "b": 1}, {"a": "", "b": None}
    pipe(built, [(one, order("x", 1.0)), (other, order("y", 1.0)), ({"a": "", "b": 0}, order("z", 1.0))], key)
    pipe(built, [(one, order("x", 2.0)), (other, None)], key)
    assert lake.tuples("orders") == [("", 0, "z", 1.0), (None, 1, "x", 2.0)]


def test_many_keys_touch_few_files(lake: Lake) -> None:
    """More keys than are compared one by one, and files without any of them."""
    built = topology(lake)
    for letter in "abc":
        pipe(built, [(f"{letter}{n:04}", order(letter, float(n))) for n in range(300)])
    pipe(built, [(f"b{n:04}", None if n % 2 else order("B", 0.0)) for n in range(298)])
    found = lake.rows("orders")["customer"].value_counts().sort("customer").rows()
    assert found == [("B", 149), ("a", 300), ("b", 2), ("c", 300)]


def test_delta_is_read_by_polars_and_duckdb(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    pipe(topology(lake), [("a", order("x", 1.0)), ("b", order("y", 2.0))])
    pipe(topology(lake), [("b", None)])
    wanted = [("a", "x", 1.0)]
    assert pl.read_delta(lake.path("orders")).rows() == wanted
    files = [f"'{uri}'" for uri in __import__("deltalake").DeltaTable(lake.path("orders")).file_uris()]
    assert duckdb.sql(f"SELECT * FROM read_parquet([{', '.join(files)}])").fetchall() == wanted


def test_delta_in_partitions(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "delta")
    built = topology(lake, partition_by="customer")
    pipe(built, [("a", order("x", 1.0)), ("b", order("y", 2.0))])
    pipe(built, [("a", order("y", 1.0))])  # it moves
    assert lake.tuples("orders") == [("a", "y", 1.0), ("b", "y", 2.0)]
    assert (Path(lake.path("orders")) / "customer=y").is_dir()


def test_columns_that_are_added(lake: Lake) -> None:
    pipe(topology(lake), [("a", order("x", 1.0)), ("b", order("y", 1.0))])
    wider = serdes.json({"customer": pl.String, "amount": pl.Float64, "note": pl.String})
    with pytest.raises(cs.SinkError) as caught:
        pipe(topology(lake, of=(TEXT, wider)), [("a", None)], value=wider)
    assert (caught.value.code, "note string is missing there" in caught.value.what) == ("CS-657", True)
    assert "merge" in str(caught.value.next)
    more = topology(lake, of=(TEXT, wider), schema_mode="merge")
    pipe(more, [("a", {"customer": "x", "amount": 2.0, "note": "n"})], value=wider)
    assert lake.tuples("orders") == [("a", "x", 2.0, "n"), ("b", "y", 1.0, None)]
    # Without the column again: it is null where a row is written, and stays elsewhere.
    pipe(topology(lake), [("b", order("y", 3.0))])
    assert lake.tuples("orders") == [("a", "x", 2.0, "n"), ("b", "y", 3.0, None)]


def test_a_table_with_other_types_is_refused(lake: Lake) -> None:
    lake.create(
        "orders", pa.schema([("key", pa.string()), ("customer", pa.int64()), ("amount", pa.float64())])
    )
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(lake))
    assert caught.value.code == "CS-657"
    assert "customer is int64 there and string here" in caught.value.what
    assert "orders" in caught.value.where["table"]


def test_a_table_with_another_key_is_refused(lake: Lake) -> None:
    pipe(topology(lake, key="id"), [("a", order("x", 1.0))])
    other = serdes.json({"id": pl.String, "amount": pl.Float64})
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(lake, of=(TEXT, other), key="customer"))
    assert (caught.value.code, caught.value.what) == (
        "CS-657",
        "the table has another key: id, and not customer",
    )


def test_a_table_of_others_is_written(lake: Lake) -> None:
    lake.create(
        "orders", pa.schema([("key", pa.string()), ("customer", pa.string()), ("amount", pa.float64())])
    )
    pipe(topology(lake), [("a", order("x", 1.0))])
    assert lake.tuples("orders") == [("a", "x", 1.0)]


def test_the_columns_of_a_key_in_another_order(lake: Lake) -> None:
    names = ("value", "b", "a")
    lake.create("orders", pa.schema([(n, pa.int64() if n == "b" else pa.string()) for n in names]))
    key = serdes.json({"a": pl.String, "b": pl.Int64})
    built = topology(lake, of=(key, TEXT))
    pipe(built, [({"a": "x", "b": 1}, "old"), ({"a": "y", "b": 1}, "old")], key, TEXT)
    pipe(built, [({"a": "x", "b": 1}, "new"), ({"a": "y", "b": 1}, None)], key, TEXT)
    assert lake.tuples("orders") == [("new", 1, "x")]


CUSTOMER = serdes.json({"id": pl.String, "name": pl.String})


@pytest.mark.parametrize("kind", ["table", "stream"])
def test_a_field_that_is_named_as_the_key_is_the_key(lake: Lake, kind: str) -> None:
    built = topology(lake, kind, (TEXT, CUSTOMER), key="id")
    rows = [("c1", {"id": "c1", "name": "ada"}), ("c2", {"id": None, "name": "bob"})]
    pipe(built, [*rows, ("c3", {"id": "c3", "name": "eve"})], value=CUSTOMER)
    pipe(built, [("c1", {"id": "c1", "name": "Ada"}), ("c3", None)], value=CUSTOMER)
    assert lake.rows("orders").columns == ["id", "name"]
    changes = [("c1", "Ada"), ("c1", "ada"), ("c2", "bob"), ("c3", "eve"), ("c3", None)]
    assert lake.tuples("orders") == ([("c1", "Ada"), ("c2", "bob")] if kind == "table" else changes)


def test_fields_that_are_named_as_a_key_of_several(lake: Lake) -> None:
    key = serdes.json({"a": pl.String, "b": pl.Int64})
    value = serdes.json({"n": pl.Int32, "x": pl.Float64, "shop": pl.String})
    built = topology(lake, of=(key, value), key=("shop", "n"))
    pipe(built, [({"a": "s", "b": 1}, {"n": 1, "x": 0.5, "shop": "s"})], key, value)
    assert (lake.rows("orders").columns, lake.tuples("orders")) == (["shop", "n", "x"], [("s", 1, 0.5)])
    assert lake.rows("orders").schema["n"] == pl.Int64


def test_a_field_that_is_named_as_the_key_and_is_another(lake: Lake) -> None:
    built = topology(lake, of=(TEXT, CUSTOMER), key="id")
    with pytest.raises(cs.SinkError) as caught:
        pipe(built, [("c1", {"id": "c1", "name": "a"}), ("c2", {"id": "7", "name": "b"})], value=CUSTOMER)
    assert (caught.value.code, "the key, 'c2', and a field, '7'" in caught.value.what) == ("CS-658", True)
    assert "select_key" in str(caught.value.next)


JSON = serdes.json()
REFUSED: dict[str, tuple[Callable[[cs.KStream | cs.KTable, Lake], None], str, str]] = {
    "no serde": (lambda t, lake: lake.sink(t.map_values(str), "t"), "CS-140", "Repartitioned"),  # type: ignore[union-attr]
    "a key that is left out": (lambda t, lake: lake.sink(t, "t", key=None), "CS-101", "key"),
    "two columns of a name": (lambda t, lake: lake.sink(t, "t", key="Amount"), "CS-101", "Amount"),
    "a key of another type than its field": (
        lambda t, lake: lake.sink(t, "t", key="amount"),
        "CS-101",
        "the key is string, and the field double",
    ),
    "too many names": (lambda t, lake: lake.sink(t, "t", key=("a", "b")), "CS-101", "1 columns"),
    "no names": (lambda t, lake: lake.sink(t, "t", key=()), "CS-101", "does not name"),
    "schema mode": (lambda t, lake: lake.sink(t, "t", schema_mode="any"), "CS-101", "merge"),
    "timestamp": (lambda t, lake: lake.sink(t, "t", timestamp=True), "CS-101", "timestamp"),
    "no table": (lambda t, lake: t.to_delta(7), "CS-101", "7"),  # type: ignore[arg-type]
    "partitions": (lambda t, lake: t.to_delta("t", partition_by="b"), "CS-101", "'b'"),
    "another option": (lambda t, lake: lake.sink(t, "t", named="n"), "CS-101", "Named"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_are_refused(lake: Lake, name: str) -> None:
    call, code, text = REFUSED[name]
    orders = cs.StreamsBuilder().table("orders", cs.Consumed(key=TEXT, value=ORDER))
    with pytest.raises(cs.CrossStreamError) as caught:
        call(orders, lake)
    assert (caught.value.code, text in str(caught.value)) == (code, True), str(caught.value)
    assert "tests/lakehouse/" in str(caught.value)


@pytest.mark.parametrize(("key", "value"), [(TEXT, JSON), (JSON, ORDER)], ids=["values", "keys"])
def test_types_that_are_not_declared(lake: Lake, key: Serde, value: Serde) -> None:
    with pytest.raises(cs.TopologyError) as caught:
        topology(lake, of=(key, value))
    assert caught.value.code == "CS-116"


def test_types_that_tables_do_not_have(lake: Lake) -> None:
    value = serdes.json({"long": pl.Duration("us")})
    with pytest.raises(cs.SerdeError) as caught:
        topology(lake, of=(TEXT, value))
    assert (caught.value.code, "'long'" in caught.value.what) == ("CS-404", True)


def test_without_the_library(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakehouse, "find_spec", lambda name: None)
    with pytest.raises(cs.ConfigError) as caught:
        topology(lake)
    assert (caught.value.code, f"crossstream[{lake.form}]" in str(caught.value.next)) == ("CS-201", True)


def test_secrets_stay_in_the_driver(lake: Lake) -> None:
    from crossstream.catalog.planners import plan_topology

    builder = cs.StreamsBuilder()
    orders = builder.table("orders", cs.Consumed(key=TEXT, value=ORDER))
    orders.to_iceberg("shop.orders", {"type": "sql", "token": "s3cret"})
    orders.to_delta("orders", storage_options={"token": "s3cret"})
    plan = plan_topology(builder.build())
    assert "s3cret" not in repr(plan)
    assert "s3cret" in str([getattr(node, "options", "") for node in plan.topology])
    assert "s3cret" not in str([getattr(node, "options", "") for node in plan.shipped().topology])


def test_a_table_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(Lake(tmp_path, "delta")))
    assert caught.value.code == "CS-665"


CHANGES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 9)),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, cut=st.integers(1, 12), partitions=st.integers(1, 3))
@example(changes=[("a", None), ("a", None)], cut=1, partitions=1)  # batches that change no row
def test_any_cut_into_batches_gives_the_same_table(
    tmp_path_factory: pytest.TempPathFactory, form: Any, changes: list[Any], cut: int, partitions: int
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"), form)
    number = serdes.int64()
    builder = cs.StreamsBuilder()
    lake.sink(builder.table("orders", cs.Consumed(key=TEXT, value=number)), "orders")
    lake.sink(builder.stream("events", cs.Consumed(key=TEXT, value=number)), "events")
    with cs.TopologyTestDriver(builder.build(), partitions, cut) as driver:
        orders = driver.create_input_topic("orders", TEXT, number)
        events = driver.create_input_topic("events", TEXT, number)
        for at, (key, value) in enumerate(changes):
            orders.pipe_input(key, value, timestamp=at)
            events.pipe_input(key, value, timestamp=at)
    table = dict(changes)
    assert lake.tuples("orders") == sorted((k, v) for k, v in table.items() if v is not None)
    assert sorted(lake.tuples("events"), key=repr) == sorted(changes, key=repr)


@pytest.mark.nightly
def test_large_batches(lake: Lake) -> None:
    """A merge of 100,000 changes into 100,000 rows takes a second; the bound is for slow machines."""
    built = topology(lake)
    for first in (0, 50_000):
        keys = [f"k{first + n}" for n in range(100_000)]
        begun = perf_counter()
        pipe(built, [(key, order("x", 1.0) if n % 10 else None) for n, key in enumerate(keys)])
        assert perf_counter() - begun < 30
    assert len(lake.rows("orders")) == 135_000
