"""The log of a table that is read again: each reading is there as a whole, and folding changes no table."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream.api.refreshed import difference
from crossstream.errors import SourceError
from crossstream.filetopics.refreshed import RefreshLog, extent_of, file_name, folder_of, topic_of
from crossstream.filetopics.refreshed_topics import TablesLog
from crossstream.storage.files import UNFINISHED
from crossstream.storage.root import root_of
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition
from tests.laws.effort import law

TOPIC = topic_of("rates")
TABLES = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3), max_size=6)
NUMBERS = itertools.count()


def frame(rows: dict[str, Any]) -> pl.DataFrame:
    keys, values = [key.encode() for key in rows], [str(value).encode() for value in rows.values()]
    return pl.DataFrame({"key": keys, "value": values}, schema={"key": pl.Binary(), "value": pl.Binary()})


def rows_of(found: pl.DataFrame) -> dict[str, int]:
    return {key.decode(): int(value) for key, value in found.rows()}


def read(log: RefreshLog, table: dict[str, int], time: int = 5) -> int:
    changes = difference(log.rows(), frame(table))
    if changes.height:
        log.append(changes, time)
    return changes.height


def new_log(folder: Path) -> RefreshLog:
    return RefreshLog(root_of(folder / f"{next(NUMBERS)}"), TOPIC, durable=False)


def net(log: RefreshLog, start: int, end: int) -> dict[str, int]:
    held: dict[str, int] = {}
    for _, _, records in log.read(start, end):
        for key, value in zip(*(records.column(i).to_pylist() for i in (0, 1)), strict=True):
            held.pop(key.decode(), None)
            if value is not None:
                held[key.decode()] = int(value)
    return held


@law
@given(readings=st.lists(st.tuples(TABLES, st.integers(0, 4)), max_size=8))
def test_the_rows_are_those_of_the_last_reading(
    tmp_path_factory: pytest.TempPathFactory, readings: list[tuple[dict[str, int], int]]
) -> None:
    """Each reading logs what differs alone; readings are folded in between, and another process reads the same."""
    log = new_log(tmp_path_factory.getbasetemp())
    before: dict[str, int] = {}
    past: list[dict[str, int]] = []
    for table, fold in readings:
        differing = {key for key in before.keys() | table.keys() if before.get(key) != table.get(key)}
        assert read(log, table) == len(differing)
        past += [table] if differing else []
        log.fold(fold)
        assert rows_of(log.rows()) == table == rows_of(RefreshLog(log.root, TOPIC).rows())
        held = log.extent()
        assert held.end == len(past)
        for end in range(held.begin + 1, held.end + 1):
            assert net(log, held.begin, end) == past[end - 1], "after every reading that is held"
        before = table


def test_a_crash_while_readings_are_folded_changes_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(5):
        read(log, {"a": number, f"b{number}": 1})
    folder = log.root.here / folder_of(TOPIC)
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    log.fold(3)
    assert sorted(file.name for file in folder.iterdir()) == [
        file_name(3, is_table=True),
        file_name(4, is_table=False),
    ]
    for name, data in files.items():  # the crash came before they were removed
        (folder / name).write_bytes(data)
    assert log.extent() == extent_of([file_name(3, is_table=True), file_name(4, is_table=False)])
    assert rows_of(log.rows()) == {"a": 4, "b4": 1}
    (folder / f"{file_name(5, is_table=False)}.1f2e{UNFINISHED}").write_bytes(b"half")
    assert log.extent().end == 5
    log.clear()
    assert len(list(folder.iterdir())) == 2, "what was left over is gone"


def test_a_table_that_was_emptied_is_folded(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for table in ({"a": 1}, {"a": 2}, {}):
        read(log, table)
    log.fold(2)
    assert log.extent() == extent_of([file_name(2, is_table=True)])
    assert rows_of(log.rows()) == {}
    read(log, {"b": 1})
    assert rows_of(log.rows()) == {"b": 1}


def test_readings_that_were_folded_or_never_were_are_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(4):
        read(log, {"a": number})
    log.fold(2)
    with pytest.raises(SourceError, match=r"\[CS-601\] readings 1 to 1 .* are not kept"):
        log.read(1, 3)
    with pytest.raises(SourceError, match=r"\[CS-603\] .* its log ends at 4"):
        log.read(3, 5)


@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_damage_is_named(tmp_path: Path, harm: str) -> None:
    log = new_log(tmp_path)
    for number in range(3):
        read(log, {"a": number})
    file = log.root.here / folder_of(TOPIC) / file_name(1, is_table=False)
    data = file.read_bytes()
    file.unlink()
    if harm != "gone":
        file.write_bytes(data[:-70] if harm == "cut" else data[:100] + b"?" + data[101:])
    with pytest.raises(SourceError, match=r"\[CS-606\].*(?s:.)*refreshed/rates/0{19}1\.rows"):
        log.rows()


def test_the_first_reading_of_a_time_is_found(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(4):
        read(log, {"a": number}, 10 * number)
    tables, tp = TablesLog({TOPIC: log}), TopicPartition(TOPIC, 0)
    spans = [OffsetRange(TOPIC, 0, 0, 4)]
    assert tables.offsets_for_times(spans, 11, 100) == {tp: OffsetAndTimestamp(2, 20)}
    assert tables.offsets_for_times(spans, 31, 100) == {tp: None}
