"""A database with accounts of two kinds, and what Debezium writes of it: records that a test delivers as it likes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import crossstream as cs
from crossstream import serdes
from crossstream.filetopics import FileTopics
from tests.filetopics.topics import write

TABLES = ("checking", "savings")
TRANSACTIONS = "bank.transaction"


@dataclass
class Account:
    id: int
    amount: int


@dataclass(frozen=True)
class Record:
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    time: int


def topic_of(table: str) -> str:
    return f"bank.public.{table}"


@dataclass
class Database:
    """``partitions``: of the topics of tables. Each call returns the records that a connector writes, in order."""

    partitions: int = 1
    lsn: int = 1_000
    time: int = 1_000
    xid: int = 500
    connector: str = "postgresql"
    name: str = "bank"
    rows: dict[tuple[str, int], int] = field(default_factory=dict)

    def transaction(self, *changes: tuple[str, int, int | None], xid: int | None = None) -> list[Record]:
        """Sets rows: (table, id, amount), None deletes. BEGIN, the events with their tombstones, END."""
        self.xid += 1
        id = self.xid if xid is None else xid
        made = [self.boundary("BEGIN", id)]
        counts: dict[str, int] = {}
        for order, (table, key, amount) in enumerate(changes, 1):
            counts[table] = counts.get(table, 0) + 1
            made += self.event(table, key, amount, id, order, counts[table])
        return [*made, self.boundary("END", id, counts)]

    def boundary(self, status: str, id: int, counts: dict[str, int] | None = None) -> Record:
        self._tick()
        value: dict[str, Any] = {"status": status, "id": f"{id}:{self.lsn}", "ts_ms": self.time}
        value["event_count"] = None if counts is None else sum(counts.values())
        value["data_collections"] = None
        if counts is not None:
            value["data_collections"] = [
                {"data_collection": f"public.{table}", "event_count": count}
                for table, count in counts.items()
            ]
        key = json.dumps({"id": value["id"]}).encode()
        return Record(TRANSACTIONS, 0, key, json.dumps(value).encode(), self.time)

    def event(
        self, table: str, key: int, amount: int | None, id: int | None, order: int = 1, own_order: int = 1
    ) -> list[Record]:
        self._tick()
        transaction = None
        if id is not None:
            transaction = {"id": f"{id}:{self.lsn}", "total_order": order, "data_collection_order": own_order}
        row = {"id": key, "amount": self.rows.get((table, key), 0)}
        made = [self._record(table, key, "d" if amount is None else "u", row, amount, "false", transaction)]
        if amount is None:
            self.rows.pop((table, key), None)
            made.append(Record(topic_of(table), key % self.partitions, made[0].key, None, self.time))
        else:
            self.rows[table, key] = amount
        return made

    def snapshot(self, *rows: tuple[str, int, int], tables: Iterable[str] = TABLES) -> list[Record]:
        """The rows, table by table, with the marks that a connector gives the first and the last ones.

        All have the place in the log at which the snapshot was taken.
        """
        self._tick()
        made, lsn = [], self.lsn
        own = {table: [row for row in rows if row[0] == table] for table in tables}
        every = [row for table in own.values() for row in table]
        for table in own.values():
            for place, row in enumerate(table):
                self._tick()
                self.lsn = lsn
                mark = "true" if place else "first_in_data_collection"
                if place == len(table) - 1:
                    mark = "last_in_data_collection"
                if row is every[0]:
                    mark = "first"  # also where it is the only one of its table
                if row is every[-1]:
                    mark = "last"
                made.append(self.read(*row, mark))
        return made

    def read(self, table: str, key: int, amount: int, mark: str) -> Record:
        """A row of a snapshot."""
        self.rows[table, key] = amount
        return self._record(table, key, "r", None, amount, mark, None)

    def heartbeat(self, table: str) -> Record:
        self._tick()
        return Record(topic_of(table), 0, None, json.dumps({"ts_ms": self.time}).encode(), self.time)

    def _record(
        self, table: str, key: int, op: str, before: Any, amount: int | None, mark: str, transaction: Any
    ) -> Record:
        source = {
            "connector": self.connector,
            "name": self.name,
            "db": "bank",
            "schema": "public",
            "table": table,
        }
        source |= {"snapshot": mark, "lsn": self.lsn, "ts_ms": self.time}
        after = None if amount is None else {"id": key, "amount": amount}
        value = {"before": before, "after": after, "source": source, "transaction": transaction, "op": op}
        value["ts_ms"] = self.time
        wire = json.dumps(value).encode()
        return Record(
            topic_of(table), key % self.partitions, json.dumps({"id": key}).encode(), wire, self.time
        )

    def _tick(self) -> None:
        self.lsn += 8
        self.time += 1


@dataclass
class Topics:
    """The topics, as files. `deliver` writes records; those that are held back come later."""

    files: FileTopics
    partitions: int = 1

    def __post_init__(self) -> None:
        log = self.files.log()
        for table in TABLES:
            log.create_topic(topic_of(table), self.partitions)
        log.create_topic(TRANSACTIONS, 1)

    def deliver(self, records: Iterable[Record]) -> None:
        for one in records:
            write(self.files, [(one.key, one.value, one.time, None)], one.topic, one.partition)


def topology(transactions: str | None = TRANSACTIONS) -> Any:
    """The accounts by kind, and the total of all of them."""
    builder = cs.StreamsBuilder()
    sums = []
    for table in TABLES:
        source = cs.debezium(Account, unavailable_value=None, transactions=transactions)
        rows = builder.table(topic_of(table), source=source, materialized=cs.Materialized(store=table))
        sums.append(
            rows.group_by(
                lambda key, row: ("all", row.amount), cs.Grouped(key=serdes.string(), value=serdes.int64())
            ).reduce(lambda total, amount: total + amount, lambda total, amount: total - amount)
        )
    both = sums[0].outer_join(sums[1], lambda a, b: (a or 0) + (b or 0))
    both.to_stream().to("totals", cs.Produced(key=serdes.string(), value=serdes.int64()))
    return builder.build()
