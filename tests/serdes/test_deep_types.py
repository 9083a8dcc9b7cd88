"""Declared types in which lists and structs are deep in each other: used, for callables only, or refused."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.json.bounds import DEEPEST_COLUMN


def struct(levels: int, lists: bool) -> Any:
    dtype: Any = pl.Int64
    for _ in range(levels):
        dtype = pl.Struct({"a": pl.List(dtype) if lists else dtype})
    return dtype


def a_class(levels: int, lists: bool) -> Any:
    kind: Any = int
    for level in range(levels):
        field = list[kind] if lists else kind
        kind = make_dataclass(f"Level{level}", [("a", field)], frozen=True)
    return kind


def value(levels: int, lists: bool) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = {"a": [made] if lists else made}
    return made


def passed(serde: cs.Serde, given: Any) -> list[Any]:
    builder = cs.StreamsBuilder()
    source = builder.stream("in", cs.Consumed(key=serdes.string(), value=serde))
    source.filter(pl.col("a").is_not_null()).to("out")
    source.map_values(lambda v: v).to("mapped", key=serdes.string(), value=serde)
    with cs.TopologyTestDriver(builder.build(), deserialization_errors="skip") as driver:
        driver.create_input_topic("in", serdes.string(), serdes.json()).pipe_input("k", given)
        topics = [
            driver.create_output_topic(name, serdes.string(), serdes.json()) for name in ("out", "mapped")
        ]
        return [record.value for topic in topics for record in topic.read_records()]


@pytest.mark.parametrize("lists", [False, True])
def test_the_deepest_types_are_columns(lists: bool) -> None:
    levels = DEEPEST_COLUMN // 2 if lists else DEEPEST_COLUMN
    given = value(levels, lists)
    for serde in (serdes.json(struct(levels, lists)), serdes.json(a_class(levels, lists))):
        assert passed(serde, given) == [given, given]
    avro = serdes.avro(a_class(levels, lists))
    data = avro.encode_objects([given] * 100)
    assert avro.encode_series(avro.decode_series(data)) == data


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("levels", [33, 57, 64, 100])
def test_deeper_ones_are_refused_or_for_callables(levels: int, lists: bool) -> None:
    if levels == 33 and not lists:
        return
    with pytest.raises(cs.SerdeError, match=r"(?s)^\[CS-404\].*more than 56 lists and structs"):
        serdes.json(struct(levels, lists))
    given = value(levels, lists)
    for serde in (serdes.json(a_class(levels, lists)), serdes.avro(a_class(levels // 3, lists))):
        depth = levels if serde.name.startswith("json") else levels // 3
        data = pa.array([serde.serialize(value(depth, lists))] * 100, pa.large_binary())
        assert len(serde.decode_objects(data)) == 100
    serde = serdes.json(a_class(levels, lists))
    assert serde.dtype is None
    with pytest.raises(cs.CrossStreamError, match="CS-404"):
        serde.decode_series(pa.array([serde.serialize(given)], pa.large_binary()))
