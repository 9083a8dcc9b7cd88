"""Tables of one database, cut by its transactions: after every batch the money of a bank sums up to zero.

However far each partition has come, whatever the connector wrote twice or lost, however many records a batch may take,
and wherever the application is started again: each batch leaves the tables as one of the transactions left them in the
database, the one that the batch names, and joins and totals are those of these tables. At the end it is the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import agg, serdes
from crossstream.storage.commit_log import BatchLog
from tests.application.engines import IN_PROCESS
from tests.laws.crashes import Crash, crashing
from tests.laws.database import bank
from tests.laws.database.bank import Bank, Settings, Step
from tests.laws.database.connector import Owner, Record, compacted
from tests.laws.database.shown import Shown
from tests.laws.database.tables import Tables
from tests.laws.effort import cases
from tests.spark.world import ALONE, SPREAD, World

TOPIC = "bank.transaction"
JSON = serdes.json()
pytestmark = pytest.mark.slow


@dataclass
class Account:
    id: int
    branch: int
    balance: int


@dataclass
class Entry:
    id: int
    account_id: int
    amount: int


def ledger(owner: Bank, transactions: str | None = TOPIC, **more: Any) -> cs.Topology:
    """Each entry with its account, and what the entries of each branch sum up to."""
    if transactions is not None:
        more["transactions"] = transactions
    builder = cs.StreamsBuilder()
    accounts, entries = (
        builder.table(
            owner.connector.topic(table),
            source=cs.debezium(row, **more),
            materialized=cs.Materialized(store=table),
        )
        for table, row in (("accounts", Account), ("entries", Entry))
    )
    left, right = pl.col("left").struct, pl.col("right").struct
    booked = entries.join(
        accounts,
        foreign_key="account_id",
        joiner=pl.struct(
            amount=left.field("amount"), branch=right.field("branch"), balance=right.field("balance")
        ),
        materialized=cs.Materialized(store="booked"),
    )
    totals = booked.group_by("branch").agg(
        total=agg.sum("amount"), materialized=cs.Materialized(store="totals")
    )
    totals.to_stream().to("totals", cs.Produced(key=JSON, value=JSON))
    return builder.build()


@dataclass
class Note:
    id: int
    said: str


Found = dict[str, dict[Any, Any]]


def read(world: World, batch: int | None = None) -> Found:
    """What the stores held after a batch."""
    found: Found = {}
    for name in ("accounts", "entries", "booked", "totals"):
        rows = cs.open_store(world.state_dir, name, batch).all()
        found[name] = {key: row if isinstance(row, dict) else asdict(row) for key, row in rows}
    return found


def of_sql(tables: Tables) -> Found:
    """What the stores should hold, of these tables."""
    accounts, entries = tables["accounts"], tables["entries"]
    booked = {
        id: {
            "amount": entry["amount"],
            "branch": accounts[entry["account_id"]]["branch"],
            "balance": accounts[entry["account_id"]]["balance"],
        }
        for id, entry in entries.items()
        if entry["account_id"] in accounts
    }
    totals = Counter[int]()
    for row in booked.values():
        totals[row["branch"]] += row["amount"]
    return {
        "accounts": accounts,
        "entries": entries,
        "booked": booked,
        "totals": {branch: {"total": total} for branch, total in totals.items()},
    }


def sums(found: Found) -> tuple[int, int, int]:
    """Of balances, of entries, of totals: each is zero in the database, always."""
    return (
        sum(row["balance"] for row in found["accounts"].values()),
        sum(row["amount"] for row in found["entries"].values()),
        sum(row["total"] for row in found["totals"].values()),
    )


Showing = tuple[int, int, bool]
"""The number of a partition, how many of its records, and whether the application is started again then."""
some_showings = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), st.booleans()), max_size=12)


@dataclass(frozen=True)
class Cut:
    """How records come, and how many a batch may take."""

    showings: Sequence[Showing] = ()
    max_records: int = 10_000
    partitions: int = 2
    rows: int = ALONE
    most: int = 5_000_000
    """Records of a transaction that is kept whole."""


some_cuts = st.builds(
    Cut,
    some_showings,
    st.sampled_from([1, 3, 10, 10_000]),
    st.integers(1, 3),
    st.sampled_from([ALONE, SPREAD]),
)


class Run:
    """An application of the bank's topics, started as often as you like."""

    def __init__(
        self, world: World, owner: Bank, cut: Cut, records: Mapping[Owner, Sequence[Record]] | None = None
    ) -> None:
        self.world, self.owner, self.cut = world, owner, cut
        self.topics = Shown(world, owner.connector, records)
        world.create(totals=2)

    def take(self, topology: cs.Topology) -> None:
        """Takes what comes as it comes, and in the end all there is; looks at the results each time."""
        shown: list[Showing | None] = [*self.cut.showings, None]
        while shown:
            with IN_PROCESS.streams(topology, self.config) as app:
                while shown:
                    showing = shown.pop(0)
                    self._show(showing)
                    app.process_available()
                    published = self.world.table("totals", JSON, JSON)
                    assert published == read(self.world)["totals"]
                    if showing is not None and showing[2]:
                        break

    def crash(self, topology: cs.Topology, step: int) -> None:
        """All is there; the process ends before a step of its work that others can see."""
        self.topics.show_all()
        with suppress(Crash), crashing(step), IN_PROCESS.streams(topology, self.config) as app:
            app.process_available()

    @property
    def config(self) -> cs.StreamsConfig:
        cut = self.cut
        return self.world.config(
            partitions=cut.partitions,
            max_records_per_batch=cut.max_records,
            max_transaction_records=cut.most,
            retain_batches=1000,
        )

    @property
    def batches(self) -> list[int]:
        return list(BatchLog(self.world.state_dir).commits())

    def check(self) -> list[int]:
        """Each batch left the tables as the transaction did that it names; says after how many. That grows."""
        database, log = self.owner.database, BatchLog(self.world.state_dir)
        states = [of_sql(state) for state in database.states]
        found, last = [], 0
        for batch in self.batches:
            seen = read(self.world, batch)
            assert sums(seen) == (0, 0, 0), batch
            assert seen in states[last:], (batch, seen)
            last = states.index(seen, last)
            found.append(last)
            stand = log.commit(batch).stands[TOPIC]
            if stand.transaction:  # it stands at none before the first one behind the snapshot
                assert seen == of_sql(database.state_of(int(stand.transaction))), (batch, stand)
                assert stand.lsn == database.log[database.number_of(int(stand.transaction)) - 1].lsn
        return found

    def _show(self, showing: Showing | None) -> None:
        if showing is None:
            self.topics.show_all()
        else:
            number, count, _ = showing
            self.topics.show(*self.topics.owners[number % len(self.topics.owners)], count)


@contextmanager
def running(owner: Bank, cut: Cut, records: Mapping[Owner, Sequence[Record]] | None = None) -> Iterator[Run]:
    with TemporaryDirectory() as folder:
        yield Run(World(Path(folder), single_task_rows=cut.rows), owner, cut, records)


some_banks = st.builds(
    Bank,
    bank.some_settings,
    bank.steps(4, restarts=False),
    st.none() | st.integers(0, 6),
    st.booleans(),
)
TRANSFERS: list[Step] = [
    step
    for number in range(6)
    for step in (("transfer", 0, number % 5, [(number + 1) % 5, (number + 2) % 5]), ("commit", 0))
]


# -- the laws --------------------------------------------------------------------------------------------


@given(some_banks, bank.steps(), some_cuts, st.sampled_from([None, "source.lsn"]))
@cases(0.5)
def test_every_batch_is_a_state_that_the_database_had(owner, steps, cut, ordered_by):
    owner.take(steps)
    owner.finish()
    with running(owner, cut) as run:
        run.take(ledger(owner, ordered_by=ordered_by if owner.quiet else None))
        run.check()
        assert read(run.world) == of_sql(owner.database.tables)


@given(some_banks, bank.steps(restarts=False), some_cuts)
@cases(0.3)
def test_a_connector_that_stops_in_the_middle(owner, steps, cut):
    """What is whole is there, and the application does not wait for the rest."""
    owner.take(steps)
    with running(owner, cut) as run:
        run.take(ledger(owner))
        run.check()
        assert read(run.world) == of_sql(owner.database.states[owner.connector.states_after])


@given(some_banks, bank.steps(), some_cuts, st.lists(st.integers(0, 40), min_size=1, max_size=4))
@cases(0.3)
def test_crashes_at_any_step(owner, steps, cut, crashes):
    owner.take(steps)
    owner.finish()
    with running(owner, cut) as run:
        for step in crashes:
            run.crash(ledger(owner), step)
        run.take(ledger(owner))
        run.check()
        assert read(run.world) == of_sql(owner.database.tables)


@given(
    some_banks, bank.steps(), some_cuts, st.lists(st.integers(0, 20), min_size=6, max_size=6), st.booleans()
)
@cases(0.3)
def test_topics_that_were_compacted(owner, steps, cut, heads, deleted):
    """Rows that were compacted away are in no batch before the one that has what came after them: the end is right.

    A transaction behind that writes into each partition: only a later event shows that one will not come.
    """
    owner.take(steps)
    owner.finish()
    lengths = {of: len(written) for of, written in owner.connector.topics.items()}
    owner.take([("transfer", 0, 0, list(range(bank.ACCOUNTS))), ("commit", 0)])
    owner.finish()
    records: dict[Owner, Sequence[Record]] = dict(owner.connector.topics)
    for head, (of, length) in zip(heads, lengths.items(), strict=False):
        if of[0] != TOPIC:
            records[of] = compacted(records[of], min(head, length), deleted)
    with running(owner, cut, records) as run:
        run.take(ledger(owner))
        assert read(run.world) == of_sql(owner.database.tables)


@given(some_banks, bank.steps(), some_cuts, st.lists(st.booleans(), min_size=1, max_size=30))
@cases(0.3)
def test_events_without_a_transaction(owner, steps, cut, metadata):
    """They are taken with what precedes them in their partition: they are not whole, and the end is right."""
    for number, step in enumerate(steps):
        owner.connector.metadata = metadata[number % len(metadata)]
        owner.take([step])
    owner.finish()
    with running(owner, cut) as run:
        run.take(ledger(owner))
        assert read(run.world) == of_sql(owner.database.tables)


@given(some_banks, bank.steps(), some_cuts, st.integers(1, 4))
@cases(0.2)
def test_transactions_that_are_too_large(owner, steps, cut, most):
    """They are split: a batch has a part of one, and the end is right."""
    owner.take(steps)
    owner.finish()
    with running(owner, replace(cut, most=most)) as run:
        run.take(ledger(owner))
        assert read(run.world) == of_sql(owner.database.tables)


# -- what has no transactions ----------------------------------------------------------------------------


def test_other_topics_do_not_wait(tmp_path: Path):
    """A stream, and a table of the same database without the setting, are read while a transaction waits."""
    owner, clicks = Bank(Settings(partitions=1)), cs.Consumed(key=serdes.string(), value=serdes.string())
    owner.take([*TRANSFERS, ("note", 0, "audit"), ("commit", 0)])
    owner.finish()
    builder = cs.StreamsBuilder()
    builder.table(
        owner.connector.topic("entries"),
        source=cs.debezium(Entry, transactions=TOPIC),
        materialized=cs.Materialized(store="entries"),
    )
    builder.table(
        owner.connector.topic("audit"),
        source=cs.debezium(Note),
        materialized=cs.Materialized(store="audit"),
    )
    builder.stream("clicks", clicks).group_by_key().count(store="clicks")
    world = World(tmp_path)
    topics = Shown(world, owner.connector)
    world.create(clicks=1)
    with IN_PROCESS.streams(builder.build(), world.config(max_records_per_batch=1)) as app:
        topics.show(owner.connector.topic("entries"))
        topics.show(owner.connector.topic("audit"))
        world.append("clicks", [("a", "x", 1), ("a", "y", 2)])
        app.process_available()
        assert dict(app.store("entries").all()) == {}
        assert [row.said for _, row in app.store("audit").all()] == ["something"]
        assert dict(app.store("clicks").all()) == {"a": 2}
        assert app.progress.waits
        topics.show_all()
        app.process_available()
        assert len(dict(app.store("entries").all())) == 18
        assert app.progress.waits == ()


@pytest.mark.parametrize("cut", [Cut(max_records=3), Cut([(4, 2, False), (6, 9, False)])])
def test_without_the_setting_a_batch_shows_half_a_transfer(cut):
    owner = Bank(Settings())
    owner.take(TRANSFERS)
    owner.finish()
    with running(owner, cut) as run:
        run.take(ledger(owner, None))
        found = [sums(read(run.world, batch)) for batch in run.batches]
        assert read(run.world) == of_sql(owner.database.tables)
    assert any(any(one) for one in found), found
