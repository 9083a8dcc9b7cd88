"""Reads ranges of lake tables as records: a snapshot by files, commits by what they change.

A table has `SHARES` shares. Of a snapshot each has the rows of some files or row groups. Of a commit each has the keys
of one hash, so that all rows of a key in a commit are netted in one place. A task reads all of its shares at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.hashing import hash_keys
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.lake import SHARES, LakeTable
from crossstream.lakehouse.columns import cast_to, conform
from crossstream.lakehouse.netting import Netting, same_key
from crossstream.lakehouse.opening import open_versions
from crossstream.lakehouse.times import times_of
from crossstream.lakehouse.versions import Commit, LakeVersions
from crossstream.serdes.plain_columns import PlainRows, plain_rows
from crossstream.topics import OffsetRange, ReadsTogether


@dataclass(slots=True)
class LakeReader(ReadsTogether):
    """`RangeReader` of lake tables, by their names as topics.

    ``firsts``: where the first range of a table ended, so that a longer one gives the same records: the snapshot of
    then, and the commits that followed. A record's offset is the commit that has it.
    """

    tables: Mapping[str, LakeTable]
    firsts: Mapping[str, int] = field(default_factory=dict)
    _open: dict[str, LakeVersions] = field(default_factory=dict)

    def read_many(
        self, spans: Iterable[OffsetRange], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """The records of the ranges: those of one table and the same commits together."""
        together: dict[tuple[str, int, int], list[OffsetRange]] = {}
        for span in spans:
            if span.start < span.end:
                together.setdefault((span.topic, span.start, span.end), []).append(span)
        for (topic, start, end), shares in together.items():
            table = self.tables[topic]
            first = min(end, self.firsts.get(topic, end))
            reading = _reading_of(table, self._versions(table), shares)
            if start == 0:
                yield from reading.snapshot(first - 1, max_rows)
                start = first
            yield from reading.commits(start, end, max_rows)

    def _versions(self, table: LakeTable) -> LakeVersions:
        if table.topic not in self._open:
            self._open[table.topic] = open_versions(table)
        return self._open[table.topic]

    def close(self) -> None:
        for versions in self._open.values():
            versions.close()
        self._open.clear()


@dataclass(slots=True)
class _Reading:
    """One range of a table, for some of its shares. ``spans``: by share."""

    table: LakeTable
    versions: LakeVersions
    rows: PlainRows
    spans: Mapping[int, OffsetRange]

    def commits(self, start: int, end: int, max_rows: int) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        if start < end:
            read = self._appended if self.table.appends else self._changed
            yield from read(start, end, max_rows)

    def snapshot(self, version: int, max_rows: int) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        if not self.table.appends:
            check_keys(self.table, self.versions, self.rows, self.spans, version)
        at = self.versions.snapshot_commit(version)
        for share in self.spans:
            batches = self.versions.snapshot(version, self.table.needed, share, SHARES)
            yield from self._rows(share, at, batches, max_rows)

    def _appended(self, start: int, end: int, max_rows: int) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        for commit in self.versions.commits(start, end):
            if commit.changes_data and not commit.appends_only and not self.table.skip_changes:
                raise not_appended(self.table, commit.number)
            if commit.changes_data and commit.appends_only:
                for share in self.spans:
                    batches = self.versions.added(commit.number, self.table.needed, share, SHARES)
                    yield from self._rows(share, commit, batches, max_rows)

    def _changed(self, start: int, end: int, max_rows: int) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        netting = Netting(self.table, self.rows, frozenset(self.spans))
        waiting: dict[int, list[pl.DataFrame]] = {share: [] for share in self.spans}
        rows = 0
        for commit in self.versions.commits(start, end):
            if not commit.changes_data:
                continue
            removed = () if commit.appends_only else self.versions.removed(commit.number, self.table.needed)
            added = self.versions.added(commit.number, self.table.needed)
            found = netting.changes(commit.number, removed, added)
            rows += found.height
            timed = found.with_columns(
                time=pl.lit(commit.time, dtype=pl.Int64), offset=pl.lit(commit.number, dtype=pl.Int64)
            )
            for (share,), part in timed.partition_by("share", as_dict=True, include_key=False).items():
                waiting[int(str(share))].append(part)
            if rows >= max_rows:
                yield from self._flushed(waiting, max_rows)
                rows = 0
        yield from self._flushed(waiting, max_rows)

    def _flushed(
        self, waiting: dict[int, list[pl.DataFrame]], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        for share, parts in waiting.items():
            if not parts:
                continue
            whole = pl.concat(parts)
            parts.clear()
            for piece in whole.iter_slices(max_rows):
                times, offsets = piece["time"].to_arrow(), piece["offset"].to_arrow()
                yield self._records(share, _binary(piece["key"]), piece["value"].to_arrow(), times, offsets)

    def _rows(
        self, share: int, at: Commit, batches: Iterable[pa.RecordBatch], max_rows: int
    ) -> Iterator[tuple[OffsetRange, pa.RecordBatch]]:
        """Rows as they are, in batches."""
        for whole in batches:
            for place in range(0, whole.num_rows, max_rows):
                rows = conform(self.table, whole.slice(place, max_rows), at.number)
                values = self.rows.value_series(rows).to_arrow()
                offsets = pa.repeat(pa.scalar(at.number, pa.int64()), rows.num_rows)
                yield self._records(share, self.rows.key_wire(rows), values, self._times(rows, at), offsets)

    def _times(self, rows: pa.RecordBatch, at: Commit) -> pa.Array:
        if self.table.timestamp is None:
            return pa.repeat(pa.scalar(at.time, pa.int64()), rows.num_rows)
        return times_of(self.table, rows, at.number)

    def _records(
        self, share: int, keys: pa.Array, values: pa.Array, times: pa.Array, offsets: pa.Array
    ) -> tuple[OffsetRange, pa.RecordBatch]:
        """Records of a share, with values as columns."""
        headers = pa.nulls(len(keys), pa.large_binary())
        names = ["key", "value", "timestamp", "offset", "headers"]
        columns = [keys, values, times, offsets, headers]
        return self.spans[share], pa.RecordBatch.from_arrays(columns, names=names)


def check_keys(
    table: LakeTable, versions: LakeVersions, rows: PlainRows, shares: Iterable[int], version: int
) -> None:
    """Raises `SourceError` CS-614 if two rows of a snapshot have one key, of those keys whose hash is of a share.

    A row may be in any share, so each reader looks at the keys of all of them.
    """
    found: list[pl.Series] = []
    mine = list(shares)
    for batch in versions.snapshot(version, table.keys, 0, 1):
        keys = rows.key_wire(cast_to(table, batch, table.keys, version))
        is_mine = np.isin((hash_keys(keys) % np.uint64(SHARES)).astype(np.int64), mine)
        found.append(pl.Series(keys.filter(pa.array(is_mine))))
    if not found:
        return
    all_keys = pl.concat(found)
    twice = all_keys.filter(all_keys.is_duplicated() & all_keys.is_not_null())
    if len(twice):
        raise same_key(table, rows, version, twice[0])


def _reading_of(table: LakeTable, versions: LakeVersions, spans: Sequence[OffsetRange]) -> _Reading:
    rows = plain_rows(table.schema, table.keys, table.columns, {"topic": table.topic})
    return _Reading(table, versions, rows, {span.partition: span for span in spans})


def _binary(keys: pl.Series) -> pa.Array:
    return keys.to_arrow().cast(pa.large_binary())


def not_appended(table: LakeTable, version: int) -> CrossStreamError:
    """The refusal (CS-616) of a commit that a stream cannot read."""
    what = f"commit {version} of {table.table} deletes or rewrites rows, and it is read as a stream"
    return refuse("CS-616", what, topic=table.topic, version=version)
