# ruff: noqa: E501
"""What each connector writes, in its documented form, and what a table makes of it.

Samples follow Debezium's reference: "Data change events" of each connector, and "Event flattening".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import crossstream as cs
from crossstream.serdes.debezium.changes import Unwrapped, unwrap


@dataclass
class Customer:
    id: int
    first_name: str
    email: str | None = None


def read(source: Any, *records: tuple[Any, Any]) -> Unwrapped:
    columns = [
        pa.array([None if one is None else json.dumps(one).encode() for one in column], pa.large_binary())
        for column in zip(*records, strict=True)
    ]
    return unwrap(source, *columns)


def changes(source: Any, *records: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    """(key, row or None) of each change; no record may be bad."""
    found = read(source, *records)
    assert found.bad == []
    keys = source.key.decode_objects(found.part.keys)
    return list(zip(keys, source.row.decode_objects(found.part.rows), strict=True))


POSTGRES = {
    "version": "2.7.0.Final", "connector": "postgresql", "name": "PostgreSQL_server", "ts_ms": 1559033904863,
    "snapshot": "true", "db": "postgres", "sequence": '["24023119","24023128"]', "schema": "public",
    "table": "customers", "txId": 555, "lsn": 24023128, "xmin": None,
}  # fmt: skip
MYSQL = {
    "version": "2.7.0.Final", "connector": "mysql", "name": "mysql-server-1", "ts_ms": 0, "snapshot": "false",
    "db": "inventory", "table": "customers", "server_id": 0, "gtid": None, "file": "mysql-bin.000003", "pos": 154,
    "row": 0, "thread": 7, "query": None,
}  # fmt: skip
SQL_SERVER = {
    "version": "2.7.0.Final", "connector": "sqlserver", "name": "server1", "ts_ms": 1559729468470, "snapshot": "false",
    "db": "testDB", "schema": "dbo", "table": "customers", "change_lsn": "00000027:00000ac0:0002",
    "commit_lsn": "00000027:00000ac0:0007", "event_serial_no": "1",
}  # fmt: skip
ORACLE = {
    "version": "2.7.0.Final", "name": "server1", "ts_ms": 1520085154000, "txId": "6.28.807", "scn": "2122185",
    "commit_scn": "2122185", "rs_id": "001234.00012345.0124", "ssn": 0, "redo_thread": 1, "user_name": "user",
    "snapshot": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "source", [POSTGRES, MYSQL, SQL_SERVER, ORACLE], ids=["postgres", "mysql", "sql server", "oracle"]
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_relational_connectors(source, wrapped):
    row = {"id": 1, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}

    def whole(value: Any) -> Any:
        return {"schema": {"type": "struct", "fields": []}, "payload": value} if wrapped else value

    def event(op: str, before: Any, after: Any) -> Any:
        more = {"source": source, "ts_ms": 1559033904863, "transaction": None}
        return whole({"op": op, "before": before, "after": after, **more})

    key = whole({"id": 1})
    anne = Customer(1, "Anne", "annek@noanswer.org")
    assert changes(
        cs.debezium(Customer),
        (key, event("r", None, row)),
        (key, event("c", None, row)),
        (key, event("u", row, {**row, "first_name": "Anne Marie"})),
        (key, event("d", row, None)),
        (key, None),
    ) == [(1, anne), (1, anne), (1, Customer(1, "Anne Marie", anne.email)), (1, None), (1, None)]


def test_a_delete_needs_no_row_before():
    event = {"op": "d", "before": None, "after": None, "source": POSTGRES}
    assert changes(cs.debezium(Customer), ({"id": 1}, event)) == [(1, None)]
    nulls = {
        "op": "d",
        "before": {"id": 1, "first_name": "", "email": None},
        "after": None,
        "source": POSTGRES,
    }
    assert changes(cs.debezium(Customer), ({"id": 1}, nulls)) == [(1, None)]
    assert changes(cs.debezium(Customer), (None, nulls)) == [(1, None)]
    assert "without a key" in read(cs.debezium(Customer), (None, event)).bad[0][1]


def test_a_changed_primary_key_is_a_delete_and_a_create():
    row = {"id": 2, "first_name": "Anne"}
    gone = {"op": "d", "before": {"id": 1, "first_name": "Anne"}, "after": None, "source": POSTGRES}
    new = {"op": "c", "before": None, "after": row, "source": POSTGRES}
    assert changes(cs.debezium(Customer), ({"id": 1}, gone), ({"id": 1}, None), ({"id": 2}, new)) == [
        (1, None),
        (1, None),
        (2, Customer(2, "Anne")),
    ]


def test_plain_rows():
    row = {"id": 1, "first_name": "Anne", "__op": "u", "__source_ts_ms": 5}
    source = cs.debezium(Customer)
    assert changes(source, ({"id": 1}, row), (None, row), (1, None)) == [
        (1, Customer(1, "Anne")),
        (1, Customer(1, "Anne")),
        (1, None),
    ]
    assert changes(source, ({"id": 1}, {**row, "__deleted": "true"}))[0][1] is None
    assert changes(source, ({"id": 1}, {**row, "__deleted": True}))[0][1] is None
    assert changes(source, ({"id": 1}, {**row, "__deleted": "false"}))[0][1] is not None
    assert changes(source, ({"id": 1}, {**row, "__op": "d"}))[0][1] is None


def test_what_is_no_change_of_a_row_is_passed_over():
    others = [
        ({"serverName": "shop"}, {"ts_ms": 1700000000000}),
        ({"id": "571:53195832"}, {"status": "BEGIN", "id": "571:53195832", "ts_ms": 1, "event_count": None, "data_collections": None}),
        ({"id": "571:53195832"}, {"status": "END", "id": "571:53195832", "ts_ms": 1, "event_count": 2, "data_collections": [{"data_collection": "s1.a", "event_count": 1}]}),
        ({"prefix": "x"}, {"op": "m", "ts_ms": 1, "source": POSTGRES, "message": {"prefix": "x", "content": "aGk="}}),
        ({"databaseName": "inventory"}, {"source": MYSQL, "ts_ms": 1, "databaseName": "inventory", "ddl": "ALTER TABLE customers ADD x INT", "tableChanges": []}),
    ]  # fmt: skip
    row = ({"id": 1}, {"op": "c", "after": {"id": 1, "first_name": "Anne"}, "source": POSTGRES})
    wrapped = [({"schema": None, "payload": key}, {"schema": {}, "payload": value}) for key, value in others]
    found = read(cs.debezium(Customer), *others, row, *wrapped)
    assert found.bad == []
    assert found.passed == {"no-change-event": 2 * len(others)}
    assert found.part.records.tolist() == [len(others)]


def test_a_truncate_is_refused_or_passed_over():
    event = {"op": "t", "source": POSTGRES, "ts_ms": 1559033904961}
    assert 'truncate="ignore"' in read(cs.debezium(Customer), (None, event)).bad[0][1]
    assert read(cs.debezium(Customer, truncate="ignore"), (None, event)).passed == {"truncate": 1}


def test_bad_events_leave_their_neighbours_alone():
    row = {"id": 1, "first_name": "Anne"}
    good = ({"id": 1}, {"op": "c", "after": row, "source": POSTGRES})
    bad = [
        {"op": "c", "after": {"id": "one", "first_name": "Anne"}},
        {"op": "c", "after": {"id": 1}},
        {"op": "u", "before": row, "after": None},
        {"op": "x", "after": row},
        {"op": 5, "after": row},
        {"some": "thing"},
        [1, 2],
        "text",
        7,
    ]
    records = [pair for one in bad for pair in (good, ({"id": 1}, one))]
    found = read(cs.debezium(Customer), *records)
    assert [row for row, _ in found.bad] == list(range(1, 2 * len(bad), 2))
    assert found.part.records.tolist() == list(range(0, 2 * len(bad), 2))
    reasons = [why for _, why in found.bad]
    assert "lacks field first_name" in reasons[1]
    assert "capture.mode" in reasons[2]
    assert "op 'x'" in reasons[3]
    assert "id, first_name, email" in reasons[5]


def test_columns_that_come_and_go():
    @dataclass
    class Grown:
        id: int
        added: str | None
        tags: list[str] = field(default_factory=list)
        level: int = 3

    source = cs.debezium(Grown)
    before = {"op": "u", "after": {"id": 1, "gone": 5}, "source": POSTGRES}
    after = {"op": "u", "after": {"id": 1, "added": "x", "level": 4, "tags": ["a"]}, "source": POSTGRES}
    assert changes(source, ({"id": 1}, before), ({"id": 1}, after)) == [
        (1, Grown(1, None)),
        (1, Grown(1, "x", ["a"], 4)),
    ]
    null = {"op": "u", "after": {"id": 1, "level": None}, "source": POSTGRES}
    assert "has null in field level" in read(source, ({"id": 1}, null)).bad[0][1]


def test_several_columns_are_a_key_in_json():
    @dataclass
    class Line:
        order_id: int
        line: int
        text: str | None = None

    source = cs.debezium(Line, key=["order_id", "line"])
    row = {"order_id": 7, "line": 2, "text": "x"}
    found = changes(
        source,
        ({"line": 2, "order_id": 7}, {"op": "c", "after": row, "source": MYSQL}),
        ({"line": 2, "order_id": 7}, {"op": "d", "before": row, "source": MYSQL}),
    )
    assert found == [({"order_id": 7, "line": 2}, Line(7, 2, "x")), ({"order_id": 7, "line": 2}, None)]


def test_the_key_in_a_schema_is_the_one_in_the_row():
    @dataclass
    class Day:
        at: datetime
        what: str

    key = {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "at"}],
        },
        "payload": {"at": 1},
    }
    fields = [{"type": "struct", "fields": key["schema"]["fields"], "field": "after"}]
    event = {
        "schema": {"fields": fields},
        "payload": {"op": "c", "after": {"at": 1, "what": "x"}, "source": POSTGRES},
    }
    found = changes(cs.debezium(Day, key="at"), (key, event), (key, None))
    at = datetime(1970, 1, 1, 0, 0, 0, 1, timezone.utc)
    assert found == [(at, Day(at, "x")), (at, None)]


def test_the_value_before_stands_in_with_a_full_replica_identity():
    left = "__debezium_unavailable_value"
    event = {
        "op": "u",
        "before": {"id": 1, "first_name": "Anne", "email": "long"},
        "after": {"id": 1, "first_name": "Bea", "email": left},
        "source": POSTGRES,
    }
    found = read(cs.debezium(Customer), ({"id": 1}, event))
    assert found.part.columns.to_list() == [{"id": 1, "first_name": "Bea", "email": "long"}]
    assert found.part.unavailable.tolist() == [0]


def test_values_that_are_left_out_in_every_form():
    @dataclass
    class Large:
        id: int
        text: str | None = None
        data: bytes | None = None
        words: list[str] | None = None
        numbers: list[int] | None = None

    left = "__debezium_unavailable_value"
    row = {
        "id": 1,
        "text": left,
        "data": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        "words": [left],
        "numbers": list(left.encode()),
    }
    found = read(cs.debezium(Large), ({"id": 1}, {"op": "u", "after": row, "source": POSTGRES}))
    assert found.part.unavailable.tolist() == [0b1111]
    found = read(
        cs.debezium(Large, unavailable_fields=["text"]),
        ({"id": 1}, {"op": "u", "after": row, "source": POSTGRES}),
    )
    assert found.part.unavailable.tolist() == [0b1]


def test_documents_of_mongodb():
    @dataclass
    class Document:
        _id: str
        name: str
        visits: int
        price: Decimal | None = None
        at: datetime | None = None
        data: bytes | None = None

    text = (
        '{"_id": {"$oid": "63979deaec302f5e5ea8fbcb"}, "name": "Anne", "visits": {"$numberLong": "7"}, '
        '"price": {"$numberDecimal": "12.50"}, "at": {"$date": 1000}, '
        '"data": {"$binary": {"base64": "AP8=", "subType": "00"}}}'
    )
    key = {"id": '{"$oid": "63979deaec302f5e5ea8fbcb"}'}
    source = cs.debezium(Document, key="_id")
    found = changes(
        source,
        (key, {"op": "c", "before": None, "after": text, "source": {"connector": "mongodb", "ord": 31}}),
        (key, {"op": "d", "before": None, "after": None, "source": {"connector": "mongodb"}}),
        (key, None),
    )
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    it = "63979deaec302f5e5ea8fbcb"
    assert found == [(it, Document(it, "Anne", 7, Decimal("12.5"), at, b"\x00\xff")), (it, None), (it, None)]


@pytest.mark.parametrize(
    ("path", "source", "place"),
    [
        ("source.lsn", POSTGRES, 24023128),
        ("source.scn", ORACLE, 2122185),
        ("source.ts_ms", MYSQL, 0),
        ("ts_ms", MYSQL, 9),
    ],
)
def test_places_in_the_log(path, source, place):
    row = {"id": 1, "first_name": "Anne"}
    event = {"op": "c", "after": row, "source": source, "ts_ms": 9}
    found = read(cs.debezium(Customer, ordered_by=path), ({"id": 1}, event))
    assert found.part.positions.tolist() == [place]
    flat = {**row, "__" + path.replace(".", "_"): place}
    found = read(cs.debezium(Customer, ordered_by=path), ({"id": 1}, flat))
    assert found.part.positions.tolist() == [place]


def test_a_place_that_is_no_number():
    event = {"op": "c", "after": {"id": 1, "first_name": "Anne"}, "source": SQL_SERVER}
    found = read(cs.debezium(Customer, ordered_by="source.change_lsn"), ({"id": 1}, event))
    assert "order by source.ts_ms" in found.bad[0][1]
