"""Rows are cut out of Avro events where their bytes are those of the table: the table is the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.calls import decode_series, encode_series
from crossstream.serdes.debezium.avro import AvroEvents, cut_rows
from crossstream.serdes.debezium.changes import Unwrapped, unwrap
from crossstream.serdes.debezium.settings import Debezium

REGISTRY = "mock://row-bytes"
LEFT_OUT = "__debezium_unavailable_value"


@dataclass
class Row:
    id: int
    text: str
    at: datetime
    on: date
    size: float
    note: str | None = None


MICROS = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
DAYS = {"type": "int", "connect.name": "io.debezium.time.Date"}
FIELDS: dict[str, Any] = {
    "id": "int",
    "text": "string",
    "at": MICROS,
    "on": DAYS,
    "size": "double",
    "note": ["null", "string"],
}


def envelope(fields: dict[str, Any]) -> dict[str, Any]:
    row = {"type": "record", "name": "Value", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    return {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }


def records(topic: str, rows: list[dict[str, Any]], fields: dict[str, Any] = FIELDS) -> pa.LargeBinaryArray:
    """Events of updates."""
    serde = serdes.confluent_avro(REGISTRY, envelope(fields)).written_to(topic, False)  # type: ignore[attr-defined]
    made: pa.LargeBinaryArray = serde.encode_objects(
        [{"before": None, "after": row, "op": "u"} for row in rows]
    )
    return made


def source(**how: Any) -> Debezium:
    made: Any = cs.debezium(Row, registry=REGISTRY, **how)
    assert isinstance(made, Debezium)
    return made


def both(
    data: pa.LargeBinaryArray, settings: Debezium, fields: Any = ("text",)
) -> tuple[Unwrapped, Unwrapped]:
    """The changes as they are read, and as they are where no row is cut out."""
    key = pa.nulls(len(data), pa.large_binary())
    read = AvroEvents._read

    def whole(self: AvroEvents, data: Any, *, is_key: bool, needed: Any = None) -> Any:
        return read(self, data, is_key=is_key)

    found = unwrap(settings, key, data, fields)
    with patch.object(AvroEvents, "_read", whole):
        return found, unwrap(settings, key, data, fields)


def same(found: Unwrapped, expected: Unwrapped, settings: Debezium) -> None:
    assert (found.bad, found.passed) == (expected.bad, expected.passed)
    one, other = found.part, expected.part
    assert one.records.tolist() == other.records.tolist()
    assert one.unavailable.tolist() == other.unavailable.tolist()
    assert one.keys == other.keys
    assert one.columns.to_list() == other.columns.to_list()
    rows, wanted = (decode_series(settings.stored, part.rows) for part in (one, other))
    assert rows.to_list() == wanted.to_list()


ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**31), 2**31 - 1),
        "text": st.text(max_size=20) | st.just(LEFT_OUT),
        "at": st.integers(-(10**15), 10**15) | st.just(2**62),
        "on": st.integers(-(10**5), 10**5) | st.just(2**30),
        "size": st.floats(allow_nan=False),
        "note": st.none() | st.text(max_size=5) | st.just(LEFT_OUT),
    }
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROWS, min_size=1, max_size=3), st.sampled_from([(), ("text",), ("at", "note"), None]))
def test_rows_that_are_cut_out_are_those_that_are_written(rows: list[dict[str, Any]], fields: Any) -> None:
    same(*both(records("rows", rows), source(), fields), source())


ROW = {"id": 7, "text": "é", "at": 1_700_000_000_000_000, "on": 3, "size": 0.5, "note": None}


def test_rows_of_the_same_bytes_are_cut_out() -> None:
    with patch(
        "crossstream.serdes.debezium.changes.calls.encode_series", side_effect=encode_series
    ) as written:
        found, _ = both(records("rows", [ROW] * 3), source())
    assert all(call.args[0] != source().stored for call in written.call_args_list[:1])
    made = decode_series(source().stored, found.part.rows).to_list()[0]
    assert made == {
        **ROW,
        "at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc),
        "on": date(1970, 1, 4),
    }


OTHERS: dict[str, dict[str, Any]] = {
    "another order": {"text": "string", **FIELDS},
    "a further field": {**FIELDS, "more": "string"},
    "milliseconds": {**FIELDS, "at": {"type": "long", "connect.name": "io.debezium.time.Timestamp"}},
    "a column that may be null": {**FIELDS, "text": ["null", "string"]},
    "null last": {**FIELDS, "note": ["string", "null"]},
    "a smaller float": {**FIELDS, "size": "float"},
}


@pytest.mark.parametrize("name", OTHERS)
def test_rows_of_other_bytes_are_written_again(name: str) -> None:
    row = {**ROW, "more": "x"}
    data = records(name.replace(" ", "-"), [{one: row[one] for one in OTHERS[name]}] * 3, OTHERS[name])
    with patch("crossstream.serdes.debezium.avro.cut_rows", side_effect=cut_rows) as cut:
        same(*both(data, source()), source())
    assert not cut.called


@pytest.mark.parametrize("mark", [LEFT_OUT, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="])
def test_a_value_left_out_is_seen(mark: str) -> None:
    found, expected = both(records("rows", [ROW, {**ROW, "text": mark}, ROW]), source())
    same(found, expected, source())
    assert found.part.unavailable.astype(bool).tolist() == [False, True, False]


def test_without_values_left_out_the_text_is_a_text() -> None:
    settings = source(unavailable_value=None)
    found, _ = both(records("rows", [{**ROW, "text": LEFT_OUT}]), settings)
    assert found.part.columns.to_list() == [{"text": LEFT_OUT}]


def test_a_damaged_row_takes_no_neighbour() -> None:
    data = records("rows", [ROW] * 5).to_pylist()
    data[2] = data[2].replace("é".encode(), b"\xff\xff")
    found, expected = both(pa.array(data, pa.large_binary()), source())
    same(found, expected, source())
    assert [row for row, _ in found.bad] == [2]
    assert isinstance(found.part.columns, pl.Series)
    assert json.dumps(found.bad[0][1]) == json.dumps(expected.bad[0][1])
