"""How snapshots mark their rows, as a real connector writes it in each form, is read where a reader needs it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream.serdes.debezium import avro, changes
from crossstream.serdes.debezium.changes import unwrap
from crossstream.serdes.debezium.snapshots import (
    FIRST,
    FIRST_OF_TABLE,
    INCREMENTAL,
    LAST,
    LAST_OF_TABLE,
    NO_SNAPSHOT,
    SHOWN,
)
from tests.data.debezium.recordings import recorded
from tests.operators.debezium.law.test_recordings import known_ids

CODES = {
    "true": SHOWN,
    "first": FIRST,
    "first_in_data_collection": FIRST_OF_TABLE,
    "last_in_data_collection": LAST_OF_TABLE,
    "last": LAST,
    "incremental": INCREMENTAL,
}


@dataclass
class Account:
    id: int
    balance: int | None = None


def source(**settings: Any) -> Any:
    return cs.debezium(Account, **settings)


def marks_of(settings: Any, values: list[bytes | None], keys: list[bytes | None]) -> list[int]:
    """The mark of each record; none of one that is no event."""
    found = unwrap(settings, pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
    assert found.bad == []
    marks = np.full(len(values), NO_SNAPSHOT)
    marks[found.part.records] = found.part.snapshot
    return marks.tolist()


def topic(scenario: str, form: str, table: str) -> tuple[list[bytes | None], list[bytes | None]]:
    records = [one for one in recorded(scenario, form) if one.topic.endswith(f".public.{table}")]
    return [one.value for one in records], [one.key for one in records]


def in_json(value: bytes | None) -> int:
    event = json.loads(value or b"{}") or {}
    event = event.get("payload", event)
    mark = event.get("source", {}).get("snapshot") if event else None
    return CODES.get(mark, NO_SNAPSHOT)


@pytest.mark.parametrize("ordered_by", [None, "source.lsn", "ts_ms"])
@pytest.mark.parametrize("piece", [1, 7, 8192])
@pytest.mark.parametrize(
    ("scenario", "form", "table"),
    [
        ("blocking", "json", "accounts"),
        ("incremental", "json", "accounts"),
        ("changes", "json", "customers"),
        ("changes", "json-schemas", "customers"),
    ],
)
def test_marks_of_recorded_events_in_json(scenario, form, table, piece, ordered_by, monkeypatch):
    monkeypatch.setattr(changes, "PIECE", {False: piece, True: piece})
    values, keys = topic(scenario, form, table)
    expected = [in_json(value) for value in values]
    assert set(expected) > {NO_SNAPSHOT, FIRST}
    assert marks_of(source(ordered_by=ordered_by), values, keys) == expected
    assert not any(marks_of(cs.debezium(Account, ordered_by=ordered_by, snapshots="partial"), values, keys))


@pytest.mark.parametrize("scenario", ["blocking", "incremental", "snapshot"])
def test_marks_of_recorded_events_in_avro(scenario, monkeypatch):
    monkeypatch.setattr(avro, "check_ids", partial(known_ids, scenario))
    settings = source(registry="mock://it")
    ours = Counter(marks_of(settings, *topic(scenario, "avro", "accounts")))
    beside = Counter(map(in_json, topic(scenario, "json", "accounts")[0]))
    once = (FIRST, LAST)
    assert [ours[mark] for mark in once] == [beside[mark] for mark in once]
    assert ours.keys() == beside.keys()
    partial_ = cs.debezium(Account, registry="mock://it", snapshots="partial")
    assert not any(marks_of(partial_, *topic(scenario, "avro", "accounts")))


@pytest.mark.parametrize("given", [*CODES, "false", False, True, None, "of later versions"])
@pytest.mark.parametrize("form", ["envelope", "wrapped", "plain"])
def test_marks_in_each_form(given, form):
    row = {"id": 1, "balance": 2}
    event: Any = {"op": "r", "before": None, "after": row, "source": {"snapshot": given, "lsn": 3}}
    if form == "plain":
        event = {**row, "__op": "r", "__source_snapshot": given}
    if form == "wrapped":
        event = {"schema": None, "payload": event}
    expected = SHOWN if given is True else CODES.get(given, NO_SNAPSHOT)
    assert marks_of(source(), [json.dumps(event).encode()], [b'{"id":1}']) == [expected]
    assert marks_of(source(unavailable_fields=[]), [json.dumps(event).encode()], [None]) == [expected]


def test_an_event_without_a_source_has_no_mark():
    event = {"op": "r", "before": None, "after": {"id": 1}}
    assert marks_of(source(), [json.dumps(event).encode()], [None]) == [NO_SNAPSHOT]
