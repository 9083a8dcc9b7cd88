"""Law: changes count in the order of their versions, however their rows lie in partitions. Without Spark."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.errors import ProcessingError
from crossstream.serdes.plain_columns import plain_rows
from crossstream.spark.changes import BEFORE_ALL, ORDER, PASSED, Netting, codes_of
from crossstream.spark.errors import WorkerError, unpacked
from crossstream.spark.frames import FrameInput
from crossstream.spark.plain_frames import EncodePlain
from crossstream.storage.log_entries import SourceRange
from crossstream.task.batch import Report
from tests.spark.change_commits import KEYS, History, Row, histories

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("number", pa.int64()),
        ("_change_type", pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
    ]
)
ROWS = plain_rows(pa.schema([SCHEMA.field("key"), SCHEMA.field("number")]), ["key"], None, {})
NODE: Any = SimpleNamespace(name="rows", key=ROWS.key, where={"operator": "rows"})
ENCODE = EncodePlain("rows", ROWS, "_commit_timestamp", True, tuple(SCHEMA.names), "token")
COUNTED = f"rows: {PASSED}"
SPAN = SourceRange("rows", "rows", 0, 0, 1 << 40, 0)


def encoded(rows: list[Row]) -> pa.RecordBatch:
    """The rows as a task of Spark brings them to wire form."""
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in SCHEMA]
    columns[4] = [time * 1000 for time in columns[4]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    (batch,) = ENCODE([pa.record_batch(arrays, schema=SCHEMA)])
    return batch


def exchanged(batches: list[pa.RecordBatch], partitions: int) -> list[pa.RecordBatch]:
    """Spark's part: the rows of a key in one partition, in `ORDER`."""
    place = pl.lit(None, pl.Int64).alias("place")
    rows = pl.concat([pl.DataFrame(pl.from_arrow(batch)).with_columns(place) for batch in batches])
    number = pl.col("key").replace_strict([key.encode() for key in KEYS], range(len(KEYS)), default=0)
    parts = [rows.filter(number % partitions == part).sort(ORDER) for part in range(partitions)]
    return [part.drop("place").to_arrow().combine_chunks() for part in parts]


def cut(rows: pa.Table, draw: st.DataObject) -> list[pa.RecordBatch]:
    """Arrow batches of any length."""
    most = draw.draw(st.integers(1, 5))
    return rows.to_batches(max_chunksize=most) if rows.num_rows else []


Taken = list[tuple[int, str, int | None]]


def taken(batches: list[pa.RecordBatch], newest: int = BEFORE_ALL) -> tuple[Taken, Report]:
    """(time, key, number or None) in the order in which the engine gets them, and what is reported."""
    report = Report()
    source = FrameInput(batches, {"rows": SPAN}, 0, {"rows": Netting(NODE, report, newest)})
    found: Taken = []
    last = -1
    for span, records in source.read([SPAN], 1000):
        assert span is SPAN
        offsets = records.column("offset").to_numpy()
        assert (np.diff(np.append(last, offsets)) > 0).all()
        last = int(offsets[-1])
        keys = serdes.string().decode_objects(records.column("key"))
        values = ROWS.value.decode_objects(records.column("value"))
        numbers = [None if value is None else value["number"] for value in values]
        found += zip(records.column("timestamp").to_pylist(), keys, numbers, strict=True)
    return found, report


@given(history=histories(), data=st.data(), seed=st.integers(0, 99))
def test_law_versions_in_order_and_one_row_for_each_key(
    history: History, data: st.DataObject, seed: int
) -> None:
    rows = [row for commit in history.rows for row in commit]
    random.Random(seed).shuffle(rows)
    torn = [rows[start::3] for start in range(3)]
    parts = exchanged([encoded(part) for part in torn], data.draw(st.integers(1, 3)))
    results = [taken(cut(pa.table(part), data)) for part in parts]
    by_key: dict[str, Taken] = {}
    for found, _ in results:
        for time, key, number in found:
            by_key.setdefault(key, []).append((time, key, number))
    expected: dict[str, Taken] = {}
    for version in sorted(history.net()):
        for key, (time, number) in history.net()[version].items():
            expected.setdefault(key, []).append((time, key, number))
    assert by_key == expected
    assert sum(report.dropped.get(COUNTED, 0) for _, report in results) == history.passed


def test_a_row_that_gets_another_key_leaves_its_old_one() -> None:
    """The update of a key: `a` is not written in its version, so what it was is deleted."""
    rows = [("a", 1, "update_preimage", 3, 5), ("b", 1, "update_postimage", 3, 5)]
    (part,) = exchanged([encoded(rows)], 1)
    assert taken(pa.table(part).to_batches())[0] == [(5, "a", None), (5, "b", 1)]


def test_keys_that_swap_their_rows() -> None:
    rows = [
        ("a", 1, "update_preimage", 3, 5),
        ("b", 1, "update_postimage", 3, 5),
        ("b", 2, "update_preimage", 3, 5),
        ("a", 2, "update_postimage", 3, 5),
    ]
    (part,) = exchanged([encoded(rows)], 1)
    found, report = taken(pa.table(part).to_batches())
    assert found == [(5, "a", 2), (5, "b", 1)]
    assert report.dropped == {COUNTED: 2}


def test_what_deletes_leave_out_needs_no_text() -> None:
    """JSON has no NaN; the row that is deleted may have had one."""
    schema = pa.schema([SCHEMA.field("key"), ("number", pa.float64()), *list(SCHEMA)[2:]])
    rows = plain_rows(pa.schema([schema.field("key"), schema.field("number")]), ["key"], None, {})
    batch = pa.record_batch(
        [["a", "b"], [float("nan"), 1.0], ["delete", "insert"], [1, 1], pa.array([5, 5], schema.types[4])],
        schema=schema,
    )
    (wire,) = EncodePlain("rows", rows, "_commit_timestamp", True, tuple(schema.names), "token")([batch])
    assert wire.column("value").to_pylist() == [None, b'{"number":1.0}']


def test_null_keys_stay_apart() -> None:
    """Each of them is dropped, and counted, as tables do."""
    rows: list[Any] = [(None, 1, "insert", 3, 5), (None, 2, "insert", 3, 5)]
    assert [key for _, key, _ in taken([encoded(rows)])[0]] == [None, None]


@pytest.mark.parametrize("most", [1, 2, 9])
def test_a_version_with_two_rows_of_a_key(most: int) -> None:
    rows = [("a", 1, "insert", 3, 5), ("b", 1, "insert", 4, 5), ("b", 2, "insert", 4, 5)]
    with pytest.raises(ProcessingError) as caught:
        taken(pa.Table.from_batches([encoded(rows)]).to_batches(max_chunksize=most))
    assert caught.value.code == "CS-507"
    assert "version 4 has two rows of the key 'b'" in str(caught.value)
    assert "key=" in str(caught.value.next)


@pytest.mark.parametrize(
    ("kind", "version", "is_late"),
    [
        ("insert", 7, False),
        ("update_postimage", 7, False),
        ("insert", 8, False),
        ("delete", 8, False),
        ("delete", 7, True),
        ("update_preimage", 7, True),
        ("insert", 6, True),
        ("delete", 6, True),
    ],
)
def test_a_version_that_comes_in_two_batches(kind: str, version: int, is_late: bool) -> None:
    """An earlier batch wrote rows of version 7. Rows may follow; a delete might be of one that it wrote."""
    rows = [("a", 1, kind, version, 5)]
    if not is_late:
        assert len(taken([encoded(rows)], newest=7)[0]) == 1
        return
    with pytest.raises(ProcessingError, match=f"rows of version {version} came after a batch") as caught:
        taken([encoded(rows)], newest=7)
    assert caught.value.code == "CS-507"
    assert "maxFilesPerTrigger" in str(caught.value.next)


def test_the_newest_version_with_rows_is_reported() -> None:
    """Not that of deletes: another part of such a version may come later."""
    rows = [("a", 1, "insert", 3, 5), ("b", 1, "insert", 4, 5), ("c", 1, "delete", 5, 5)]
    assert taken([encoded(rows)])[1].frame_versions == {"rows": 4}
    assert taken([encoded(rows[2:])])[1].frame_versions == {}


@pytest.mark.parametrize("kind", ["upsert", None, "INSERT"])
def test_a_change_type_that_is_unknown(kind: str | None) -> None:
    with pytest.raises(ProcessingError, match="has the _change_type") as caught:
        codes_of(pa.array(["insert", kind]), "rows")
    assert (caught.value.code, caught.value.where) == (
        "CS-507",
        {"operator": "rows", "column": "_change_type"},
    )


@pytest.mark.parametrize(
    ("column", "words"),
    [("_commit_version", "has no _commit_version"), ("_commit_timestamp", "has no timestamp")],
)
def test_a_row_without_its_commit(column: str, words: str) -> None:
    row: Any = {
        "key": "a",
        "number": 1,
        "_change_type": "insert",
        "_commit_version": 1,
        "_commit_timestamp": 5,
    }
    batch = pa.RecordBatch.from_pylist([row, {**row, column: None}], SCHEMA)
    with pytest.raises(WorkerError, match=words) as caught:
        list(ENCODE([batch]))
    error = unpacked(caught.value, "token")
    assert (error.code, error.where) == ("CS-507", {"operator": "rows", "column": column})


def test_times_of_another_zone_are_the_same_moments() -> None:
    """Spark gives timestamps in the zone of the session."""
    kind = pa.timestamp("us", "Europe/Berlin")
    schema = pa.schema([("key", pa.string()), ("at", kind)])
    rows = plain_rows(schema, ["key"], None, {})
    batch = pa.record_batch([["a"], pa.array([1_500_000], kind)], schema=schema)
    (wire,) = EncodePlain("rows", rows, "at", False, ("key", "at"), "token")([batch])
    assert wire.column("timestamp").to_pylist() == [1500]
    assert wire.column("value").to_pylist() == [b'{"at":"1970-01-01T00:00:01.500000Z"}']


def test_rows_that_are_no_changes_keep_their_order() -> None:
    """Of two sources in a partition: offsets count over both."""
    others = [pa.RecordBatch.from_pylist([_plain("others", index) for index in range(3)], _PLAIN)]
    changes = pa.table(exchanged([encoded([("a", 1, "insert", 1, 1)])], 1)[0]).cast(_PLAIN).to_batches()
    spans = {"rows": SPAN, "others": SourceRange("others", "others", 0, 0, 1 << 40, 1)}
    source = FrameInput([*others, *changes], spans, 7, {"rows": Netting(NODE, Report())})
    read = [(span.node, records.column("offset").to_pylist()) for span, records in source.read([], 9)]
    assert read == [("others", [0, 1, 2]), ("rows", [3])]


_PLAIN = encoded([]).schema


def _plain(source: str, index: int) -> dict[str, Any]:
    return {"source": source, "key": b"k", "value": str(index).encode(), "timestamp": index}
