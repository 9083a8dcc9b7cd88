"""Integers beyond 64 bits with a sign, as hashes and Debezium give them: who reads one, and what holds it."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.calls import find_invalid

TEXT, BYTES = serdes.string(), serdes.bytes()
HUGE = 2**63
LARGEST = 2**64 - 1


class Part(msgspec.Struct):
    id: int
    ids: list[int] = []


@dataclasses.dataclass
class Event:
    id: int
    n: int = 0
    part: Part | None = None


class Row(msgspec.Struct, forbid_unknown_fields=True):
    id: int
    n: int = 0
    part: Part | None = None


RECORDS = [
    b'{"id":1,"n":1}',
    b'{"id":%d,"n":2}' % HUGE,
    b'{"id":2,"n":3,"part":{"id":%d,"ids":[%d]}}' % (LARGEST, 10**30),
    b'{"id":"x","n":4}',
    b'{"id":%d,"n":5}' % (-HUGE - 1),
]


def passed(serde: Any, function: Any, every: int, records: list[bytes] = RECORDS) -> tuple[list[bytes], Any]:
    """The values that a filter lets through, untouched, and what was dropped."""
    builder = cs.StreamsBuilder()
    builder.stream("in", cs.Consumed(key=TEXT, value=serde)).filter(function).to("out")
    with cs.TopologyTestDriver(builder.build(), commit_every=every, deserialization_errors="skip") as driver:
        driver.create_input_topic("in", TEXT, BYTES).pipe_records([("k", one) for one in records])
        driver.commit()
        return driver.create_output_topic("out", TEXT, BYTES).read_values(), driver.metrics()["dropped"]


@pytest.mark.parametrize("every", [1, 5, 500])
@pytest.mark.parametrize("kind", [Event, Row])
@pytest.mark.parametrize(
    "function", [lambda event: event.n > 0, pl.col("n") > 0], ids=["callable", "expression"]
)
def test_one_that_is_not_read_refuses_no_record(kind: Any, function: Any, every: int) -> None:
    """A field that is no integer at all does, for a callable and for an expression."""
    records = RECORDS * (1 if every < 500 else 100)
    kept = [one for one in records if b"x" not in one]
    dropped = {"in: undecodable": len(records) - len(kept)}
    assert passed(serdes.json(kind), function, every, records) == (kept, dropped)


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda event: event.id != 0, [0, 1, 2, 4]),
        (pl.col("id") != 0, [0, 2]),
        (pl.col("part").is_null(), [0, 1, 4]),
    ],
)
def test_one_that_an_expression_reads_is_that_records_failure(
    function: Any, kept: list[int], every: int
) -> None:
    values, dropped = passed(serdes.json(Event), function, every)
    assert values == [RECORDS[at] for at in kept]
    assert dropped == {"in: undecodable": len(RECORDS) - len(kept)}


def test_the_error_says_which_declaration_holds_it() -> None:
    with pytest.raises(
        cs.SerdeError, match=r"beyond the 64 bits(.|\n)*\$\.id(.|\n)*pl\.UInt64(.|\n)*pa\.uint64"
    ) as caught:
        serdes.json(Event).decode_series(pa.array(RECORDS[:2], pa.large_binary()), ["id"])
    assert caught.value.code == "CS-402"


UNSIGNED = {"id": pl.UInt64, "ids": pl.List(pl.UInt64), "in": pl.Struct({"u": pl.UInt64})}
ARROW = pa.schema({"id": pa.uint64(), "ids": pa.list_(pa.uint64()), "in": pa.struct({"u": pa.uint64()})})


@pytest.mark.parametrize("schema", [UNSIGNED, ARROW], ids=["polars", "arrow"])
@pytest.mark.parametrize("copies", [1, 100])
def test_a_schema_of_64_bits_without_a_sign(schema: Any, copies: int) -> None:
    serde: Any = serdes.json(schema)
    values = [{"id": LARGEST, "ids": [HUGE, None, 0], "in": {"u": LARGEST}}, None] * copies
    wire = serde.encode_objects(values)
    assert serde.decode_objects(wire) == values
    column = serde.decode_series(wire)
    assert column.to_list() == values
    assert serde.encode_series(column).equals(wire)
    assert serde.decode_checked(wire, ["id"]).struct.field("id").to_list() == [LARGEST, None] * copies
    for bad in (b'{"id":-1}', b'{"ids":[%d]}' % 2**64, b'{"in":{"u":%d}}' % 10**30, b'{"id":1.5}'):
        rows = pa.concat_arrays([wire, pa.array([bad], pa.large_binary())])
        for way in ("objects", "series"):
            assert [row for row, _ in find_invalid(serde, rows, way=way)] == [2 * copies]


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 500])
def test_expressions_over_a_schema_of_64_bits_without_a_sign(every: int) -> None:
    """As values, as keys, and as foreign keys."""
    serde, key = serdes.json({"id": pl.UInt64, "n": pl.Int64}), serdes.json({"id": pl.UInt64})
    builder = cs.StreamsBuilder()
    left = builder.table("left", cs.Consumed(key=TEXT, value=serde))
    right = builder.table("right", cs.Consumed(key=key, value=serde))
    above = left.filter(pl.col("id") > HUGE).map_values(pl.struct(id=pl.col("id") - 1, n="n"))
    above.to_stream().to("above", cs.Produced(key=TEXT, value=serde))
    joined = left.join(right, lambda mine, its: [mine["id"], its["n"]], foreign_key=pl.struct("id"))
    joined.to_stream().to("joined", cs.Produced(key=TEXT, value=serdes.json()))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        driver.create_input_topic("right", key, serde).pipe_input({"id": LARGEST}, {"id": 0, "n": 7})
        driver.create_input_topic("left", TEXT, serde).pipe_records(
            [(f"k{one}", {"id": one, "n": 1}) for one in (LARGEST, HUGE, 1) for _ in range(70)]
        )
        driver.commit()
        above_ = driver.create_output_topic("above", TEXT, BYTES).read_records()
        assert {one.value for one in above_} - {None} == {b'{"id":18446744073709551614,"n":1}'}
        found = driver.create_output_topic("joined", TEXT, serdes.json()).read_key_values()
        assert set(map(str, found)) == {str((f"k{LARGEST}", [LARGEST, 7]))}
