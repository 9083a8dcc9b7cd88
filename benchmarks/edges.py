"""`crossstream bench edges`: what a record costs between Kafka and Arrow columns, with the native part and without.

Each side is a process that reads a topic and writes it again, by the reader and the writer that applications have;
client threads count. It does so once for nothing. What it wrote is read back and compared with what was there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import monotonic

import numpy as np
import pyarrow as pa

from benchmarks import report
from benchmarks.data import START_MS, updates_of
from benchmarks.ours import ROOT
from crossstream.dev import broker
from crossstream.kafka import KafkaConnection
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.native.library import library
from crossstream.records import PRODUCER_RECORDS, RECORDS
from crossstream.serdes.native_part import SWITCH
from crossstream.topics import OffsetRange, TopicPartition

SIDES = {"native": "on", "python": "off"}
PARTITIONS = 4
COUNT = 2_000_000
BATCH_ROWS = 100_000
SOURCE = "edges-source"

Batches = list[tuple[int, pa.RecordBatch]]
"""Of one partition each."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds and core-seconds of reading and of writing."""

    read: float
    read_cores: float
    written: float
    written_cores: float


def fill(connection: KafkaConnection, records: int) -> None:
    """Updates of orders, as `crossstream bench fk` has them."""
    log, writer = connection.log(), connection.writer()
    log.create_topic(SOURCE, PARTITIONS, {"retention.ms": "-1"})
    for chunk in updates_of(max(1, records // 2), records, 100_000, 1).messages(START_MS):
        columns = [*map(list, zip(*chunk, strict=True)), [None] * len(chunk)]
        named = dict(zip(PRODUCER_RECORDS.names, columns, strict=True))
        writer.write(SOURCE, pa.RecordBatch.from_pydict(named, PRODUCER_RECORDS))
    writer.flush()
    writer.close()
    log.close()


def spans_of(log: KafkaLog, topic: str) -> list[OffsetRange]:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    return [OffsetRange(topic, place.partition, 0, end) for place, end in log.end_offsets(places).items()]


def is_same(one: Batches, other: Batches) -> bool:
    """Whether each partition has the same records in the same order, however they were cut."""
    return all(_partition(one, number).equals(_partition(other, number)) for number in range(PARTITIONS))


def _partition(batches: Batches, number: int) -> pa.Table:
    return pa.Table.from_batches([batch for of, batch in batches if of == number], RECORDS)


def copy(connection: KafkaConnection, target: str) -> tuple[Spent, bool]:
    """Reads the source and writes it to a new topic; what that took, and whether it is the same there."""
    log, reader, writer = connection.log(), connection.reader(), connection.writer()
    log.create_topic(target, PARTITIONS, {"retention.ms": "-1"})
    spans = spans_of(log, SOURCE)
    began, cores = monotonic(), _cores()
    batches = [(span.partition, batch) for span, batch in reader.read_many(spans, BATCH_ROWS)]
    read, read_cores = monotonic() - began, _cores() - cores
    began, cores = monotonic(), _cores()
    for partition, batch in batches:
        writer.write(target, batch, np.full(batch.num_rows, partition))
    writer.flush()
    spent = Spent(read, read_cores, monotonic() - began, _cores() - cores)
    there = [(span.partition, batch) for span, batch in reader.read_many(spans_of(log, target), BATCH_ROWS)]
    same = is_same(there, batches)
    for client in (log, reader, writer):
        client.close()
    return spent, same


def _cores() -> float:
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def served(port: int) -> Iterator[KafkaConnection]:
    info = broker.start(port, Path(tempfile.mkdtemp(prefix="crossstream-bench-broker-")))
    try:
        yield KafkaConnection(info.bootstrap_servers)
    finally:
        broker.stop(port)


def measured(side: str, servers: str, number: int) -> Spent:
    """One run of a side, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.edges", "--copy", servers, "--number", str(number)]
    environment = {**os.environ, SWITCH: SIDES[side]}
    ran = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return Spent(**json.loads(ran.stdout.splitlines()[-1]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench edges", description=__doc__)
    parser.add_argument("--sides", default=",".join(SIDES), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side, alternating")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    parser.add_argument("--port", type=int, default=19892)
    parser.add_argument("--write", action="store_true", help="into RESULTS.md, with a picture")
    parser.add_argument("--copy", help=argparse.SUPPRESS)
    parser.add_argument("--number", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.copy:
        return one_side(KafkaConnection(arguments.copy), arguments.number)
    sides = runnable(arguments.sides.split(","))
    records = max(PARTITIONS, int(COUNT * arguments.scale))
    spent: dict[str, list[Spent]] = {side: [] for side in sides}
    with served(arguments.port) as connection:
        fill(connection, records)
        for turn in range(arguments.rounds):
            for number, side in enumerate(sides):
                took = measured(side, connection.bootstrap_servers, turn * len(sides) + number)
                spent[side].append(took)
                print(json.dumps({"side": side, "records": records, **asdict(took)}), flush=True)
    show(spent, records, write=arguments.write)
    return 0


def one_side(connection: KafkaConnection, number: str) -> int:
    for turn in ("nothing", "measured"):
        spent, same = copy(connection, f"edges-{turn}-{number}")
        if not same:
            raise RuntimeError("what was written is not what was read")
    print(json.dumps(asdict(spent)), flush=True)
    return 0


def runnable(sides: list[str]) -> list[str]:
    """The sides, without the native one where it is not installed."""
    if "native" in sides and library() is None:
        print("without native: crossstream-native is not installed (make setup)")
        return [side for side in sides if side != "native"]
    return sides


def show(spent: dict[str, list[Spent]], records: int, *, write: bool) -> None:
    """Medians, as a table; into the results and a picture if they are to be written."""

    def median(side: str, name: str) -> float:
        seconds: float = statistics.median(getattr(run, name) for run in spent[side])
        return seconds / records * 1_000_000

    names = {"reading": "read", "writing": "written"}
    rows = [
        (what, side, f"{median(side, f'{name}_cores'):.2f}", f"{1_000_000 / median(side, name):,.0f}")
        for what, name in names.items()
        for side in spent
    ]
    body = report.table(("", "side", "µs of a core a record", "records a second"), rows)
    print(body)
    if write:
        command = f"`crossstream bench edges`: {records:,} records in {PARTITIONS} partitions, medians."
        report.section("Between Kafka and Arrow", f"{command}\n\n{body}")
        groups = {
            what: {side: median(side, f"{name}_cores") for side in spent} for what, name in names.items()
        }
        report.bars("edges", "A record between Kafka and Arrow", groups, "microseconds of a core")


if __name__ == "__main__":
    raise SystemExit(main())
