"""What Debezium's connector 3.6 for Postgres writes of a database, record by record, in JSON without schemas.

The recordings in `tests/data/debezium` are the model; `tests/operators/debezium/law/test_simulated_topics.py` compares.
What matters of them:

- A transaction is BEGIN, its events, END. The id is the transaction's number, a colon, and a place in the log, which is
  another one in each record: only the part before the colon is the same.
- END counts the events of each collection, ``schema.table``; a topic may have any name.
- A changed key is a delete of the old key and a create of the new one. The tombstone behind a delete is no event.
- The rows of a snapshot have no transaction. Their marks say where it begins and ends; the last row of all is marked as
  such also where the last tables are empty.
- A connector that starts again goes on behind the position that Connect has saved: in the middle of a transaction, too,
  whose events keep their numbers. What was on its way to Kafka when it was killed may be lost, more in one partition
  than in another; it comes again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.laws.database.tables import Change, Committed, Database, Row, Rows

Owner = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Record:
    """``number``: in the order in which the connector wrote; ``place``: in what it streams, None of other records.

    ``ends_snapshot``: it is written when all rows of the snapshot are.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    number: int = 0
    place: int | None = None
    ends_snapshot: bool = False

    @property
    def wire(self) -> tuple[Any, ...]:
        """As `World.append_wire` takes it."""
        return self.key, self.value, self.timestamp, self.headers


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record that has no offset yet. ``ends``: the number of transactions that are whole behind it."""

    owner: Owner
    key: Any
    value: Any
    time: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    ends: int | None = None


@dataclass(eq=False)
class Connector:
    """Reads ``database`` and fills ``topics``.

    ``partitions``: of each table's topic, of all or by table; a row is in that of its id, modulo their number.
    ``route``: the name of a table's topic, as a router gives it. ``tombstones``: a null follows each delete.
    ``captured``: the tables it reads, in the order of a snapshot. ``metadata``: ``provide.transaction.metadata``, which
    may change from one transaction to the next.
    """

    database: Database
    prefix: str = "shop"
    partitions: int | Mapping[str, int] = 1
    route: Callable[[str], str] | None = None
    tombstones: bool = True
    metadata: bool = True
    captured: Sequence[str] = ()
    schema: str = "public"
    topics: dict[Owner, list[Record]] = field(default_factory=dict)
    _streamed: list[Outgoing] = field(default_factory=list)
    """All that is or was to be streamed, in the order of the log."""
    _next: int = 0
    _first: int = 0
    """Of `_streamed`: a connector does not go back behind the end of its snapshot."""
    _taken: int = 0
    """Transactions of the log that are in `_streamed`, or in the snapshot."""
    _shown: int = 0
    _written: int = 0
    _clock: int = 0

    def __post_init__(self) -> None:
        self.captured = tuple(self.captured or self.database.tables)
        for table in self.captured:
            for partition in range(self._count(table)):
                self.topics[self.topic(table), partition] = []
        self.topics[self.transaction_topic, 0] = []
        self.topics[self.heartbeat_topic, 0] = []

    @property
    def transaction_topic(self) -> str:
        return f"{self.prefix}.transaction"

    @property
    def heartbeat_topic(self) -> str:
        return f"__debezium-heartbeat.{self.prefix}"

    def topic(self, table: str) -> str:
        return self.route(table) if self.route else f"{self.prefix}.{self.schema}.{table}"

    @property
    def states_after(self) -> int:
        """How many transactions the records written so far show as a whole."""
        return self._shown

    # -- what it does ----------------------------------------------------------------------------------------

    def snapshot(self, stop_after: int | None = None) -> None:
        """Writes the rows of this moment, or some and is stopped; then `stream` goes on, or another snapshot.

        A snapshot of tables without rows leaves no record.
        """
        rows = [(table, row) for table in self.captured for row in _ordered(self.database.tables[table])]
        marks = _marks([table for table, _ in rows], self.captured[0])
        count = len(rows) if stop_after is None else min(stop_after, len(rows))
        lsn, time = self.database.next_lsn(), self.database.time
        for (table, row), mark in list(zip(rows, marks, strict=True))[:count]:
            source = self._source(table, mark, time, self.database.xid, lsn, None)
            value = self._envelope("r", None, row, source, None)
            ends = mark == "last"
            self._write(Outgoing(self._owner(table, row["id"]), {"id": row["id"]}, value, time), ends=ends)
        if stop_after is None:
            self._taken = self._shown = len(self.database.log)
            del self._streamed[self._next :]
            self._first = self._next

    def stream(self, records: int | None = None) -> int:
        """Writes the next records of the log, or all there are; says how many."""
        for committed in self.database.log[self._taken :]:
            self._taken += 1
            self._streamed += self._records(committed, self._taken)
        end = len(self._streamed) if records is None else min(len(self._streamed), self._next + records)
        written = end - self._next
        for place in range(self._next, end):
            one = self._streamed[place]
            self._write(one, place)
            self._shown = max(self._shown, one.ends or 0)
        self._next = end
        return written

    def restart(self, back: int = 0, lost: Mapping[Owner, int] | None = None) -> None:
        """Goes back by so many records, and writes them again; ``lost``: the last ones of a partition, of these."""
        self._next = max(self._first, self._next - back)
        for owner, count in (lost or {}).items():
            records = self.topics[owner]
            while count and records and records[-1].place is not None and records[-1].place >= self._next:
                count -= 1
                records.pop()

    def heartbeat(self) -> None:
        """A sign of life, in a topic of its own."""
        key, value = {"serverName": self.prefix}, {"ts_ms": self._clock}
        self._write(Outgoing((self.heartbeat_topic, 0), key, value, self._clock))

    def incremental(self, table: str, ids: Sequence[int] | None = None) -> None:
        """Rows as they are where the connector stands, behind the transaction that it is in."""
        while self._next < len(self._streamed) and self._is_inside():
            self.stream(1)
        rows, time = self.database.states[self._stands()][table], self._clock
        for row in _ordered(rows):
            if ids is None or row["id"] in ids:
                source = self._source(table, "incremental", time, None, None, None)
                value = self._envelope("r", None, row, source, None)
                self._write(Outgoing(self._owner(table, row["id"]), {"id": row["id"]}, value, time))

    # -- the records -----------------------------------------------------------------------------------------

    def _records(self, committed: Committed, number: int) -> Iterator[Outgoing]:
        """BEGIN, the events and their tombstones, END; of a connector without metadata the events alone."""
        metadata, counts, total = self.metadata, Counter[str](), 0
        if metadata:
            yield self._boundary("BEGIN", committed, committed.begin, None)
        found: list[Outgoing] = []
        for change in committed.changes:
            if change.table not in self.captured:
                continue
            for op, before, after, headers in _events(change):
                collection = f"{self.schema}.{change.table}"
                total += 1
                counts[collection] += 1
                transaction = {
                    "id": f"{committed.xid}:{change.lsn}",
                    "total_order": total,
                    "data_collection_order": counts[collection],
                }
                source = self._source(
                    change.table, "false", committed.time, committed.xid, change.lsn, committed.before
                )
                id = (after or before or {})["id"]
                value = self._envelope(op, before, after, source, transaction if metadata else None)
                owner, key = self._owner(change.table, id), {"id": id}
                found.append(Outgoing(owner, key, value, committed.time, headers))
                if op == "d" and self.tombstones:
                    found.append(Outgoing(owner, key, None, committed.time, headers))
        if metadata:
            yield from found
            yield self._boundary("END", committed, committed.lsn, counts, number)
        else:
            yield from found[:-1]
            for last in found[-1:]:
                yield Outgoing(last.owner, last.key, last.value, last.time, last.headers, number)

    def _boundary(
        self,
        status: str,
        committed: Committed,
        lsn: int,
        counts: Counter[str] | None,
        ends: int | None = None,
    ) -> Outgoing:
        id = f"{committed.xid}:{lsn}"
        collections = counts and [
            {"data_collection": collection, "event_count": count} for collection, count in counts.items()
        ]
        value = {
            "status": status,
            "id": id,
            "event_count": None if counts is None else counts.total(),
            "data_collections": None if counts is None else collections or [],
            "ts_ms": committed.time,
        }
        return Outgoing((self.transaction_topic, 0), {"id": id}, value, committed.time, ends=ends)

    def _source(
        self, table: str, snapshot: str, time: int, xid: int | None, lsn: int | None, before: int | None
    ) -> dict[str, Any]:
        places = [None if place is None else str(place) for place in (before, lsn)]
        return {
            "version": "3.6.1.Final",
            "connector": "postgresql",
            "name": self.prefix,
            "ts_ms": time,
            "snapshot": snapshot,
            "db": self.database.name,
            "sequence": json.dumps(places, separators=(",", ":")),
            "ts_us": time * 1000,
            "ts_ns": time * 1_000_000,
            "schema": self.schema,
            "table": table,
            "txId": xid,
            "lsn": lsn,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        }

    def _envelope(
        self, op: str, before: Row | None, after: Row | None, source: dict[str, Any], transaction: Any
    ) -> dict[str, Any]:
        time = source["ts_ms"] + 5
        times = {"ts_ms": time, "ts_us": time * 1000, "ts_ns": time * 1_000_000}
        rows = {"before": before, "after": after}
        return {**rows, "source": source, "transaction": transaction, "op": op, **times}

    def _write(self, one: Outgoing, place: int | None = None, ends: bool = False) -> None:
        self._written += 1
        self._clock = max(self._clock + self._written % 2, one.time)  # some are sent in the same millisecond
        key, value = (None if part is None else _json(part) for part in (one.key, one.value))
        record = Record(key, value, self._clock, one.headers, self._written, place, ends)
        self.topics[one.owner].append(record)

    def _owner(self, table: str, id: int) -> Owner:
        return self.topic(table), id % self._count(table)

    def _count(self, table: str) -> int:
        return self.partitions if isinstance(self.partitions, int) else self.partitions.get(table, 1)

    def _is_inside(self) -> bool:
        return self._next > self._first and self._streamed[self._next - 1].ends is None

    def _stands(self) -> int:
        """Transactions that are whole where it stands: fewer than before, if it went back."""
        for one in reversed(self._streamed[self._first : self._next]):
            if one.ends is not None:
                return one.ends
        following = next((one.ends for one in self._streamed[self._next :] if one.ends is not None), None)
        return self._taken if following is None else following - 1


def compacted(records: Sequence[Record], head: int, deleted: bool = False) -> list[Record]:
    """What Kafka's compaction leaves of the first ``head`` records: the last one of each key.

    ``deleted``: nulls are gone, too, as they are after ``delete.retention.ms``.
    """
    cleaned = records[:head]
    last = {one.key: one.number for one in cleaned}
    kept = [one for one in cleaned if last[one.key] == one.number and not (deleted and one.value is None)]
    return [*kept, *records[head:]]


def _events(
    change: Change,
) -> Iterator[tuple[str, Row | None, Row | None, tuple[tuple[str, bytes | None], ...]]]:
    """Operation, row before, row after, headers. Of a row before only the key is there (replica identity default)."""
    before, after = change.before, change.after
    if before is not None and after is not None and before["id"] != after["id"]:
        old, new = _json({"id": before["id"]}), _json({"id": after["id"]})
        yield "d", _key_alone(before), None, (("__debezium.newkey", new),)
        yield "c", None, after, (("__debezium.oldkey", old),)
    elif after is None:
        yield "d", _key_alone(before or {}), None, ()
    else:
        yield "c" if before is None else "u", None, after, ()


def _key_alone(row: Row) -> Row:
    return {name: value if name == "id" else None for name, value in row.items()}


def _marks(tables: Sequence[str], first: str) -> list[str]:
    """``source.snapshot`` of rows of these tables, in their order; ``first``: the table that is read first."""
    marks = []
    for place, table in enumerate(tables):
        begins = place == 0 or tables[place - 1] != table
        ends = place == len(tables) - 1 or tables[place + 1] != table
        if begins and table == first:
            marks.append("first")
        elif ends:
            marks.append("last_in_data_collection")
        else:
            marks.append("first_in_data_collection" if begins else "true")
    return [*marks[:-1], "last"] if marks else []


def _ordered(rows: Rows) -> list[Row]:
    return [rows[id] for id in sorted(rows)]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
