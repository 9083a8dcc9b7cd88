"""What the phases of a batch cost at least: each step alone, on the records of the run, with nothing around it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np
import pyarrow as pa
from confluent_kafka import Message, Producer

from benchmarks.client import Reading
from benchmarks.generate import Topics, create
from benchmarks.ours import Order
from benchmarks.waiting import PARTITIONS
from crossstream.kafka.client import BATCHING

SAMPLE = 100_000
"""Records that each step is done with."""


@dataclass(frozen=True, slots=True)
class Work:
    """What must be done for a record: how often it is read, decoded, sent through a shuffle, stored, written.

    ``records``: how many a run has, of its bench.
    """

    records: Callable[[Any], int]
    read: float
    decoded: float
    shuffled: float
    stored: float
    written: float


def _inputs(bench: Any) -> int:
    return int(bench.workload.left + bench.workload.right)


WORK = {
    "fk left": Work(lambda bench: bench.sizes.updates, 1, 1, 2, 2, 0.8),
    "fk fan-out": Work(lambda bench: bench.sizes.wide * bench.sizes.subscribers, 0, 1, 0, 0, 1),
    "table-table": Work(_inputs, 1, 1, 1, 1, 0.7),
    "stream-table": Work(_inputs, 1, 1, 1, 0, 1),
    "count": Work(_inputs, 1, 1, 1, 0.1, 0.1),
}


def limits_of(servers: str, topics: Topics, work: Work) -> dict[str, float]:
    """Core-seconds for a million records, by phase."""
    orders, reading = _read(servers, topics.orders)
    results, _ = _read(servers, topics.results)
    encoded, produced = _encoded(results), _produced(servers, topics, results)
    return {
        "read": work.read * reading,
        "decode": work.decoded * _decoded(orders),
        "shuffle": work.shuffled * _passed_on(orders),
        "write state": work.stored * _passed_on(orders, is_read=False),
        "encode": work.written * encoded,
        "produce": work.written * produced,
    }


def _timed(records: int, work: Callable[[], object]) -> float:
    """Core-seconds of this process, all of its threads, for a million records; the best of three."""
    spent = []
    for _ in range(3):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent) * 1e6 / max(1, records)


def _read(servers: str, topic: str) -> tuple[list[Message], float]:
    """The first records of a topic, and what the client takes for one."""
    reading = Reading(servers, topic, list(range(PARTITIONS)))
    began = time.process_time()
    found = list(islice(reading.until_end(), SAMPLE))
    spent = time.process_time() - began
    reading.consumer.close()
    return found, spent * 1e6 / max(1, len(found))


def _decoded(messages: Sequence[Message]) -> float:
    lines = b"\n".join(value for message in messages if (value := message.value()))
    decoder = msgspec.json.Decoder(msgspec.defstruct("Flat", get_type_hints(Order).items()))
    return _timed(len(messages), lambda: decoder.decode_lines(lines))


def _encoded(messages: Sequence[Message]) -> float:
    objects = [msgspec.json.decode(value) for message in messages if (value := message.value())]
    encoder = msgspec.json.Encoder()
    return _timed(len(messages), lambda: encoder.encode_lines(objects))


def _passed_on(messages: Sequence[Message], is_read: bool = True) -> float:
    """As columns put in another order, written to a file of Arrow's, and mapped again."""
    numbers = np.arange(len(messages))
    columns = [
        pa.array([message.key() for message in messages], pa.large_binary()),
        pa.array([message.value() for message in messages], pa.large_binary()),
        *[pa.array(numbers)] * 3,
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=["key", "value", "ts", "major", "minor"])
    order = pa.array(np.random.default_rng(0).permutation(numbers))

    def pass_on(path: Path) -> None:
        with path.open("wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write_batch(batch.take(order))
        if is_read:
            pa.ipc.open_stream(pa.memory_map(str(path))).read_all()

    with tempfile.TemporaryDirectory() as folder:
        return _timed(len(messages), lambda: pass_on(Path(folder) / "rows"))


def _produced(servers: str, topics: Topics, messages: Sequence[Message]) -> float:
    """Written once more, to a topic like theirs."""
    beside = Topics.of(f"{topics.prefix}-beside")
    create(servers, beside, PARTITIONS, append_time=True)
    producer = Producer({"bootstrap.servers": servers, **BATCHING, "enable.idempotence": True, "acks": "all"})
    rows = [(message.value(), message.key(), message.partition() or 0) for message in messages]

    def write() -> None:
        for value, key, partition in rows:
            producer.produce(beside.results, value, key, partition)
        producer.flush()

    return _timed(len(rows), write)
