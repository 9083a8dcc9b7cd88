"""What an expression gave stays that: whoever looks at its objects meanwhile changes nothing for others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.columns.functions import as_plain
from crossstream.columns.values import Values

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()


@dataclass
class Item:
    price: Decimal
    code: UUID
    n: int


ITEM = serdes.json(Item)
GIVEN = Item(Decimal("19.50"), UUID(int=7), 2)


@pytest.mark.parametrize(
    ("expression", "serde", "then"),
    [
        (pl.col("price"), JSON, None),
        (pl.col("code"), serdes.uuid(), None),
        (pl.struct("price", "code", "n"), ITEM, None),
        (pl.col("n").cast(pl.Int8), JSON, pl.col("value") * 100),
    ],
    ids=["decimal", "uuid", "item", "number"],
)
def test_another_branch_that_looks_at_objects_changes_nothing(
    expression: pl.Expr, serde: Any, then: pl.Expr | None
) -> None:
    def given(look: bool) -> list[bytes]:
        builder = cs.StreamsBuilder()
        mapped = builder.stream("in", cs.Consumed(key=TEXT, value=ITEM)).map_values(expression)
        if look:
            mapped.foreach(lambda value: None)
        last = mapped if then is None else mapped.map_values(then)
        last.to("out", cs.Produced(value=serde))
        with cs.TopologyTestDriver(builder.build()) as driver:
            driver.create_input_topic("in", TEXT, ITEM).pipe_input("k", GIVEN)
            return driver.create_output_topic("out", TEXT, BYTES).read_values()

    assert given(True) == given(False) != []


def test_bytes_are_made_of_the_column_also_after_its_objects_were_asked_for() -> None:
    series = pl.Series([Decimal("19.5"), None], dtype=pl.Decimal(38, 18))
    values = Values(series=series)
    view, part = values.take(np.array([1, 0])), values.slice(0, 1)
    assert values.objects() == [Decimal("19.5"), None]
    assert all(one.expressed() for one in (values, view, part, values.slice(1, 2), view.slice(0, 1)))
    assert values.wire(JSON).to_pylist() == [b'"19.5"', None]
    assert part.wire(JSON).to_pylist() == [b'"19.5"']
    made = Values(objects=[Decimal("19.500"), None])
    assert not made.expressed()
    assert made.wire(JSON).to_pylist() == [b'"19.500"', None]


def test_objects_are_what_a_function_gave_also_after_its_own_bytes_were_asked_for() -> None:
    serde = serdes.json({"x": pl.Float32})  # which rounds
    for made in (
        Values(serde, series=pl.Series([{"x": 1e-300}])),
        Values(serde, objects=[{"x": 1e-300}]),
    ):
        assert made.wire(serde).to_pylist() == [b'{"x":0.0}']
        assert made.made()
        assert made.objects() == [{"x": 1e-300}]


def written(build: Any, records: list[Any], every: int, serde: Any) -> list[tuple[str, bytes]]:
    """What ``build`` makes of the stream or table of the records, in batches of so many of them."""
    builder = cs.StreamsBuilder()
    build(builder, cs.Consumed(key=TEXT, value=serde)).to("out", cs.Produced(key=TEXT, value=JSON))
    with cs.TopologyTestDriver(builder.build(), commit_every=every, processing_errors="skip") as driver:
        topic = driver.create_input_topic("in", TEXT, BYTES)
        topic.pipe_records([(f"{n}", JSON.serialize(value), n) for n, value in enumerate(records)])
        driver.commit()
        return driver.create_output_topic("out", TEXT, BYTES).read_key_values()


TYPED = serdes.json({"w": pl.Int64, "n": pl.Int64, "f": pl.Float64})


BYTE = pl.struct(v=pl.col("n").cast(pl.Int8))
INTEGERS = pl.struct(v=pl.col("n").cast(pl.Int32))


@dataclass
class Byte:
    v: int


def byte(value: dict[str, Any]) -> Byte:
    return Byte(value["n"])


def two(value: dict[str, Any]) -> Byte:
    return Byte(value["n"] * 2)


@pytest.mark.parametrize("others", [(BYTE, INTEGERS), (byte, two)], ids=["expressions", "callables"])
@pytest.mark.parametrize("kind", ["map", "filter"])
def test_what_is_merged_of_one_type_is_read_as_it_is_alone(kind: str, others: Any) -> None:
    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        stream = builder.stream("in", consumed)
        left, right = (stream.filter(pl.col("w") == n).map_values(other) for n, other in enumerate(others))
        both = left.merge(right)
        return both.map_values(pl.col("v") * 100) if kind == "map" else both.filter(pl.col("v") * 100 > 0)

    records = [{"w": n % 2, "n": n + 3, "f": 0.5} for n in range(4)]
    alone = written(build, records, 1, TYPED)
    assert len(alone) == 4
    for every in (2, 3, 4):
        assert written(build, records, every, TYPED) == alone


@pytest.mark.parametrize(
    "other", [byte, pl.struct(v=pl.col("n").cast(pl.Float64)), pl.struct(v="n", more="f")]
)
def test_what_is_merged_of_two_types_has_none(other: Any) -> None:
    def both(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        stream = builder.stream("in", consumed)
        return stream.map_values(BYTE).merge(stream.map_values(other))

    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        return both(builder, consumed).map_values(lambda v: v["v"] if isinstance(v, dict) else v.v)

    with pytest.raises(cs.TopologyError, match="CS-113"):
        both(cs.StreamsBuilder(), cs.Consumed(key=TEXT, value=TYPED)).filter(pl.col("v") > 0)
    records = [{"w": 0, "n": n, "f": 0.5} for n in range(3)]
    alone = written(build, records, 1, TYPED)
    assert len(alone) == 6
    for every in (2, 3):
        assert sorted(written(build, records, every, TYPED)) == sorted(alone)


def test_a_store_of_the_values_changes_nothing() -> None:
    records = [{"n": 3, "f": 1}, {"n": 100, "f": 0.5}, {"n": 3, "f": 0.25}]

    def run(every: int, materialized: Any) -> list[tuple[str, bytes]]:
        def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
            hours = pl.struct(h=pl.col("n").cast(pl.Int8), f="f")
            table = builder.table("in", consumed).map_values(hours, **materialized)
            return table.filter(pl.col("h") * 60 > 0).to_stream()

        return sorted(written(build, records, every, TYPED))

    stored = [{}, {"materialized": cs.Materialized(store="hours")}]
    stored.append({"materialized": cs.Materialized(store="hours", value=serdes.json(Hours))})
    assert len(run(1, {})) == 3
    assert [run(every, given) for every in (1, 2, 3) for given in stored] == [run(1, {})] * 9


@dataclass
class Hours:
    h: int
    f: float


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("looked", [False, True])
def test_a_callable_after_a_store_gets_instances_in_any_batch(every: int, looked: bool) -> None:
    """Story: the type of the store is that which the expression gives. It handed on dicts, or instances once a sink had
    asked for their bytes."""

    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        kept = cs.Materialized(store="hours", value=serdes.json(Hours))
        table = builder.table("in", consumed).map_values(pl.struct(h="n", f="f"), materialized=kept)
        if looked:
            table.to_stream().to("looked")
        return table.to_stream().map_values(repr)

    found = [value for _, value in written(build, [{"n": n, "f": 0.5} for n in range(3)], every, TYPED)]
    assert sorted(found) == [b'"Hours(h=%d, f=0.5)"' % n for n in range(3)]


def test_hours_are_those_of_utc_in_the_next_expression_in_any_batch() -> None:
    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        at = pl.col("at").str.to_datetime(time_zone="UTC").dt.convert_time_zone("Asia/Tokyo")
        first = builder.stream("in", consumed).map_values(pl.struct(at=at, x="x"))
        return first.map_values(pl.col("at").dt.hour())

    records = [{"at": "2024-01-01T23:00:00Z", "x": x} for x in (10, 9.5, None, 10)]
    serde = serdes.json({"at": pl.String, "x": pl.Float64})
    for every in (1, 2, 4):
        assert [value for _, value in written(build, records, every, serde)] == [b"23"] * 4


def test_whole_numbers_beyond_64_bits_are_unsigned_for_the_next_expression() -> None:
    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        large = builder.stream("in", consumed).map_values(pl.struct(v=pl.col("n").cast(pl.UInt64) * 2**62))
        return large.map_values(pl.col("v") // 2**62)

    records = [{"n": n, "f": 1.5} for n in (1, 3, 1)]
    for every in (1, 3):
        assert [value for _, value in written(build, records, every, TYPED)] == [b"1", b"3", b"1"]


def test_all_columns_of_what_an_expression_made_are_those_that_it_gives() -> None:
    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        first = builder.stream("in", consumed).map_values(pl.struct("n", "f"))
        return first.map_values(pl.concat_str(pl.all(), separator="|"))

    for every in (1, 2):
        given = written(build, [{"n": 1, "f": 2}, {"n": 1, "f": 3}], every, TYPED)
        assert [value for _, value in given] == [b'"1|2.0"', b'"1|3.0"']


def test_texts_of_what_is_merged_and_of_items_are_those_they_have_alone() -> None:
    def merged(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        stream = builder.stream("in", consumed)
        price = stream.filter(pl.col("w") == 0).map_values(pl.col("n").cast(pl.Decimal(38, 18)))
        return price.merge(stream.filter(pl.col("w") == 1).map_values(lambda value: value["n"]))

    def items(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        price = pl.struct("n", price=pl.col("w").cast(pl.Decimal(38, 18)))
        return builder.stream("in", consumed).flat_map_values(pl.concat_list(price, price))

    records = [{"w": n % 2, "n": n} for n in (2, 3, 4)]
    for build in (merged, items):
        alone = written(build, records, 1, TYPED)
        assert len(alone) >= 3
        assert b"000000" not in b"".join(value for _, value in alone)
        assert written(build, records, 2, TYPED) == written(build, records, 3, TYPED) == alone


DTYPES: list[tuple[Any, list[Any], Any]] = [
    (pl.Int8, [1, -2], pl.Int64),
    (pl.UInt32, [1, 2], pl.Int64),
    (pl.UInt64, [1, 2**64 - 1], pl.UInt64),
    (pl.Float32, [0.5, float("inf")], pl.Float32),
    (pl.Decimal(10, 2), [Decimal("1.50"), Decimal("2.25")], pl.Decimal(38, 2)),
    (pl.Datetime("ms", "Asia/Tokyo"), [0, -1001], pl.Datetime("us", "UTC")),
    (pl.Datetime("ns"), [1999, -1001], pl.Datetime("us")),
    (pl.Duration("ns"), [1999, 2**40], pl.Duration("us")),
    (pl.Categorical, ["a", "b"], pl.String),
    (pl.Enum(["a", "b"]), ["b", "a"], pl.String),
    (pl.Date, [1, 2], pl.Date),
    (pl.Time, [1000, 2000], pl.Time),
    (pl.Binary, [b"a", b""], pl.Binary),
    (pl.Boolean, [True, False], pl.Boolean),
    (pl.List(pl.UInt32), [[1], [2, 3]], pl.List(pl.Int64)),
    (pl.Array(pl.Int8, 2), [[1, 2], [3, 4]], pl.List(pl.Int64)),
    (
        pl.Struct({"a": pl.Int8, "b": pl.List(pl.Struct({"c": pl.Datetime("ms")}))}),
        [{"a": 1, "b": [{"c": datetime(2026, 1, 2)}]}, None],
        pl.Struct({"a": pl.Int64, "b": pl.List(pl.Struct({"c": pl.Datetime("us")}))}),
    ),
]


@pytest.mark.parametrize(("dtype", "values", "plain"), DTYPES, ids=str)
def test_there_is_one_type_for_each_kind_of_value(dtype: Any, values: list[Any], plain: Any) -> None:
    series = pl.Series(values).cast(dtype) if isinstance(values[0], int) else pl.Series(values, dtype=dtype)
    found = as_plain(series)
    assert found.dtype == plain
    assert found.to_list() == series.to_list()
    assert as_plain(found) is found


LEFT = serdes.json({"other": pl.String, "n": pl.Int64})
RIGHT = serdes.json({"y": pl.Int64, "s": pl.String})
JOINED = pl.struct(
    n=pl.col("left").struct.field("n").cast(pl.Int8),
    y=pl.col("right").struct.field("y"),
    s=pl.col("right").struct.field("s"),
)


def foreign(builder: cs.StreamsBuilder) -> cs.KStream:
    left = builder.table("left", cs.Consumed(key=TEXT, value=LEFT))
    right = builder.table("right", cs.Consumed(key=TEXT, value=RIGHT))
    return left.left_join(right, JOINED, foreign_key=pl.col("other")).to_stream()


def by_key(builder: cs.StreamsBuilder) -> cs.KStream:
    left = builder.table("left", cs.Consumed(key=TEXT, value=LEFT))
    right = builder.table("right", cs.Consumed(key=TEXT, value=RIGHT))
    return left.outer_join(right, JOINED).to_stream()


def alone(builder: cs.StreamsBuilder) -> cs.KStream:
    builder.table("right", cs.Consumed(key=TEXT, value=RIGHT))
    left = builder.table("left", cs.Consumed(key=TEXT, value=LEFT))
    return left.map_values(pl.struct("n", s="other")).to_stream()


def streams(builder: cs.StreamsBuilder) -> cs.KStream:
    left = builder.stream("left", cs.Consumed(key=TEXT, value=LEFT))
    right = builder.stream("right", cs.Consumed(key=TEXT, value=RIGHT))
    return left.outer_join(right, JOINED, cs.JoinWindows.of(timedelta(milliseconds=5)))


@pytest.mark.parametrize("join", [foreign, by_key, alone, streams], ids=lambda join: join.__name__)
def test_what_is_missing_is_of_the_declared_type(join: Any) -> None:
    """Tombstones, rows without a partner and records without a key, alone in their batch and beside others."""
    fields = pl.concat_str("n", "s", separator="|", ignore_nulls=True)
    told = pl.when(pl.col("value").is_null()).then(pl.lit("")).otherwise(fields)
    records: list[tuple[str, str | None, Any]] = [
        ("left", "a", {"other": "x", "n": 1}),
        ("left", "b", {"other": None, "n": 2}),
        ("right", "x", {"y": 3, "s": "q"}),
        ("left", "c", {"other": "x", "n": None}),
        ("left", "d", None),
        ("right", "z", {"y": 3, "s": "q"}),
        ("left", "a", None),
    ]
    if join is streams:
        records += [("right", None, {"y": 3, "s": "q"}), ("left", None, {"other": "x", "n": 4})]

    def run(every: int) -> dict[str, str]:
        builder = cs.StreamsBuilder()
        join(builder).map_values(told).to("out", cs.Produced(key=TEXT, value=JSON))
        with cs.TopologyTestDriver(builder.build(), commit_every=every, processing_errors="skip") as driver:
            for at, (topic, key, value) in enumerate(records):
                driver.create_input_topic(topic, TEXT, JSON).pipe_input(key, value, at * 10)
            driver.commit()
            return dict(driver.create_output_topic("out", TEXT, JSON).read_key_values())

    found = run(1)
    assert found
    if join is not streams:
        assert found.pop("a") == ""  # in one batch it was never there
    for every in (2, 3, 100):
        assert {key: text for key, text in run(every).items() if key != "a" or join is streams} == found
