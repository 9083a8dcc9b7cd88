"""The benchmark of the edges writes what it read, and would see it if not."""

from __future__ import annotations

import pytest
from benchmarks.edges import SOURCE, copy, fill, is_same, spans_of

from crossstream.kafka import KafkaConnection
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from tests.kafka.edges import both_edges

pytestmark = [pytest.mark.kafka, *both_edges]


@pytest.fixture(scope="module")
def filled(broker: KafkaConnection) -> None:
    fill(broker, 2_000)


@pytest.mark.usefixtures("filled")
def test_a_topic_is_copied(broker: KafkaConnection, log: KafkaLog, reader: KafkaReader, edge: str) -> None:
    spent, same = copy(broker, f"copied-{edge}")
    assert same
    assert spent.read_cores > 0
    assert spent.written_cores > 0
    batches = [(span.partition, batch) for span, batch in reader.read_many(spans_of(log, SOURCE), 300)]
    assert sum(batch.num_rows for _, batch in batches) == 2_000
    assert is_same(batches, batches)
    assert not is_same(batches, batches[1:])
