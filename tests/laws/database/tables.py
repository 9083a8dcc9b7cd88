"""A database in memory: transactions that may overlap, its log, and what the tables hold after each commit.

    shop = Database(("accounts",))
    one, other = shop.begin(), shop.begin()
    one.put("accounts", id=1, balance=5)
    other.put("accounts", id=2, balance=7)
    other.commit()
    one.commit()
    shop.states[1]["accounts"] == {2: {"id": 2, "balance": 7}}

Places in the log (LSN) are given when a row is written, so those of two open transactions lie between each other; the
connector sees a transaction when it commits, as a whole. The primary key of every table is the whole number `id`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Rows = dict[int, Row]
Tables = dict[str, Rows]
Lock = tuple[str, int]

FIRST_XID, FIRST_LSN, FIRST_TIME = 571, 30_000_000, 1_795_659_350_000


@dataclass(frozen=True, slots=True)
class Change:
    """A row before and after, None where there is none; an ``id`` that changes is one change."""

    table: str
    before: Row | None
    after: Row | None
    lsn: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction in the log. ``lsn``: where it ends; ``before``: where the one before does; ``time``: in ms."""

    xid: int
    changes: tuple[Change, ...]
    lsn: int
    time: int
    before: int | None

    @property
    def begin(self) -> int:
        return self.changes[0].lsn if self.changes else self.lsn


class LockedRow(Exception):
    """Another open transaction has written the row."""


@dataclass(eq=False)
class Open:
    """A transaction that has not ended: it sees its own writes, and others see them after `commit`."""

    database: Database
    xid: int
    changes: list[Change] = field(default_factory=list)
    written: dict[Lock, Row | None] = field(default_factory=dict)

    def get(self, table: str, id: int) -> Row | None:
        """The row that this transaction sees."""
        place = table, id
        return self.written[place] if place in self.written else self.database.tables[table].get(id)

    def rows(self, table: str) -> Rows:
        """All rows that this transaction sees."""
        seen = dict(self.database.tables[table])
        for (of, id), row in self.written.items():
            if of == table:
                seen.pop(id, None)
                if row is not None:
                    seen[id] = row
        return seen

    def may_write(self, table: str, *ids: int) -> bool:
        """Whether no other open transaction has written these rows."""
        return all(self.database.locks.get((table, id), self) is self for id in ids)

    def put(self, table: str, **row: Any) -> None:
        """Inserts or updates the row of its ``id``."""
        self._write(table, self.get(table, row["id"]), row)

    def delete(self, table: str, id: int) -> None:
        """Deletes a row; one that is not there is left so."""
        if (row := self.get(table, id)) is not None:
            self._write(table, row, None)

    def move(self, table: str, id: int, to: int) -> None:
        """Gives a row another key, if it is there and no row has that key."""
        row = self.get(table, id)
        if row is not None and self.get(table, to) is None:
            self._write(table, row, {**row, "id": to})

    def commit(self) -> Committed:
        """Ends the transaction: others see it, and it is in the log."""
        return self.database.end(self)

    def rollback(self) -> None:
        """Ends the transaction, and nothing of it was ever there."""
        self.database.release(self)

    def _write(self, table: str, before: Row | None, after: Row | None) -> None:
        places = [(table, row["id"]) for row in (before, after) if row is not None]
        for place in places:
            if self.database.locks.setdefault(place, self) is not self:
                raise LockedRow(place)
        self.written.update(dict.fromkeys(places))
        if after is not None:
            self.written[table, after["id"]] = dict(after)
        self.changes.append(Change(table, before, after, self.database.next_lsn()))


Write = Callable[[Open], None]


def put(table: str, **row: Any) -> Write:
    return lambda transaction: transaction.put(table, **row)


def delete(table: str, id: int) -> Write:
    return lambda transaction: transaction.delete(table, id)


def move(table: str, id: int, to: int) -> Write:
    return lambda transaction: transaction.move(table, id, to)


class Database:
    """``states[n]``: the tables after ``n`` transactions, in the order of their commits; ``log``: these."""

    def __init__(self, tables: Sequence[str], name: str = "shop") -> None:
        self.name = name
        self.tables: Tables = {table: {} for table in tables}
        self.states: list[Tables] = [_copy(self.tables)]
        self.log: list[Committed] = []
        self.locks: dict[Lock, Open] = {}
        self.xid, self.lsn, self.time = FIRST_XID - 1, FIRST_LSN, FIRST_TIME

    def begin(self) -> Open:
        """A new transaction."""
        self.xid += 1
        return Open(self, self.xid)

    def commit(self, *writes: Write) -> Committed:
        """A transaction of these writes."""
        transaction = self.begin()
        for write in writes:
            write(transaction)
        return transaction.commit()

    def number_of(self, xid: int) -> int:
        """How many transactions had been committed with this one."""
        return 1 + [one.xid for one in self.log].index(xid)

    def state_of(self, xid: int) -> Tables:
        """What the tables held after this transaction."""
        return self.states[self.number_of(xid)]

    def end(self, transaction: Open) -> Committed:
        """Commits; use `Open.commit`."""
        for (table, id), row in transaction.written.items():
            self.tables[table].pop(id, None)
            if row is not None:
                self.tables[table][id] = row
        self.release(transaction)
        self.time += 1
        before = self.log[-1].lsn if self.log else None
        done = Committed(transaction.xid, tuple(transaction.changes), self.next_lsn(), self.time, before)
        self.log.append(done)
        self.states.append(_copy(self.tables))
        return done

    def release(self, transaction: Open) -> None:
        """Other transactions may write its rows."""
        self.locks = {place: owner for place, owner in self.locks.items() if owner is not transaction}

    def next_lsn(self) -> int:
        """A place behind all that is in the log."""
        self.lsn += 112
        return self.lsn


def _copy(tables: Mapping[str, Rows]) -> Tables:
    return {table: {id: dict(row) for id, row in rows.items()} for table, rows in tables.items()}
