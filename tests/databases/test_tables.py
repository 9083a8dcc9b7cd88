"""`to_postgres` in the driver: columns, upserts, deletes, and tables that others have made."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from tests.databases.tables import Tables
from tests.lakehouse.test_tables import ORDER, TEXT, order, pipe, topology

WIDE = serdes.json({"customer": pl.String, "amount": pl.Float64, "note": pl.String})


def test_a_table_is_upserted_and_deleted(tables: Tables) -> None:
    built = topology(tables, key="order_id", timestamp="at")
    with cs.TopologyTestDriver(built) as driver:
        orders = driver.create_input_topic("orders", TEXT, ORDER)
        orders.pipe_input("o1", order("c1", 1.0), timestamp=1)
        orders.pipe_input("o2", order("c2", 2.0), timestamp=2)
        orders.pipe_input("o1", order(None, 3.0), timestamp=3)
        orders.pipe_input("o2", None, timestamp=4)
        orders.pipe_input("gone", None, timestamp=5)
    assert tables.types("orders") == {
        "order_id": "text",
        "customer": "text",
        "amount": "double precision",
        "at": "timestamp with time zone",
    }
    assert tables.tuples("orders") == [("o1", None, 3.0, datetime(1970, 1, 1, 0, 0, 0, 3000, timezone.utc))]
    assert tables.marks() == {("orders.to_stream.to_postgres", "orders"): 4}
    assert tables.execute("SELECT indisprimary FROM pg_index WHERE indrelid = 'orders'::regclass") == [
        (True,)
    ]


def test_one_key_several_times_in_a_batch(tables: Tables) -> None:
    pipe(topology(tables), [("a", order("x", 0.0))])
    changes = [
        ("a", order("x", 1.0)),
        ("b", order("y", 1.0)),
        ("a", None),
        ("b", order("y", 2.0)),
        ("c", None),
    ]
    pipe(topology(tables), [*changes, ("d", None), ("d", order("z", 1.0))])
    assert tables.tuples("orders") == [("b", "y", 2.0), ("d", "z", 1.0)]


@pytest.mark.parametrize("rows", [1, 5_000], ids=["few", "many"])
def test_a_table_is_filled_changed_and_emptied(tables: Tables, rows: int) -> None:
    """Many rows go into an empty table without a stop between; a table that is not empty is changed by key."""
    built = topology(tables)
    for amount, step in ((1.0, 1), (2.0, 2)):
        pipe(built, [(f"k{n}", order("x", amount)) for n in range(0, rows, step)])
    both = [("x", 1.0)] * (rows // 2) + [("x", 2.0)] * ((rows + 1) // 2)
    assert sorted(tables.tuples("orders", "customer, amount")) == both
    pipe(built, [(f"k{n}", None) for n in range(rows)])
    assert tables.tuples("orders") == []


def test_an_empty_table_that_another_program_fills_meanwhile(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was empty when the batch looked."""
    from crossstream.databases.postgres import PostgresSink

    is_empty = PostgresSink._is_empty

    def beaten(self: PostgresSink) -> bool:
        found = is_empty(self)
        tables.execute("INSERT INTO orders VALUES ('k7', 'other', 0), ('z', 'other', 0)")
        return found

    monkeypatch.setattr(PostgresSink, "_is_empty", beaten)
    pipe(topology(tables), [(f"k{n}", order("x", 1.0)) for n in range(2_000)])
    assert tables.execute("SELECT count(*), count(*) FILTER (WHERE customer = 'x') FROM orders") == [
        (2_001, 2_000)
    ]


def test_a_stream_is_appended(tables: Tables) -> None:
    built = topology(tables, "stream")
    pipe(built, [("a", order("x", 1.0)), ("a", order("x", 1.0)), (None, order("y", 2.0)), ("b", None)])
    assert tables.tuples("orders") == [("a", "x", 1.0), ("a", "x", 1.0), ("b", None, None), (None, "y", 2.0)]


def test_a_stream_of_one_column(tables: Tables) -> None:
    """Its lines are empty where it is null, and may be what ends the data of COPY."""
    texts = ["", None, "\\.", "\\N", 'a"b', "a\nb\r\n", "NULL", "é😀"]
    value = serdes.json({"text": pl.String})
    pipe(
        topology(tables, "stream", (TEXT, value), key=None),
        [("a", {"text": text}) for text in texts],
        value=value,
    )
    assert [row[0] for row in tables.execute("SELECT text FROM orders")] == texts


def test_keys_of_windows(tables: Tables) -> None:
    builder = cs.StreamsBuilder()
    words = builder.stream("orders", cs.Consumed(key=TEXT, value=TEXT))
    windows = cs.TimeWindows(size="10 ms")
    tables.sink(words.group_by_key().windowed_by(windows).count(), "orders", key=("word", "begin", "end"))
    pipe(builder.build(), [("a", "")] * 12 + [("b", "")] * 2, value=TEXT)
    pipe(builder.build(), [("b", "")], value=TEXT)
    assert tables.tuples("orders") == [("a", 0, 10, 10), ("a", 10, 20, 2), ("b", 0, 10, 1), ("b", 10, 20, 2)]


def test_a_key_that_is_a_field_of_the_value_too(tables: Tables) -> None:
    value = serdes.json({"id": pl.String, "amount": pl.Float64})
    pipe(topology(tables, of=(TEXT, value), key="id"), [("a", {"id": "a", "amount": 1.0})], value=value)
    assert tables.tuples("orders") == [("a", 1.0)]


def test_a_table_of_keys_alone(tables: Tables) -> None:
    value = serdes.json({"id": pl.String})
    for rows in ([("a", {"id": "a"})], [("a", {"id": "a"}), ("b", {"id": "b"})], [("a", None)]):
        pipe(topology(tables, of=(TEXT, value), key="id"), rows, value=value)
    assert tables.tuples("orders") == [("b",)]


def test_names_are_taken_as_given(tables: Tables) -> None:
    """Capital letters, spaces, quotes, signs of parameters and words of SQL; the schema is made, too."""
    tables.schema = f'{tables.schema} "%s"'
    value = serdes.json({"Order": pl.Int64, "a'b %s $1": pl.Int64, "select": pl.Int64})
    built = topology(tables, of=(TEXT, value), key='Key" % {}')
    for n in (1, 2):
        pipe(built, [("k", {"Order": n, "a'b %s $1": n, "select": n}), ("gone", None)], value=value)
    tables.schema = '"' + tables.schema.replace('"', '""') + '"'
    assert list(tables.types("orders")) == ['Key" % {}', "Order", "a'b %s $1", "select"]
    assert tables.tuples("orders") == [("k", 2, 2, 2)]
    tables.execute("DROP SCHEMA {} CASCADE")


def test_columns_that_are_added(tables: Tables) -> None:
    pipe(topology(tables), [("a", order("x", 1.0)), ("b", order("y", 1.0))])
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(tables, of=(TEXT, WIDE)))
    assert (caught.value.code, "note string is missing there" in caught.value.what) == ("CS-657", True)
    more = topology(tables, of=(TEXT, WIDE), schema_mode="merge")
    pipe(more, [("a", {"customer": "x", "amount": 2.0, "note": "n"})], value=WIDE)
    assert tables.tuples("orders") == [("a", "x", 2.0, "n"), ("b", "y", 1.0, None)]


def test_a_table_of_others_keeps_its_columns_and_what_is_in_them(tables: Tables) -> None:
    tables.execute(
        "CREATE TABLE orders (note text DEFAULT 'new', amount double precision, number bigserial, "
        "customer varchar NOT NULL DEFAULT '?', key text, made text NOT NULL GENERATED ALWAYS AS (key || '!') STORED)"
    )
    tables.execute("CREATE UNIQUE INDEX ON orders (key)")
    with pytest.raises(cs.SinkError, match="customer is not null there, and may be null here"):
        cs.TopologyTestDriver(topology(tables))
    tables.execute("ALTER TABLE orders ALTER customer DROP NOT NULL")
    pipe(topology(tables), [("a", order("x", 1.0)), ("b", order("y", 1.0))])
    tables.execute("UPDATE orders SET note = 'kept'")
    pipe(topology(tables), [("a", order("x", 2.0)), ("c", order("z", 1.0)), ("b", None)])
    columns = "key, customer, amount, note, number IS NULL, made"
    assert tables.tuples("orders", columns) == [
        ("a", "x", 2.0, "kept", False, "a!"),
        ("c", "z", 1.0, "new", False, "c!"),
    ]


@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
def test_columns_of_others_that_hold_the_types(tables: Tables, many: bool) -> None:
    """The same comes out, whether the rows come by way of the temporary table or not."""
    types = {
        "n": pl.Int16,
        "big": pl.UInt64,
        "price": pl.Decimal(10, 2),
        "name": pl.String,
        "inner": pl.Struct({"a": pl.Int8}),
    }
    value = serdes.json(types)
    tables.execute(
        "CREATE TABLE orders (key varchar PRIMARY KEY, n bigint, big numeric, price numeric(14,4), name varchar, "
        '"inner" json)'
    )
    row = {"n": -7, "big": 2**64 - 1, "price": Decimal("12345678.25"), "name": "é", "inner": {"a": None}}
    rows: list[Any] = [(f"k{n}", row) for n in range(1_500 if many else 1)]
    pipe(topology(tables, of=(TEXT, value)), rows, value=value)
    found = tables.execute('SELECT n, big::text, price::text, name, "inner"::jsonb::text FROM orders')
    assert found == [(-7, str(2**64 - 1), "12345678.2500", "é", '{"a": null}')] * len(rows)


MADE = {
    "view": (
        "CREATE VIEW orders AS SELECT 'a'::text AS key, ''::text AS customer, 1.0::float8 AS amount",
        "it is a view",
    ),
    "unlogged": (
        "CREATE UNLOGGED TABLE orders (key text PRIMARY KEY, customer text, amount float8)",
        "it is unlogged",
    ),
    "generated": (
        "CREATE TABLE orders (key text PRIMARY KEY, customer text GENERATED ALWAYS AS (key) STORED, amount float8)",
        "the column 'customer' is generated",
    ),
    "other type": (
        "CREATE TABLE orders (key text PRIMARY KEY, customer bigint, amount float8)",
        "customer is bigint there and text here",
    ),
    "shorter text": (
        "CREATE TABLE orders (key text PRIMARY KEY, customer varchar(9), amount float8)",
        "customer is character varying(9) there",
    ),
    "narrower number": (
        "CREATE TABLE orders (key text PRIMARY KEY, customer text, amount real)",
        "amount is real there and double precision here",
    ),
    "no key": (
        "CREATE TABLE orders (key text, customer text, amount float8)",
        "the table has another key: none, and not key",
    ),
    "other key": (
        "CREATE TABLE orders (key text, customer text PRIMARY KEY, amount float8)",
        "the table has another key: customer, and not key",
    ),
    "wider key": (
        "CREATE TABLE orders (key text, customer text, amount float8, PRIMARY KEY (key, customer))",
        "the table has another key: key, customer",
    ),
    "some keys": (
        "CREATE TABLE orders (key text, customer text, amount float8); "
        "CREATE UNIQUE INDEX ON orders (key) WHERE amount > 0",
        "another key: none",
    ),
    "key of a function": (
        "CREATE TABLE orders (key text, customer text, amount float8); CREATE UNIQUE INDEX ON orders (lower(key))",
        "another key: none",
    ),
    "late key": (
        "CREATE TABLE orders (key text PRIMARY KEY DEFERRABLE, customer text, amount float8)",
        "another key: none",
    ),
    "must have more": (
        "CREATE TABLE orders (key text PRIMARY KEY, customer text, amount float8, more int NOT NULL)",
        "more is not null there and missing here",
    ),
    "missing": (
        "CREATE TABLE orders (key text PRIMARY KEY, customer text)",
        "amount double is missing there",
    ),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_table_of_others_that_does_not_fit_stops_the_start(tables: Tables, kind: str) -> None:
    sql, said = MADE[kind]
    for statement in sql.split(";"):
        tables.execute(statement)
    with pytest.raises(cs.SinkError) as caught:
        cs.TopologyTestDriver(topology(tables))
    assert (caught.value.code, caught.value.where["table"]) == ("CS-657", f"{tables.schema}.orders")
    assert said in caught.value.what
    assert caught.value.next


def test_a_table_whose_rows_are_not_all_seen_stops_the_start(tables: Tables) -> None:
    """A delete would pass over the rows that the policy hides."""
    pipe(topology(tables), [])
    role = f"r{tables.schema}"
    tables.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    tables.execute(f"GRANT ALL ON SCHEMA {{}} TO {role}")
    tables.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {{}} TO {role}")
    tables.execute("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    other = Tables(
        tables.dsn.replace("user=postgres", f"user={role}").replace(_password(tables), "x"), tables.schema
    )
    with pytest.raises(cs.SinkError, match="row level security"):
        cs.TopologyTestDriver(topology(other))
    tables.execute(f"DROP OWNED BY {role}")
    tables.execute(f"DROP ROLE {role}")


def _password(tables: Tables) -> str:
    return tables.dsn.split("password=")[1].split()[0]


def test_partitioned_tables(tables: Tables) -> None:
    tables.execute(
        "CREATE TABLE orders (key text PRIMARY KEY, customer text, amount float8) PARTITION BY HASH (key)"
    )
    for n in range(2):
        tables.execute(
            f"CREATE TABLE orders{n} PARTITION OF orders FOR VALUES WITH (MODULUS 2, REMAINDER {n})"
        )
    for amount in (1.0, 2.0):
        pipe(topology(tables), [(f"k{n}", order("x", amount)) for n in range(1_500)] + [("gone", None)])
    assert tables.execute("SELECT count(*), sum(amount) FROM orders") == [(1_500, 3_000.0)]
