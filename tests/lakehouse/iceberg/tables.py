"""Iceberg tables as other programs write them: with what PyIceberg itself does not write, such as delete files."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import EMPTY_DICT, Record
from pyroaring import BitMap

from crossstream.graph.lake import LakeTable
from crossstream.lakehouse.iceberg_source import IcebergVersions

PATH_ID, POS_ID = 2147483546, 2147483545
POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POS_ID)}),
    ]
)
PUFFIN, VECTOR = b"PFA1", bytes.fromhex("d1d33964")
ROW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.int32())])


@dataclass(frozen=True, slots=True)
class Tables:
    """A catalog in a folder, and its tables."""

    root: Path

    @property
    def options(self) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.root}/catalog.db",
            "warehouse": f"file://{self.root}/lake",
        }

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        catalog = load_catalog("default", **self.options)
        try:
            yield catalog
        finally:
            catalog.close()

    @contextmanager
    def table(self, name: str = "orders") -> Iterator[Table]:
        with self.catalog() as catalog:
            yield catalog.load_table(f"shop.{name}")

    def create(self, name: str = "orders", schema: pa.Schema = ROW, **settings: Any) -> None:
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists("shop")
            catalog.create_table(f"shop.{name}", schema, **settings)

    def append(self, *rows: tuple[Any, ...], name: str = "orders") -> None:
        with self.table(name) as table:
            table.append(rows_of(table, *rows))

    def lake_table(self, name: str = "orders", columns: Sequence[str] = (), **settings: Any) -> LakeTable:
        with self.table(name) as table:
            schema = table.schema().as_arrow()
        read = [one for one in schema.names if not columns or one in columns]
        values = tuple(one for one in read if one != "id")
        wanted = pa.schema([schema.field(one) for one in read])
        return LakeTable("iceberg", f"shop.{name}", wanted, ("id",), values, self.options, **settings)

    @contextmanager
    def versions(
        self, name: str = "orders", columns: Sequence[str] = (), **settings: Any
    ) -> Iterator[IcebergVersions]:
        versions = IcebergVersions(self.lake_table(name, columns, **settings))
        try:
            yield versions
        finally:
            versions.close()

    def rewritten_metadata(self, change: Any, name: str = "orders") -> None:
        """Changes the metadata of a table, as a program of another version of the format would have written them."""
        with self.catalog() as catalog:
            table = catalog.load_table(f"shop.{name}")
            place = Path(table.metadata_location.removeprefix("file://"))
            metadata = json.loads(place.read_text())
            change(metadata)
            changed = place.with_name(f"99999-{uuid.uuid4()}.metadata.json")
            changed.write_text(json.dumps(metadata))
            catalog.drop_table(f"shop.{name}")
            with suppress(ValueError, ValidationError):  # it is in the catalog all the same
                catalog.register_table(f"shop.{name}", f"file://{changed}")


def rows_of(table: Table, *rows: tuple[Any, ...]) -> pa.Table:
    schema = table.schema().as_arrow()
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema.names]
    return pa.table(
        [pa.array(list(values), field.type) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def files_of(table: Table) -> list[DataFile]:
    return [task.file for task in table.scan().plan_files()]


def delete_positions(table: Table, gone: Mapping[str, Sequence[int]], added: pa.Table | None = None) -> None:
    """Deletes rows of data files, as Spark does it when it merges on read; ``added``: rows of the same commit."""
    pairs = sorted((path, position) for path, several in gone.items() for position in several)
    partitions = {file.file_path: file for file in files_of(table)}
    by_partition: dict[Any, list[tuple[str, int]]] = {}
    for path, position in pairs:
        file = partitions[path]
        by_partition.setdefault((file.spec_id, file.partition), []).append((path, position))
    written = []
    for (spec, partition), rows in by_partition.items():
        data = pa.table(list(zip(*rows, strict=True)), schema=POSITIONS) if rows else POSITIONS.empty_table()
        written.append(_delete_file(table, data, DataFileContent.POSITION_DELETES, spec, partition))
    commit_deletes(table, written, added)


def delete_by_vectors(table: Table, gone: Mapping[str, Sequence[int]]) -> None:
    """Deletes rows by deletion vectors in a file of Puffin, as writers of format version 3 do it."""
    place = f"{table.location()}/data/{uuid.uuid4()}.puffin"
    blobs, described, start = b"", [], 4
    for path, positions in gone.items():
        vector = (1).to_bytes(8, "little") + (0).to_bytes(4, "little") + BitMap(positions).serialize()
        blob = (len(vector) + 4).to_bytes(4, "big") + VECTOR + vector
        blob += zlib.crc32(VECTOR + vector).to_bytes(4, "big")
        described.append(
            {
                "type": "deletion-vector-v1",
                "fields": [],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": start,
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
            }
        )
        blobs, start = blobs + blob, start + len(blob)
    footer = json.dumps({"blobs": described}).encode()
    end = PUFFIN + footer + len(footer).to_bytes(4, "little") + bytes(4) + PUFFIN
    Path(place.removeprefix("file://")).write_bytes(PUFFIN + blobs + end)
    rows = sum(map(len, gone.values()))
    kind = DataFileContent.POSITION_DELETES
    commit_deletes(table, [_described(place, FileFormat.PUFFIN, kind, rows, 0, Record())])


def add_file(table: Table, form: FileFormat, data: bytes = b"?", rows: int = 1) -> None:
    """Adds a data file of another format."""
    place = f"{table.location()}/data/{uuid.uuid4()}"
    Path(place.removeprefix("file://")).write_bytes(data)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as commit:
        commit.append_data_file(_described(place, form, DataFileContent.DATA, rows, 0, Record()))


def delete_by_equality(table: Table, column: str, values: Sequence[Any]) -> None:
    """Deletes rows by a column, as Flink does it."""
    field = table.schema().find_field(column)
    kind = table.schema().as_arrow().field(column).type
    schema = pa.schema([pa.field(column, kind, True, {"PARQUET:field_id": str(field.field_id)})])
    data = pa.table([pa.array(values, kind)], schema=schema)
    file = _delete_file(
        table, data, DataFileContent.EQUALITY_DELETES, 0, Record(), equality_ids=[field.field_id]
    )
    commit_deletes(table, [file])


def commit_deletes(table: Table, files: Sequence[DataFile], added: pa.Table | None = None) -> None:
    """One snapshot that adds delete files, and rows."""
    with table.transaction() as transaction:
        commit = _WithDeletes(Operation.OVERWRITE, transaction, table.io)
        commit.deletes = list(files)
        if added is not None:
            from pyiceberg.io.pyarrow import _dataframe_to_data_files

            for file in _dataframe_to_data_files(transaction.table_metadata, added, table.io):
                commit.append_data_file(file)
        commit.commit()


def compact(table: Table) -> None:
    """Rewrites all data files as one, which is a `replace`."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    rows = table.scan().to_arrow()
    old = files_of(table)
    with table.transaction() as transaction:
        commit = _Replaced(Operation.REPLACE, transaction, table.io)
        commit.keeps = False
        for file in _dataframe_to_data_files(transaction.table_metadata, rows, table.io):
            commit.append_data_file(file)
        for file in old:
            commit.delete_data_file(file)
        commit.commit()


class _WithDeletes(_FastAppendFiles):
    """Keeps the manifests that are there, and adds one of delete files."""

    deletes: Sequence[DataFile] = ()

    def _manifests(self) -> list[ManifestFile]:
        found = super()._manifests()
        metadata = self._transaction.table_metadata
        for spec in {file.spec_id for file in self.deletes}:
            with _DeleteManifest(
                metadata.specs()[spec],
                metadata.schema(),
                self.new_manifest_output(),
                self._snapshot_id,
                self._compression,
            ) as writer:
                for file in self.deletes:
                    if file.spec_id == spec:
                        writer.add(
                            ManifestEntry.from_args(
                                status=ManifestEntryStatus.ADDED,
                                snapshot_id=self._snapshot_id,
                                sequence_number=None,
                                file_sequence_number=None,
                                data_file=file,
                            )
                        )
            found.append(writer.to_manifest_file())
        return found


class _Replaced(_FastAppendFiles):
    """The manifests that are there are gone; those of the files that were added are new."""

    keeps = True

    def _existing_manifests(self) -> list[ManifestFile]:
        return super()._existing_manifests() if self.keeps else []

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return Summary(operation=Operation.REPLACE)


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _delete_file(
    table: Table,
    data: pa.Table,
    content: DataFileContent,
    spec: int,
    partition: Record,
    equality_ids: list[int] | None = None,
) -> DataFile:
    place = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    pq.write_table(data, place.removeprefix("file://"))
    return _described(place, FileFormat.PARQUET, content, data.num_rows, spec, partition, equality_ids)


def _described(
    place: str,
    form: FileFormat,
    content: DataFileContent,
    rows: int,
    spec: int,
    partition: Record,
    equality_ids: list[int] | None = None,
) -> DataFile:
    nothing: dict[str, Any] = dict.fromkeys(("key_metadata", "split_offsets", "sort_order_id"))
    measures = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    bounds = ("lower_bounds", "upper_bounds")
    file = DataFile.from_args(
        content=content,
        file_path=place,
        file_format=form,
        partition=partition,
        record_count=rows,
        file_size_in_bytes=Path(place.removeprefix("file://")).stat().st_size,
        equality_ids=equality_ids,
        **nothing,
        **{name: {} for name in (*measures, *bounds)},
    )
    file.spec_id = spec
    return file
