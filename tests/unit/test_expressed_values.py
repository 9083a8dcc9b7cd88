"""What an expression gave stays that: whoever looks at its objects meanwhile changes nothing for others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pytest
from crossstream.algebra.plain_types import as_plain
from crossstream.serdes.json_inferred import infer

import crossstream as cs
from crossstream import serdes
from crossstream.algebra.values import Values

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
    assert made.series().to_list() == made.objects()
    assert not made.expressed()
    assert made.wire(JSON).to_pylist() == [b'"19.500"', None]


def written(build: Any, records: list[Any], every: int, serde: Any = JSON) -> list[tuple[str, bytes]]:
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
OTHERS: dict[str, Any] = {
    "callable": lambda value: {"v": value["n"] if isinstance(value, dict) else value.n},
    "integers": pl.struct(v=pl.col("n").cast(pl.Int32)),
    "floats": pl.struct(v=pl.col("n").cast(pl.Float32)),
    "more": pl.struct(v=pl.col("n").cast(pl.Int16), more="f"),
}


@pytest.mark.parametrize("serde", [JSON, TYPED], ids=["untyped", "typed"])
@pytest.mark.parametrize("other", sorted(OTHERS))
@pytest.mark.parametrize("kind", ["map", "filter"])
def test_what_is_merged_is_read_as_it_is_alone(kind: str, other: str, serde: Any) -> None:
    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        stream = builder.stream("in", consumed)
        one = stream.filter(pl.col("w") == 0).map_values(BYTE)
        two = stream.filter(pl.col("w") == 1).map_values(OTHERS[other])
        both = one.merge(two)
        return both.map_values(pl.col("v") * 100) if kind == "map" else both.filter(pl.col("v") * 100 > 0)

    records = [{"w": n % 2, "n": n + 3, "f": 0.5} for n in range(4)]
    alone = written(build, records, 1, serde)
    assert len(alone) == 4
    for every in (2, 3, 4):
        assert written(build, records, every, serde) == alone


@pytest.mark.parametrize("serde", [JSON, TYPED], ids=["untyped", "typed"])
def test_a_store_of_the_values_changes_nothing(serde: Any) -> None:
    records = [{"n": 3, "f": 1}, {"n": 100, "f": 0.5}, {"n": 3, "f": 0.25}]

    def run(every: int, materialized: Any) -> list[tuple[str, bytes]]:
        def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
            hours = pl.struct(h=pl.col("n").cast(pl.Int8), f="f")
            table = builder.table("in", consumed).map_values(hours, **materialized)
            return table.filter(pl.col("h") * 60 > 0).to_stream()

        return sorted(written(build, records, every, serde))

    stored = {"materialized": cs.Materialized(store="hours", key=TEXT, value=JSON)}
    assert len(run(1, {})) == 3
    assert [run(every, given) for every in (1, 2, 3) for given in ({}, stored)] == [run(1, {})] * 6


def test_hours_are_those_of_utc_in_the_next_expression_in_any_batch() -> None:
    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        at = pl.col("at").str.to_datetime(time_zone="UTC").dt.convert_time_zone("Asia/Tokyo")
        first = builder.stream("in", consumed).map_values(pl.struct(at=at, x="x"))
        return first.map_values(pl.col("at").dt.hour())

    records = [{"at": "2024-01-01T23:00:00Z", "x": x} for x in (10, 9.5, None, 10)]
    for every in (1, 2, 4):
        assert [value for _, value in written(build, records, every)] == [b"23"] * 4


def test_a_number_that_no_column_of_64_bits_holds_is_a_matter_of_its_record() -> None:
    """Also of declared type, as it would be from a store; the expression that gave it may write it."""

    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        large = builder.stream("in", consumed).map_values(pl.struct(v=pl.col("n").cast(pl.UInt64) * 2**62))
        return large.map_values(pl.col("v") // 2**62)

    records = [{"n": n, "f": 1.5} for n in (1, 3, 1)]
    for serde in (JSON, TYPED):
        for every in (1, 3):
            assert written(build, records, every, serde) == [("0", b"1"), ("2", b"1")]


def test_all_columns_of_what_was_made_without_declared_type_are_refused_in_any_batch() -> None:
    def build(builder: cs.StreamsBuilder, consumed: Any) -> cs.KStream:
        first = builder.stream("in", consumed).map_values(pl.struct("n", "f"))
        return first.map_values(pl.concat_str(pl.all(), separator="|"))

    for every in (1, 2):
        with pytest.raises(cs.ProcessingError, match="CS-508"):
            written(build, [{"n": 1, "f": 2}, {"n": 1, "f": "t"}], every)
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

    records = [{"w": 0, "n": 1}, {"w": 1, "n": "t"}, {"w": 0, "n": 2}]
    for build in (merged, items):
        alone = written(build, records, 1)
        assert b"000000" not in b"".join(value for _, value in alone)
        assert written(build, records, 2) == written(build, records, 3) == alone


DTYPES: list[tuple[Any, list[Any]]] = [
    (pl.Int8, [1, -2]),
    (pl.UInt64, [1, 2]),
    (pl.Float32, [0.1, float("inf")]),
    (pl.Decimal(10, 2), [Decimal("1.50"), Decimal("2.25")]),
    (pl.Datetime("ms", "Asia/Tokyo"), [0, -1001]),
    (pl.Datetime("ns"), [1999, -1001]),
    (pl.Duration("ns"), [1999, 2**40]),
    (pl.Categorical, ["a", "b"]),
    (pl.Enum(["a", "b"]), ["b", "a"]),
    (pl.Date, [1, 2]),
    (pl.Time, [1000, 2000]),
    (pl.Binary, [b"a", b""]),
    (pl.Boolean, [True, False]),
    (pl.List(pl.UInt32), [[1], [2, 3]]),
    (pl.Array(pl.Int8, 2), [[1, 2], [3, 4]]),
    (
        pl.Struct({"a": pl.Int8, "b": pl.List(pl.Struct({"c": pl.Float32}))}),
        [{"a": 1, "b": [{"c": 0.1}]}] * 2,
    ),
]


@pytest.mark.parametrize(("dtype", "values"), DTYPES, ids=str)
def test_plain_types_are_those_of_the_objects(dtype: Any, values: list[Any]) -> None:
    series = pl.Series(values).cast(dtype) if isinstance(values[0], int) else pl.Series(values, dtype=dtype)
    inferred = infer(series.to_list(), "pickled")
    found = as_plain(series)
    assert found.dtype == inferred.dtype
    assert found.to_list() == inferred.to_list()
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
    told = pl.concat_str(pl.all(), separator="|", ignore_nulls=True)
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
