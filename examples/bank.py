"""The bank: transfers between accounts. Debits and credits are summed, joined and totalled: the total is always zero.

    python examples/bank.py FOLDER --transfers 1000000 --kills 5

The application runs in a process group of its own, which is killed (SIGKILL) again and again. Meanwhile this process
asks, from outside, for all balances and for the total. At the end it reads every total that came out, and compares the
balances with the transfers. FOLDER must be new.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import polars as pl
import pyarrow as pa

import crossstream as cs
from crossstream.filetopics import FileTopics
from crossstream.topics import OffsetRange, TopicPartition

ACCOUNTS = 1_000
PARTITIONS = 4
BATCHES = 50
"""In so many batches all transfers are processed."""


@dataclass
class Transfer:
    source: str
    target: str
    cents: int


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    transfers = builder.stream("transfers", value=Transfer)
    credits = transfers.group_by("target").agg(cents=cs.agg.sum("cents"))
    debits = transfers.group_by("source").agg(cents=cs.agg.sum("cents"))
    balance = pl.struct(
        bank=pl.lit("bank"),
        cents=pl.col("left").struct.field("cents").fill_null(0)
        - pl.col("right").struct.field("cents").fill_null(0),
    )
    balances = credits.outer_join(debits, balance, store="balances")
    total = balances.group_by("bank").agg(cents=cs.agg.sum("cents"), store="total")
    total.to("totals")
    return builder.build()


def run(folder: str, transfers: int) -> None:
    """The application, until it has processed every transfer."""
    config = cs.StreamsConfig(
        application_id="bank",
        topics_dir=f"{folder}/topics",
        state_dir=f"{folder}/state",
        partitions=PARTITIONS,
        max_records_per_batch=max(1, transfers // BATCHES),
    )
    with cs.SparkStreams(build(), config) as app:
        app.process_available()


def random_transfers(seed: int) -> Iterator[tuple[int, int, int]]:
    """Of 1 to 100 cents between any two accounts: source, target, cents."""
    rng = random.Random(seed)
    while True:
        yield rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), rng.randint(1, 100)


def send(folder: str, transfers: int, seed: int) -> None:
    """Writes the transfers; the timestamp of each is its number."""
    topics = FileTopics(f"{folder}/topics", durable=False)
    topics.log().create_topic("transfers", PARTITIONS)
    topics.log().create_topic("totals", 1)
    values = [
        b'{"source":"a%03d","target":"a%03d","cents":%d}' % transfer
        for transfer in islice(random_transfers(seed), transfers)
    ]
    records = pa.record_batch(
        {
            "key": pa.array([b"t%07d" % number for number in range(transfers)], pa.large_binary()),
            "value": pa.array(values, pa.large_binary()),
            "timestamp": pa.array(range(transfers), pa.int64()),
            "headers": pa.nulls(transfers, pa.large_binary()),
        }
    )
    writer = topics.writer()
    for first in range(0, transfers, 20_000):
        writer.write("transfers", records.slice(first, 20_000))
    writer.flush()


def look(folder: str) -> int | None:
    """Checks, from outside, that the balances add up to zero, and that the total is zero.

    Returns the number of the last transfer among them; None before the first batch.
    """
    try:
        balances, total = (cs.open_store(f"{folder}/state", name) for name in ("balances", "total"))
    except cs.StateError:
        return None
    rows = balances.to_polars()
    if rows.is_empty():
        return None
    added = rows["value"].struct.field("cents").sum()
    assert added == 0, f"the balances add up to {added}"
    assert total.get("bank") == {"cents": 0}, f"the total is {total.get('bank')}"
    return int(str(rows["timestamp"].max()))


@dataclass
class Report:
    transfers: int
    kills: int = 0
    queries: int = 0
    states: int = 0
    """Different states that the queries saw."""
    totals: int = 0
    """Totals that came out: one for each batch."""


def main(folder: str, transfers: int = 1_000_000, kills: int = 5, seed: int = 1) -> Report:
    send(folder, transfers, seed)
    report, rng = Report(transfers), random.Random(seed)
    seen: set[int | None] = {None}
    while True:
        command = [sys.executable, __file__, folder, "--transfers", str(transfers), "--run"]
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        before, until = len(seen), float("inf")
        while process.poll() is None and time.monotonic() < until:
            seen.add(look(folder))
            report.queries += len(seen) > 1
            time.sleep(0.1)
            if len(seen) > before and until == float("inf") and report.kills < kills:
                until = time.monotonic() + rng.uniform(0, 1)  # after a batch, so that each life gets on
        if process.returncode is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        report.kills += 1
    assert process.returncode == 0, "the last life failed"
    assert report.kills == kills, f"everything was processed after {report.kills} kills"
    report.states = len(seen | {look(folder)}) - 1

    store = cs.open_store(f"{folder}/state", "balances")
    assert {key: value["cents"] for key, value in store.all()} == balances_of(transfers, seed)
    totals = totals_of(folder)
    assert set(totals) == {b'{"cents":0}'}, totals
    report.totals = len(totals)
    return report


def balances_of(transfers: int, seed: int) -> dict[str, int]:
    """What the balances must be at the end: each transfer counts exactly once."""
    balances: Counter[str] = Counter()
    for source, target, cents in islice(random_transfers(seed), transfers):
        balances[f"a{target:03d}"] += cents
        balances[f"a{source:03d}"] -= cents
    return dict(balances)


def totals_of(folder: str) -> list[bytes]:
    """The value of each total that came out."""
    topics, partition = FileTopics(f"{folder}/topics"), TopicPartition("totals", 0)
    everything = OffsetRange("totals", 0, 0, topics.log().end_offsets([partition])[partition])
    batches = topics.reader().read(everything, 100_000)
    return [value for records in batches for value in records.column("value").to_pylist()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--transfers", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--run", action="store_true", help="is the application")
    given = parser.parse_args()
    if given.run:
        run(given.folder, given.transfers)
    else:
        report = main(given.folder, given.transfers, given.kills)
        print(f"{report.transfers} transfers, killed {report.kills} times")
        print(f"{report.queries} queries saw {report.states} different states: the total of each is zero")
        print(f"{report.totals} totals came out: each is zero")
