"""A store as a table: the rows that its reader shows, in columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, time, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream.query.committed import OpenPartition
from crossstream.query.key_filter import EVERYTHING, Look
from crossstream.query.pushdown import Condition, look_for
from crossstream.query.table import StoreTable
from crossstream.storage import manifest
from tests.docs.state_folder import Writer
from tests.query.stores_of_all_kinds import KINDS, record, writer


def rows_of(table: StoreTable, batch: int | None = None, look: Look = EVERYTHING) -> list[dict[str, Any]]:
    """All rows, as a reader of each state partition gives them."""
    commit = table.committed.commit(batch)
    found: list[dict[str, Any]] = []
    wanted = look.partitions(table.committed.store, commit.partitions)
    for part in table.committed.parts(commit):
        if part.partition in wanted:
            opened = OpenPartition(table.committed, part.partition)
            arrays = table.arrays(table.rows(opened, part, look), table.columns)
            names = [column.name for column in table.columns]
            found += pa.table(arrays, names=names).to_pylist()
    return found


def shown(state: Path, name: str, batch: int | None = None) -> list[dict[str, Any]]:
    """The same by `open_store`, whose columns are key, value and times in ms."""
    reader = cs.open_store(state, name, as_of=batch)
    made = []
    for row in reader.to_arrow().to_pylist():
        times = {column: at(row[column]) for column in ("timestamp", "start", "end") if column in row}
        made.append({**fields("key", row["key"]), **fields("value", row["value"]), **times})
    return made


def fields(name: str, value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {name: value}


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def in_order(rows: list[dict[str, Any]]) -> list[Any]:
    return sorted(sorted(row.items()) for row in rows)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Twelve batches of every kind of store."""
    root = tmp_path_factory.mktemp("state")
    with closing(writer(root)) as written:
        for batch in range(12):
            rows = [
                record(f"k{n}", n * batch, f"n{n % 3}", 3 * batch + n % 5) for n in range(batch, batch + 9)
            ]
            gone = [record(f"k{batch}", 0, None, 3 * batch + 6)] if batch % 2 else []
            written.run({"table": rows + gone, "versioned": rows + gone, "stream": rows, "other": rows})
    return root


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("batch", [None, 0, 7])
def test_has_the_rows_of_its_reader(state: Path, name: str, batch: int | None) -> None:
    found = rows_of(StoreTable.open(state, name), batch)
    if name == "words":  # values without a declared type are text
        assert all(isinstance(row["value"], str) for row in found)
        found = [
            {"key": row["key"], **cs.serdes.json().deserialize(row["value"]), "timestamp": row["timestamp"]}
            for row in found
        ]
    assert in_order(found) == in_order(shown(state, name, batch))
    assert found


def test_columns_are_those_of_key_window_value_and_time(state: Path) -> None:
    names = {name: [column.name for column in StoreTable.open(state, name).columns] for name in KINDS}
    assert names["rows"] == ["key", "price", "name", "timestamp"]
    assert names["windows"] == ["key", "start", "end", "value", "timestamp"]
    assert names["pairs"] == ["shop", "number", "value", "timestamp"]
    assert names["averages"] == ["key", "average", "number", "timestamp"]
    every = StoreTable.open(state, "versions", versions=True)
    assert [column.name for column in every.columns] == ["key", "price", "name", "valid_from", "valid_to"]


def test_all_versions_answer_for_each_time(state: Path) -> None:
    rows = rows_of(StoreTable.open(state, "versions", versions=True))
    reader = cs.open_store(state, "versions")
    assert len(rows) > len(list(reader.all()))
    for row in rows:
        begins = round(row["valid_from"].timestamp() * 1000)
        assert reader.get(row["key"], as_of_time=begins) in (
            None,
            {"price": row["price"], "name": row["name"]},
        )
        if row["valid_to"] is None:
            assert reader.get(row["key"]) == {"price": row["price"], "name": row["name"]}


class TestAColumn:
    def test_may_be_the_whole_or_its_bytes(self, state: Path) -> None:
        table = StoreTable.open(state, "rows")
        whole = table.column("value")
        assert pa.types.is_struct(whole.type)

    def test_that_is_not_there_is_named(self, state: Path) -> None:
        with pytest.raises(cs.StateError, match="no column 'prize'") as caught:
            StoreTable.open(state, "rows").column("prize")
        assert caught.value.code == "CS-711"
        assert "price" in str(caught.value.next)


class TestALookUp:
    @pytest.mark.parametrize("name", KINDS)
    def test_finds_the_rows_of_its_keys(self, state: Path, name: str) -> None:
        table = StoreTable.open(state, name)
        every = rows_of(table)
        keys = [column.name for column in table.columns if column.part == "key"]
        conditions = [
            Condition(key, "in", tuple({row[key] for row in every[:2]} | {every[0][key]})) for key in keys
        ]
        look = look_for(table, conditions)
        assert look.keys
        wanted = [row for row in every if all(row[c.column] in c.value for c in conditions)]
        assert in_order(rows_of(table, None, look)) == in_order(wanted)

    @pytest.mark.parametrize("name", ["windows", "sessions", "records"])
    def test_finds_the_rows_between_two_times(self, state: Path, name: str) -> None:
        table = StoreTable.open(state, name)
        column = {"windows": "start", "sessions": "end", "records": "timestamp"}[name]
        every = rows_of(table)
        middle = sorted(row[column] for row in every)[len(every) // 2]
        look = look_for(table, [Condition(column, ">", middle), Condition(column, "<=", middle)])
        assert (look.low, look.high) == (round(middle.timestamp() * 1000),) * 2
        assert in_order(rows_of(table, None, look)) == in_order(
            [row for row in every if row[column] == middle]
        )

    def test_opens_no_more_files_than_it_needs(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        table, opened = StoreTable.open(state, "rows"), []
        read = manifest.checked_run
        monkeypatch.setattr(
            manifest, "checked_run", lambda *given: (opened.append(given[1]), read(*given))[1]
        )
        rows_of(table)
        every = len(opened)
        opened.clear()
        look = look_for(table, [Condition("key", "=", "k13")])
        assert [row["key"] for row in rows_of(table, None, look)] == ["k13"]
        assert 0 < len(opened) < every

    @pytest.mark.parametrize(
        "condition",
        [
            Condition("key", "=", 5),  # of another type
            Condition("price", "=", 5),
            Condition("key", ">", "a"),  # runs are sorted by hash
        ],
    )
    def test_of_what_is_no_key_reads_all(self, state: Path, condition: Condition) -> None:
        assert look_for(StoreTable.open(state, "rows"), [condition]).keys is None

    def test_of_keys_that_cannot_be_finds_none(self, state: Path) -> None:
        table = StoreTable.open(state, "rows")
        look = look_for(table, [Condition("key", "=", "k13"), Condition("key", "in", ("k14",))])
        assert rows_of(table, None, look) == []


def test_versions_are_of_versioned_stores(state: Path) -> None:
    with pytest.raises(cs.StateError, match="rows keeps no versions") as caught:
        StoreTable.open(state, "rows", versions=True)
    assert caught.value.code == "CS-711"


class TestNamesAndTypes:
    """Of columns that would have one name, and of types that Spark does not have."""

    def table(self, root: Path, key: Any, value: Any, given: list[tuple[Any, Any]]) -> StoreTable:
        key, value = cs.serdes.json(key), cs.serdes.json(value)
        builder = cs.StreamsBuilder()
        builder.table("rows", cs.Consumed(key=key, value=value), cs.Materialized(store="rows"))
        with closing(Writer(root, builder.build())) as written:
            written.run({"rows": [(key.serialize(k), value.serialize(v), 5) for k, v in given]})
        return StoreTable.open(root, "rows")

    def test_a_field_keeps_its_name_beside_a_time(self, tmp_path: Path) -> None:
        table = self.table(
            tmp_path, {"id": pl.Int64}, {"Timestamp": pl.Int64}, [({"id": 1}, {"Timestamp": 7})]
        )
        assert rows_of(table) == [{"id": 1, "Timestamp": 7, "_timestamp": at(5)}]
        look = look_for(table, [Condition("id", "=", 1)])
        assert len(rows_of(table, None, look)) == 1

    def test_a_value_with_a_field_of_the_key_is_one_column(self, tmp_path: Path) -> None:
        row = {"id": 1, "name": "a"}
        table = self.table(
            tmp_path, {"id": pl.Int64}, {"id": pl.Int64, "name": pl.String}, [({"id": 1}, row)]
        )
        assert rows_of(table) == [{"id": 1, "value": row, "timestamp": at(5)}]

    def test_numbers_without_a_sign_and_times_are_of_types_that_spark_has(self, tmp_path: Path) -> None:
        value = {"number": pl.UInt64, "small": pl.UInt8, "of_day": pl.Time}
        given = {"number": 2**64 - 1, "small": 255, "of_day": time(12, 30)}
        table = self.table(tmp_path, {"id": pl.String}, value, [({"id": "k"}, given)])
        (row,) = rows_of(table)
        assert (row["number"], row["small"]) == (2**64 - 1, 255)
        assert row["of_day"].startswith("12:30:00")

    def test_a_window_without_an_end_has_none(self, tmp_path: Path) -> None:
        builder = cs.StreamsBuilder()
        stream = builder.stream("in", cs.Consumed(key=cs.serdes.string(), value=cs.serdes.string()))
        stream.group_by_key().windowed_by(cs.UnlimitedWindows()).count(store="counts")
        with closing(Writer(tmp_path, builder.build())) as written:
            written.run({"in": [(b"k", b"v", 5)]})
        (row,) = rows_of(StoreTable.open(tmp_path, "counts"))
        assert (row["start"], row["end"], row["value"]) == (at(0), None, 1)


def test_rows_of_a_processor_are_found_wherever_they_are(tmp_path: Path) -> None:
    """A processor puts rows under any key, in the state partition of its record."""

    class Puts:
        def init(self, context: cs.ProcessorContext) -> None:
            self.store = context.store("put")

        def process(self, record: cs.Record) -> None:
            self.store.put(f"of {record.key}", record.value)

    text = cs.serdes.string()
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=text, value=text))
    stream.process(Puts, stores=[cs.KeyValueStore("put", key=text, value=text)])
    with closing(Writer(tmp_path, builder.build(), partitions=4)) as written:
        written.run({"in": [(f"k{number}".encode(), b"v", number) for number in range(20)]})
    table = StoreTable.open(tmp_path, "put")
    assert len(rows_of(table)) == 20
    look = look_for(table, [Condition("key", "=", "of k7")])
    assert [row["key"] for row in rows_of(table, None, look)] == ["of k7"]
