"""Fields that nothing reads are passed over together, and that is seen in nothing but the time it takes."""

from __future__ import annotations

import io
import json
from typing import Any
from unittest.mock import patch

import fastavro
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossstream.serdes.avro import skip as avro_skip
from crossstream.serdes.avro.read import decoded
from crossstream.serdes.avro.resolve import resolved
from crossstream.serdes.avro.schema import parse

KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=20)),
    ("bytes", st.binary(max_size=20)),
    (["null", "string"], st.none() | st.text(max_size=5)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, st.sampled_from(["A", "B"])),
    ({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3)),
    ({"type": "int", "logicalType": "date"}, st.integers(-1000, 1000)),
    ({"type": "array", "items": "int"}, st.lists(st.integers(-5, 5), max_size=3)),
    (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}, {"name": "b", "type": "int"}]},
        st.fixed_dictionaries({"a": st.text(max_size=9), "b": st.integers(0, 9)}),
    ),
]  # fmt: skip
RECORD = {"type": "record", "name": "Row"}


@st.composite
def payloads(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """A schema, and payloads of which most are alike, between a first and a last field that are read."""
    chosen = [
        KINDS[at]
        for at in draw(st.lists(st.sampled_from(range(len(KINDS))), min_size=1, max_size=5, unique=True))
    ]
    names = [f"f{at}" for at in range(len(chosen))]
    fields: list[Any] = [{"name": name, "type": kind} for name, (kind, _) in zip(names, chosen, strict=True)]
    fields = [{"name": "first", "type": "long"}, *fields, {"name": "last", "type": "string"}]
    rows = st.fixed_dictionaries({name: values for name, (_, values) in zip(names, chosen, strict=True)})
    usual, others = draw(rows), draw(st.lists(rows, max_size=3))
    schema = fastavro.parse_schema({**RECORD, "fields": fields})
    made = []
    for at in range(draw(st.integers(65, 150))):
        row = others[at % 20] if at % 20 < len(others) else usual
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"first": at, "last": f"é{at}", **row})
        made.append(out.getvalue())
    chance = draw(st.randoms(use_true_random=False))
    for _ in range(draw(st.integers(0, 3))):  # damage
        row = chance.randrange(len(made))
        data = bytearray(made[row])
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
        made[row] = bytes(data[: len(data) // 2]) if chance.random() < 0.3 else bytes(data)
    return json.dumps({**RECORD, "fields": fields}), made


def read(text: str, data: list[bytes]) -> tuple[Any, dict[int, str]]:
    writer = parse(text)
    ends = [one for one in json.loads(text)["fields"] if one["name"] in ("first", "last")]
    reader = resolved(writer, parse(json.dumps({**RECORD, "fields": ends})))
    return decoded(reader, pa.array(data, pa.large_binary()))


def one_by_one(cursor: Any, fields: Any) -> None:
    for _, reader in fields:
        reader.read(cursor)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(payloads())
def test_passed_over_together_is_passed_over_one_by_one(made: tuple[str, list[bytes]]) -> None:
    together, faults = read(*made)
    with patch.object(avro_skip, "_skip", one_by_one):
        alone, expected = read(*made)
    assert faults == expected
    if not faults:
        assert together.to_list() == alone.to_list()


ALIKE = json.dumps(
    {
        **RECORD,
        "fields": [
            {"name": "first", "type": "long"},
            {"name": "text", "type": "string"},
            {"name": "number", "type": "long"},
            {"name": "last", "type": "string"},
        ],
    }
)


def test_payloads_that_look_alike_take_one_step() -> None:
    data = [bytes([2, 6, *b"abc", 2 * (at % 64), 2, 120]) for at in range(100)]
    with patch.object(np, "frexp", side_effect=AssertionError("a field was read")):
        column, faults = read(ALIKE, data)
    assert not faults
    assert column.to_list() == [{"first": 1, "last": "x"}] * 100
    assert column.dtype == pl.Struct({"first": pl.Int64, "last": pl.String})


@pytest.mark.parametrize("where", [0, 50, 99])
def test_text_that_is_not_utf8_is_found_among_payloads_that_look_alike(where: int) -> None:
    data = [bytes([2, 6, *b"abc", 4, 2, 120]) for _ in range(100)]
    data[where] = bytes([2, 6, *b"a\xffc", 4, 2, 120])
    assert read(ALIKE, data)[1] == {where: "text that is not UTF-8 in text"}
