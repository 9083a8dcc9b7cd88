"""Threads of native clients end with them, and a process that was forked leaves its parent's clients alone."""

from __future__ import annotations

import gc
import os
import time

import psutil
import pyarrow as pa
import pytest

from crossstream.kafka import KafkaConnection
from crossstream.kafka.client import Complaints, open_consumer, open_producer
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.native.consumer import NativeConsumer
from crossstream.topics import OffsetRange
from tests.kafka.edges import needs_native
from tests.kafka.fixtures import new_topic, numbered, offsets_of

pytestmark = [needs_native, pytest.mark.kafka]

NOWHERE = KafkaConnection("127.0.0.1:1")


def threads() -> int:
    return psutil.Process().num_threads()


def test_threads_end_with_their_client() -> None:
    before = threads()
    consumer, producer = open_consumer(NOWHERE, Complaints()), open_producer(NOWHERE, Complaints())
    assert threads() > before
    consumer.close()
    consumer.close()
    del consumer, producer
    gc.collect()
    deadline = time.monotonic() + 5
    while threads() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_closed_client_says_so() -> None:
    consumer = open_consumer(NOWHERE, Complaints())
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.take(1, 0)


def test_records_outlive_their_client(log: KafkaLog, broker: KafkaConnection) -> None:
    topic, writer, reader = new_topic(log), broker.writer(), broker.reader()
    writer.write(topic, numbered(0, 5_000))
    writer.flush()
    writer.close()
    batches = list(reader.read(OffsetRange(topic, 0, 0, 5_000), 700))
    assert isinstance(reader._consumer, NativeConsumer)
    reader.close()
    del reader
    gc.collect()
    assert offsets_of(batches) == list(range(5_000))
    assert pa.Table.from_batches(batches).column("value").to_pylist()[-1] == b"4999"


def test_a_forked_process_ends_without_its_parents_clients(log: KafkaLog, broker: KafkaConnection) -> None:
    topic, writer, reader = new_topic(log), broker.writer(), broker.reader()
    writer.write(topic, numbered(0, 10))
    writer.flush()
    assert offsets_of(list(reader.read(OffsetRange(topic, 0, 0, 5), 100))) == list(range(5))
    child = os.fork()
    if child == 0:
        reader.close()
        writer._producer = None
        gc.collect()
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert offsets_of(list(reader.read(OffsetRange(topic, 0, 5, 10), 100))) == list(range(5, 10))
    writer.write(topic, numbered(10, 20))
    writer.flush()
    assert offsets_of(list(reader.read(OffsetRange(topic, 0, 10, 20), 100))) == list(range(10, 20))
    reader.close()
    writer.close()


def test_memory_does_not_grow_with_what_was_read(log: KafkaLog, broker: KafkaConnection) -> None:
    topic, writer, reader = new_topic(log), broker.writer(), broker.reader()
    big = numbered(0, 5_000)
    writer.write(topic, big)
    writer.flush()

    def read(times: int) -> int:
        for _ in range(times):
            assert sum(b.num_rows for b in reader.read(OffsetRange(topic, 0, 0, 5_000), 1_000)) == 5_000
            writer.write(topic, big)
            writer.flush()
        return psutil.Process().memory_info().rss

    before = read(10)
    assert read(40) - before < 20_000_000  # they are 40 MB
    reader.close()
    writer.close()
