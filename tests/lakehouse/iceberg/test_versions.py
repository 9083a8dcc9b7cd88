"""Versions and commits of Iceberg tables: what a commit removes and adds leads from each version to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import orc
from pyiceberg.expressions import EqualTo, In
from pyiceberg.manifest import FileFormat
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType

from crossstream.lakehouse.iceberg_source import IcebergVersions
from tests.lakehouse.iceberg.tables import ROW, Tables, add_file, compact, delete_positions, files_of, rows_of
from tests.laws.effort import cases

SHARES = 8
COLUMNS = ("id", "name", "amount")
Rows = Counter[tuple[Any, ...]]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def tuples(batches: Iterable[pa.RecordBatch], columns: Sequence[str] = COLUMNS) -> Rows:
    found: Rows = Counter()
    for batch in batches:
        found.update(zip(*(batch.column(name).to_pylist() for name in columns), strict=True))
    return found


def version(versions: IcebergVersions, number: int, shares: int = SHARES) -> Rows:
    return sum(
        (tuples(versions.snapshot(number, COLUMNS, share, shares)) for share in range(shares)), Counter()
    )


def current(table: Table) -> set[int]:
    """The versions that readers of the table could see: the newest one of each file of metadata."""
    places = [*(entry.metadata_file for entry in table.metadata.metadata_log), table.metadata_location]
    found = (StaticTable.from_metadata(place).current_snapshot() for place in places)
    return {one.sequence_number for one in found if one is not None}


Step = tuple[str, int]


def do(table: Table, step: Step) -> None:
    """One commit of the table, or none where there is nothing to do."""
    kind, number = step
    keys = [number, number + 1]
    rows = [(key, f"n{key}", number) for key in keys]
    if kind == "append":
        table.append(rows_of(table, *rows))
    elif kind == "upsert":
        table.delete(In("id", keys))  # of several rows of one key PyIceberg updates none
        table.append(rows_of(table, rows[0]))
        table.upsert(rows_of(table, *rows), join_cols=["id"])
    elif kind == "delete":
        table.delete(EqualTo("id", number))
    elif kind == "overwrite":
        table.overwrite(rows_of(table, *rows), overwrite_filter=In("id", keys))
    elif kind == "compact" and table.current_snapshot() is not None:
        compact(table)
    elif kind == "positions" and files_of(table):
        file = files_of(table)[number % len(files_of(table))]
        gone = {file.file_path: [number % file.record_count]}
        delete_positions(table, gone, rows_of(table, *rows) if number % 2 else None)
    elif kind == "partition":
        _partition(table, number)


def _partition(table: Table, number: int) -> None:
    with table.update_spec() as update:
        if table.spec().fields:
            update.remove_field(table.spec().fields[0].name)
        else:
            transform = IdentityTransform() if number % 2 else BucketTransform(4)
            update.add_field("name", transform, f"part_{number}_{len(table.specs())}")


KINDS = ("append", "upsert", "delete", "overwrite", "compact", "positions", "partition")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), min_size=1, max_size=8)


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@given(steps=STEPS)
@example(steps=[("append", 1), ("positions", 1), ("append", 1), ("compact", 0), ("delete", 2)])
@example(steps=[("append", 0), ("append", 0), ("positions", 0), ("positions", 0), ("upsert", 0)])
@example(
    steps=[("append", 1), ("partition", 1), ("append", 2), ("positions", 2), ("partition", 2), ("delete", 2)]
)
@cases(0.7)
def test_each_version_is_the_one_before_without_what_was_removed_and_with_what_was_added(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables = Tables(tmp_path_factory.mktemp("lake"))
    tables.create()
    with tables.table() as table, tables.versions() as versions:
        for step in steps:
            do(table, step)
        before: Rows = Counter()
        commits = versions.commits(1, versions.newest() + 1)
        scans = {one.sequence_number: one.snapshot_id for one in table.snapshots()}
        assert [commit.number for commit in commits] == sorted(current(table))
        for commit in commits:
            whole = version(versions, commit.number)
            assert whole == tuples(table.scan(snapshot_id=scans[commit.number]).to_arrow().to_batches())
            removed = tuples(versions.removed(commit.number, COLUMNS))
            added = tuples(versions.added(commit.number, COLUMNS))
            assert before - removed + added == whole
            assert removed <= before
            if commit.appends_only:
                assert not removed
            if not commit.changes_data:
                assert whole == before
            assert commit.rows >= sum((removed - added).values())
            assert versions.snapshot_commit(commit.number).rows >= sum(whole.values())
            before = whole


def test_a_table_without_a_snapshot_is_empty_at_version_0(tables: Tables) -> None:
    tables.create()
    with tables.versions() as versions:
        assert versions.newest() == 0
        assert version(versions, 0) == Counter()
        assert versions.snapshot_commit(0).rows == 0
        tables.append((1, "a", 1))
        assert versions.newest() == 1
        assert [commit.number for commit in versions.commits(1, 2)] == [1]
        assert tuples(versions.added(1, COLUMNS)) == Counter([(1, "a", 1)])


def test_a_compaction_changes_no_data(tables: Tables) -> None:
    tables.create()
    tables.append((1, "a", 1))
    tables.append((2, "b", 2))
    with tables.table() as table, tables.versions() as versions:
        compact(table)
        (commit,) = versions.commits(3, 4)
        assert (commit.rows, commit.changes_data, commit.appends_only) == (0, False, True)
        assert (tuples(versions.added(3, COLUMNS)), tuples(versions.removed(3, COLUMNS))) == (
            Counter(),
            Counter(),
        )
        assert len(files_of(table)) == 1
        assert version(versions, 3) == Counter([(1, "a", 1), (2, "b", 2)])


def test_the_snapshots_of_a_transaction_are_one_commit(tables: Tables) -> None:
    tables.create()
    tables.append((1, "a", 1), (2, "b", 2))
    with tables.table() as table, tables.versions() as versions:
        table.overwrite(rows_of(table, (1, "a", 7), (3, "c", 3)), overwrite_filter="id == 1")
        assert [one.sequence_number for one in table.snapshots()] == [1, 2, 3]
        (commit,) = versions.commits(2, 4)
        assert (commit.number, commit.appends_only) == (3, False)
        removed, added = tuples(versions.removed(3, COLUMNS)), tuples(versions.added(3, COLUMNS))
        assert removed - added == Counter([(1, "a", 1)])
        assert added - removed == Counter([(1, "a", 7), (3, "c", 3)])
        with table.transaction() as transaction:
            transaction.append(rows_of(table, (4, "d", 4)))
            transaction.set_properties(
                {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "1"}
            )
            transaction.append(rows_of(table, (5, "e", 5)))
        (commit,) = versions.commits(4, 9)
        assert (commit.number, commit.appends_only, commit.rows) == (5, True, 2)
        assert tuples(versions.added(5, COLUMNS)) == Counter([(4, "d", 4), (5, "e", 5)])
        # Metadata that have forgotten what was before have each snapshot as a commit.
        with table.transaction() as transaction:
            transaction.set_properties({"write.metadata.previous-versions-max": "1"})
        table.append(rows_of(table, (6, "f", 6)))
        assert versions.newest() == 6
        assert [commit.number for commit in versions.commits(1, 7)] == [1, 2, 3, 4, 5, 6]


def test_only_the_rows_that_a_delete_file_deletes_are_removed(tables: Tables) -> None:
    tables.create()
    tables.append(*((key, "a", 1) for key in range(5)))
    with tables.table() as table, tables.versions() as versions:
        (file,) = files_of(table)
        delete_positions(table, {file.file_path: [1, 3]})
        delete_positions(table, {file.file_path: [4]}, rows_of(table, (4, "b", 2)))
        assert tuples(versions.removed(2, COLUMNS)) == Counter([(1, "a", 1), (3, "a", 1)])
        assert tuples(versions.removed(3, COLUMNS)) == Counter([(4, "a", 1)])
        assert tuples(versions.added(3, COLUMNS)) == Counter([(4, "b", 2)])
        # A file that is removed takes away what was not deleted before.
        table.delete("id == 0")
        assert tuples(versions.removed(4, COLUMNS)) - tuples(versions.added(4, COLUMNS)) == Counter(
            [(0, "a", 1)]
        )
        assert version(versions, 4) == Counter([(2, "a", 1), (4, "b", 2)])


def test_shares_have_each_row_once_and_several_have_some(tables: Tables) -> None:
    tables.create()
    with tables.table() as table, tables.versions() as versions:
        rows = [(key, f"n{key}", key % 7) for key in range(300_000)]
        table.append(rows_of(table, *rows))
        assert len(files_of(table)) == 1
        shares = [tuples(versions.snapshot(1, COLUMNS, share, SHARES)) for share in range(SHARES)]
        assert sum(shares, Counter()) == Counter(rows)
        assert min(sum(share.values()) for share in shares) > 30_000
        delete_positions(table, {files_of(table)[0].file_path: [0, 100_000, 299_999]})
        left = Counter(row for row in rows if row[0] not in (0, 100_000, 299_999))
        assert version(versions, 2) == left


def test_row_groups_are_dealt(tables: Tables) -> None:
    tables.create(properties={"write.parquet.row-group-limit": "10"})
    tables.append(*((key, "a", 1) for key in range(95)))
    with tables.versions() as versions:
        shares = [tuples(versions.snapshot(1, COLUMNS, share, SHARES)) for share in range(SHARES)]
        assert sum(shares, Counter()) == Counter((key, "a", 1) for key in range(95))
        # Groups of 9 and 10 rows, as PyIceberg cuts them.
        assert all(sum(share.values()) in (9, 10, 18, 19, 20) for share in shares)


def test_only_the_columns_that_are_asked_for_are_read(tables: Tables) -> None:
    tables.create()
    tables.append((1, "a", 7))
    with tables.versions(columns=("id", "amount")) as versions:
        (batch,) = versions.snapshot(1, ("amount", "id"), 0, 1)
        assert batch.to_pylist() == [{"amount": 7, "id": 1}]


NULLS = [(1, None, 1), (2, "a", 2), (3, "", 3)]


@pytest.mark.parametrize("transform", [IdentityTransform(), BucketTransform(3)], ids=str)
def test_a_partition_may_be_null(tables: Tables, transform: Any) -> None:
    tables.create()
    with tables.table() as table, table.update_spec() as update:
        update.add_field("name", transform, "name_part")
    tables.append(*NULLS)
    with tables.table() as table, tables.versions() as versions:
        assert version(versions, 1) == Counter(NULLS)
        table.delete("name is null")
        assert tuples(versions.removed(2, COLUMNS)) == Counter(NULLS[:1])
        paths = [file.file_path for file in files_of(table)]
        delete_positions(table, {path: [0] for path in paths[:1]})
        assert sum(tuples(versions.removed(3, COLUMNS)).values()) == 1


def test_a_file_without_the_column_of_its_partition_gets_the_value(tables: Tables, tmp_path: Path) -> None:
    """Tables that were migrated from Hive have the values in the metadata alone."""
    tables.create()
    with tables.table() as table, table.update_spec() as update:
        update.add_identity("name")
    tables.append((1, "a", 1))
    with tables.table() as table, tables.versions() as versions:
        (file,) = files_of(table)
        place = file.file_path.removeprefix("file://")
        pq.write_table(pq.read_table(place, partitioning=None).drop_columns(["name"]), place)
        assert version(versions, 1) == Counter([(1, "a", 1)])


def test_files_without_ids_are_read_by_the_names_of_their_columns(tables: Tables, tmp_path: Path) -> None:
    tables.create()
    rows = [(key, f"n{key}", key) for key in range(20)]
    with tables.table() as table:
        data = rows_of(table, *rows).cast(ROW)
    pq.write_table(data, tmp_path / "others.parquet")
    with tables.table() as table, tables.versions() as versions:
        table.add_files([f"file://{tmp_path}/others.parquet"])
        assert version(versions, 1) == Counter(rows)


def test_files_of_orc_are_read(tables: Tables, tmp_path: Path) -> None:
    tables.create()
    tables.append((99, "z", 9))
    rows = [(key, f"n{key}", key) for key in range(20)]
    with tables.table() as table, tables.versions() as versions:
        orc.write_table(rows_of(table, *rows).cast(ROW), tmp_path / "rows.orc")
        with table.transaction() as transaction:
            names = table.schema().name_mapping.model_dump_json()
            transaction.set_properties({"schema.name-mapping.default": names})
        add_file(table, FileFormat.ORC, (tmp_path / "rows.orc").read_bytes(), len(rows))
        assert version(versions, 2) == Counter([*rows, (99, "z", 9)])
        (file,) = (one for one in files_of(table) if one.file_format == FileFormat.ORC)
        delete_positions(table, {file.file_path: [0, 19]})
        assert tuples(versions.removed(3, COLUMNS)) == Counter([rows[0], rows[19]])
        assert version(versions, 3) == Counter([*rows[1:19], (99, "z", 9)])


def test_partitions_may_change_and_lose_their_column(tables: Tables) -> None:
    tables.create()
    tables.append((1, "a", 1))
    with tables.table() as table, tables.versions(columns=("id", "amount")) as versions:
        with table.update_spec() as update:
            update.add_identity("name")
        tables.append((2, "b", 2))
        table.refresh()
        with table.update_spec() as update:
            update.remove_field("name")
        with table.update_schema() as schema:
            schema.delete_column("name")
        with table.transaction() as transaction:
            transaction.append(pa.table({"id": [3], "amount": pa.array([3], pa.int32())}))
        got = [
            tuples(versions.snapshot(number, ("id", "amount"), 0, 1), ("id", "amount")) for number in (2, 3)
        ]
        assert got == [Counter([(1, 1), (2, 2)]), Counter([(1, 1), (2, 2), (3, 3)])]


def test_columns_that_are_added_are_null_in_older_rows_and_wider_types_are_read(tables: Tables) -> None:
    tables.create()
    tables.append((1, "a", 1))
    with tables.table() as table:
        with table.update_schema() as update:
            update.add_column("note", StringType())
            update.update_column("amount", LongType())
        table.append(rows_of(table, (2, "b", 2**40, "n")))
        table.overwrite(rows_of(table, (1, "a", 3, None)), overwrite_filter="id == 1")
        with tables.versions() as versions:
            columns = (*COLUMNS, "note")
            assert tuples(versions.snapshot(2, columns, 0, 1), columns) == Counter(
                [(1, "a", 1, None), (2, "b", 2**40, "n")]
            )
            (batch,) = versions.removed(3, columns)
            assert (batch.schema.field("amount").type, batch.to_pylist()) == (
                pa.int64(),
                [{"id": 1, "name": "a", "amount": 1, "note": None}],
            )
            schemas = [commit.schema for commit in versions.commits(1, 5)]
            assert [None if one is None else one.names for one in schemas] == [
                [*COLUMNS],
                [*columns],
                None,
            ]
            (old,) = versions.snapshot(1, columns, 0, 1)
            assert old.schema.names == [*COLUMNS]


def test_rows_have_the_names_that_the_application_has(tables: Tables) -> None:
    """Renamed before the start, without a commit: the newest version is older than the name."""
    tables.create()
    tables.append((1, "a", 1))
    with tables.table() as table, table.update_schema() as update:
        update.rename_column("amount", "total")
    with tables.versions() as versions:
        assert versions.schema(None).names == versions.schema(1).names == ["id", "name", "total"]
        (batch,) = versions.snapshot(1, ("id", "total"), 0, 1)
        assert batch.to_pylist() == [{"id": 1, "total": 1}]
        with tables.table() as table:
            table.append(rows_of(table, (2, "b", 2)))
        assert [commit.number for commit in versions.commits(2, 3)] == [2]
        assert tuples(versions.added(2, ("id", "total")), ("id", "total")) == Counter([(2, 2)])


def test_other_branches_are_gaps(tables: Tables) -> None:
    tables.create()
    tables.append((1, "a", 1))
    with tables.table() as table, tables.versions() as versions:
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
        table.append(rows_of(table, (9, "z", 9)), branch="audit")
        table.append(rows_of(table, (2, "b", 2)))
        assert versions.newest() == 3
        assert [commit.number for commit in versions.commits(1, 4)] == [1, 3]
        assert [commit.number for commit in versions.commits(2, 4)] == [3]
        assert [commit.number for commit in versions.commits(3, 4)] == [3]
        assert version(versions, 3) == Counter([(1, "a", 1), (2, "b", 2)])
