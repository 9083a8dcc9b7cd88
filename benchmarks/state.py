"""`crossstream bench state`: what a batch costs besides its records, and what the size of the state changes.

fixed     seconds of a batch of 100 records: in one task, and with two shuffles
restart   seconds from a ready session to the first committed batch, with the state of 500,000 orders; of Kafka Streams
          from its start until it runs, with its state on the disk and without
growth    seconds of a batch of 20,000 updates over a large state, and over one a twentieth of its size

"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.data import CITIES, START_MS, updates_of
from benchmarks.fk import PEER_SETTINGS, SPREAD, Bench, Sizes, machine
from benchmarks.generate import Sending, Sent, Topics, produce_fk
from benchmarks.ours import Ours
from benchmarks.peers.kafka_streams.peer import KafkaStreamsPeer
from benchmarks.waiting import PARTITIONS, Waiting
from crossstream.filetopics import FileTopics

SIDE = "crossstream-expressions"
PEER = "kafka-streams-defaults"


def fixed(bench: Bench) -> None:
    """Small batches by one task, as they are, and by all tasks with two shuffles."""
    for side in (SIDE, f"{SIDE}{SPREAD}"):
        _fixed(bench, side)


def _fixed(bench: Bench, side: str, batches: int = 40, records: int = 100) -> None:
    """Small batches, one a second, into an application that has its state."""
    prefix = bench.prefix("fixed")
    running, manager = bench.caught_up(prefix, lambda: filled(bench, prefix), side)
    try:
        before = len(running.batches)
        for number in range(batches):
            if number == batches // 2:
                parts, done = running.cpu_parts(), len(running.batches)
            send_updates(bench, prefix, records, seed=100 + number)
            time.sleep(0.7)
        cores = {part: seconds - parts[part] for part, seconds in running.cpu_parts().items()}
        done = len(running.batches) - done
        time.sleep(2)
        took = [b["seconds"] for b in running.batches[before:] if b["rows"] >= records]
    finally:
        manager.__exit__(None, None, None)
    steady = took[len(took) // 2 :]
    bench.note("seconds of a batch of 100 records", side, statistics.median(steady), batches=len(steady))
    for part, seconds in cores.items():
        bench.note(f"core-milliseconds of a batch of 100 records, {part}", side, 1000 * seconds / done)


def restart(bench: Bench, times: int = 3) -> None:
    """Stops the application and starts it again, and Kafka Streams."""
    _restart_peer(bench, times)
    _restart(bench, times)


def _restart_peer(bench: Bench, times: int) -> None:
    """With the state it left on its disk, and with an empty folder, as on another machine."""
    prefix, folder = bench.prefix("restart"), Path(tempfile.mkdtemp(prefix="kafka-streams-bench-"))

    def started(state: Path) -> KafkaStreamsPeer:
        settings = {"consumer.isolation.level": "read_committed", **PEER_SETTINGS[PEER]}
        return KafkaStreamsPeer(
            bench.servers, prefix, Topics.of(prefix), settings=settings, state_dir=state, patience=300
        )

    waiting_for = filled(bench, prefix)
    waiting = Waiting(bench.servers, Topics.of(prefix).results)
    with started(folder / "kept") as first:
        waiting.until(waiting_for.ends, first.check)
    for number in range(times):
        for what, state in (("kept", folder / "kept"), ("restored", folder / f"new-{number}")):
            with started(state) as again:
                seconds = again.seconds_to_restore
            bench.note(f"seconds until it runs, state {what}", PEER, seconds)
    shutil.rmtree(folder, ignore_errors=True)


def _restart(bench: Bench, times: int) -> None:
    """Stops the application, sends one record, starts it in a new session."""
    state = Path(tempfile.mkdtemp(prefix="crossstream-bench-state-"))
    prefix = bench.prefix("restart")
    sent = filled(bench, prefix)
    del sent
    with Ours(bench.servers, prefix, Topics.of(prefix), state_dir=state) as first:
        wait_for_rows(first, bench.sizes.orders)
    for number in range(times):
        send_updates(bench, prefix, 1, seed=200 + number)
        with Ours(bench.servers, prefix, Topics.of(prefix), state_dir=state) as again:
            while not again.batches:
                again.check()
                time.sleep(0.05)
            seconds = again.batches[0]["since_start"]
        bench.note("seconds from a ready session to the first committed batch", SIDE, seconds)
    shutil.rmtree(state, ignore_errors=True)


def growth(bench: Bench, large: int, updates: int = 20_000, batches: int = 12) -> None:
    """Updates over a state of ``large`` orders and over one a twentieth of it, on file topics, in turn."""
    medians = {}
    for orders in (large // 20, large):
        folder = Path(tempfile.mkdtemp(prefix="crossstream-bench-growth-"))
        topics = Topics.of("growth")
        customers = 100_000
        append(folder, topics.customers, customer_columns(customers))
        append(folder, topics.orders, order_columns(np.arange(orders), customers, 1))
        with Ours(
            "", "growth", topics, topics_dir=folder / "topics", state_dir=folder / "state", patience=600
        ) as running:
            wait_for_rows(running, orders + customers)
            before = len(running.batches)
            rng = np.random.default_rng(7)
            for number in range(batches):
                append(
                    folder,
                    topics.orders,
                    order_columns(rng.integers(0, orders, updates), customers, 2 + number),
                )
                wait_for_rows(running, orders + customers + (number + 1) * updates)
            took = [b["seconds"] for b in running.batches[before:] if b["rows"] == updates]
        shutil.rmtree(folder, ignore_errors=True)
        medians[orders] = statistics.median(took[2:])
        bench.note(f"seconds of a batch of {updates} updates over {orders} orders", SIDE, medians[orders])
    bench.note(
        "cost of an update, large state against a twentieth", SIDE, medians[large] / medians[large // 20]
    )


def filled(bench: Bench, prefix: str) -> Sent:
    sizes = bench.sizes
    return produce_fk(bench.servers, prefix, sizes.customers, sizes.orders, sizes.orders, PARTITIONS)


def send_updates(bench: Bench, prefix: str, records: int, seed: int) -> None:
    sizes = bench.sizes
    with Sending(bench.servers, prefix, settings={"linger.ms": 0}) as sending:
        sending.orders(
            updates_of(sizes.orders, records, sizes.customers, seed).messages(START_MS + 10_000_000)
        )


def wait_for_rows(running: Ours, rows: int) -> None:
    while sum(batch["rows"] for batch in running.batches) < rows:
        running.check()
        time.sleep(0.05)


def append(folder: Path, topic: str, chunks: Iterator[pa.RecordBatch]) -> None:
    """Records into a file topic of `PARTITIONS` partitions."""
    connection = FileTopics(str(folder / "topics"), durable=False)
    log = connection.log()
    for name in (topic, Topics.of("growth").results) if topic.endswith("-orders") else (topic,):
        if name not in log.topics():
            log.create_topic(name, PARTITIONS)
    log.close()
    writer = connection.writer()
    for chunk in chunks:
        writer.write(topic, chunk)
    writer.flush()
    writer.close()


def order_columns(
    orders: np.ndarray, customers: int, seed: int, chunk: int = 100_000
) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(seed)
    for start in range(0, len(orders), chunk):
        part = orders[start : start + chunk].tolist()
        refers = rng.integers(0, customers, len(part)).tolist()
        cents = rng.integers(100, 99999, len(part)).tolist()
        values = [
            b'{"customer_id":"c%07d","item":"item-00001","quantity":1,"amount":%d.%02d,"status":"open"}'
            % (customer, cent // 100, cent % 100)
            for customer, cent in zip(refers, cents, strict=True)
        ]
        yield records([b"o%08d" % order for order in part], values)


def customer_columns(customers: int) -> Iterator[pa.RecordBatch]:
    numbers = range(customers)
    values = [
        b'{"name":"Customer %07d","city":"%b","tier":"gold","since":2001,"newsletter":true}'
        % (number, CITIES[number % len(CITIES)].encode())
        for number in numbers
    ]
    yield records([b"c%07d" % number for number in numbers], values)


def records(keys: Sequence[bytes], values: Sequence[bytes]) -> pa.RecordBatch:
    binary = pa.large_binary()
    columns: list[Any] = [
        pa.array(keys, binary),
        pa.array(values, binary),
        pa.array(np.full(len(keys), START_MS)),
        pa.nulls(len(keys), binary),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "timestamp", "headers"])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench state", description=__doc__)
    parser.add_argument("figures", nargs="*", default=["fixed", "restart", "growth"])
    parser.add_argument("--large", type=int, default=10_000_000, help="orders of the large state")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--port", type=int, default=19293)
    arguments = parser.parse_args(argv)
    full = Sizes()
    sizes = Sizes(int(full.customers * arguments.scale), int(full.orders * arguments.scale))
    print(json.dumps(machine()), flush=True)
    bench = Bench(sizes, arguments.port, 1, [SIDE])
    try:
        for figure in arguments.figures:
            if figure == "growth":
                growth(bench, arguments.large)
            else:
                {"fixed": fixed, "restart": restart}[figure](bench)
    finally:
        bench.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
