"""What the engine needs of a format of lake tables: its versions, their commits, and the rows of both.

`LakeVersions` is the port, which `delta_source.py` and `iceberg_source.py` implement; `opening.py` opens the right
one. What is the same for all formats is above it: what a commit changes by key (`netting.py`), and the shares
(`reading.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.lake import LakeTable


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table, as its metadata say. ``time``: in ms. ``rows``: added and removed ones, about.

    ``appends_only``: it takes no row away. ``changes_data``: False where it changes no row, such as a compaction or new
    settings: ``rows`` is 0 then, and its rows are not read. ``schema``: where it may have changed the logical schema,
    the one after it.
    """

    number: int
    time: int
    rows: int
    appends_only: bool
    changes_data: bool
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a version that are read together: a file, or a part of one. ``place``: as the format knows it.

    ``low``, ``high``: the bounds of columns of whole numbers, those that are known.
    """

    place: Any
    rows: int
    low: Mapping[str, int] = field(default_factory=dict)
    high: Mapping[str, int] = field(default_factory=dict)


class LakeVersions(Protocol):
    """The versions of one table. Opened in the driver and in each task from a `LakeTable`; it may keep what it read.

    Raises by `refuse`: CS-602 if the table does not exist, CS-613 for a version whose metadata or files are gone,
    CS-615 for a feature of the format that it cannot read. Rows have the logical names of the columns that were asked
    for, in any order, with the types of the file or of the table; a column that is not there may be left out of the
    batch. `reading.py` puts them in order, casts them, and fills in nulls.
    """

    def table_id(self) -> str:
        """Differs from that of an earlier table in the same place."""

    def newest(self) -> int:
        """The number of the newest commit, looked up now."""

    def schema(self, version: int | None) -> pa.Schema:
        """The logical columns of a version; None: the newest one."""

    def commits(self, start: int, end: int) -> Sequence[Commit]:
        """The commits with ``start <= number < end``, in order; numbers without a commit are left out."""

    def snapshot(
        self, version: int, columns: Sequence[str], share: int, shares: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a version: the part number ``share`` of ``shares`` of its files or row groups, dealt in order."""

    def snapshot_commit(self, version: int) -> Commit:
        """The commit of a version, with ``rows`` of the whole table."""

    def removed(self, version: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows that a commit took away, or old ones of rows it changed; rows that it only moved may be there."""

    def added(
        self, version: int, columns: Sequence[str], share: int = 0, shares: int = 1
    ) -> Iterator[pa.RecordBatch]:
        """The rows that a commit put there, in order of files and rows; rows that it only moved may be there.

        With ``shares``: the part number ``share`` of its files or row groups, dealt in order.
        """

    def pieces(self, version: int, numbers: Sequence[str]) -> Sequence[Piece]:
        """The files of a version, with the bounds of these columns as the metadata say. No data file is opened."""

    def finer(self, version: int, piece: Piece, numbers: Sequence[str]) -> Sequence[Piece]:
        """The parts of a file, with bounds of their own; the file itself where it has none."""

    def rows_of(self, version: int, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, as those of `snapshot`."""

    def close(self) -> None: ...


def no_table(table: LakeTable, error: Exception) -> CrossStreamError:
    """The refusal (CS-602) of a table that does not exist."""
    reason, step = (
        str(error),
        "correct the name or the path; the user of the storage must be allowed to read it",
    )
    if table.form == "delta" and "://" not in table.table:
        if not Path(table.table).is_dir():
            reason = "there is no such folder"
            step = "correct the path; in Spark, DESCRIBE DETAIL shows the location of a table of a catalog"
        elif not Path(table.table, "_delta_log").is_dir():
            reason = "the folder has no _delta_log"
            step = (
                "name the folder of the table; deltalake.convert_to_deltalake(…) makes one of Parquet files"
            )
    what = f"there is no {table.form.capitalize()} table {table.table}: {reason}"
    return refuse("CS-602", what, step, topic=table.topic)


def expired(table: LakeTable, version: int, what: str) -> CrossStreamError:
    """The refusal (CS-613) of a version whose metadata or files are gone."""
    return refuse("CS-613", f"the table {table.table}: {what}", topic=table.topic, version=version)


def unreadable(table: LakeTable, why: object) -> CrossStreamError:
    """The refusal (CS-615) of a table, or a version, that needs more of a reader."""
    return refuse("CS-615", f"the table {table.table} cannot be read: {why}", table=table.table)
