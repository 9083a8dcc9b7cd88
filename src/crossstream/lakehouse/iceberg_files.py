"""Rows of the data files of an Iceberg table: by field ids, of a range of rows, with or without what was deleted.

PyIceberg reads a file only as a whole. Here a part of it is read, by row groups, as PyIceberg would read it.
Source: the Iceberg specification, "Column Projection" and "Position Delete Files".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    _get_column_projection_values,
    _get_file_format,
    _read_deletes,
    _to_requested_schema,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IntegerType, ListType, LongType, MapType

from crossstream.graph.lake import LakeTable
from crossstream.lakehouse.iceberg_columns import named
from crossstream.lakehouse.versions import unreadable

ROWS = 1 << 16
"""Rows of a batch that is read of a file, at most."""
SMALL = 100_000
"""Rows of a row group that is not cut further."""
_READ = (FileFormat.PARQUET, FileFormat.ORC)

Positions = np.ndarray
"""Row numbers in a file, each once, in order."""


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a data file from the share ``number`` of ``of``, cut at equal numbers of rows.

    ``gone``: the files that delete rows of it. ``chosen``: only these rows, also deleted ones.
    """

    file: DataFile
    gone: frozenset[DataFile] = frozenset()
    number: int = 0
    of: int = 1
    chosen: Positions | None = None


def whole(tasks: Iterable[FileScanTask]) -> list[Part]:
    """All rows of the files that are not deleted."""
    return [Part(task.file, frozenset(task.delete_files)) for task in tasks]


def dealt(parts: Sequence[Part], share: int, shares: int) -> list[Part]:
    """The parts of one share: files by their row groups, which are cut further where there are few."""
    groups = [(part, len(part.file.split_offsets or ()) or 1) for part in parts]
    few = -(-shares // max(1, sum(count for _, count in groups)))
    cut = [
        Part(part.file, part.gone, number, of)
        for part, count in groups
        for of in [count * few if part.file.record_count > count * SMALL else count]
        for number in range(of)
    ]
    return cut[share::shares]


def bounds_of(part: Part, columns: Schema) -> tuple[dict[str, int], dict[str, int]]:
    """The least and greatest values of whole numbers, as the manifest has them; rows deleted since count too."""
    found: tuple[dict[str, int], dict[str, int]] = {}, {}
    numbers = [field for field in columns.fields if isinstance(field.field_type, IntegerType | LongType)]
    for bounds, known in zip(found, (part.file.lower_bounds, part.file.upper_bounds), strict=True):
        for field in numbers:
            if known and (data := known.get(field.field_id)) is not None:
                bounds[field.name] = int.from_bytes(data, "little", signed=True)
    return found


@dataclass(slots=True)
class DataFiles:
    """Reads parts of data files, for one state of a table's metadata."""

    table: LakeTable
    metadata: TableMetadata
    io: FileIO

    def rows(self, parts: Iterable[Part], columns: Schema) -> Iterator[pa.RecordBatch]:
        """The rows of parts, in their order, with these columns."""
        parts = list(parts)
        deleted = self.deleted(parts)
        for part in parts:
            self._check(part.file)
            gone = None if part.chosen is not None else deleted.get(part.file.file_path)
            yield from self._part(part, gone, columns)

    def deleted(self, parts: Sequence[Part]) -> Mapping[str, Positions]:
        """The rows of files that are deleted, by the files that say so."""
        paths = {part.file.file_path for part in parts}
        found: dict[str, list[np.ndarray]] = {}
        for file in {one.file_path: one for part in parts for one in part.gone}.values():
            for path, positions in _read_deletes(self.io, file).items():
                if path in paths:
                    found.setdefault(path, []).append(np.asarray(positions.to_numpy(), np.int64))
        return {path: np.unique(np.concatenate(several)) for path, several in found.items()}

    def _part(self, part: Part, gone: Positions | None, columns: Schema) -> Iterator[pa.RecordBatch]:
        for first, batch in self._read(part, columns):
            if part.chosen is not None:
                batch = batch.take(_within(part.chosen, first, batch.num_rows))
            elif gone is not None:
                kept = np.ones(batch.num_rows, np.bool_)
                kept[_within(gone, first, batch.num_rows)] = False
                batch = batch.filter(pa.array(kept))
            if batch.num_rows:
                yield batch

    def _read(self, part: Part, columns: Schema) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of the part, each with the number of its first row in the file."""
        form = _get_file_format(part.file.file_format)
        with self.io.new_input(part.file.file_path).open() as opened:
            fragment = form.make_fragment(opened)
            projection = self._projection(part.file, fragment.physical_schema, columns)
            for first, rows, piece in _row_groups(fragment, part):
                low, high = rows.start, rows.stop
                if part.chosen is not None and not len(_within(part.chosen, low, high - low)):
                    continue
                for batch in piece.scanner(columns=projection.names, batch_size=ROWS).to_batches():
                    if first >= high:
                        break
                    start, end = max(low, first), min(high, first + batch.num_rows)
                    if start < end:
                        yield start, projection.of(batch.slice(start - first, end - start))
                    first += batch.num_rows

    def _projection(self, file: DataFile, physical: pa.Schema, columns: Schema) -> _Projection:
        version = self.metadata.format_version
        there = pyarrow_to_schema(
            physical,
            self.metadata.name_mapping(),
            downcast_ns_timestamp_to_us=version <= 2,
            format_version=version,
        )
        nested = (MapType, ListType)
        wanted = {one for one in columns.field_ids if not isinstance(columns.find_type(one), nested)}
        # The values of partitions, for files that do not have these columns.
        fixed = _get_column_projection_values(
            file, columns, self._all_fields(columns), self.metadata.specs().get(file.spec_id), there.field_ids
        )
        pruned = prune_columns(there, wanted, select_full_types=False)
        return _Projection(columns, pruned, fixed, downcasts=version <= 2)

    def _all_fields(self, columns: Schema) -> Schema:
        """A schema that knows the columns of all partitions, also dropped ones."""
        known = {field.field_id: field for schema in self.metadata.schemas for field in schema.fields}
        others = (field for number, field in known.items() if number not in columns.field_ids)
        return Schema(*columns.fields, *(named(field, f"field {field.field_id}") for field in others))

    def _check(self, file: DataFile) -> None:
        if file.file_format not in _READ:
            raise unreadable(self.table, f"its data files are of the format {file.file_format.value}")
        if file.key_metadata is not None:
            raise unreadable(self.table, "its data files are encrypted")


@dataclass(frozen=True, slots=True)
class _Projection:
    """How the columns of a file become those of the table."""

    columns: Schema
    there: Schema
    fixed: Mapping[int, Any]
    downcasts: bool

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.there.fields]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return _to_requested_schema(
            self.columns,
            self.there,
            batch,
            downcast_ns_timestamp_to_us=self.downcasts,
            projected_missing_fields=dict(self.fixed),
            allow_timestamp_tz_mismatch=True,
        )


def _row_groups(fragment: ds.Fragment, part: Part) -> Iterator[tuple[int, range, ds.Fragment]]:
    """The row groups that have rows of a part: the first row, the rows of the part in it, and what reads them."""
    total = part.file.record_count
    low, high = total * part.number // part.of, total * (part.number + 1) // part.of
    if not isinstance(fragment, ds.ParquetFileFragment):
        yield 0, range(low, high), fragment
        return
    first = 0
    for group in fragment.row_groups:
        end = first + group.num_rows
        rows = range(max(low, first), min(high, end))
        if rows:
            yield first, rows, fragment.subset(row_group_ids=[group.id])
        first = end


def _within(positions: Positions, first: int, rows: int) -> np.ndarray:
    """The positions among ``rows`` rows from ``first`` on, counted from there."""
    low, high = np.searchsorted(positions, (first, first + rows))
    return positions[low:high] - first
