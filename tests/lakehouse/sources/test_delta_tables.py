"""Delta tables as sources, case by case: keys, partitions, columns, commits that change no row, versions, restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import crossstream as cs
from crossstream.graph.lake import SHARES
from crossstream.lakehouse import delta_source
from crossstream.lakehouse.reading import LakeReader
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.root import root_of
from crossstream.topics import OffsetRange

FEED = {"delta.enableChangeDataFeed": "true"}
Build = Callable[[cs.StreamsBuilder], object]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lake" / "orders")


@pytest.fixture(params=[False, True], ids=["difference of files", "change feed"])
def configuration(request: pytest.FixtureRequest) -> dict[str, str]:
    return FEED if request.param else {}


def run(tmp_path: Path, build: Build, **settings: Any) -> cs.Progress:
    builder = cs.StreamsBuilder()
    build(builder)
    config = cs.StreamsConfig(
        application_id="shop", state_dir=tmp_path / "state", engine="local", partitions=3, **settings
    )
    with cs.SparkStreams(builder.build(), config) as app:
        app.process_available()
        return app.progress


def rows(tmp_path: Path, store: str = "orders", as_of: int | None = None) -> dict[Any, Any]:
    return dict(cs.open_store(tmp_path / "state", store, as_of=as_of).all())


def times(tmp_path: Path) -> dict[Any, int]:
    found = cs.open_store(tmp_path / "state", "orders").to_polars()
    return dict(zip(found["key"].to_list(), found["timestamp"].to_list(), strict=True))


def orders(path: str, **settings: Any) -> Build:
    return lambda builder: builder.table_from_delta(path, key="id", store="orders", **settings)


def simple(path: str, ids: list[int], amounts: list[float], **settings: Any) -> None:
    write_deltalake(path, pa.table({"id": ids, "amount": amounts}), **settings)


def commits(path: str) -> list[int]:
    return [one["timestamp"] for one in reversed(DeltaTable(path).history())]


def test_rows_have_the_time_of_their_commit(tmp_path: Path, path: str, configuration: dict[str, str]) -> None:
    simple(path, [1, 2], [0.5, 1.5], configuration=configuration)
    run(tmp_path, orders(path))
    DeltaTable(path).update(updates={"amount": "amount + 1"}, predicate="id = 2")
    simple(path, [3], [9.0], mode="append")
    run(tmp_path, orders(path))
    first, second, third = commits(path)
    assert times(tmp_path) == {1: first, 2: second, 3: third}
    assert rows(tmp_path) == {1: {"amount": 0.5}, 2: {"amount": 2.5}, 3: {"amount": 9.0}}


def test_a_key_that_is_deleted_and_inserted_in_one_commit_is_there(
    tmp_path: Path, path: str, configuration: dict[str, str]
) -> None:
    simple(path, [1, 2], [0.5, 1.5], configuration=configuration)
    run(tmp_path, orders(path))
    simple(path, [1], [7.0], mode="overwrite", predicate="id = 1")
    assert DeltaTable(path).version() == 1
    run(tmp_path, orders(path))
    assert rows(tmp_path) == {1: {"amount": 7.0}, 2: {"amount": 1.5}}


def test_a_row_that_was_only_rewritten_is_no_change(tmp_path: Path, path: str) -> None:
    """Without a change feed an update rewrites the file of its row, and all rows beside it."""
    simple(path, list(range(100)), [0.5] * 100)
    run(tmp_path, orders(path))
    DeltaTable(path).update(updates={"amount": "amount + 1"}, predicate="id = 2")
    progress = run(tmp_path, orders(path))
    assert progress.rows_in["orders"] == 1
    assert set(times(tmp_path).values()) == set(commits(path))


def test_commits_that_change_no_row_change_nothing(tmp_path: Path, path: str) -> None:
    for number in range(4):
        simple(path, [number], [0.5], mode="append")
    run(tmp_path, orders(path))
    before = times(tmp_path)
    table = DeltaTable(path)
    table.optimize.compact()
    table.alter.set_table_name("others")
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    progress = run(tmp_path, orders(path))
    assert progress.rows_in.get("orders", 0) == 0
    assert (rows(tmp_path), times(tmp_path)) == ({n: {"amount": 0.5} for n in range(4)}, before)
    assert positions(tmp_path, "orders") == {DeltaTable(path).version() + 1}


def positions(tmp_path: Path, node: str) -> set[int]:
    log = BatchLog(root_of(tmp_path / "state"))
    (shares,) = log.newest().positions[node].values()
    return set(shares.values())


def test_partitions_are_columns_of_their_types(
    tmp_path: Path, path: str, configuration: dict[str, str]
) -> None:
    table = pa.table(
        {
            "id": [1, 2, 3],
            "region": ["eu west/1=%", None, ""],
            "day": pa.array([date(2026, 1, 2), None, date(1969, 1, 2)]),
            "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 678, timezone.utc)] * 2 + [None]),
            "price": pa.array([Decimal("1.50"), Decimal("3.25"), None], pa.decimal128(9, 2)),
            "paid": [True, False, None],
            "number": pa.array([-1, None, 7], pa.int16()),
            "amount": [0.5, 1.5, 2.5],
        }
    )
    names = ["region", "day", "at", "price", "paid", "number"]
    write_deltalake(path, table, partition_by=names, configuration=configuration)
    run(tmp_path, orders(path))
    expected = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert rows(tmp_path) == {row.pop("id"): row for row in expected}
    DeltaTable(path).update(updates={"amount": "amount + 1"}, predicate="id < 3")
    DeltaTable(path).delete("id = 3")
    run(tmp_path, orders(path))
    expected = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert rows(tmp_path) == {row.pop("id"): row for row in expected}
    assert set(rows(tmp_path)) == {1, 2}


def test_only_the_columns_that_are_named_are_read(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(path, pa.table({"id": [1], "amount": [0.5], "note": ["x"]}))
    read: list[str] = []
    rows_of = delta_source.DeltaVersions._rows

    def noted(self: Any, parquet: Any, file: Any, columns: Any, groups: Any) -> Iterator[pa.RecordBatch]:
        read.extend(columns)
        yield from rows_of(self, parquet, file, columns, groups)

    monkeypatch.setattr(delta_source.DeltaVersions, "_rows", noted)
    run(tmp_path, orders(path, columns=["amount"]))
    assert rows(tmp_path) == {1: {"amount": 0.5}}
    assert set(read) == {"id", "amount"}


def test_a_key_of_several_columns_is_a_struct(tmp_path: Path, path: str) -> None:
    write_deltalake(path, pa.table({"shop": ["a", "a"], "id": [1, 2], "amount": [0.5, 1.5]}))
    run(tmp_path, lambda builder: builder.table_from_delta(path, key=["shop", "id"], store="orders"))
    found = cs.open_store(tmp_path / "state", "orders")
    assert found.get({"shop": "a", "id": 2}) == {"amount": 1.5}


def test_rows_without_a_key_are_dropped_and_counted(tmp_path: Path, path: str) -> None:
    write_deltalake(path, pa.table({"id": [1, None], "amount": [0.5, 1.5]}))
    progress = run(tmp_path, orders(path))
    assert rows(tmp_path) == {1: {"amount": 0.5}}
    assert progress.dropped == {"orders: null-key": 1}


def test_a_start_may_begin_with_an_older_version(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    simple(path, [2], [1.5], mode="append")
    DeltaTable(path).delete("id = 1")
    run(tmp_path, orders(path, version=1))
    assert rows(tmp_path, as_of=0) == {1: {"amount": 0.5}, 2: {"amount": 1.5}}
    assert rows(tmp_path) == {2: {"amount": 1.5}}


def test_a_table_of_many_row_groups_is_dealt_to_all_shares(tmp_path: Path, path: str) -> None:
    from deltalake import WriterProperties

    properties = WriterProperties(max_row_group_size=10)
    table = pa.table({"id": list(range(1000)), "amount": [0.5] * 1000})
    write_deltalake(path, table, writer_properties=properties)
    run(tmp_path, orders(path), single_task_rows=0)
    assert set(rows(tmp_path)) == set(range(1000))


def test_a_large_row_group_is_cut_into_shares(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """delta-rs writes up to a million rows into one."""
    monkeypatch.setattr(delta_source, "FEWEST", 10)
    simple(path, list(range(1_000)), [0.5] * 1_000)
    builder = cs.StreamsBuilder()
    orders(path)(builder)
    lake = builder.build()["orders"].lake
    assert lake is not None
    reader = LakeReader({lake.topic: lake})
    shares = []
    for share in range(SHARES):
        span = OffsetRange(lake.topic, share, 0, 1)
        shares.append([key for batch in reader.read(span, 30) for key in batch.column("key").to_pylist()])
    assert [len(keys) for keys in shares] == [125] * SHARES
    assert len({key for keys in shares for key in keys}) == 1_000


def test_columns_that_came_later_are_null_before(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    grown = pa.table({"id": [2], "amount": [1.5], "note": ["x"]})
    write_deltalake(path, grown, mode="append", schema_mode="merge")
    run(tmp_path, orders(path, version=0))
    assert rows(tmp_path, as_of=0) == {1: {"amount": 0.5, "note": None}}
    assert rows(tmp_path) == {1: {"amount": 0.5, "note": None}, 2: {"amount": 1.5, "note": "x"}}


def test_a_commit_is_never_cut(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    run(tmp_path, orders(path))
    simple(path, list(range(2, 50)), [0.5] * 48, mode="append")
    simple(path, [50], [0.5], mode="append")
    simple(path, [51], [0.5], mode="append")
    simple(path, [52], [0.5], mode="append")
    run(tmp_path, orders(path), max_records_per_batch=2, retain_batches=100)
    log = BatchLog(root_of(tmp_path / "state"))
    ends = [
        {end for at in log.commit(n).positions["orders"].values() for end in at.values()}
        for n in log.commits()
    ]
    assert all(len(end) == 1 for end in ends)
    assert ends[:2] == [{1}, {2}]
    assert ends[-1] == {5}
    assert len(ends) in (3, 4)


def test_an_empty_table_is_a_table(tmp_path: Path, path: str) -> None:
    DeltaTable.create(path, pa.schema([("id", pa.int64()), ("amount", pa.float64())]))
    run(tmp_path, orders(path))
    assert rows(tmp_path) == {}
    simple(path, [1], [0.5], mode="append")
    run(tmp_path, orders(path))
    assert rows(tmp_path) == {1: {"amount": 0.5}}


def test_a_table_that_was_moved_is_the_same(tmp_path: Path, path: str) -> None:
    simple(path, [1, 2], [0.5, 1.5])
    run(tmp_path, orders(path, name="orders"))
    DeltaTable(path).delete("id = 1")
    Path(path).rename(tmp_path / "moved")
    progress = run(tmp_path, orders(str(tmp_path / "moved"), name="orders"))
    assert progress.rows_in["orders"] == 1
    assert rows(tmp_path) == {2: {"amount": 1.5}}


def test_a_stream_has_the_rows_and_then_those_that_are_appended(tmp_path: Path, path: str) -> None:
    simple(path, [1, 2], [0.5, 1.5])
    build: Build = lambda builder: (  # noqa: E731
        builder.stream_from_delta(path, key="id", name="events")
        .group_by_key()
        .count(materialized=cs.Materialized(store="counts"))
    )
    run(tmp_path, build)
    simple(path, [2, 3], [0.5, 1.5], mode="append")
    DeltaTable(path).optimize.compact()
    run(tmp_path, build)
    assert rows(tmp_path, "counts") == {1: 1, 2: 2, 3: 1}


def test_a_stream_may_pass_over_commits_that_change_rows(tmp_path: Path, path: str) -> None:
    simple(path, [1, 2], [0.5, 1.5])
    build: Build = lambda builder: (  # noqa: E731
        builder.stream_from_delta(path, key="id", skip_changes=True)
        .group_by_key()
        .count(materialized=cs.Materialized(store="counts"))
    )
    run(tmp_path, build)
    DeltaTable(path).update(updates={"amount": "9"}, predicate="id = 1")
    simple(path, [3], [0.5], mode="append")
    run(tmp_path, build)
    assert rows(tmp_path, "counts") == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us", "UTC"), pa.timestamp("us")])
def test_the_times_of_a_stream_are_those_of_a_column(tmp_path: Path, path: str, kind: pa.DataType) -> None:
    at = pa.array([1_000, 2_000, 61_000]).cast(pa.timestamp("ms")).cast(pa.timestamp("us"))
    column = pa.array([1_000, 2_000, 61_000]) if kind == pa.int64() else at.cast(kind)
    write_deltalake(path, pa.table({"page": ["/", "/", "/"], "at": column}))
    build: Build = lambda builder: (  # noqa: E731
        builder.stream_from_delta(path, key="page", timestamp="at")
        .group_by_key()
        .windowed_by("1 minute")
        .count(materialized=cs.Materialized(store="counts", retention="1 day"))
    )
    run(tmp_path, build)
    found = rows(tmp_path, "counts")
    assert found == {cs.Windowed("/", 0, 60_000): 2, cs.Windowed("/", 60_000, 120_000): 1}


def test_a_stream_without_a_key_has_records_without_one(tmp_path: Path, path: str) -> None:
    simple(path, [1, 2], [0.5, 1.5])
    build: Build = lambda builder: (  # noqa: E731
        builder.stream_from_delta(path).group_by("id").count(materialized=cs.Materialized(store="counts"))
    )
    run(tmp_path, build)
    assert rows(tmp_path, "counts") == {1: 1, 2: 1}


def test_lake_tables_join_with_topics(tmp_path: Path, path: str) -> None:
    simple(path, [1, 2], [0.5, 1.5])
    topics = tmp_path / "topics"

    def build(builder: cs.StreamsBuilder) -> None:
        left = builder.table_from_delta(path, key="id")
        right = builder.table("names", key=int, value=dict)
        left.join(
            right, lambda order, name: {**order, **name}, materialized=cs.Materialized(store="joined")
        ).to("joined")

    write_names(topics, [(1, {"name": "Ada"}), (3, {"name": "Cy"})])
    run(tmp_path, build, topics_dir=topics)
    assert rows(tmp_path, "joined") == {1: {"amount": 0.5, "name": "Ada"}}
    write_names(topics, [(2, {"name": "Bob"})])
    DeltaTable(path).delete("id = 1")
    run(tmp_path, build, topics_dir=topics)
    assert rows(tmp_path, "joined") == {2: {"amount": 1.5, "name": "Bob"}}


def write_names(topics: Path, records: list[tuple[int, Any]]) -> None:
    from crossstream import serdes
    from crossstream.filetopics import FileTopics
    from crossstream.records import PRODUCER_RECORDS

    key, value = serdes.int64(), serdes.json()
    batch = pa.RecordBatch.from_pylist(
        [
            {"key": key.serialize(k), "value": value.serialize(v), "timestamp": 1, "headers": None}
            for k, v in records
        ],
        schema=PRODUCER_RECORDS,
    )
    writer = FileTopics(str(topics)).writer()
    writer.write("names", batch)
    writer.flush()


def test_the_test_driver_gets_changes_by_the_name_of_the_source(path: str) -> None:
    simple(path, [1], [0.5])
    builder = cs.StreamsBuilder()
    orders(path)(builder)
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("orders")
        topic.pipe_input(7, {"amount": 2.5})
        topic.pipe_input(8, {"amount": 3.5})
        topic.pipe_input(7, None)
        assert dict(driver.get_key_value_store("orders").all()) == {8: {"amount": 3.5}}


def test_a_description_names_the_table_and_no_secrets(path: str) -> None:
    simple(path, [1], [0.5])
    builder = cs.StreamsBuilder()
    orders(path, storage_options={"secret_key": "hidden"})(builder)
    topology = builder.build()
    assert f"delta:{path}" in topology.describe()
    assert "hidden" not in repr(topology.nodes) + str(topology.to_dict())


def test_lag_counts_commits(tmp_path: Path, path: str) -> None:
    simple(path, [1], [0.5])
    run(tmp_path, orders(path))
    for number in (2, 3, 4):
        simple(path, [number], [0.5], mode="append")
    lags: list[int] = []
    builder = cs.StreamsBuilder()
    orders(path)(builder)
    config = cs.StreamsConfig(
        application_id="shop", state_dir=tmp_path / "state", engine="local", max_records_per_batch=1
    )
    with cs.SparkStreams(builder.build(), config) as app:
        app.on_progress(lambda progress: lags.append(progress.lag))
        app.process_available()
    assert lags == [2, 1, 0]
