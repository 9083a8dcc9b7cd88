"""The bank: transfers between accounts. Debits and credits are summed, joined and totalled: the total is always zero.

python examples/bank.py folder --transfers 1000000 --kills 5

The application runs in a process of its own, which is killed again and again. Meanwhile this process asks, from
outside, for all balances and for the total. At the end it reads every total that came out.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

import crossstream as cs
from crossstream import serdes
from crossstream.filetopics import FileTopics
from crossstream.topics import OffsetRange, TopicPartition

TEXT, NUMBER = serdes.string(), serdes.int64()
ACCOUNTS = 1_000
PARTITIONS = 4
PIECE = 20_000
"""Transfers that become visible together."""


@dataclass
class Transfer:
    source: str
    target: str
    cents: int


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    transfers = builder.stream("transfers", cs.Consumed(key=TEXT, value=serdes.json(Transfer)))
    credits = transfers.group_by("target").agg(cents=cs.agg.sum("cents"))
    debits = transfers.group_by("source").agg(cents=cs.agg.sum("cents"))
    balance = pl.struct(
        bank=pl.lit("bank"),
        cents=pl.col("left").struct.field("cents").fill_null(0)
        - pl.col("right").struct.field("cents").fill_null(0),
    )
    balances = credits.outer_join(debits, balance, materialized=cs.Materialized(store="balances"))
    total = balances.group_by("bank").agg(
        cents=cs.agg.sum("cents"), materialized=cs.Materialized(store="total")
    )
    total.to_stream().to("totals")
    return builder.build()


def config(folder: str) -> cs.StreamsConfig:
    return cs.StreamsConfig(
        application_id="bank",
        topics_dir=f"{folder}/topics",
        state_dir=f"{folder}/state",
        partitions=PARTITIONS,
        max_records_per_batch=5 * PIECE,
    )


def send(folder: str, transfers: int, seed: int = 1) -> None:
    """Transfers of 1 to 100 cents between any two accounts."""
    topics, rng = FileTopics(f"{folder}/topics", durable=False), random.Random(seed)
    log = topics.log()
    log.create_topic("transfers", PARTITIONS)
    log.create_topic("totals", 1)
    writer = topics.writer()
    for first in range(0, transfers, PIECE):
        count = min(PIECE, transfers - first)
        values = [
            b'{"source":"a%03d","target":"a%03d","cents":%d}'
            % (rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS), rng.randint(1, 100))
            for _ in range(count)
        ]
        keys = [b"t%07d" % number for number in range(first, first + count)]
        records = {"key": keys, "value": values, "timestamp": list(range(first, first + count))}
        kinds = {"key": pa.large_binary(), "value": pa.large_binary(), "timestamp": pa.int64()}
        columns = [pa.array(records[name], kind) for name, kind in kinds.items()]
        columns.append(pa.nulls(count, pa.large_binary()))
        writer.write("transfers", pa.RecordBatch.from_arrays(columns, names=[*kinds, "headers"]))
        writer.flush()


def balances_add_up(folder: str) -> int | None:
    """Checks, from outside, that all balances and the total are zero together; the batch looked at, None before one."""
    try:
        balances, total = (cs.open_store(f"{folder}/state", name) for name in ("balances", "total"))
    except cs.StateError:
        return None
    rows = balances.to_polars()
    if not len(rows):
        return None
    assert rows["value"].struct.field("cents").sum() == 0, "the balances do not add up"
    assert total.get("bank") == {"cents": 0}, f"the total is {total.get('bank')}"
    return len(rows)


def run(folder: str) -> None:
    """The application, until it has processed every transfer."""
    with cs.SparkStreams(build(), config(folder)) as app:
        app.process_available()


def main(folder: str, transfers: int = 1_000_000, kills: int = 5, seed: int = 1) -> int:
    """Returns how often the balances were looked at."""
    send(folder, transfers, seed)
    rng, looks = random.Random(seed), 0
    command = [sys.executable, __file__, folder, "--run"]
    for life in range(kills + 1):
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        until = time.monotonic() + (rng.uniform(6, 12) if life < kills else 3_600)
        while process.poll() is None and time.monotonic() < until:
            looks += balances_add_up(folder) is not None
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, "the last life did not end by itself"
    assert balances_add_up(folder), "no account has a balance"
    totals = totals_of(folder)
    assert totals, "no total came out"
    assert set(totals) == {b'{"cents":0}'}, totals
    return looks


def totals_of(folder: str) -> list[bytes]:
    """The value of each total that came out."""
    log, reader = FileTopics(f"{folder}/topics").log(), FileTopics(f"{folder}/topics").reader()
    place = TopicPartition("totals", 0)
    span = OffsetRange("totals", 0, 0, log.end_offsets([place])[place])
    return [value for records in reader.read(span, 100_000) for value in records.column("value").to_pylist()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--transfers", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--run", action="store_true", help="is the application")
    given = parser.parse_args()
    if given.run:
        run(str(given.folder))
    else:
        print(f"the total was zero each of the {main(str(given.folder), given.transfers, given.kills)} times")
