"""Recorded topics of the real connector: the table is what SQL shows at the end, in any cut into batches."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.debezium import avro
from crossstream.serdes.registry.client import Registered
from tests.data.debezium import recordings

BYTES = serdes.bytes()


@dataclass
class Customer:
    id: int
    name: str
    city: str | None


@dataclass
class Order:
    id: int
    customer_id: int | None
    amount: Decimal | None
    note: str | None
    at: datetime | None


@dataclass
class Line:
    order_id: int
    line: int
    article: str | None


@dataclass
class Document:
    id: int
    title: str | None
    body: str | None
    data: bytes | None
    tags: list[str] | None
    numbers: list[int] | None
    more: str | None
    short: str | None


@dataclass
class Person:
    id: int
    name: str | None
    age: int | None
    town: str | None
    member: bool | None
    level: int | None


@dataclass
class Account:
    id: int
    balance: int
    version: int


@dataclass
class Setting:
    name: str
    value: str | None


@dataclass
class Option:
    name: str
    value: int | None


TABLES: dict[str, tuple[type, dict[str, Any]]] = {
    "customers": (Customer, {}),
    "orders": (Order, {"scales": {"amount": 2}}),
    "lines": (Line, {"key": ["order_id", "line"]}),
    "settings": (Setting, {"key": "name"}),
    "documents": (Document, {}),
    "full_documents": (Document, {}),
    "people": (Person, {}),
    "accounts": (Account, {}),
}


def shown(row: Any) -> dict[str, Any]:
    """A row as ``row_to_json`` shows it, with numbers as text."""
    made = asdict(row)
    for name, value in made.items():
        if isinstance(value, bytes):
            made[name] = "\\x" + value.hex()
        elif isinstance(value, Decimal):
            made[name] = value.normalize()
        elif isinstance(value, datetime):
            made[name] = value.isoformat()
        elif name == "more" and value is not None:
            made[name] = json.loads(value)
    return made


@lru_cache
def of_sql(scenario: str, table: str) -> list[dict[str, Any]]:
    found = []
    for text in recordings.tables(scenario)[table]["json"]:
        row = json.loads(text) if isinstance(text, str) else dict(text)
        if row.get("amount") is not None:
            row["amount"] = Decimal(str(row["amount"])).normalize()
        if row.get("at") is not None:
            row["at"] = datetime.fromisoformat(row["at"]).isoformat()
        found.append(row)
    return found


def cases() -> list[Any]:
    found = []
    for scenario in (
        "changes",
        "transactions",
        "toast",
        "schema",
        "snapshot",
        "incremental",
        "blocking",
        "replay",
    ):
        for table in recordings.tables(scenario):
            if table in TABLES and table != "settings":  # that one is truncated
                found += [(scenario, form, table) for form in recordings.formats(scenario)]
    return found


@lru_cache
def records(scenario: str, form: str, table: str) -> list[recordings.Recorded]:
    return [one for one in recordings.recorded(scenario, form) if one.topic.endswith(f".public.{table}")]


def known_ids(
    scenario: str, settings: Any, ids: Any, kind: str
) -> tuple[dict[int, Registered], dict[int, str]]:
    """As `check_ids`, of the recorded schemas."""
    known = recordings.schemas(scenario)
    return {id: Registered(id, "AVRO", known[id]["schema"]) for id in set(ids.tolist())}, {}


@pytest.mark.parametrize(("scenario", "form", "table"), cases())
@pytest.mark.parametrize(
    ("every", "ordered"),
    [
        pytest.param(1, None, marks=pytest.mark.slow),
        (7, None),
        pytest.param(7, "source.lsn", marks=pytest.mark.slow),
        (1000, None),
    ],
)
def test_a_recorded_table_is_what_sql_shows(scenario, form, table, every, ordered, monkeypatch):
    kind, settings = TABLES[table]
    if ordered and form == "rows":
        return  # plain rows without fields of the source
    builder = cs.StreamsBuilder()
    if "avro" in form:
        settings = {**settings, "registry": f"mock://{scenario}"}
        monkeypatch.setattr(avro, "check_ids", partial(known_ids, scenario))
    source = cs.debezium(kind, **{"ordered_by": ordered, **settings})
    builder.table("it", materialized=cs.Materialized(store="rows"), source=source)
    with cs.TopologyTestDriver(builder.build(), partitions=2, commit_every=every) as driver:
        topic = driver.create_input_topic("it", BYTES, BYTES)
        for one in records(scenario, form, table):
            topic.pipe_input(one.key, one.value, one.timestamp, partition=one.partition)
        driver.commit()
        store = driver.get_key_value_store("rows")
        found = [shown(row) for _, row in store.all()]
    key = settings.get("key", "id")
    names = [key] if isinstance(key, str) else key

    def place(row: dict[str, Any]) -> list[Any]:
        return [row[name] for name in names]

    assert sorted(map(without_new, found), key=place) == sorted(
        map(without_new, of_sql(scenario, table)), key=place
    )


def without_new(row: dict[str, Any]) -> dict[str, Any]:
    """Of people who did not change since, what came before the table got other columns: no event has their defaults."""
    if "member" not in row or row["id"] == 2:
        return row
    return {name: row[name] for name in ("id", "name", "age")}


@pytest.mark.parametrize(
    ("scenario", "table", "form"),
    [
        *(("changes", "settings", form) for form in ("json", "json-schemas", "avro")),
        *(("truncate", "options", form) for form in ("json", "avro")),
    ],
)
@pytest.mark.parametrize("every", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 7)), 1000])
@pytest.mark.parametrize("other_first", [False, True])
def test_a_truncate_deletes_what_came_before(scenario, table, form, every, other_first, monkeypatch):
    kind = Setting if table == "settings" else Option
    settings: dict[str, Any] = {"registry": "mock://it"} if form == "avro" else {}
    monkeypatch.setattr(avro, "check_ids", partial(known_ids, scenario))
    source = cs.debezium(kind, key="name", ordered_by="source.lsn", truncate="delete", **settings)
    builder = cs.StreamsBuilder()
    builder.table("it", materialized=cs.Materialized(store="rows"), source=source)
    with cs.TopologyTestDriver(builder.build(), partitions=3, commit_every=every) as driver:
        topic = driver.create_input_topic("it", BYTES, BYTES)
        for one in sorted(records(scenario, form, table), key=lambda one: one.partition, reverse=other_first):
            topic.pipe_input(one.key, one.value, one.timestamp, partition=one.partition)
        driver.commit()
        found = {key: str(row.value) for key, row in driver.get_key_value_store("rows").all()}
    assert found == {row["name"]: str(row["value"]) for row in of_sql(scenario, table)}


@pytest.mark.parametrize("every", [1, 1000])
def test_a_large_value_is_lost_where_the_key_changes(every):
    builder = cs.StreamsBuilder()
    builder.table("it", materialized=cs.Materialized(store="rows"), source=cs.debezium(Document))
    with cs.TopologyTestDriver(builder.build(), commit_every=every, processing_errors="skip") as driver:
        topic = driver.create_input_topic("it", BYTES, BYTES)
        for one in records("toast", "json", "moved_documents"):
            topic.pipe_input(one.key, one.value, one.timestamp)
        driver.commit()
        assert sorted(key for key, _ in driver.get_key_value_store("rows").all()) == [1, 2]
        assert driver.metrics()["dropped"] == {"it: failed": 2}
