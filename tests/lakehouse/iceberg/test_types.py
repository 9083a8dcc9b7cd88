"""Types of Iceberg as types of values, and fields in structs that change."""

from __future__ import annotations

import uuid
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

import crossstream as cs
from tests.lakehouse.iceberg.tables import Tables
from tests.lakehouse.iceberg.test_what_cannot_be_read import refused, running

TYPES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "boolean": (pa.bool_(), True, True),
    "int": (pa.int32(), 2**31 - 1, 2**31 - 1),
    "long": (pa.int64(), -(2**63), -(2**63)),
    "float": (pa.float32(), 0.5, 0.5),
    "double": (pa.float64(), 0.1, 0.1),
    "decimal": (pa.decimal128(20, 3), Decimal("123.456"), Decimal("123.456")),
    "date": (pa.date32(), date(2026, 1, 2), date(2026, 1, 2)),
    "time": (pa.time64("us"), time(1, 2, 3, 4), time(1, 2, 3, 4)),
    "timestamp": (pa.timestamp("us"), datetime(2026, 1, 2, 3), datetime(2026, 1, 2, 3)),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        datetime(2026, 1, 2, tzinfo=timezone.utc),
        datetime(2026, 1, 2, tzinfo=timezone.utc),
    ),
    "string": (pa.string(), "ä", "ä"),
    "uuid": (pa.uuid(), uuid.UUID(int=7).bytes, str(uuid.UUID(int=7))),
    "fixed": (pa.binary(2), b"ab", b"ab"),
    "binary": (pa.binary(), b"\x00", b"\x00"),
    "list": (pa.list_(pa.int64()), [1, None], [1, None]),
    "struct": (pa.struct([("a", pa.string())]), {"a": None}, {"a": None}),
    "map": (pa.map_(pa.string(), pa.int64()), [("k", 1)], [{"key": "k", "value": 1}]),
}


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def read(tables: Tables) -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.table_from_iceberg("shop.orders", tables.options, key="id", store="orders")
    return builder.build()


def test_every_type_has_its_place(tables: Tables, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), *((name, kind) for name, (kind, _, _) in TYPES.items())])
    tables.create(schema=schema)
    rows = [
        {"id": "all", **{name: value for name, (_, value, _) in TYPES.items()}},
        {"id": "none", **dict.fromkeys(TYPES)},
    ]
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    with tables.table() as table:
        table.append(pa.table(columns, schema=schema))
    found = running(tables, read(tables), tmp_path / "state")
    assert found["all"] == {name: value for name, (_, _, value) in TYPES.items()}
    assert found["none"] == dict.fromkeys(TYPES)


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("address", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("parts", pa.list_(pa.struct([("name", pa.string())]))),
        ("notes", pa.map_(pa.string(), pa.struct([("by", pa.string())]))),
    ]
)
NOTES = {"notes": [{"key": "k", "value": {"by": "Ada"}}]}
OLD = {"address": {"city": "Ulm", "zip": 7}, "parts": [{"name": "hat"}], **NOTES}


def append(tables: Tables, row: dict[str, Any]) -> None:
    entries = {"notes": [(note["key"], note["value"]) for note in row["notes"]]}
    with tables.table() as table:
        table.append(pa.Table.from_pylist([{**row, **entries}], schema=table.schema().as_arrow()))


@pytest.fixture
def nested(tables: Tables) -> Tables:
    tables.create(schema=NESTED)
    append(tables, {"id": 1, **OLD})
    return tables


def test_a_field_that_is_added_is_not_seen(nested: Tables, tmp_path: Path) -> None:
    topology = read(nested)
    running(nested, topology, tmp_path / "state")
    with nested.table() as table, table.update_schema() as update:
        update.add_column(("address", "street"), StringType())
        update.add_column(("parts", "size"), LongType())
    new = {
        "address": {"city": "Bonn", "zip": 1, "street": "A"},
        "parts": [{"name": "cap", "size": 2}],
        **NOTES,
    }
    append(nested, {"id": 2, **new})
    seen = {"address": {"city": "Bonn", "zip": 1}, "parts": [{"name": "cap"}], **NOTES}
    assert running(nested, topology, tmp_path / "state") == {1: OLD, 2: seen}
    address = {"city": "Ulm", "zip": 7, "street": None}
    older = {"address": address, "parts": [{"name": "hat", "size": None}], **NOTES}
    assert running(nested, read(nested), tmp_path / "new") == {1: older, 2: new}


RENAMED = [
    (
        ("notes", "by"),
        "who",
        {"notes": [{"key": "k", "value": {"who": "Ada"}}]},
        r"'notes(.value)?.by' is called '\S+who'",
    ),
    (
        ("address", "city"),
        "town",
        {"address": {"town": "Ulm", "zip": 7}},
        "'address.city' is called 'address.town'",
    ),
    (
        ("parts", "name"),
        "title",
        {"parts": [{"title": "hat"}]},
        r"'parts(.element)?.name' is called '\S+title'",
    ),
]


@pytest.mark.parametrize(("path", "name", "old", "said"), RENAMED)
def test_a_field_that_is_renamed_is_named(
    nested: Tables, tmp_path: Path, path: tuple[str, ...], name: str, old: dict[str, Any], said: str
) -> None:
    topology = read(nested)
    running(nested, topology, tmp_path / "state")
    with nested.table() as table, table.update_schema() as update:
        update.rename_column(path, name)
    # Renamed before the start, without a commit: rows have the new name.
    assert running(nested, read(nested), tmp_path / "new") == {1: {**OLD, **old}}
    append(nested, {"id": 2, **OLD, **old})
    with refused("CS-617", said, "since version 2"):
        running(nested, topology, tmp_path / "state")
    assert running(nested, read(nested), tmp_path / "new") == {1: {**OLD, **old}, 2: {**OLD, **old}}


def test_a_field_that_is_dropped_is_named(nested: Tables, tmp_path: Path) -> None:
    topology = read(nested)
    running(nested, topology, tmp_path / "state")
    with nested.table() as table, table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column(("address", "zip"))
    append(nested, {"id": 2, "address": {"city": "Bonn"}, "parts": [], **NOTES})
    with refused("CS-617", "'address.zip' was dropped: version 2 does not have it"):
        running(nested, topology, tmp_path / "state")
