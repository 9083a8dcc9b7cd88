"""A bank whose money is never lost: what any number of its tables sums up to is zero after every transaction.

An entry belongs to an account, and an account to a branch. A transfer takes from one account and gives to others: it
writes their balances, and an entry for each. So the balances sum up to zero, the entries too, and those of an account
to its balance. Other transactions keep that: accounts are closed, or get other keys together with their entries.

A history is a list of steps, plain tuples that Hypothesis draws and shrinks; `Bank.take` does them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.laws.database.connector import Connector, Owner
from tests.laws.database.tables import Database, Open, Rows

ACCOUNTS, BRANCHES, SESSIONS = 5, 2, 2
CAPTURED = ("accounts", "audit", "entries")
"""In the order of a snapshot. Applications read accounts and entries; audit is not read, scratch not even captured."""

Step = tuple[Any, ...]

accounts = st.integers(0, ACCOUNTS - 1)
sessions = st.integers(0, SESSIONS - 1)

some_writes = st.one_of(
    st.tuples(st.just("transfer"), sessions, accounts, st.lists(accounts, min_size=1, max_size=3)),
    st.tuples(st.just("transfer"), sessions, accounts, st.lists(accounts, min_size=1, max_size=3)),
    st.tuples(st.just("close"), sessions, accounts, accounts),
    st.tuples(st.just("renumber"), sessions, accounts, accounts),
    st.tuples(st.just("note"), sessions, st.sampled_from(["audit", "scratch"])),
)
some_ends = st.tuples(st.sampled_from(["commit", "commit", "commit", "rollback"]), sessions)
some_reading = st.one_of(
    st.tuples(st.just("stream"), st.integers(1, 12)),
    st.tuples(st.just("stream"), st.integers(1, 12)),
    st.tuples(st.just("heartbeat")),
    st.tuples(st.just("incremental"), st.sampled_from(CAPTURED)),
)
READING = ("stream", "heartbeat", "incremental", "restart", "snapshot")
some_restarts = st.tuples(st.just("restart"), st.integers(0, 12), st.lists(st.integers(0, 6), max_size=6))

some_snapshots = st.just(("snapshot",))

some_transactions = some_writes.map(lambda write: [write, ("commit", write[1])])
"""A write that is committed, with what its session has written before."""


def steps(size: int = 8, restarts: bool = True) -> st.SearchStrategy[list[Step]]:
    """Random histories: half of it or more are transfers that are committed, one after the other."""
    others = [some_writes, some_ends, some_reading, *[some_restarts, some_snapshots] * restarts]
    parts = st.one_of(some_transactions, some_transactions, *(one.map(lambda step: [step]) for one in others))
    some = st.lists(parts, min_size=size // 2, max_size=size * 2)
    return some.map(lambda found: [step for part in found for step in part])


@dataclass(frozen=True)
class Settings:
    """Of the connector."""

    partitions: int = 2
    tombstones: bool = True
    routed: bool = False


some_settings = st.builds(Settings, st.integers(1, 3), st.booleans(), st.booleans())


class Bank:
    """The database, and the connector that reads it; ``before``: what happens before its snapshot.

    ``stopped``: the first snapshot is stopped after so many rows, and another one is taken. ``quiet``: no transaction
    is open then. What an open one has written has places in the log from before the snapshot, so `ordered_by` would
    take the rows of the snapshot for newer ones.
    """

    def __init__(
        self,
        settings: Settings = Settings(),
        before: Sequence[Step] = (),
        stopped: int | None = None,
        quiet: bool = True,
    ) -> None:
        self.database = Database((*CAPTURED, "scratch"), "bank")
        self.connector = Connector(
            self.database,
            prefix="bank",
            partitions=settings.partitions,
            route=(lambda table: f"all-{table}") if settings.routed else None,
            tombstones=settings.tombstones,
            captured=CAPTURED,
        )
        self._sessions: dict[int, Open] = {}
        self._entries = 0
        self.take([step for step in before if step[0] not in READING])
        self.quiet = quiet
        if quiet:
            self._commit_all()
        if stopped is not None:
            self.connector.snapshot(stop_after=stopped)
        self.connector.snapshot()

    def take(self, steps: Sequence[Step]) -> None:
        """Does what the steps say, one after the other; what another open transaction has locked is left out."""
        for kind, *rest in steps:
            getattr(self, f"_{kind}")(*rest)

    def finish(self) -> None:
        """Commits what is open, and the connector writes all there is."""
        self._commit_all()
        self.connector.stream()

    # -- transactions ----------------------------------------------------------------------------------------

    def _transfer(self, number: int, giver: int, takers: Sequence[int]) -> None:
        session = self._session(number)
        if session.may_write("accounts", giver, *takers):
            self._book(session, giver, -len(takers))
            for taker in takers:
                self._book(session, taker, 1)

    def _close(self, number: int, id: int, heir: int) -> None:
        """The heir gets what is left; the account and its entries are deleted."""
        session = self._session(number)
        account, own = session.get("accounts", id), _entries_of(session, id)
        if account is None or id == heir or not session.may_write("accounts", id, heir):
            return
        if session.may_write("entries", *own):
            self._book(session, id, -account["balance"])
            self._book(session, heir, account["balance"])
            for entry in _entries_of(session, id):
                session.delete("entries", entry)
            session.delete("accounts", id)

    def _renumber(self, number: int, id: int, to: int) -> None:
        """The account gets another key, and its entries refer to that."""
        session = self._session(number)
        own = _entries_of(session, id)
        if session.get("accounts", id) is None or session.get("accounts", to) is not None:
            return
        if session.may_write("accounts", id, to) and session.may_write("entries", *own):
            session.move("accounts", id, to)
            for entry, row in own.items():
                session.put("entries", **{**row, "id": entry, "account_id": to})

    def _note(self, number: int, table: str) -> None:
        self._session(number).put(table, id=self._next(), said="something")

    def _commit_all(self) -> None:
        for number in list(self._sessions):
            self._commit(number)

    def _commit(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None and session.changes:  # the log has nothing of a transaction that wrote nothing
            session.commit()

    def _rollback(self, number: int) -> None:
        if (session := self._sessions.pop(number, None)) is not None:
            session.rollback()

    def _book(self, session: Open, id: int, amount: int) -> None:
        account = session.get("accounts", id) or {"id": id, "branch": id % BRANCHES, "balance": 0}
        session.put("accounts", **{**account, "balance": account["balance"] + amount})
        session.put("entries", id=self._next(), account_id=id, amount=amount)

    def _session(self, number: int) -> Open:
        if number not in self._sessions:
            self._sessions[number] = self.database.begin()
        return self._sessions[number]

    def _next(self) -> int:
        self._entries += 1
        return self._entries

    # -- the connector ---------------------------------------------------------------------------------------

    def _stream(self, records: int) -> None:
        self.connector.stream(records)

    def _heartbeat(self) -> None:
        self.connector.heartbeat()

    def _incremental(self, table: str) -> None:
        self.connector.incremental(table)

    def _snapshot(self) -> None:
        """Another one, of a connector that has written all there is: it finds the rows as they are."""
        if self.quiet:
            self._commit_all()
        self.connector.stream()
        self.connector.snapshot()

    def _restart(self, back: int, lost: Sequence[int]) -> None:
        owners: list[Owner] = list(self.connector.topics)
        self.connector.restart(back, dict(zip(owners, lost, strict=False)))


def _entries_of(session: Open, account: int) -> Rows:
    return {id: row for id, row in session.rows("entries").items() if row["account_id"] == account}
