"""Table sources.

An unversioned table keeps the row that *arrived* last, whatever its timestamp. A versioned table keeps
every version of the last ``history`` ms by timestamp; an update is

    accepted as latest   ts >= the key's latest version (equal overwrites; a delete is a version too)
    accepted behind      older than that: stored, forwarded with latest=False
    rejected             ts < stream time of the store - history: not forwarded, counted

The stream time of a store is the newest timestamp it accepted, per state partition. cf. KIP-889, KIP-914
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, Protocol

from tests.reference.partitions import one_partition
from tests.reference.records import EXPIRED, NULL_KEY, Change, PartitionOf, Record


class Row(NamedTuple):
    value: Any
    ts: int


class Table(Protocol):
    def put(self, key: Any, value: Any, ts: int) -> Change | None:
        """The change it makes; None when it is rejected."""

    def get(self, key: Any, as_of: int | None = None) -> Row | None:
        """The latest row; in a versioned table, with ``as_of``, the one valid then."""


class PlainTable:
    def __init__(self) -> None:
        self.rows: dict[Any, Row] = {}

    def put(self, key: Any, value: Any, ts: int) -> Change:
        old = self.rows.pop(key, None)
        if value is not None:
            self.rows[key] = Row(value, ts)
        return Change(key, value, old and old.value, ts)

    def get(self, key: Any, as_of: int | None = None) -> Row | None:
        return self.rows.get(key)


class VersionedTable:
    def __init__(self, history: int, partition_of: PartitionOf = one_partition) -> None:
        self.history = history
        self.partition_of = partition_of
        self.stream_time: dict[int, int] = {}
        self.versions: dict[Any, dict[int, Any]] = {}  # key → timestamp → value, None for a delete

    def put(self, key: Any, value: Any, ts: int) -> Change | None:
        if ts < self.oldest(key):
            return None
        partition = self.partition_of(key)
        self.stream_time[partition] = max(ts, self.stream_time.get(partition, ts))
        versions = self.versions.setdefault(key, {})
        old = self.get(key)
        latest = ts >= max(versions, default=ts)
        versions[ts] = value
        return Change(key, value, old and old.value, ts, latest)

    def get(self, key: Any, as_of: int | None = None) -> Row | None:
        versions = self.versions.get(key, {})
        newest = max(versions, default=None)
        valid = max((ts for ts in versions if as_of is None or ts <= as_of), default=None)
        if valid is None or versions[valid] is None:
            return None
        if valid != newest and as_of is not None and as_of < self.oldest(key):
            return None  # only the latest version outlives its history
        return Row(versions[valid], valid)

    def oldest(self, key: Any) -> int:
        """The oldest timestamp that is still accepted and looked up."""
        return self.stream_time.get(self.partition_of(key), 0) - self.history


def make_table(history: int | None, partition_of: PartitionOf = one_partition) -> Table:
    return PlainTable() if history is None else VersionedTable(history, partition_of)


class TableSource:
    """Reads records as upserts and deletes; a null key is dropped and counted, whatever reads the table."""

    def __init__(self, table: Table, dropped: Counter[str]) -> None:
        self.table = table
        self.dropped = dropped

    def receive(self, record: Record) -> list[Change]:
        if record.key is None:
            self.dropped[NULL_KEY] += 1
            return []
        change = self.table.put(record.key, record.value, record.ts)
        if change is None:
            self.dropped[EXPIRED] += 1
            return []
        return [change]


class StreamSource:
    """Every record is a fact and passes as it is; the joins decide about nulls."""

    def receive(self, record: Record) -> list[Record]:
        return [record]
