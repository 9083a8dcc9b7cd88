"""What is written is read back, of every type; what Postgres cannot hold is refused before it is written."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import crossstream as cs
from crossstream import serdes
from crossstream.columns.flat import DELETED, NoSuchColumn, layout_of
from crossstream.columns.unflat import values_in
from crossstream.databases.catalog import named, quoted, table_of
from crossstream.databases.connection import Session
from crossstream.databases.copying import csv_of
from crossstream.databases.parsing import Unread, parsed, text_of
from crossstream.databases.reading import SETTINGS, copied, read_columns
from crossstream.databases.types import holds, sql_type
from crossstream.operators.sink.in_postgres import Unfit, check_in_postgres
from tests.databases.tables import Tables
from tests.lakehouse.test_tables import TEXT, pipe, topology

DAY = st.dates(date(1, 1, 1))
AT = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999))
IN_UTC = AT.map(lambda one: one.replace(tzinfo=timezone.utc))
LETTERS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)
SPAN = st.timedeltas(timedelta(days=-99_999), timedelta(days=99_999))
FLOATS = st.floats(width=32) | st.sampled_from([math.nan, -0.0, 3e-40])


def whole(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


SMALL = st.none() | st.lists(whole(8), max_size=2)
TYPES: dict[str, tuple[Any, str, st.SearchStrategy[Any]]] = {
    "flag": (pl.Boolean, "boolean", st.booleans()),
    "i8": (pl.Int8, "smallint", whole(8)),
    "i16": (pl.Int16, "smallint", whole(16)),
    "i32": (pl.Int32, "integer", whole(32)),
    "i64": (pl.Int64, "bigint", whole(64)),
    "u8": (pl.UInt8, "smallint", whole(8, signed=False)),
    "u16": (pl.UInt16, "integer", whole(16, signed=False)),
    "u32": (pl.UInt32, "bigint", whole(32, signed=False)),
    "u64": (pl.UInt64, "numeric(20,0)", whole(64, signed=False)),
    "f32": (pl.Float32, "real", FLOATS),
    "f64": (pl.Float64, "double precision", st.floats() | FLOATS),
    "price": (pl.Decimal(38, 6), "numeric(38,6)", st.decimals(-(10**31), 10**31, places=6, allow_nan=False)),
    "text": (pl.String, "text", LETTERS),
    "kind": (pl.Categorical(), "text", LETTERS),
    "raw": (pl.Binary, "bytea", st.binary(max_size=9)),
    "day": (pl.Date, "date", DAY),
    "clock": (pl.Time, "time without time zone", st.times()),
    "local": (pl.Datetime("us"), "timestamp without time zone", AT),
    "at": (pl.Datetime("us", "UTC"), "timestamp with time zone", IN_UTC),
    "span": (pl.Duration("us"), "interval", SPAN),
    "texts": (pl.List(pl.String), "text[]", st.lists(st.none() | LETTERS, max_size=3)),
    "floats": (pl.List(pl.Float64), "double precision[]", st.lists(st.none() | st.floats(), max_size=3)),
    "raws": (pl.List(pl.Binary), "bytea[]", st.lists(st.binary(max_size=3), max_size=3)),
    "days": (pl.Array(pl.Date, 2), "date[]", st.lists(DAY, min_size=2, max_size=2)),
    "times": (pl.List(pl.Datetime("us", "UTC")), "timestamp with time zone[]", st.lists(IN_UTC, max_size=2)),
    "spans": (pl.List(pl.Duration("us")), "interval[]", st.lists(SPAN, max_size=2)),
    "prices": (
        pl.List(pl.Decimal(9, 2)),
        "numeric(9,2)[]",
        st.lists(st.decimals(-9, 9, places=2), max_size=2),
    ),
    "inner": (
        pl.Struct({"a": pl.Int64, "b": pl.String, "c": pl.List(pl.Int8)}),
        "jsonb",
        st.fixed_dictionaries(
            {
                "a": st.none() | whole(64),
                "b": st.none() | LETTERS,
                "c": st.none() | st.lists(whole(8), max_size=2),
            }
        ),
    ),
    "nested": (
        pl.List(pl.List(pl.Int64)),
        "jsonb",
        st.lists(st.none() | st.lists(whole(64), max_size=2), max_size=2),
    ),
    "lines": (
        pl.List(pl.Struct({"sku": pl.String, "price": pl.Decimal(20, 4)})),
        "jsonb",
        st.lists(st.fixed_dictionaries({"sku": LETTERS, "price": st.decimals(-9, 9, places=4)}), max_size=2),
    ),
}
SCHEMA = pl.Schema({"id": pl.Int64, **{name: kind for name, (kind, _, _) in TYPES.items()}})
ROW = st.fixed_dictionaries({name: st.none() | values for name, (_, _, values) in TYPES.items()})


@pytest.fixture(scope="module")
def session(server: Any) -> Iterator[Session]:
    made = Session(server.dsn())
    made.reopened()
    made.run("SET timezone = 'UTC'")
    made.run(SETTINGS.replace("true", "false"))
    yield made
    made.close()


def columns_of(rows: list[dict[str, Any]]) -> pa.Table:
    """As they are when they are written: in the types of the layout."""
    wanted = layout_of("postgres", None, pl.Struct(SCHEMA), (), None).schema
    frame = pl.DataFrame([{"id": n, **row} for n, row in enumerate(rows)], SCHEMA).to_arrow()
    return pa.table([frame[one.name].cast(one.type) for one in wanted], schema=wanted)


def test_every_type_has_a_column() -> None:
    wanted = layout_of("postgres", None, pl.Struct(SCHEMA), (), None).schema
    assert {one.name: sql_type(one.type) for one in wanted} == {
        "id": "bigint",
        **{n: t for n, (_, t, _) in TYPES.items()},
    }


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(ROW, min_size=1, max_size=4))
@example(rows=[dict.fromkeys(TYPES)])
def test_what_is_written_is_read_back(session: Session, rows: list[dict[str, Any]]) -> None:
    written = columns_of(rows)
    session.run("DROP TABLE IF EXISTS pg_temp.t")
    for statement in table_of("t", written.schema, ("id",)):
        session.run(statement.replace("CREATE TABLE", "CREATE TEMP TABLE"))
    session.put("COPY pg_temp.t FROM STDIN (FORMAT csv)", csv_of(written))
    texts = ", ".join(text_of(quoted(one.name), one.type) for one in written.schema)
    back = read_columns(
        b"".join(copied(session, f"SELECT {texts} FROM pg_temp.t ORDER BY id")), written.schema
    )
    values = values_in(back, pl.Struct(SCHEMA)).struct.unnest()
    given = pl.DataFrame([{"id": n, **row} for n, row in enumerate(rows)], SCHEMA)
    assert_frame_equal(values, given, check_exact=True)
    assert repr(values["f64"].to_list() + values["f32"].to_list()) == repr(  # 0.0 is not -0.0 here
        given["f64"].to_list() + given["f32"].to_list()
    )
    found = session.connection.execute(b"SELECT * FROM pg_temp.t ORDER BY id").fetchall()
    names = written.column_names
    for read, row in zip(found, written.to_pylist(), strict=True):
        for name, value in zip(names, read, strict=True):
            assert same(name, value, row[name]), (name, value, row[name])


def same(name: str, read: Any, written: Any) -> bool:
    """Whether a value of Postgres is what was written. JSON has decimals as numbers, and no others here."""
    if name in ("inner", "nested", "lines"):
        return read == json.loads(json.dumps(written, default=float))
    if isinstance(written, list) and read is not None:
        return len(read) == len(written) and all(same("", *pair) for pair in zip(read, written, strict=True))
    if name == "f32" and read is not None:
        read = struct.unpack("f", struct.pack("f", read))[0]
    if isinstance(written, float) and isinstance(read, float):
        return read == written or (math.isnan(read) and math.isnan(written))
    return bool(read == written)


@pytest.mark.parametrize("rows", [1, 1_200], ids=["by the temporary table", "at once"])
def test_every_type_through_an_application(tables: Tables, rows: int) -> None:
    """The types that JSON has; the last row is all null."""
    schema: Any = {
        "n": pl.UInt64,
        "price": pl.Decimal(9, 2),
        "at": pl.Datetime("ms", "Europe/Berlin"),
        "tags": pl.List(pl.String),
        "lines": pl.List(pl.Struct({"sku": pl.String})),
    }
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    row = {
        "n": 2**64 - 1,
        "price": Decimal("1.50"),
        "at": at,
        "tags": ['a"\\,{}', None],
        "lines": [{"sku": "é"}],
    }
    value = serdes.json(schema)
    pipe(
        topology(tables, of=(TEXT, value)),
        [*((f"k{n}", row) for n in range(rows)), ("z", dict.fromkeys(row))],
        value=value,
    )
    *full, empty = tables.execute("SELECT n, price, at, tags, lines FROM orders ORDER BY key")
    assert full == [tuple(row.values())] * rows
    assert empty == (None,) * 5


HOLDS = [
    ("numeric", "numeric(9,2)", True),
    ("numeric(9,2)", "numeric(9,2)", True),
    ("numeric(11,4)", "numeric(9,2)", True),
    ("numeric(10,4)", "numeric(9,2)", False),
    ("numeric(12,1)", "numeric(9,2)", False),
    ("bigint", "smallint", True),
    ("smallint", "bigint", False),
    ("numeric", "bigint", True),
    ("character varying", "text", True),
    ("character varying(99)", "text", False),
    ("double precision", "real", False),
    ("timestamp(3) without time zone", "timestamp without time zone", False),
    ("timestamp with time zone", "timestamp without time zone", False),
    ("json", "jsonb", True),
    ("text", "jsonb", False),
]


@pytest.mark.parametrize(("there", "wanted", "expected"), HOLDS)
def test_columns_that_hold_a_type(there: str, wanted: str, expected: bool) -> None:
    assert holds(there, wanted) is expected


NOT_WRITTEN = [
    ("1 day", pa.duration("us")),
    ("infinity", pa.date32()),
    ("0044-03-15 00:00:00 BC", pa.timestamp("us")),
    ("NaN", pa.decimal128(9, 2)),
    ("0.001", pa.decimal128(9, 2)),
    ("40000", pa.int16()),
    ('[["a"], ["b"]]', pa.list_(pa.string())),
    ('{"a": "text"}', pa.struct([("a", pa.int64())])),
]


@pytest.mark.parametrize(("text", "kind"), NOT_WRITTEN)
def test_values_that_others_have_written_are_named(text: str, kind: pa.DataType) -> None:
    with pytest.raises(Unread, match="the column 'x' has a value that is not"):
        parsed(pa.array([None, text]), kind, "x")


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing but null": (pl.Null, "Postgres tables have no columns of the type of 'x': null"),
    "a struct without fields": (pl.Struct({}), "Postgres tables have no columns of the type of 'x'"),
    "a field that JSON cannot have": (pl.Struct({'a"b': pl.Int64}), "the column 'x' is JSON in Postgres"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_types_that_postgres_does_not_have(kind: str) -> None:
    dtype, said = REFUSED[kind]
    with pytest.raises(NoSuchColumn, match=said):
        layout_of("postgres", None, pl.Struct({"x": dtype}), (), None)


@pytest.mark.parametrize("name", ["ctid", "xmin", "tableoid", "n" * 64, "é" * 32])
def test_names_that_postgres_does_not_have(name: str, tables: Tables) -> None:
    """Postgres would cut a longer name, and then miss the column."""
    with pytest.raises(cs.SerdeError) as caught:
        topology(tables, of=(TEXT, serdes.json({name: pl.Int64})))
    assert (caught.value.code, "Postgres has no column of the name" in caught.value.what) == ("CS-404", True)


UNFIT: dict[str, tuple[Any, Any, str]] = {
    "text with NUL": (pl.String, "a\0b", "it has the letter NUL"),
    "a list with NUL": (pl.List(pl.String), ["a", "\0"], "it has the letter NUL"),
    "JSON with NUL": (pl.Struct({"a": pl.List(pl.String)}), {"a": ["\0"]}, "it has the letter NUL"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_a_value_that_postgres_cannot_hold_is_a_bad_record(tables: Tables, kind: str) -> None:
    """All others are written."""
    dtype, bad, said = UNFIT[kind]
    value = serdes.json({"x": dtype})
    good = json.loads(json.dumps(bad).replace("\\u0000", "-"))
    rows = [("a", {"x": good}), ("b", {"x": bad}), ("c", {"x": good})]
    with pytest.raises(cs.SinkError) as caught:
        pipe(topology(tables, of=(TEXT, value)), rows, value=value)
    assert (caught.value.code, said in caught.value.what) == ("CS-658", True)
    pipe(topology(tables, of=(TEXT, value)), rows, value=value, processing_errors="skip")
    assert [row[0] for row in tables.tuples("orders", "key")] == ["a", "c"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have(value: float) -> None:
    """Values of Avro may have them. A column of floats holds them, a list of them too."""
    held = [pa.array([value, None]), pa.array([[value, None], None])]
    for column in held:
        check_in_postgres(column, is_key=False, keys=1)
    for column in [
        pa.array([{"a": value}, None]),
        pa.array([[[1.0], [value]], None]),
        pa.array([[{"a": [value]}]]),
    ]:
        with pytest.raises(Unfit, match="NaN or an infinity"):
            check_in_postgres(column, is_key=False, keys=1)
    check_in_postgres(pa.array([{"a": 1.0, "b": [None]}, None]), is_key=False, keys=1)


def test_keys_that_no_index_takes(tables: Tables) -> None:
    """The longest that is taken, of letters that do not compress, fits."""

    letters = random.Random(0)
    fits = "".join(
        letters.choice("abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(2_600)
    )
    value = serdes.json({"n": pl.Int64})
    pipe(topology(tables, of=(TEXT, value)), [(fits, {"n": 1})], value=value)
    with pytest.raises(cs.SinkError, match="it has 2601 bytes, and a part of this key at most 2600"):
        pipe(topology(tables, of=(TEXT, value)), [(fits + "a", {"n": 1})], value=value)
    assert tables.tuples("orders") == [(fits, 1)]


def test_a_key_that_is_null_in_part(tables: Tables) -> None:
    key, value = serdes.json({"a": pl.String, "b": pl.Int64}), serdes.json({"n": pl.Int64})
    rows: list[Any] = [({"a": "x", "b": None}, {"n": 1}), ({"a": "x", "b": 1}, {"n": 2})]
    with pytest.raises(cs.SinkError, match="a part of the primary key, which has no nulls"):
        pipe(topology(tables, of=(key, value)), rows, key, value)
    pipe(topology(tables, of=(key, value)), rows, key, value, processing_errors="skip")
    assert tables.tuples("orders") == [("x", 1, 2)]


def test_keys_that_differ_in_bytes_alone_are_one_key(tables: Tables) -> None:
    key, value = serdes.float64(), serdes.json({"n": pl.Int64})
    for n in range(2):
        pipe(
            topology(tables, of=(key, value)),
            [(0.0, {"n": n}), (-0.0, {"n": n + 1}), (math.nan, {"n": n})],
            key,
            value,
        )
    assert sorted(row[0] for row in tables.tuples("orders", "n")) == [1, 2]
    pipe(topology(tables, of=(key, value)), [(math.nan, None)], key, value)
    assert tables.tuples("orders") == [(0.0, 2)]


def test_the_column_of_deletes_is_no_column(tables: Tables) -> None:
    with pytest.raises(cs.CrossStreamError):
        topology(tables, of=(TEXT, serdes.json({DELETED: pl.Int64})))


def test_names_of_tables() -> None:
    assert [named(name) for name in ("orders", 'Shop.o"x')] == ['"orders"', '"Shop"."o""x"']
