"""`crossstream bench driver`: records a second through a join in the test drivers, ours and Kafka's own.

The same records on both sides, piped one by one: each is a batch of its own. Then ours once more with all records of a
round in one batch. No Kafka, no Spark; keys and values are those of the other benchmarks, serialised beforehand.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import joins_app, ours
from benchmarks.arguments import runnable
from benchmarks.data import START_MS, Message, customer_messages, updates_of
from benchmarks.fk import machine
from benchmarks.generate import Topics
from benchmarks.keyed_data import keyed_customers, keyed_orders
from benchmarks.peers.java import java
from benchmarks.peers.kafka_streams import peer

JOINS = ("table-table", "fk", "stream-stream", "stream-stream-left", "stream-table", "stream-global")
SIDES = ("kafka-streams", "crossstream-callables", "crossstream-expressions")
TOPICS = Topics.of("driver")
KEYS = 2_000
ROUNDS = 7
"""The median one counts; the first ones warm up."""
ONE_BY_ONE, BATCH = 1_000, 100_000
"""Records of a round."""

Piped = list[tuple[str, Message]]
"""Records, and the topic of each."""


def records(join: str, keys: int, count: int, rounds: int) -> Iterator[Piped]:
    """Right and left records in turn, equally many of both."""
    half = count // 2
    total = half * rounds
    if join == "fk":
        lefts = updates_of(keys, total, keys, 1).messages(START_MS, chunk=total)
        rights = customer_messages([number % keys for number in range(total)], 1, START_MS, chunk=total)
    else:
        lefts = keyed_orders(keys, total, 1, START_MS, chunk=total)
        rights = keyed_customers(keys, total, 1, START_MS, chunk=total)
    pairs = list(zip(next(lefts), next(rights), strict=True))
    for number in range(rounds):
        part = pairs[number * half : (number + 1) * half]
        yield [one for left, right in part for one in ((TOPICS.customers, right), (TOPICS.orders, left))]


def mode_of(join: str) -> tuple[str, str]:
    """Which join, and of which kind."""
    return (join.removesuffix("-left"), "left") if join.endswith("-left") else (join, "inner")


def topology(join: str, style: str) -> Any:
    if join == "fk":
        return ours.topology(TOPICS, style)
    mode, kind = mode_of(join)
    return joins_app.joined(TOPICS, f"{mode}/{kind}/{style}")


def through_ours(
    join: str, style: str, rounds: Sequence[Piped], commit_every: int
) -> tuple[list[float], int]:
    """Seconds of each round, and the number of results."""
    import crossstream as cs
    from crossstream import serdes

    as_is, seconds, results = serdes.bytes(), [], 0
    with cs.TopologyTestDriver(topology(join, style), commit_every=commit_every) as driver:
        inputs = {
            name: driver.create_input_topic(name, as_is, as_is) for name in (TOPICS.orders, TOPICS.customers)
        }
        output = driver.create_output_topic(TOPICS.results, as_is, as_is)
        for piped in rounds:
            by_topic = {name: [message for topic, message in piped if topic == name] for name in inputs}
            began = time.perf_counter()
            if commit_every == 1:
                for topic, (key, value, timestamp) in piped:
                    inputs[topic].pipe_input(key, value, timestamp)
            else:
                for name, messages in by_topic.items():
                    inputs[name].pipe_records(messages)
                driver.commit()
            seconds.append(time.perf_counter() - began)
            results += len(output.read_key_values())
    return seconds, results


def through_kafka_streams(join: str, rounds: Sequence[Piped]) -> tuple[list[float], int]:
    """The same in Kafka's own test driver, in a JVM of its own."""
    peer.PROGRAM.build()
    mode, kind = mode_of(join)
    with tempfile.TemporaryDirectory(prefix="crossstream-bench-") as folder:
        application = peer.KafkaStreamsPeer("unused:1", "driver", TOPICS, mode=mode, type=kind)
        words = {**application.arguments, "state-dir": folder}
        done = subprocess.run(
            [
                *(java(), *peer.JVM_OPTIONS, "-cp", str(peer.PROGRAM.made), "crossstream.peer.Driver"),
                *(word for name, value in words.items() for word in (f"--{name}", value)),
            ],
            input=b"\n\n".join(b"\n".join(map(_line, piped)) for piped in rounds),
            capture_output=True,
            check=True,
        )
    told = json.loads(done.stdout)
    return told["seconds"], told["results"]


def _line(piped: tuple[str, Message]) -> bytes:
    topic, (key, value, timestamp) = piped
    parts = [topic.encode(), b"%d" % timestamp, key]
    return b"\t".join(parts if value is None else [*parts, value])


def measure(join: str, sides: Sequence[str], scale: float = 1.0) -> dict[str, Any]:
    """Records a second by side; all sides must give as many results."""
    few, many = (max(10, int(count * scale)) // 2 * 2 for count in (ONE_BY_ONE, BATCH))
    one_by_one = list(records(join, KEYS, few, ROUNDS))
    figures: dict[str, Any] = {"join": join}
    counts = set()
    for side in sides:
        if side == "kafka-streams":
            seconds, results = through_kafka_streams(join, one_by_one)
        else:
            seconds, results = through_ours(join, side.removeprefix("crossstream-"), one_by_one, 1)
        counts.add(results)
        figures[side] = round(few / statistics.median(seconds))
    if len(counts) != 1:
        raise AssertionError(f"{join}: the sides gave different numbers of results: {sorted(counts)}")
    in_batches = list(records(join, many // 5, many, 3))
    for side in sides:
        if side != "kafka-streams":
            seconds, _ = through_ours(join, side.removeprefix("crossstream-"), in_batches, 10**9)
            figures[f"{side}, big batches"] = round(many / statistics.median(seconds))
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="crossstream bench driver", description=__doc__)
    parser.add_argument("joins", nargs="*", default=list(JOINS), help=f"of {', '.join(JOINS)}")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full sizes")
    arguments = parser.parse_args(argv)
    sides = runnable(arguments.sides.split(","))
    print(json.dumps(machine()))
    for join in arguments.joins:
        print(json.dumps(measure(join, sides, arguments.scale)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
