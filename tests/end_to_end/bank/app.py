"""The bank's tables joined and totalled: ``crossstream run tests/end_to_end/bank/app.py``.

$BANK is the database and the prefix of its topics, $SERVERS are Kafka's, $LAKE is a folder for Delta tables.
$ENGINE runs the batches, of $RECORDS records; $WHOLE=no leaves source transactions apart.
"""

import os
from dataclasses import dataclass

import polars as pl

import crossstream as cs

BANK, SERVERS, LAKE = (os.environ[name] for name in ("BANK", "SERVERS", "LAKE"))
WHOLE = os.environ.get("WHOLE") != "no"


@dataclass
class Branch:
    id: int
    cents: int


@dataclass
class Account:
    id: int
    branch_id: int
    cents: int


@dataclass
class Transfer:
    id: int
    entries: int


@dataclass
class Entry:
    id: int
    transfer_id: int | None
    account_id: int
    cents: int


builder = cs.StreamsBuilder()
whole = {"transactions": f"{BANK}.transaction"} if WHOLE else {}


def table(name: str, row: type) -> cs.KTable:
    return builder.table(f"{BANK}.public.{name}", source=cs.debezium(row, **whole))


def field(side: str, name: str) -> pl.Expr:
    return pl.col(side).struct.field(name)


def beside(name: str) -> pl.Expr:
    """A balance, and what its entries add up to."""
    return pl.struct(cents=field("left", name), posted=field("right", "posted").fill_null(0))


branches, accounts, transfers = (
    table("branches", Branch),
    table("accounts", Account),
    table("transfers", Transfer),
)
entries = table("entries", Entry)

at_accounts = entries.join(
    accounts,
    pl.struct(
        account_id=field("left", "account_id"),
        branch_id=field("right", "branch_id"),
        cents=field("left", "cents"),
    ),
    foreign_key="account_id",
)
at_branches = at_accounts.join(
    branches, pl.struct(branch_id=field("right", "id"), cents=field("left", "cents")), foreign_key="branch_id"
)
of_transfers = entries.join(transfers, pl.struct(transfer_id=field("right", "id")), foreign_key="transfer_id")

by_account = at_accounts.group_by("account_id").agg(posted=cs.agg.sum("cents"))
by_branch = at_branches.group_by("branch_id").agg(posted=cs.agg.sum("cents"))
by_transfer = of_transfers.group_by("transfer_id").agg(posted=cs.agg.count())

sheets = {
    "accounts": accounts.left_join(by_account, beside("cents"), store="accounts"),
    "branches": branches.left_join(by_branch, beside("cents"), store="branches"),
    "transfers": transfers.left_join(by_transfer, beside("entries"), store="transfers"),
}
for name, sheet in sheets.items():
    sheet.to(f"{BANK}.{name}")
    if name != "transfers":
        sheet.to_delta(f"{LAKE}/{name}", key="id")

of_bank = pl.struct(bank=pl.lit("bank"), cents=pl.col("cents"), posted=pl.col("posted"))
totals = sheets["accounts"].map_values(of_bank).group_by("bank")
totals.agg(cents=cs.agg.sum("cents"), posted=cs.agg.sum("posted"), store="totals").to(f"{BANK}.totals")

config = cs.StreamsConfig(
    application_id=BANK,
    bootstrap_servers=SERVERS,
    processing_guarantee="exactly_once",
    broker_patience="1 minute",
    engine=os.environ.get("ENGINE", "spark"),
    partitions=2,
    retain_batches=1_000,
    durable=False,
    max_records_per_batch=int(os.environ.get("RECORDS", "2000")),
)
