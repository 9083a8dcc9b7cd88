"""The data of the benchmark of lake tables: orders and customers as Delta tables, and commits that change them.

Both tables have a change feed. All commits are made beforehand and hidden; `Lake.show` gives readers the next ones by
moving the files of their log into the table, so a run waits for no writer. `Lake.joined` is what a join must give.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake

from benchmarks.data import CITIES, STATUSES, TIERS, Numbers

DELETED = "deleted"
INSERTED, GONE = 0.05, 0.05
"""Shares of the changes of a commit: orders that are new, and orders that are deleted. The others are updates."""
MOVED = 0.1
"""The share of the updates that bring an order to another customer."""
NEW_CUSTOMERS = 0.001
"""Orders refer to so many more customers than there are at first; a commit of customers inserts some of these."""
CHECKPOINT = 10
"""Commits from one checkpoint of the log to the next, as Spark writes them."""
FILE_BYTES = 4_000_000
"""Of a data file of the first version: several tasks share a snapshot."""


@dataclass(frozen=True, slots=True)
class LakeSizes:
    """How much of everything. Each ``every``-th commit of orders comes with one of customers."""

    orders: int = 1_000_000
    customers: int = 100_000
    commits: int = 200
    changes: int = 5_000
    customer_changes: int = 500
    every: int = 10

    def scaled(self, scale: float) -> LakeSizes:
        """Smaller tables and fewer commits; a commit keeps its size unless the table is too small for it."""
        orders, customers = (max(1_000, int(rows * scale)) for rows in (self.orders, self.customers))
        commits = max(2, int(self.commits * scale))
        changes = min(self.changes, orders // 10)
        of_customers, every = min(self.customer_changes, customers // 10), min(self.every, commits // 2)
        return LakeSizes(orders, customers, commits, changes, of_customers, every)


@dataclass(frozen=True, slots=True)
class Change:
    """One commit of a table: ``rows`` have the column `DELETED`; each key is there once."""

    table: str
    rows: pl.DataFrame


def order_rows(ids: Numbers, customers: Numbers, rng: np.random.Generator) -> pl.DataFrame:
    size = len(ids)
    drawn = {
        "order": ids,
        "customer": customers,
        "quantity": rng.integers(1, 9, size),
        "cents": rng.integers(100, 99_999, size),
    }
    status = pl.Series(np.array(STATUSES)[rng.integers(0, len(STATUSES), size)])
    item = pl.Series(rng.integers(0, 1000, size))
    return pl.DataFrame(drawn).select(
        numbered("o", pl.col("order")).alias("id"),
        numbered("c", pl.col("customer")).alias("customer_id"),
        (pl.lit("item-") + item.cast(pl.String).str.zfill(5)).alias("item"),
        "quantity",
        (pl.col("cents") / 100).alias("amount"),
        status.alias("status"),
    )


def customer_rows(ids: Numbers, rng: np.random.Generator) -> pl.DataFrame:
    size = len(ids)
    drawn = {
        "city": np.array(CITIES)[rng.integers(0, len(CITIES), size)],
        "tier": np.array(TIERS)[rng.integers(0, len(TIERS), size)],
        "since": 1990 + rng.integers(0, 35, size),
        "newsletter": rng.random(size) < 0.5,
    }
    names = pl.DataFrame({"number": ids}).select(
        numbered("c", pl.col("number")).alias("id"),
        (pl.lit("Customer ") + pl.col("number").cast(pl.String).str.zfill(7)).alias("name"),
    )
    return names.hstack(pl.DataFrame(drawn))


def numbered(letter: str, number: pl.Expr) -> pl.Expr:
    return pl.lit(letter) + number.cast(pl.String).str.zfill(7)


@dataclass(slots=True)
class Data:
    """The first rows of both tables, and then one commit after the other: the same for the same sizes and seed."""

    sizes: LakeSizes
    seed: int = 1
    _rng: np.random.Generator = field(init=False)
    _refers: Numbers = field(init=False)
    """The customer of each order, whose number is the place."""
    _there: np.ndarray = field(init=False)
    """Whether an order is there."""

    def first(self) -> Iterator[Change]:
        sizes, self._rng = self.sizes, np.random.default_rng(self.seed)
        self._refers = self._customers(sizes.orders)
        self._there = np.ones(sizes.orders, dtype=np.bool_)
        orders = order_rows(np.arange(sizes.orders), self._refers, self._rng)
        for table, rows in (
            ("customers", customer_rows(np.arange(sizes.customers), self._rng)),
            ("orders", orders),
        ):
            yield Change(table, rows.with_columns(pl.lit(False).alias(DELETED)))

    def commits(self) -> Iterator[list[Change]]:
        """What becomes visible at once: a commit of orders, and at times one of customers."""
        for number in range(1, self.sizes.commits + 1):
            changes = [self._order_commit()]
            if number % self.sizes.every == 0:
                changes.append(self._customer_commit(number))
            yield changes

    def _customers(self, count: int) -> Numbers:
        return self._rng.integers(0, self.sizes.customers + self._later, count)

    @property
    def _later(self) -> int:
        return max(1, int(self.sizes.customers * NEW_CUSTOMERS))

    def _order_commit(self) -> Change:
        rng, count = self._rng, self.sizes.changes
        inserted, gone = int(count * INSERTED), int(count * GONE)
        old = rng.choice(np.flatnonzero(self._there), count - inserted, replace=False)
        new = np.arange(len(self._there), len(self._there) + inserted)
        self._refers = np.concatenate([self._refers, self._customers(inserted)])
        self._there = np.concatenate([self._there, np.ones(inserted, dtype=np.bool_)])
        moved = old[gone:][rng.random(len(old) - gone) < MOVED]
        self._refers[moved] = self._customers(len(moved))
        self._there[old[:gone]] = False
        ids = np.concatenate([old, new])
        rows = order_rows(ids, self._refers[ids], rng).with_columns(pl.Series(DELETED, ~self._there[ids]))
        return Change("orders", rows)

    def _customer_commit(self, number: int) -> Change:
        """Mostly new rows of customers that are there; one in a hundred is deleted, and one is new."""
        rng, sizes = self._rng, self.sizes
        ids = rng.choice(sizes.customers, sizes.customer_changes, replace=False)
        late = sizes.customers + number // sizes.every % self._later
        ids = np.append(ids, late)
        deleted = np.append(rng.random(len(ids) - 1) < 0.01, False)
        return Change("customers", customer_rows(ids, rng).with_columns(pl.Series(DELETED, deleted)))


@dataclass(slots=True)
class Lake:
    """Both tables in a folder, at their first version, and the commits that are not shown yet."""

    folder: Path
    sizes: LakeSizes
    steps: list[dict[str, int]] = field(default_factory=list)
    """Of each step the versions that it makes visible, by table."""
    shown: int = 0

    @classmethod
    def make(cls, folder: Path, sizes: LakeSizes, seed: int = 1) -> Lake:
        lake, data = cls(folder, sizes), Data(sizes, seed)
        for change in data.first():
            write_deltalake(
                lake.uri(change.table),
                change.rows.drop(DELETED).to_arrow(),
                configuration={"delta.enableChangeDataFeed": "true"},
                target_file_size=FILE_BYTES,
            )
        for changes in data.commits():
            lake.steps.append({change.table: lake._commit(change) for change in changes})
        lake._noted.write_text(json.dumps({"sizes": asdict(sizes), "seed": seed, "steps": lake.steps}))
        lake.hide()
        return lake

    @classmethod
    def kept(cls, folder: Path, sizes: LakeSizes, seed: int = 1) -> Lake:
        """One that was made before, at its first version again; it is made if it is missing or another one."""
        lake = cls(folder, sizes)
        if lake._noted.exists():
            noted = json.loads(lake._noted.read_text())
            if (noted["sizes"], noted["seed"]) == (asdict(sizes), seed):
                lake.steps = noted["steps"]
                lake.hide()
                return lake
            shutil.rmtree(folder)
        return cls.make(folder, sizes, seed)

    def hide(self) -> None:
        """Back to the first version of both tables, for the next run."""
        self.shown = 0
        for table in ("orders", "customers"):
            for file in self._log(table).iterdir():
                if not file.name.startswith(f"{0:020}"):
                    file.unlink()

    def uri(self, table: str) -> str:
        return str(self.folder / table)

    def show(self, steps: int) -> int:
        """Makes the next steps visible, the oldest first. Returns the number of changes in them."""
        changes = 0
        for step in self.steps[self.shown : self.shown + steps]:
            for table, version in step.items():
                for file in sorted(self._hidden(table, version).iterdir(), key=_place):
                    copied = self.folder / "copied"
                    shutil.copy2(file, copied)
                    copied.rename(self._log(table) / file.name)
                changes += self.sizes.changes if table == "orders" else self.sizes.customer_changes + 1
            self.shown += 1
        return changes

    def joined(self) -> pl.DataFrame:
        """Orders with their customers, at the versions that are visible."""
        orders, customers = (read(self.uri(table)) for table in ("orders", "customers"))
        taken = customers.select(
            pl.col("id").alias("customer_id"),
            pl.col("name").alias("customer"),
            pl.col("city"),
        )
        joined = orders.join(taken, on="customer_id")
        return joined.select("id", "item", "amount", "customer", "city").sort("id")

    def _commit(self, change: Change) -> int:
        table = DeltaTable(self.uri(change.table))
        fields = {name: f"s.{name}" for name in change.rows.columns if name != DELETED}
        merge = table.merge(
            change.rows.to_arrow(),
            "t.id = s.id",
            source_alias="s",
            target_alias="t",
            commit_properties=CommitProperties(),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False),
        )
        merge = merge.when_matched_delete(f"s.{DELETED}").when_matched_update(fields)
        merge.when_not_matched_insert(fields, f"NOT s.{DELETED}").execute()
        version = table.version()
        if version % CHECKPOINT == 0:
            table.create_checkpoint()
        self._keep(change.table, version)
        return int(version)

    def _keep(self, table: str, version: int) -> None:
        """Copies what a commit has added to the log; the log itself is cut when all commits are made."""
        hidden = self._hidden(table, version)
        hidden.mkdir(parents=True)
        for file in self._log(table).glob(f"{version:020}.*"):
            shutil.copy2(file, hidden / file.name)
        if version % CHECKPOINT == 0:
            shutil.copy2(self._log(table) / "_last_checkpoint", hidden / "_last_checkpoint")

    @property
    def _noted(self) -> Path:
        return self.folder / "lake.json"

    def _log(self, table: str) -> Path:
        return self.folder / table / "_delta_log"

    def _hidden(self, table: str, version: int) -> Path:
        return self.folder / "hidden" / table / str(version)


def _place(file: Path) -> int:
    """A checkpoint comes after its commit, and what names it after both."""
    return (".json", ".parquet", "").index(file.suffix)


def read(uri: str) -> pl.DataFrame:
    """The newest version of a Delta table."""
    found = pl.from_arrow(pa.table(DeltaTable(uri).to_pyarrow_table()))
    assert isinstance(found, pl.DataFrame)
    return found
