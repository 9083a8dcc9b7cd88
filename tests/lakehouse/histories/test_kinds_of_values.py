"""Keys and values of a history in every form that a lake may have them: columns, bytes, text; of any serde."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import crossstream as cs
from crossstream import serdes
from crossstream.filetopics import FileTopics
from crossstream.records import PRODUCER_RECORDS

NOON = 1_700_000_000_000


def write(folder: Path, rows: Sequence[tuple[bytes | None, bytes | None]], topic: str = "orders") -> None:
    """A topic of one partition."""
    batch = pa.RecordBatch.from_pylist(
        [
            {"key": key, "value": value, "timestamp": NOON + n, "headers": None}
            for n, (key, value) in enumerate(rows)
        ],
        schema=PRODUCER_RECORDS,
    )
    topics = FileTopics(str(folder))
    topics.log().create_topic(topic, 1)
    writer = topics.writer()
    writer.write(topic, batch)
    writer.close()


def lake(folder: Path, columns: dict[str, Any]) -> str:
    """A Delta table with the first rows of the topic."""
    rows = len(next(iter(columns.values())))
    places = {"partition": pa.array([0] * rows, pa.int32()), "offset": pa.array(range(rows), pa.int64())}
    times = {"timestamp": pa.array([NOON + n for n in range(rows)])}
    write_deltalake(str(folder / "lake"), pa.table({**columns, **times, **places}))
    return str(folder / "lake")


def rows_of(folder: Path, builder: cs.StreamsBuilder, store: str = "orders") -> dict[Any, Any]:
    config = cs.StreamsConfig(
        application_id="shop", state_dir=folder / "state", topics_dir=folder / "topics", engine="local"
    )
    with cs.SparkStreams(builder.build(), config) as app:
        app.process_available()
        return dict(app.store(store).all())


@dataclass(frozen=True)
class Line:
    shop: int
    id: int


@dataclass
class Item:
    name: str
    price: Decimal
    day: date
    at: datetime
    tags: list[str]
    note: str | None = None


ITEM = Item("pen", Decimal("1.50"), date(2024, 1, 2), datetime(2024, 1, 2, tzinfo=timezone.utc), ["a"])


def test_a_class_with_many_types_and_a_key_that_is_a_struct(tmp_path: Path) -> None:
    key, value = serdes.json(Line), serdes.json(Item)
    write(tmp_path / "topics", [(key.serialize(Line(1, n)), value.serialize(ITEM)) for n in range(3)])
    path = lake(
        tmp_path,
        {
            "shop": pa.array([1, 1], pa.int32()),
            "id": pa.array([0, 1], pa.int64()),
            "name": ["pen", "pen"],
            "price": pa.array([Decimal("1.50")] * 2, pa.decimal128(10, 2)),
            "day": [ITEM.day] * 2,
            "at": pa.array([ITEM.at] * 2, pa.timestamp("us", "UTC")),
            "tags": [["a"]] * 2,
            "note": pa.array([None, None], pa.string()),
        },
    )
    builder = cs.StreamsBuilder()
    past = cs.history(delta=path, until=cs.offsets())
    builder.table("orders", key=Line, value=Item, store="orders", history=past)
    assert rows_of(tmp_path, builder) == {Line(1, n): ITEM for n in range(3)}


@pytest.mark.parametrize("text", [False, True], ids=["bytes", "text"])
def test_values_without_a_type_as_bytes_or_text(tmp_path: Path, text: bool) -> None:
    records = [(b"a", b'{"n": 1}'), (b"b", b'{"m": [2]}'), (b"a", None), (b"c", b'{"n": 3}')]
    write(tmp_path / "topics", records)
    kind = pa.string() if text else pa.binary()
    keys, values = zip(*records[:3], strict=True)
    given = [value if value is None or not text else value.decode() for value in values]
    path = lake(tmp_path, {"key": pa.array(keys, pa.binary()).cast(kind), "value": pa.array(given, kind)})
    builder = cs.StreamsBuilder()
    past = cs.history(delta=path, until=cs.offsets(), value="value")
    builder.table("orders", store="orders", history=past)
    assert rows_of(tmp_path, builder) == {"b": {"m": [2]}, "c": {"n": 3}}


def test_values_without_a_type_as_columns(tmp_path: Path) -> None:
    write(tmp_path / "topics", [(b"a", b'{"n":1,"name":"x"}'), (b"b", b'{"n":2,"name":null}')])
    path = lake(tmp_path, {"id": ["a"], "n": [1], "name": ["x"]})
    builder = cs.StreamsBuilder()
    builder.table("orders", store="orders", history=cs.history(delta=path, until=cs.offsets(), key="id"))
    assert rows_of(tmp_path, builder) == {"a": {"n": 1, "name": "x"}, "b": {"n": 2, "name": None}}


def test_values_that_are_one_column(tmp_path: Path) -> None:
    number = serdes.int32()
    write(tmp_path / "topics", [(number.serialize(n), f"text {n}".encode()) for n in range(4)])
    path = lake(tmp_path, {"key": pa.array([0, 1], pa.int64()), "value": ["text 0", "text 1"]})
    builder = cs.StreamsBuilder()
    past = cs.history(delta=path, until=cs.offsets())
    builder.table("orders", key=number, value=str, store="orders", history=past)
    assert rows_of(tmp_path, builder) == {n: f"text {n}" for n in range(4)}


def test_keys_in_bytes_beside_columns_have_one_text(tmp_path: Path) -> None:
    key, value = serdes.json(Line), serdes.json({"n": pl.Int64})
    write(tmp_path / "topics", [(b'{"shop": 1, "id": 2}', b'{"n":1}'), (b'{"shop":1,"id":2}', b'{"n":2}')])
    path = lake(tmp_path, {"key": pa.array([b'{"shop":  1, "id":  2}'], pa.binary()), "n": [1]})
    builder = cs.StreamsBuilder()
    past = cs.history(delta=path, until=cs.offsets(), key="key")
    builder.table("orders", key=key, value=value, store="orders", history=past)
    assert rows_of(tmp_path, builder) == {Line(1, 2): {"n": 2}}


def test_a_bad_record_in_bytes_is_one_as_in_the_topic(tmp_path: Path) -> None:
    write(tmp_path / "topics", [(b"a", b"{"), (b"b", b'{"n":2}')])
    path = lake(tmp_path, {"key": pa.array([b"a"]), "value": pa.array([b"{"])})
    builder = cs.StreamsBuilder()
    past = cs.history(delta=path, until=cs.offsets(), value="value")
    builder.table("orders", store="orders", history=past)
    with pytest.raises(cs.SerdeError) as caught:
        rows_of(tmp_path, builder)
    assert caught.value.code == "CS-402"
    assert caught.value.where["offset"] == 0


def test_records_without_keys(tmp_path: Path) -> None:
    write(tmp_path / "topics", [(None, b'{"n":1}'), (None, b'{"n":2}')])
    path = lake(tmp_path, {"n": [1]})
    builder = cs.StreamsBuilder()
    past = cs.history(delta=path, until=cs.offsets(), key=())
    stream = builder.stream("orders", value={"n": pl.Int64}, history=past)
    stream.group_by(pl.lit("all"), key=str).agg(total=cs.agg.sum("n"), store="orders")
    assert rows_of(tmp_path, builder) == {"all": {"total": 3}}


def test_times_that_values_have(tmp_path: Path) -> None:
    """An extractor reads the rows of the lake, too; also where a backlog is cut."""
    write(tmp_path / "topics", [(b"a", b'{"at":%d}' % (NOON + n * 1_000)) for n in range(6)])
    path = lake(tmp_path, {"key": ["a"] * 3, "at": [NOON, NOON + 1_000, NOON + 2_000]})
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(value=serdes.json({"at": pl.Int64}), timestamp_extractor=pl.col("at"))
    past = cs.history(delta=path, until=cs.offsets())
    stream = builder.stream("orders", consumed, history=past)
    windows = cs.TimeWindows(size="2 seconds", grace="1 hour")
    stream.group_by_key().windowed_by(windows).count(store="orders")
    found = rows_of(tmp_path, builder)
    assert {window.start - NOON: count for window, count in found.items()} == {0: 2, 2_000: 2, 4_000: 2}


@dataclass
class Note:
    id: int
    text: str


@pytest.mark.parametrize("settings", [{}, {"ordered_by": "source.lsn"}, {"snapshots": "full"}])
@pytest.mark.parametrize("form", ["rows", "events", "rows of a time"])
def test_change_events_of_a_database(tmp_path: Path, form: str, settings: dict[str, Any]) -> None:
    """The lake has rows, or the events themselves; the topic has events, one of which leaves out a value."""
    left_out = "__debezium_unavailable_value"
    changes = [("c", 1, "one"), ("c", 2, "two"), ("u", 1, left_out), ("d", 2, None), ("c", 3, "three")]
    records = []
    for at, (op, key, text) in enumerate(changes):
        row = None if text is None else {"id": key, "text": text}
        event = {"op": op, "before": None, "after": row, "source": {"lsn": at}, "ts_ms": NOON + at}
        records.append((json.dumps({"id": key}).encode(), json.dumps(event).encode()))
    write(tmp_path / "topics", records)
    wanted: dict[str, Any] = {"key": "id", "until": cs.offsets()}
    if form == "events":
        keys, values = (pa.array(column[:2], pa.binary()) for column in zip(*records, strict=True))
        path = lake(tmp_path, {"key": keys, "value": values})
        wanted |= {"key": "key", "value": "value"}
    else:
        path = lake(tmp_path, {"id": pa.array([1, 2], pa.int64()), "text": ["one", "two"]})
        if form == "rows of a time":
            wanted["until"] = datetime.fromtimestamp(NOON / 1000, timezone.utc)
    builder = cs.StreamsBuilder()
    source = cs.debezium(Note, **settings)
    past = cs.history(delta=path, **wanted)
    notes = builder.table("orders", source=source, store="orders", history=past)
    notes.map_values(lambda note: note.text.upper()).to_stream().to("texts", value=str)
    assert rows_of(tmp_path, builder) == {1: Note(1, "one"), 3: Note(3, "three")}
