"""Many records are produced one partition after the other: the order within each partition stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream.kafka import KafkaConnection, producer
from crossstream.kafka.client import Complaints, open_producer
from crossstream.kafka.messages import MessageOutgoing, MessageProducer
from crossstream.kafka.native.producer import NativeOutgoing
from crossstream.kafka.producer import KafkaWriter
from crossstream.partitioning import Partitions, murmur2_partitions
from crossstream.runtime.staged_records import BY_KEY
from tests.kafka.edges import NATIVE, needs_native
from tests.kafka.fixtures import records

pytestmark = pytest.mark.parametrize("native", [pytest.param(True, marks=needs_native), False])

COUNT = 5
KEYS = st.sampled_from([None, b"", *(b"%d" % key for key in range(40))])
PARTITIONS = st.integers(BY_KEY, COUNT - 1)


class Sent(list[tuple[bytes | None, bytes, int]]):
    """What is sent in the end: key, value, partition. A producer that takes all at once."""

    def __init__(self, known: int | None, native: bool) -> None:
        super().__init__()
        self.known, self.native = known, native

    def outgoing(
        self, topic: str, records: pa.RecordBatch, partitions: Partitions | None, count: int | None
    ) -> Any:
        if self.native:
            assert unused is not None
            order = NativeOutgoing(unused, topic, records, partitions, count).order()
            records = records.take(pa.array(order, pa.int64()))
            return MessageOutgoing(self, topic, records, None if partitions is None else partitions[order])  # type: ignore[arg-type]
        return MessageProducer.outgoing(self, topic, records, partitions, count)  # type: ignore[arg-type]

    def produce(self, topic: str, value: bytes, key: bytes | None, partition: int, *_: Any) -> None:
        self.append((key, value, partition))

    def poll(self, seconds: float) -> int:
        return 0

    def failure(self) -> None: ...


unused: Any = open_producer(KafkaConnection("127.0.0.1:1"), Complaints()) if NATIVE else None


def produced(
    rows: list[tuple[bytes | None, int]], is_given: bool, count: int | None, chunk: int, native: bool
) -> Sent:
    """What a producer gets if the rows are written in chunks of this size; their values are their numbers."""
    to = Sent(count, native)
    writer = KafkaWriter(KafkaConnection("nowhere"))
    batch = records(*((key, b"%d" % number) for number, (key, _) in enumerate(rows)))
    chosen = [partition for _, partition in rows] if is_given else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer, "CHUNK", chunk)
        patch.setattr(producer, "WORTH_SORTING", 2)
        patch.setattr(writer._counts, "known", lambda topic, producer: to.known)
        writer._pass_on(to, "topic", batch, chosen)  # type: ignore[arg-type]
    return to


def place(key: bytes | None, partition: int) -> object:
    """Where a record goes. Without a key it may go anywhere."""
    if partition != BY_KEY:
        return partition
    return "anywhere" if key is None else murmur2_partitions([key], COUNT)[0]


@given(
    rows=st.lists(st.tuples(KEYS, PARTITIONS), max_size=60), is_given=st.booleans(), chunk=st.integers(1, 50)
)
def test_each_partition_gets_its_records_in_their_order(
    native: bool, rows: list[tuple[bytes | None, int]], is_given: bool, chunk: int
) -> None:
    wanted: dict[object, list[tuple[bytes | None, bytes, int]]] = {}
    for number, (key, partition) in enumerate(rows):
        chosen = partition if is_given else BY_KEY
        wanted.setdefault(place(key, chosen), []).append((key, b"%d" % number, chosen))
    found: dict[object, list[tuple[bytes | None, bytes, int]]] = {}
    for key, value, partition in produced(rows, is_given, COUNT, chunk, native):
        found.setdefault(place(key, partition), []).append((key, value, partition))
    assert found == wanted


@given(rows=st.lists(st.tuples(KEYS, PARTITIONS), max_size=60), count=st.integers(1, 9))
def test_each_key_keeps_its_order_whatever_number_of_partitions_is_known(
    native: bool, rows: list[tuple[bytes | None, int]], count: int
) -> None:
    """A topic may have got more of them meanwhile."""
    to = produced(rows, False, count, 20, native)
    for key in {key for key, _ in rows}:
        numbers = [int(value) for name, value, _ in to if name == key]
        assert numbers == [number for number, (name, _) in enumerate(rows) if name == key]


def test_nothing_changes_as_long_as_no_broker_says_how_many_partitions_there_are(native: bool) -> None:
    rows: list[tuple[bytes | None, int]] = [(b"%d" % number, BY_KEY) for number in range(20)]
    assert [int(value) for _, value, _ in produced(rows, False, None, 7, native)] == list(range(20))


def test_a_partition_comes_at_one_go(native: bool) -> None:
    rows: list[tuple[bytes | None, int]] = [(b"%d" % number, number % 3) for number in range(30)]
    for is_given in (True, False):
        places = [place(key, partition) for key, _, partition in produced(rows, is_given, COUNT, 100, native)]
        changes = int(np.count_nonzero(np.diff(np.array(places))))
        assert changes == len(set(places)) - 1
