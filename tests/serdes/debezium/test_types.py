# ruff: noqa: E501
"""What connectors write for a type of a database, and what a field of the declared type holds then."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, make_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.debezium.changes import unwrap

TIME, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
UTC = timezone.utc
INSTANT = datetime(2024, 2, 29, 12, 30, 15, 123456, UTC)
MICROS = int(INSTANT.timestamp()) * 1_000_000 + 123456
AN_ID = UUID("00000000-0000-0000-0000-000000000007")


def unscaled(number: int, size: int) -> str:
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


@dataclass
class Point:
    wkb: bytes
    srid: int | None = None


CASES: list[tuple[str, Any, dict[str, Any], Any, Any]] = [
    ("Date", date, {"name": f"{TIME}Date"}, 19782, date(2024, 2, 29)),
    ("connect Date", date, {"name": f"{CONNECT}Date"}, -1, date(1969, 12, 31)),
    ("IsoDate", date, {"name": f"{TIME}IsoDate"}, "2024-02-29Z", date(2024, 2, 29)),
    ("Time", time, {"name": f"{TIME}Time"}, 45_015_123, time(12, 30, 15, 123000)),
    ("connect Time", time, {"name": f"{CONNECT}Time"}, 45_015_123, time(12, 30, 15, 123000)),
    ("MicroTime", time, {"name": f"{TIME}MicroTime"}, 45_015_123_456, time(12, 30, 15, 123456)),
    ("NanoTime", time, {"name": f"{TIME}NanoTime"}, 45_015_123_456_000, time(12, 30, 15, 123456)),
    ("ZonedTime", time, {"name": f"{TIME}ZonedTime"}, "12:30:15.123456Z", time(12, 30, 15, 123456)),
    ("Timestamp", datetime, {"name": f"{TIME}Timestamp"}, MICROS // 1000, INSTANT.replace(microsecond=123000)),
    ("connect Timestamp", datetime, {"name": f"{CONNECT}Timestamp"}, 0, datetime(1970, 1, 1, tzinfo=UTC)),
    ("MicroTimestamp", datetime, {"name": f"{TIME}MicroTimestamp"}, MICROS, INSTANT),
    ("MicroTimestamp before 1970", datetime, {"name": f"{TIME}MicroTimestamp"}, -1, datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    ("NanoTimestamp", datetime, {"name": f"{TIME}NanoTimestamp"}, MICROS * 1000 + 999, INSTANT),
    ("ZonedTimestamp", datetime, {"name": f"{TIME}ZonedTimestamp"}, "2024-02-29T12:30:15.123456Z", INSTANT),
    ("ZonedTimestamp with an offset", datetime, {"name": f"{TIME}ZonedTimestamp"}, "2024-02-29T14:30:15.123456+02:00", INSTANT),
    ("ZonedTimestamp without a fraction", datetime, {"name": f"{TIME}ZonedTimestamp"}, "2024-02-29T12:30:15Z", INSTANT.replace(microsecond=0)),
    ("MicroDuration", timedelta, {"name": f"{TIME}MicroDuration"}, 90_000_000, timedelta(seconds=90)),
    ("Interval", str, {"name": f"{TIME}Interval"}, "P1Y2M3DT4H5M6S", "P1Y2M3DT4H5M6S"),
    ("Decimal", Decimal, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}}, unscaled(-1250, 2), Decimal("-12.50")),
    ("Decimal of one byte", Decimal, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "0"}}, unscaled(-1, 1), Decimal(-1)),
    ("Decimal of 16 bytes", Decimal, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "18"}}, unscaled(10**37, 16), Decimal(10) ** 19),
    ("Decimal as int", int, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "0"}}, unscaled(300, 2), 300),
    ("Decimal as float", float, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "1"}}, unscaled(25, 1), 2.5),
    ("Decimal as text", str, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "1"}}, unscaled(25, 1), "2.5"),
    ("decimal as a string", Decimal, {}, "12.50", Decimal("12.50")),
    ("decimal as a double", Decimal, {}, 12.5, Decimal("12.5")),
    ("decimal as a whole double", float, {}, 12, 12.0),
    ("VariableScaleDecimal", Decimal, {"name": "io.debezium.data.VariableScaleDecimal"}, {"scale": 3, "value": unscaled(1250, 2)}, Decimal("1.25")),
    ("Uuid", UUID, {"name": "io.debezium.data.Uuid"}, str(AN_ID), AN_ID),
    ("Uuid as text", str, {"name": "io.debezium.data.Uuid"}, str(AN_ID), str(AN_ID)),
    ("Enum", Literal["new", "paid"], {"name": "io.debezium.data.Enum"}, "paid", "paid"),
    ("Json", str, {"name": "io.debezium.data.Json"}, '{"a": 1}', '{"a": 1}'),
    ("bytes", bytes, {}, base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
    ("BOOLEAN of MySQL", bool, {}, 1, True),
    ("boolean", bool, {}, False, False),
    ("array of text", list[str], {}, ["a", "b"], ["a", "b"]),
    ("array of dates", list[date], {"items": {"name": f"{TIME}Date"}}, [0, 1], [date(1970, 1, 1), date(1970, 1, 2)]),
    ("empty array", list[int], {}, [], []),
    ("Geometry", Point, {"name": "io.debezium.data.geometry.Geometry"}, {"wkb": base64.b64encode(b"\x01\x02").decode(), "srid": 4326}, Point(b"\x01\x02", 4326)),
    ("int", int, {}, 2**63 - 1, 2**63 - 1),
]  # fmt: skip


def event(schema: dict[str, Any] | None, value: Any) -> bytes:
    payload = {"op": "c", "before": None, "after": {"id": 1, "it": value}, "source": {"lsn": 1}}
    if schema is None:
        return json.dumps(payload).encode()
    row = {
        "type": "struct",
        "fields": [{"type": "int64", "field": "id"}, {"type": "any", **schema, "field": "it"}],
    }
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()


def read(kind: Any, *records: bytes, **settings: Any) -> tuple[list[Any], list[str]]:
    """The values of the field ``it``, and the reasons of bad records."""
    source = cs.debezium(make_dataclass("Row", [("id", int), ("it", kind)]), **settings)
    column = pa.array(records, pa.large_binary())
    found = unwrap(source, pa.nulls(len(records), pa.large_binary()), column)
    return [row.it for row in source.row.decode_objects(found.part.rows)], [why for _, why in found.bad]


@pytest.mark.parametrize(
    ("kind", "schema", "value", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
@pytest.mark.parametrize("count", [1, 200])
def test_a_type_with_its_schema(kind, schema, value, wanted, count):
    found, bad = read(kind, *[event(schema, value)] * count)
    assert bad == []
    assert found == [wanted] * count


@pytest.mark.parametrize(
    ("kind", "schema", "value", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_column_is_the_object(kind, schema, value, wanted):
    source = cs.debezium(make_dataclass("Row", [("id", int), ("it", kind)]))
    found = unwrap(
        source, pa.nulls(2, pa.large_binary()), pa.array([event(schema, value)] * 2, pa.large_binary())
    )
    assert found.part.columns.equals(source.row.decode_series(found.part.rows))


def test_settings_stand_in_for_a_schema():
    assert read(datetime, event(None, MICROS), units="micros")[0] == [INSTANT]
    assert read(datetime, event(None, 1000), units={"it": "millis"})[0] == [
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    ]
    assert read(Decimal, event(None, unscaled(1250, 2)), scales={"it": 2})[0] == [Decimal("12.5")]
    assert read(Decimal, event(None, "12.50"), decimals="string")[0] == [Decimal("12.5")]
    assert read(date, event(None, 1))[0] == [date(1970, 1, 2)]


def test_a_number_that_nothing_explains_is_refused():
    assert 'units={"it": "micros"}' in read(datetime, event(None, MICROS))[1][0]
    assert 'scales={"it": 2}' in read(Decimal, event(None, "1234"))[1][0]


def test_unsigned_numbers_of_64_bits():
    source = cs.debezium({"id": pl.Int64, "big": pl.UInt64})
    row = {"op": "c", "after": {"id": 1, "big": -1}, "source": {}}
    found = unwrap(
        source, pa.nulls(1, pa.large_binary()), pa.array([json.dumps(row).encode()], pa.large_binary())
    )
    assert found.part.columns.to_list() == [{"id": 1, "big": 2**64 - 1}]
    assert read(
        Decimal, event({"name": f"{CONNECT}Decimal", "parameters": {"scale": "0"}}, unscaled(2**64 - 1, 9))
    )[0] == [Decimal(2**64 - 1)]


@pytest.mark.parametrize(
    ("kind", "schema", "value"),
    [
        (int, {}, "seven"),
        (int, {}, 1.5),
        (int, {}, 2**70),
        (int, {}, None),
        (bool, {}, 2),
        (str, {}, 7),
        (Decimal, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}}, "***"),
        (Decimal, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}}, ""),
        (Decimal, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}}, unscaled(1, 20)),
        (Decimal, {"name": f"{CONNECT}Decimal", "parameters": {"scale": "30"}}, unscaled(1, 2)),
        (date, {}, "yesterday"),
        (datetime, {"name": f"{TIME}MicroTimestamp"}, 2**62),
        (Literal["new"], {}, "old"),
        (UUID, {}, "no uuid"),
        (list[int], {}, 5),
        (bytes, {}, "*"),
    ],
)
def test_a_value_that_does_not_fit_is_bad_alone(kind, schema, value):
    good = event({}, None)
    source = cs.debezium(make_dataclass("Row", [("id", int), ("it", kind | None, None)]))
    records = [good, event(schema, value), good] if value is not None else [event(schema, value)]
    if value is None:
        source = cs.debezium(make_dataclass("Row", [("id", int), ("it", kind)]))
    found = unwrap(source, pa.nulls(len(records), pa.large_binary()), pa.array(records, pa.large_binary()))
    assert [row for row, _ in found.bad] == [len(records) // 2]
    assert found.part.records.tolist() == ([0, 2] if value is not None else [])
    assert serdes.json is not None
