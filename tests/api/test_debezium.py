"""`cs.debezium`: what is refused while the topology is built, and how a table of change events is planned."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.catalog.planners import plan_topology
from crossstream.planning.steps import CompleteRowsStep


@dataclass
class Note:
    id: int
    text: str | None = None


@dataclass
class Odd:
    id: int
    anything: dict[str, Any]


@pytest.mark.parametrize(
    ("row", "settings", "what"),
    [
        (int, {}, "not the type of a row"),
        (None, {}, "the type of a row"),
        (Odd, {}, "field anything"),
        (Note, {"key": "nothing"}, "key names 'nothing'"),
        (Note, {"key": []}, "key names no column"),
        (Note, {"units": "hours"}, "units='hours'"),
        (Note, {"units": {"at": "micros"}}, "units names 'at'"),
        (Note, {"scales": {"at": 2}}, "scales names 'at'"),
        (Note, {"decimals": "double"}, "decimals='double'"),
        (Note, {"truncate": "apply"}, "truncate='apply'"),
        (Note, {"truncate": "delete"}, "needs the order of events"),
        (Note, {"unavailable_fields": ["id"]}, "field id cannot be unavailable"),
        ({"id": pl.Int64, "of": pl.List(pl.Int64)}, {"key": "of"}, "cannot be a key"),
    ],
)
def test_settings_that_do_not_fit(row, settings, what):
    with pytest.raises(cs.TopologyError) as caught:
        cs.debezium(row, **settings)
    assert caught.value.code == "CS-101"
    assert what in caught.value.what
    assert caught.value.next


@pytest.mark.parametrize(
    ("method", "arguments", "what"),
    [
        ("table", {"source": Note}, "source is"),
        (
            "table",
            {"source": cs.debezium(Note), "consumed": cs.Consumed(value=serdes.json())},
            "come from source",
        ),
        ("global_table", {"source": cs.debezium(Note)}, "a global table cannot"),
        (
            "global_table",
            {"source": cs.debezium({"id": pl.Int64}, ordered_by="ts_ms")},
            "a global table cannot",
        ),
    ],
)
def test_tables_that_do_not_fit(method, arguments, what):
    with pytest.raises(cs.TopologyError) as caught:
        getattr(cs.StreamsBuilder(), method)("notes", **arguments)
    assert caught.value.code == "CS-101"
    assert what in caught.value.what


def test_the_serde_of_a_key_is_that_of_its_type():
    @dataclass
    class Keys:
        number: int
        text: str
        id: UUID
        day: date
        data: bytes

    found = {name: cs.debezium(Keys, key=name).key.name for name in ("number", "text", "id", "day", "data")}
    assert found == {"number": "int64", "text": "string", "id": "uuid", "day": "json[date]", "data": "bytes"}
    assert cs.debezium(Keys, key=["number", "day"]).key.name == "json[{number: Int64, day: Date}]"


def steps_of(source: Any) -> list[Any]:
    builder = cs.StreamsBuilder()
    builder.table("notes", source=source).to_stream().to("out")
    return [type(step) for step in plan_topology(builder.build()).steps]


def test_rows_are_kept_only_where_they_are_needed():
    assert CompleteRowsStep in steps_of(cs.debezium(Note, snapshots="partial"))
    assert CompleteRowsStep not in steps_of(cs.debezium(Note, unavailable_value=None, snapshots="partial"))
    assert CompleteRowsStep not in steps_of(cs.debezium({"id": pl.Int64}, snapshots="partial"))
    assert CompleteRowsStep in steps_of(cs.debezium({"id": pl.Int64}))
    ordered = cs.debezium({"id": pl.Int64}, ordered_by="source.lsn", snapshots="partial")
    assert CompleteRowsStep in steps_of(ordered)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "key-value"),
        ({"snapshots": "partial"}, "key-value"),
        ({"unavailable_value": None}, "shown-keys"),
        ({"ordered_by": "source.lsn"}, "ordered-rows"),
        ({"ordered_by": "source.lsn", "snapshots": "partial"}, "key-value"),
    ],
)
def test_what_is_kept_of_rows(settings, kind):
    builder = cs.StreamsBuilder()
    builder.table("notes", source=cs.debezium(Note, **settings))
    stores = plan_topology(builder.build()).stores
    assert [store.layout.kind for name, store in stores.items() if "rows" in name] == [kind]


def test_snapshots_are_full_or_partial():
    with pytest.raises(cs.TopologyError, match=r"snapshots='none' is not a valid setting") as raised:
        cs.debezium(Note, snapshots="none")
    assert raised.value.code == "CS-101"


def test_the_source_can_be_sent_to_workers():
    source = cs.debezium(Note, ordered_by="source.lsn", registry="mock://notes")
    assert pickle.loads(pickle.dumps(source)) == source


def test_a_global_table_of_change_events():
    builder = cs.StreamsBuilder()
    notes = builder.global_table("notes", source=cs.debezium(Note, unavailable_value=None))
    stream = builder.stream("ids", cs.Consumed(key=serdes.string(), value=serdes.int64()))
    stream.join(notes, key_selector=lambda key, value: value, joiner=lambda id, note: note.text).to(
        "out", cs.Produced(key=serdes.string(), value=serdes.string())
    )
    with cs.TopologyTestDriver(builder.build()) as driver:
        raw = driver.create_input_topic("notes", serdes.bytes(), serdes.bytes())
        raw.pipe_input(b'{"id": 1}', b'{"op": "c", "after": {"id": 1, "text": "x"}, "source": {}}')
        driver.create_input_topic("ids", serdes.string(), serdes.int64()).pipe_input("k", 1)
        assert driver.create_output_topic("out", serdes.string(), serdes.string()).read_values() == ["x"]
