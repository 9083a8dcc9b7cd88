"""What anybody who reads the bank's results sees, batch after batch: every sum must be zero."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable

import crossstream as cs
from tests.end_to_end.bank.database import Sample

READ_SECONDS = 300.0
STORES = ("accounts", "branches", "transfers")

Sheet = dict[int, tuple[int, int]]
"""By id: a balance in cents, and what its entries add up to."""


@dataclass
class Seen:
    """What was checked, and what was wrong, by the way in which it was read."""

    checked: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def note(self, way: str, faults: list[str]) -> None:
        self.checked[way] = self.checked.get(way, 0) + 1
        if faults:
            self.wrong.setdefault(way, []).append("; ".join(faults))

    @property
    def faults(self) -> dict[str, int]:
        """How many of the checks of each way found something."""
        return {way: len(found) for way, found in self.wrong.items()}


@dataclass
class Fold:
    """A sheet, as it is after each batch of its changes."""

    zero: bool = True
    """Whether its cents add up to zero: the entries that transfers count do not."""
    sheet: Sheet = field(default_factory=dict)
    total: int = 0
    apart: set[int] = field(default_factory=set)

    def put(self, id: int, row: tuple[int, int] | None) -> None:
        self.total -= self.sheet.pop(id, (0, 0))[0]
        self.apart.discard(id)
        if row is not None:
            self.sheet[id] = row
            self.total += row[0]
            if row[0] != row[1]:
                self.apart.add(id)

    def faults(self) -> list[str]:
        found = [
            f"{id} has {self.sheet[id][0]}, its entries {self.sheet[id][1]}" for id in sorted(self.apart)[:3]
        ]
        return [*found, *([f"the sum is {self.total}"] if self.zero and self.total else [])]


@dataclass(frozen=True, slots=True)
class Truth:
    """What SQL shows after any transaction: ``changes`` are those of `Bank.audit`, with the place of the commit.

    ``transactions``: how many a connector has seen.
    """

    changes: pl.DataFrame
    transactions: int

    @classmethod
    def of(cls, servers: str, topic: str, audit: pl.DataFrame) -> Truth:
        """From the END events of a transaction topic. Transactions without one are older than the first snapshot."""
        ends: dict[int, int] = {}
        for batch in batches(servers, topic):
            for _, event in batch:
                if event is not None and event["status"] == "END":
                    xid, _, lsn = event["id"].partition(":")
                    ends[int(xid)] = int(lsn)
        lsns = pl.DataFrame(
            {"xid": ends.keys(), "lsn": ends.values()}, schema={"xid": pl.Int64, "lsn": pl.Int64}
        )
        return cls(audit.join(lsns, on="xid", how="left").with_columns(pl.col("lsn").fill_null(0)), len(ends))

    def at(self, lsn: int, table: str) -> dict[int, int]:
        """The cents of each account or branch after the transactions up to a place in the log; 0 is left out."""
        key = {"accounts": "account_id", "branches": "branch_id"}[table]
        sums = self.changes.filter(pl.col("lsn") <= lsn).group_by(key).agg(pl.col("cents").sum())
        return without_zeros(dict(zip(sums[key], sums["cents"], strict=True)))


def without_zeros(cents: dict[int, int]) -> dict[int, int]:
    return {id: amount for id, amount in cents.items() if amount}


Message = tuple[int, dict[str, Any] | None]


def batches(servers: str, topic: str) -> Iterator[list[Message]]:
    """What each transaction of Kafka wrote into a topic of one partition: its end has an offset of its own."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True, "group.id": "a reader"}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    batch: list[Message] = []
    next_offset, until = 0, time.monotonic() + READ_SECONDS
    try:
        while True:
            assert time.monotonic() < until, f"{topic} cannot be read to the end"
            for message in consumer.consume(10_000, 0.5):
                if message.error() is None:
                    if message.offset() != next_offset and batch:
                        yield batch
                        batch = []
                    next_offset = message.offset() + 1
                    value = message.value()
                    batch.append((_id(message.key()), None if value is None else json.loads(value)))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    if batch:
                        yield batch
                    return
    finally:
        consumer.close()


def _id(key: bytes) -> int:
    return int.from_bytes(key, "big", signed=True) if len(key) == 8 else 0


def check_topics(seen: Seen, servers: str, prefix: str) -> dict[str, Sheet]:
    """Every batch that readers of committed records see; the sheets at the end."""
    ends = {}
    for name in STORES:
        fold = Fold(zero=name != "transfers")
        for batch in batches(servers, f"{prefix}.{name}"):
            for id, row in batch:
                fold.put(id, None if row is None else (row["cents"], row["posted"]))
            seen.note(f"topic {name}", fold.faults())
        ends[name] = fold.sheet
    for batch in batches(servers, f"{prefix}.totals"):
        off = [str(row) for _, row in batch if row is not None and any((row["cents"], row["posted"]))]
        seen.note("topic totals", off)
    return ends


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a Delta table: the batch that wrote it, where that one stands, and the cents by id.

    ``lsn``: 0 where the commit does not say it.
    """

    table: str
    batch: int
    lsn: int
    cents: dict[int, int]


def check_lake(seen: Seen, lake: Path, every: int = 1) -> list[Version]:
    """Every version of the Delta tables; returns each ``every``-th of them."""
    kept = []
    for name in ("accounts", "branches"):
        table = DeltaTable(lake / name)
        for commit in sorted(table.history(), key=lambda commit: commit["version"]):
            if "crossstream.batch" not in commit:
                continue
            table.load_as_version(commit["version"])
            rows = pl.from_arrow(table.to_pyarrow_table())
            assert isinstance(rows, pl.DataFrame)
            seen.note(f"lake {name}", faults_of(rows))
            if commit["version"] % every == 0:
                cents = dict(zip(rows["id"], rows["cents"], strict=True))
                kept.append(Version(name, int(commit["crossstream.batch"]), _place(commit), cents))
    return kept


def _place(commit: dict[str, Any]) -> int:
    stands = json.loads(commit.get("crossstream.stands", "{}"))
    return max((lsn_of(one["lsn"]) for one in stands.values()), default=0)


def faults_of(rows: pl.DataFrame, zero: bool = True) -> list[str]:
    """What is wrong with the columns ``cents`` and ``posted``."""
    apart, total = rows.filter(pl.col("cents").ne_missing(pl.col("posted"))), rows["cents"].sum()
    found = [f"{len(apart)} rows differ from their entries"] if len(apart) else []
    return [*found, *([f"the sum is {total}"] if zero and total else [])]


@dataclass
class Queries:
    """Another process asks the stores, as often as it can: each alone, and all at one batch."""

    state: Path
    seen: Seen
    stop: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)
    answers: int = 0

    @contextmanager
    def asked(self, pause: float) -> Iterator[None]:
        """Asks in a thread inside, every ``pause`` seconds."""
        thread = threading.Thread(target=self._ask, args=(pause,))
        thread.start()
        try:
            yield
        finally:
            self.stop.set()
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _ask(self, pause: float) -> None:
        try:
            while not self.stop.wait(pause):
                self._look()
        except BaseException as error:
            self.failures.append(error)

    def _look(self) -> None:
        for name in STORES:
            try:
                rows = cs.open_store(self.state, name).to_polars()
            except cs.StateError:  # before the first batch
                return
            if rows.is_empty():
                continue
            self.seen.note(
                f"store {name}", faults_of(rows["value"].struct.unnest(), zero=name != "transfers")
            )
        total = cs.open_store(self.state, "totals").get("bank")
        if total is not None:
            self.seen.note("store totals", [str(total)] if any(total.values()) else [])


def check_places(seen: Seen, truth: Truth, versions: Iterable[Version]) -> None:
    """Each version of a Delta table has what SQL showed at the place in the log that its commit names."""
    for version in versions:
        wanted, found = truth.at(version.lsn, version.table), without_zeros(version.cents)
        faults = [] if found == wanted else [f"batch {version.batch} {different(found, wanted)}"]
        seen.note(f"lake {version.table} at its place", faults)


def check_samples(seen: Seen, truth: Truth, samples: Iterable[Sample]) -> None:
    """What SQL showed when only the transactions before a place were visible is what they added up to."""
    for sample in samples:
        for table, cents in (("accounts", sample.accounts), ("branches", sample.branches)):
            wanted, found = truth.at(sample.lsn, table), without_zeros(cents)
            faults = [] if found == wanted else [f"at {sample.lsn} {different(found, wanted)}"]
            seen.note(f"sample {table}", faults)


def check_stores_at(
    seen: Seen, truth: Truth, state: Path, samples: Iterable[Sample], versions: Sequence[Version]
) -> None:
    """A query as of a place in the log finds the last batch that stands there or before it."""
    for sample in samples:
        for table in ("accounts", "branches"):
            before = [v.lsn for v in versions if v.table == table and v.lsn <= sample.lsn]
            if not before:
                continue
            rows = cs.open_store(state, table, as_of=f"lsn:{sample.lsn}").to_polars()
            cents = rows.select("key", pl.col("value").struct.field("cents"))
            found = without_zeros(dict(zip(cents["key"], cents["cents"], strict=True)))
            wanted = truth.at(max(before), table)
            faults = [] if found == wanted else [f"at {sample.lsn} {different(found, wanted)}"]
            seen.note(f"store {table} at a place", faults)


def different(found: dict[int, int], wanted: dict[int, int]) -> str:
    ids = sorted(id for id in found.keys() | wanted.keys() if found.get(id) != wanted.get(id))
    some = ", ".join(f"{id}: {found.get(id, 0)}, not {wanted.get(id, 0)}" for id in ids[:3])
    return f"{len(ids)} differ: {some}"


def lsn_of(text: str) -> int:
    """The place in the log as a number.

    >>> lsn_of("1/10")
    4294967312
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
