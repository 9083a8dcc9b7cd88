"""The recordings are whole: the last record of each key, in Debezium's order, is the row that Postgres shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.data.debezium.recordings import HERE, formats, recorded, schemas, tables

SCENARIOS = sorted(file.parent.name for file in HERE.glob("*/tables.json.gz"))


def envelope(value: bytes | None) -> dict[str, Any] | None:
    parsed = json.loads(value) if value else None
    return parsed if parsed is None or "op" in parsed else parsed["payload"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_changes_give_the_table(scenario: str) -> None:
    for format in formats(scenario):
        if not format.startswith("json"):
            continue
        found: dict[str, dict[tuple[Any, ...], Any]] = {name: {} for name in tables(scenario)}
        changes = []
        latest: dict[tuple[str, int], int] = {}
        for record in recorded(scenario, format):
            if ".public." in record.topic and (change := envelope(record.value)) is not None:
                partition = record.topic, record.partition
                latest[partition] = max(change["source"]["lsn"] or 0, latest.get(partition, 0))
                changes.append((latest[partition], *partition, record.offset, change))
        for *_, change in sorted(changes, key=lambda change: change[:-1]):
            name = change["source"]["table"]
            key = tables(scenario)[name]["key"]
            row = change["after"] or change["before"]
            if change["op"] == "t":
                found[name].clear()
            elif change["after"] is None:
                found[name].pop(tuple(row[column] for column in key), None)
            else:
                found[name][tuple(row[column] for column in key)] = change["after"]
        for name, table in tables(scenario).items():
            if table["key"]:
                rows = {tuple(row[column] for column in table["key"]) for row in table["rows"]}
                assert {tuple(map(str, key)) for key in found[name]} == rows, (format, name)
            if name == "accounts":
                assert sorted(found[name].values(), key=str) == sorted(table["json"], key=str), format


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_schemas_of_avro_are_there(scenario: str) -> None:
    for format in formats(scenario):
        sides = [side for record in recorded(scenario, format) for side in (record.key, record.value) if side]
        assert sides
        if format.startswith("avro"):
            assert {side[0] for side in sides} == {0}
            assert {int.from_bytes(side[1:5], "big") for side in sides} <= set(schemas(scenario))
