"""What of an Iceberg table cannot be read: each is an error that names the version, the column or the feature."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.types import LongType, StringType

import crossstream as cs
from tests.lakehouse.iceberg.tables import (
    ROW,
    Tables,
    add_file,
    delete_by_equality,
    delete_by_vectors,
    delete_positions,
    files_of,
    rows_of,
)
from tests.lakehouse.iceberg.test_versions import COLUMNS, version

ADA, BOB = (1, "Ada", 1), (2, "Bob", 2)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = Tables(tmp_path)
    tables.create()
    tables.append(ADA)
    return tables


def refused(code: str, *parts: str) -> Any:
    """The error has this code, and all these parts in its text."""
    return pytest.raises(cs.CrossStreamError, match=rf"(?s)\[{code}\].*" + ".*".join(parts))


def read(tables: Tables, catalog: dict[str, str] | None = None, table: str = "shop.orders") -> cs.Topology:
    builder = cs.StreamsBuilder()
    builder.table_from_iceberg(
        table, tables.options if catalog is None else catalog, key="id", store="orders"
    )
    return builder.build()


# -- the table and its catalog


@pytest.mark.parametrize("name", ["shop.others", "nowhere.orders"])
def test_there_is_no_such_table(tables: Tables, name: str) -> None:
    with refused("CS-602", name, "'default'", "correct the name", "shop.orders"):
        read(tables, table=name)


def test_a_catalog_of_another_name_has_other_tables(tables: Tables) -> None:
    with refused("CS-602", "shop.orders", "'prod'"):
        read(tables, {**tables.options, "name": "prod"})


WRONG = [
    {"type": "rest"},
    {"type": "nonsense", "uri": "x"},
    {"py-catalog-impl": "nowhere.Catalog"},
    {"type": "sql", "uri": "sqlite:////nowhere/at/all.db"},
    {"type": "sql", "uri": "nonsense+driver://user:s3cr3t@host/db"},
    {"type": "nonsense", "token": "s3cr3t", "uri": "http://user:s3cr3t@host"},
    {"uri": "ftp://user:s3cr3t@host", "credential": "me:s3cr3t"},
]


@pytest.mark.parametrize("catalog", WRONG, ids=str)
def test_a_catalog_cannot_be_opened(tables: Tables, catalog: dict[str, str]) -> None:
    with refused("CS-618", "shop.orders", "next:.*uri") as caught:
        read(tables, catalog)
    shown = f"{caught.value} {caught.value.__cause__}"
    assert "s3cr3t" not in shown


def test_a_catalog_without_tables_is_named_and_gets_none(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    with refused("CS-618", "iceberg_tables"):
        read(tables)
    tables.create()  # nothing is in its way
    tables.append(ADA)
    read(tables)


def test_a_table_whose_metadata_are_gone(tables: Tables) -> None:
    with tables.table() as table:
        Path(table.metadata_location.removeprefix("file://")).unlink()
    with refused("CS-615", "metadata are gone"):
        read(tables)


# -- the format


def test_format_version_1_has_to_be_upgraded(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.create(properties={"format-version": "1"})
    tables.append(ADA)
    with refused("CS-615", "format version 1", "ALTER TABLE"):
        read(tables)
    with tables.table() as table, table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    with tables.versions() as versions:
        assert (versions.newest(), version(versions, 0)) == (0, {ADA: 1})
        tables.append(BOB)
        assert [commit.number for commit in versions.commits(1, 2)] == [1]
        assert version(versions, 1) == {ADA: 1, BOB: 1}


def test_format_version_3_is_read_with_its_deletion_vectors(tables: Tables) -> None:
    tables.append(BOB, (3, "Cyd", 3))
    with tables.table() as table:
        first, second = sorted(files_of(table), key=lambda file: file.record_count)
        delete_by_vectors(table, {first.file_path: [0], second.file_path: [1]})
    tables.rewritten_metadata(lambda metadata: metadata.update({"format-version": 3, "next-row-id": 9}))
    with tables.versions() as versions:
        assert version(versions, 3) == {BOB: 1}
        removed = pa.Table.from_batches(versions.removed(3, COLUMNS)).to_pylist()
        assert sorted(row["id"] for row in removed) == [1, 3]


def test_a_type_that_pyiceberg_does_not_know_is_named(tables: Tables) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata.update({"format-version": 3, "next-row-id": 9})
        metadata["schemas"][0]["fields"].append(
            {"id": 9, "name": "doc", "required": False, "type": "variant"}
        )

    tables.rewritten_metadata(change)
    with refused("CS-615", "variant"):
        read(tables)


def test_a_later_format_version_is_named(tables: Tables) -> None:
    tables.rewritten_metadata(lambda metadata: metadata.update({"format-version": 4}))
    with refused("CS-615", "4"):
        read(tables)


def test_equality_deletes_are_named(tables: Tables) -> None:
    with tables.table() as table:
        delete_by_equality(table, "id", [1])
    with tables.versions() as versions:
        assert version(versions, 1) == {ADA: 1}
        for rows in (
            versions.snapshot(2, COLUMNS, 0, 8),
            versions.removed(2, COLUMNS),
            versions.added(2, COLUMNS),
        ):
            with refused("CS-615", "equality delete", "Flink"):
                list(rows)


def test_data_files_of_avro_are_named(tables: Tables) -> None:
    with tables.table() as table:
        add_file(table, FileFormat.AVRO)
    with tables.versions() as versions, refused("CS-615", "AVRO"):
        list(versions.added(2, COLUMNS))


def test_a_file_that_is_damaged_is_named_with_its_version(tables: Tables) -> None:
    with tables.table() as table:
        add_file(table, FileFormat.PARQUET)
    with tables.versions() as versions, refused("CS-606", "version 2 cannot be read"):
        list(versions.added(2, COLUMNS))


# -- versions that are gone


def expire(tables: Tables, *numbers: int) -> None:
    with tables.table() as table:
        gone = [one.snapshot_id for one in table.snapshots() if one.sequence_number in numbers]
        table.maintenance.expire_snapshots().by_ids(gone).commit()


def test_commits_that_have_expired_are_named(tables: Tables) -> None:
    for _ in range(3):
        tables.append(BOB)
    expire(tables, 1, 2)
    with tables.versions() as versions:
        with refused("CS-613", "version 2 has expired", "oldest one now is 3", "state_dir"):
            versions.commits(2, 5)
        with refused("CS-613", "no version 2 any more: it has 3, 4"):
            list(versions.snapshot(2, COLUMNS, 0, 8))
        assert [commit.number for commit in versions.commits(3, 5)] == [3, 4]
        assert sum(version(versions, 4).values()) == 4
        with refused("CS-613", "no version 9 yet: the newest one is 4"):
            list(versions.added(9, COLUMNS))


def test_a_commit_that_deletes_needs_the_version_before(tables: Tables) -> None:
    with tables.table() as table:
        table.delete("id == 1")
    expire(tables, 1)
    with tables.versions() as versions, refused("CS-613", "before version 2 has expired"):
        versions.commits(2, 3)


def test_a_file_that_is_gone_is_named_with_its_version(tables: Tables) -> None:
    with tables.table() as table:
        (file,) = files_of(table)
        delete_positions(table, {file.file_path: [0]})
        Path(file.file_path.removeprefix("file://")).unlink()
    with tables.versions() as versions:
        with refused("CS-613", "a file of version 1 is gone"):
            list(versions.snapshot(1, COLUMNS, 0, 1))
        with refused("CS-613", "a file of version 2 is gone"):
            list(versions.removed(2, COLUMNS))


def roll_back(tables: Tables, number: int) -> None:
    with tables.table() as table:
        (wanted,) = (one.snapshot_id for one in table.snapshots() if one.sequence_number == number)
        table.manage_snapshots().rollback_to_snapshot(snapshot_id=wanted).commit()


def test_a_rollback_names_both_versions(tables: Tables) -> None:
    tables.append(BOB)
    tables.append((3, "Cyd", 3))
    roll_back(tables, 2)
    with tables.versions() as versions:
        assert versions.newest() == 2
        with refused("CS-603", "version 3 was read", "now at version 2"):
            versions.commits(4, 5)
        with refused("CS-603", "version 3"):
            versions.schema(3)
        tables.append((4, "Dan", 4))
        with refused("CS-603", "version 3 was read", "now at version 4"):
            versions.commits(4, 5)
        # Who has not read what was rolled back reads what followed.
        assert [commit.number for commit in versions.commits(3, 5)] == [4]
        assert version(versions, 4) == {ADA: 1, BOB: 1, (4, "Dan", 4): 1}
        expire(tables, 3)
        versions.newest()
        with refused("CS-603", "version 3 was read"):
            versions.commits(4, 5)


# -- columns


def evolved(tables: Tables, **changes: Any) -> None:
    """Changes of the schema, and then a commit."""
    with tables.table() as table:
        for method, arguments in changes.items():
            with table.update_schema(allow_incompatible_changes=True) as update:
                getattr(update, method)(*arguments)
        columns = {field.name: field for field in table.schema().as_arrow()}
        row = {"id": 9, "name": "z", "amount": 9, "total": 9}
        table.append(
            pa.Table.from_pylist(
                [{name: row.get(name) for name in columns}], schema=pa.schema(list(columns.values()))
            )
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rename_column": ("amount", "total")}, "'amount' is called 'total' since version 2"),
        ({"delete_column": ("amount",)}, "'amount' was dropped: version 2 does not have it"),
        (
            {"delete_column": ("amount",), "add_column": ("amount", LongType())},
            "'amount' was dropped, and another one has its name since version 2",
        ),
    ],
)
def test_a_column_that_is_read_and_changes_is_named(tables: Tables, changes: Any, said: str) -> None:
    with tables.versions() as versions:
        evolved(tables, **changes)
        with refused("CS-617", said):
            versions.commits(2, 3)
    if "add_column" in changes:
        with tables.versions() as versions, refused("CS-617", said):
            versions.commits(2, 3)  # also after a start, which has the new column
    with tables.versions(columns=("id", "name")) as versions:
        assert [commit.number for commit in versions.commits(2, 3)] == [2]


def test_columns_that_change_their_names_with_each_other(tables: Tables) -> None:
    with tables.versions() as versions:
        with tables.table() as table:
            for old, new in (("id", "t"), ("amount", "id"), ("t", "amount")):
                with table.update_schema() as update:
                    update.rename_column(old, new)
            table.append(rows_of(table, (9, "z", 9)))
        with refused("CS-617", "'id' is called 'amount' since version 2"):
            versions.commits(2, 3)


def running(tables: Tables, topology: cs.Topology, state: Path) -> dict[Any, Any]:
    """What the store has after all that is there."""
    config = cs.StreamsConfig(application_id="app", state_dir=state, engine="local", partitions=2)
    with cs.SparkStreams(topology, config) as app:
        app.process_available()
        return dict(app.store("orders").all())


def test_a_wider_column_is_named_while_it_is_read_as_a_narrow_one(tables: Tables, tmp_path: Path) -> None:
    topology = read(tables)
    running(tables, topology, tmp_path / "state")
    evolved(tables, update_column=("amount", LongType()))
    with refused("CS-617", "'amount' of shop.orders is int64 in version 2, and is read as int32"):
        running(tables, topology, tmp_path / "state")
    assert running(tables, read(tables), tmp_path / "new") == {
        1: {"name": "Ada", "amount": 1},
        9: {"name": "z", "amount": 9},
    }


def test_a_column_that_is_added_is_not_seen(tables: Tables, tmp_path: Path) -> None:
    topology = read(tables)
    running(tables, topology, tmp_path / "state")
    evolved(tables, add_column=("note", StringType()))
    assert running(tables, topology, tmp_path / "state") == {
        1: {"name": "Ada", "amount": 1},
        9: {"name": "z", "amount": 9},
    }


# -- applications


def test_a_rollback_stops_an_application(tables: Tables, tmp_path: Path) -> None:
    tables.append(BOB)
    assert set(running(tables, read(tables), tmp_path / "state")) == {1, 2}
    roll_back(tables, 1)
    with refused("CS-603"):
        running(tables, read(tables), tmp_path / "state")
    tables.append((3, "Cyd", 3))
    with refused("CS-603", "version 2 was read", "now at version 3"):
        running(tables, read(tables), tmp_path / "state")
    assert set(running(tables, read(tables), tmp_path / "new")) == {1, 3}


def test_a_table_that_was_made_again_stops_an_application(tables: Tables, tmp_path: Path) -> None:
    running(tables, read(tables), tmp_path / "state")
    with tables.catalog() as catalog:
        catalog.drop_table("shop.orders")
        catalog.create_table("shop.orders", ROW)
    tables.append(BOB)
    tables.append(BOB)
    with refused("CS-603", "made again"):
        running(tables, read(tables), tmp_path / "state")


def test_two_rows_of_one_key_are_no_table(tables: Tables, tmp_path: Path) -> None:
    tables.append(ADA)
    with refused("CS-614", "id = 1"):
        running(tables, read(tables), tmp_path / "state")


def test_a_key_that_is_null_is_passed_over(tables: Tables, tmp_path: Path) -> None:
    tables.append((None, "?", 0))
    assert set(running(tables, read(tables), tmp_path / "state")) == {1}


def test_a_key_that_is_no_column(tables: Tables) -> None:
    builder = cs.StreamsBuilder()
    with refused("CS-150", "'order_id'", "id, name, amount"):
        builder.table_from_iceberg("shop.orders", tables.options, key="order_id")


def test_a_version_that_is_not_there(tables: Tables) -> None:
    builder = cs.StreamsBuilder()
    with refused("CS-101", "no version 7; the newest one is 1"):
        builder.table_from_iceberg("shop.orders", tables.options, key="id", version=7)


def test_a_stream_has_no_deletes(tables: Tables, tmp_path: Path) -> None:
    def counted(**settings: Any) -> cs.Topology:
        builder = cs.StreamsBuilder()
        rows = builder.stream_from_iceberg("shop.orders", tables.options, key="id", **settings)
        rows.group_by_key().count(materialized=cs.Materialized(store="orders"))
        return builder.build()

    with tables.table() as table:
        table.delete("id == 1")
    tables.append(ADA, BOB)
    with refused("CS-616", "commit 2 of shop.orders"):
        running(tables, counted(version=1), tmp_path / "state")
    passed_over = counted(version=1, skip_changes=True)
    assert running(tables, passed_over, tmp_path / "other") == {1: 2, 2: 1}


def test_properties_of_the_catalog_are_in_no_file_and_no_text(tables: Tables, tmp_path: Path) -> None:
    secret = "s3cr3t-of-a-catalog"
    topology = read(tables, {**tables.options, "s3.secret-access-key": secret, "token": secret})
    running(tables, topology, tmp_path / "state")
    tables.append(BOB)
    running(tables, topology, tmp_path / "state")
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert len(files) > 3
    assert not [path for path in files if secret.encode() in path.read_bytes()]
    assert secret not in f"{topology} {topology!r} {topology.describe()}"


def test_a_table_does_not_choose_what_is_imported(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chosen_by_a_table.py").write_text(
        "from pyiceberg.io.pyarrow import PyArrowFileIO\n\n\nclass Files(PyArrowFileIO): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    chosen = {"py-io-impl": "chosen_by_a_table.Files"}
    with tables.table() as table, table.transaction() as transaction:
        transaction.set_properties(chosen)
    monkeypatch.delitem(sys.modules, "chosen_by_a_table", raising=False)
    with refused("CS-615", "py-io-impl", "chosen_by_a_table", "properties of the catalog"):
        read(tables)
    builder = cs.StreamsBuilder()
    builder.table("orders", key=int, value={"name": pl.String}).to_iceberg(
        "shop.orders", tables.options, key="id"
    )
    with refused("CS-665", "py-io-impl"), cs.TopologyTestDriver(builder.build()):
        pass
    assert "chosen_by_a_table" not in sys.modules
    read(tables, {**tables.options, **chosen})
    assert "chosen_by_a_table" in sys.modules
