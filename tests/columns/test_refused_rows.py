"""Rows that a serde refuses: these alone, the same and with the same reason in whatever batch they come.

What an expression gives is a column, and a serde takes columns of text for UUIDs, which it does not as objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.columns.evaluate import encoded, first_refused, serialized
from crossstream.columns.values import Values, concat_values
from crossstream.errors import SerdeError

TEXT, JSON, INT, ID = serdes.string(), serdes.json(), serdes.int64(), serdes.uuid()
ONE, TWO = UUID(int=1), UUID(int=2)
Join: TypeAlias = Callable[[Any, Any, Any], Any]
Told: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class Place:
    id: UUID
    shelf: int


@dataclass
class Item:
    id: UUID
    n: int


STRUCT = pl.struct(pl.col("m").alias("id"), pl.lit(1).alias("shelf"))
KEYS: dict[str, tuple[Any, pl.Expr, Callable[[UUID], Any]]] = {
    "uuid": (ID, pl.col("m"), lambda one: one),
    "json": (serdes.json(UUID), pl.col("m"), lambda one: one),
    "dataclass": (serdes.json(Place), STRUCT, lambda one: Place(one, 1)),
}
JOINS: dict[str, tuple[Literal["stream", "table"], Literal["table", "global"], Join]] = {
    "join": ("table", "table", lambda o, m, key: o.join(m, pair, foreign_key=key)),
    "left_join": ("table", "table", lambda o, m, key: o.left_join(m, pair, foreign_key=key)),
    "right_join": (
        "table",
        "table",
        lambda o, m, key: o.right_join(m, pair, foreign_key=key, keyed_by=cs.LeftOrRight),
    ),
    "outer_join": (
        "table",
        "table",
        lambda o, m, key: o.outer_join(m, pair, foreign_key=key, keyed_by=cs.LeftOrRight),
    ),
    "join_many": (
        "table",
        "table",
        lambda o, m, key: o.join_many({"one": (m, key)}, lambda order, rows: pair(order, rows["one"])),
    ),
    "table-global": ("table", "global", lambda o, m, key: o.join(m, pair, foreign_key=key)),
    "stream-global": ("stream", "global", lambda o, m, key: o.join(m, pair, key_selector=key)),
    "stream-global left": ("stream", "global", lambda o, m, key: o.left_join(m, pair, key_selector=key)),
}


def pair(left: Any, right: Any) -> Any:
    return [left and left["m"], right]


def joined(join: str, keys: str, size: int, policy: Any, ids: list[Any], kind: Any = pl.String) -> Told:
    """Results without their order, and drops; or code, offset and key of the record that is blamed, and why."""
    left, right, make = JOINS[join]
    serde, expression, key_of = KEYS[keys]
    builder = cs.StreamsBuilder()
    orders = getattr(builder, left)("orders", cs.Consumed(key=TEXT, value=serdes.json({"m": kind})))
    read = builder.table if right == "table" else builder.global_table
    result = make(orders, read("m", cs.Consumed(key=serde, value=JSON)), expression)
    records = result if left == "stream" else result.to_stream(lambda key, value: repr(key))
    records.map_values(repr).to("out", cs.Produced(key=TEXT, value=TEXT))
    with cs.TopologyTestDriver(builder.build(), commit_every=size, processing_errors=policy) as driver:
        rows = driver.create_input_topic("m", serde, JSON)
        rows.pipe_records([(key_of(one), f"m{one.int}", 0) for one in (ONE, TWO)])
        driver.commit()
        lefts = driver.create_input_topic("orders", TEXT, JSON)
        try:
            lefts.pipe_records([(f"o{n}", {"m": one}, n) for n, one in enumerate(ids)])
            driver.commit()
        except cs.CrossStreamError as error:
            return error.code, error.where["offset"], error.where["key"], error.what
        found = driver.create_output_topic("out", TEXT, TEXT).read_records()
        return sorted((one.key, one.value) for one in found), driver.metrics()["dropped"]


@pytest.mark.parametrize("policy", ["fail", "skip"])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("join", JOINS)
def test_a_key_that_another_table_cannot_have_fails_alone(join: str, keys: str, policy: Any) -> None:
    ids = [str(ONE), "oops", str(TWO), None, str(ONE).upper(), "again"]
    alone, *together = (joined(join, keys, size, policy, ids) for size in (1, 3, 9))
    assert together == [alone, alone]
    if policy == "fail":
        assert alone[:3] == ("CS-401", 1, "o1")
        assert "oops" in str(alone[3]) or keys == "dataclass"
    else:
        (failed,) = (count for name, count in alone[1].items() if name.endswith("failed"))  # type: ignore[attr-defined]
        assert failed == (3 if keys == "dataclass" else 2)  # a null in a field that takes none, too
        assert "m1" in str(alone[0])
        assert "m2" in str(alone[0])


@pytest.mark.parametrize("join", ["join", "left_join", "stream-global left"])
def test_a_key_of_another_type_is_refused_where_it_is_written(join: str) -> None:
    with pytest.raises(cs.TopologyError, match=r"CS-134.*is Int64, and the keys of m are uuid"):
        joined(join, "uuid", 1, "fail", [None, 5, None, 6], pl.Int64)


def test_a_null_of_a_type_that_is_wrong_is_a_null() -> None:
    """A row that fails by itself must not decide whether those beside it do."""
    typed = Values(series=pl.Series([None, None], dtype=pl.Int64))
    column, wrong = serialized(typed, ID, "the foreign key")
    assert (column.to_pylist(), wrong) == ([None, None], [])


def test_a_type_without_columns_is_nobodys_fault() -> None:
    with pytest.raises(SerdeError, match="CS-404"):
        serialized(Values(series=pl.Series([1, 2])), serdes.json(int | str), "the foreign key")  # type: ignore[arg-type]


def of_several_forms() -> Values:
    return concat_values(
        [
            Values(series=pl.Series([str(ONE), "a"])),
            Values(objects=[TWO, str(TWO), None]),
            Values(series=pl.Series([1, None])),
            Values(series=pl.Series(["b", str(TWO)])).take(np.array([1, 0, -1])),
        ]
    )


def test_parts_of_several_forms_are_each_told_by_what_they_are() -> None:
    one, two = str(ONE).encode(), str(TWO).encode()
    column, wrong = encoded(of_several_forms(), ID)
    assert column.to_pylist() == [one, None, two, None, None, None, None, two, None, None]
    assert [row for row, _ in wrong] == [1, 3, 5, 8]
    assert "'a'" in wrong[0][1].what
    rows = np.array([9, 8, -1, 7, 0, 3, 2, 2])
    column, wrong = encoded(of_several_forms().take(rows), ID)
    assert column.to_pylist() == [None, None, None, two, one, None, two, two]
    assert [row for row, _ in wrong] == [1, 5]
    first = first_refused(of_several_forms().take(rows[2:]), ID)
    assert first is not None
    assert (first[0], "str" in first[1].what) == (3, True)
    assert first_refused(of_several_forms().take(np.array([0, 2, 4])), ID) is None


class Counting:
    """A serde of UUIDs that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(ID, name)

    def encode_series(self, values: pl.Series) -> pa.LargeBinaryArray:
        self.calls += 1
        return ID.encode_series(values)


@pytest.mark.parametrize("bad", [[77], [0, 99_999], []])
def test_one_row_among_many_costs_few_calls(bad: list[int]) -> None:
    texts = [str(ONE)] * 100_000
    for row in bad:
        texts[row] = "x"
    serde: Any = Counting()
    column, wrong = encoded(Values(series=pl.Series(texts)), serde)
    assert [row for row, _ in wrong] == bad
    assert column.null_count == len(bad)
    assert serde.calls < 150


def test_many_wrong_rows_cost_little_more_than_a_call_each() -> None:
    serde: Any = Counting()
    _, wrong = encoded(Values(series=pl.Series(["x"] * 1_000)), serde)
    assert len(wrong) == 1_000
    assert serde.calls < 1_200


def test_a_wrong_type_is_told_without_looking_at_each_row() -> None:
    serde: Any = Counting()
    _, wrong = encoded(Values(series=pl.Series(range(100_000))), serde)
    assert (len(wrong), serde.calls) == (100_000, 2)


def written(size: int, values: list[Any], produced: Any, make: Callable[[Any], Any], **types: Any) -> Told:
    """The record that is blamed, where and why, if all are written: code, part, offset, key, reason."""
    builder = cs.StreamsBuilder()
    make(builder.stream("in", cs.Consumed(key=TEXT, value=serdes.json(types)))).to("out", produced)
    with cs.TopologyTestDriver(builder.build(), commit_every=size) as driver:
        try:
            records = [(f"k{n}", value, n) for n, value in enumerate(values)]
            driver.create_input_topic("in", TEXT, JSON).pipe_records(records)
            driver.commit()
        except cs.CrossStreamError as error:
            return error.code, *(error.where[name] for name in ("part", "offset", "key")), error.what
    return ()


UUIDS = [str(ONE), str(TWO), "xyz", str(ONE), "later"]


@pytest.mark.parametrize("values", [UUIDS, [None, *UUIDS]], ids=str)
def test_a_key_that_cannot_be_written_is_told_by_its_own_record(values: list[Any]) -> None:
    records = [{"u": one} for one in values]
    produced = cs.Produced(key=ID, value=JSON)
    alone, *together = (
        written(size, records, produced, lambda stream: stream.select_key(pl.col("u")), u=pl.String)
        for size in (1, 3, 9)
    )
    assert together == [alone, alone]
    assert alone[:3] == ("CS-403", "key", values.index("xyz"))
    assert "'xyz'" in str(alone[4])


def test_a_value_that_cannot_be_written_is_told_by_its_own_record() -> None:
    ids = [str(ONE), str(TWO), str(ONE), "late"]
    records = [{"id": one, "n": n if n != 2 else None} for n, one in enumerate(ids)]
    produced = cs.Produced(key=TEXT, value=serdes.json(Item))
    types = {"id": pl.String, "n": pl.Int64}
    alone, *together = (
        written(size, records, produced, lambda stream: stream.map_values(pl.struct("id", "n")), **types)
        for size in (1, 3, 9)
    )
    assert together == [alone, alone]
    assert alone[1:4] == ("value", 2, "k2")
    assert "field n is null" in str(alone[4])


@pytest.mark.parametrize("size", [1, 3, 9])
def test_a_row_that_a_store_cannot_keep_is_told_by_its_own_record(size: int) -> None:
    builder = cs.StreamsBuilder()
    table = builder.table("in", cs.Consumed(key=TEXT, value=serdes.json({"u": pl.String})))
    table.map_values(pl.col("u"), materialized=cs.Materialized(store="ids", value=ID))
    records = [(f"k{n}", {"u": one}, n) for n, one in enumerate(UUIDS)]
    with cs.TopologyTestDriver(builder.build(), commit_every=size) as driver:

        def process() -> None:
            driver.create_input_topic("in", TEXT, JSON).pipe_records(records)
            driver.commit()

        with pytest.raises(SerdeError, match="'xyz'") as caught:
            process()
    where = caught.value.where
    assert (where["part"], where["offset"], where["key"]) == ("value", 2, "k2")


@pytest.mark.parametrize("size", [1, 3, 9])
def test_the_first_to_arrive_is_told_where_rows_are_in_order_of_their_keys(size: int) -> None:
    builder = cs.StreamsBuilder()
    table = builder.table("in", cs.Consumed(key=TEXT, value=serdes.json({"u": pl.String})))
    table.map_values(pl.col("u"), materialized=cs.Materialized(store="ids", value=ID))
    records = [(f"k{n}", {"u": f"wrong {n}"}, n) for n in range(9)]
    with cs.TopologyTestDriver(builder.build(), commit_every=size) as driver:

        def process() -> None:
            driver.create_input_topic("in", TEXT, JSON).pipe_records(records)
            driver.commit()

        with pytest.raises(SerdeError, match="'wrong 0'") as caught:
            process()
    assert caught.value.where["offset"] == 0


def one_of(name: str) -> Callable[[Any], Any]:
    return lambda order: {"wrong": 5, "ok": "x"}[order[name]]


BY_KEYS_OF_ORDERS: dict[
    str, tuple[Literal["stream", "table"], Literal["table", "global"], Callable[..., Any]]
] = {
    "join": ("table", "table", lambda o, m: o.join(m, lambda left, right: left, foreign_key=one_of("a"))),
    "table-global": (
        "table",
        "global",
        lambda o, m: o.join(m, lambda left, right: left, foreign_key=one_of("a")),
    ),
    "stream-global": (
        "stream",
        "global",
        lambda o, m: o.join(m, lambda left, right: left, key_selector=one_of("a")),
    ),
    "join_many": (
        "table",
        "table",
        lambda o, m: o.join_many({"one": (m, one_of("b")), "two": (m, one_of("a"))}, lambda left, rows: left),
    ),
}


@pytest.mark.parametrize("first", ["wrong", "raising"])
@pytest.mark.parametrize("size", [1, 3, 9])
@pytest.mark.parametrize("join", BY_KEYS_OF_ORDERS)
def test_of_records_that_fail_in_several_ways_the_first_is_told(join: str, size: int, first: str) -> None:
    left, right, make = BY_KEYS_OF_ORDERS[join]
    builder = cs.StreamsBuilder()
    orders = getattr(builder, left)("orders", cs.Consumed(key=TEXT, value=JSON))
    read = builder.table if right == "table" else builder.global_table
    make(orders, read("m", cs.Consumed(key=TEXT, value=JSON)))
    second = "raising" if first == "wrong" else "wrong"
    values = [{"a": "ok", "b": "ok"}, {"a": first, "b": "ok"}, {"a": second, "b": second}]
    with cs.TopologyTestDriver(builder.build(), commit_every=size) as driver:

        def process() -> None:
            records = [(f"o{n}", value, n) for n, value in enumerate(values)]
            driver.create_input_topic("orders", TEXT, JSON).pipe_records(records)
            driver.commit()

        with pytest.raises(cs.CrossStreamError) as caught:
            process()
    error = caught.value
    assert (error.code, error.where["offset"]) == ("CS-401" if first == "wrong" else "CS-501", 1)
