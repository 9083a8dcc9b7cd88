"""Exact ranges: gaps, markers, deletions, many partitions, and reads that follow each other."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossstream.dev.broker import BrokerInfo
from crossstream.errors import SourceError
from crossstream.kafka import KafkaConnection, client
from crossstream.kafka import consumer as reader_module
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.kafka.producer import KafkaWriter
from crossstream.records import RECORDS
from crossstream.topics import OffsetRange
from tests.kafka.edges import both_edges
from tests.kafka.fixtures import await_end, frozen, new_topic, numbered, offsets_of, records, rows_of, whole

pytestmark = [pytest.mark.kafka, *both_edges]


def write_transactions(
    log: KafkaLog, broker: KafkaConnection, topic: str, *sizes: int
) -> tuple[OffsetRange, list[int]]:
    """A transaction per size, negative ones aborted; the whole, and the offsets of the committed records."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    committed, offset = [], 0
    for size in sizes:
        producer.begin_transaction()
        for _ in range(abs(size)):
            producer.produce(topic, b"value", b"key", 0)
        if size > 0:
            producer.commit_transaction(30)
            committed += range(offset, offset + size)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
        offset += abs(size) + 1
    return await_end(log, topic, offset), committed


def test_records_come_as_they_were_written(log: KafkaLog, reader: KafkaReader, writer: KafkaWriter) -> None:
    topic = new_topic(log)
    headers = (("trace", b"\x00\xff"), ("empty", b""), ("nothing", None), ("trace", b"again"))
    written = [
        (b"a", b"1", 5, ()),
        (b"b", None, 4, ()),
        (None, b"no key", 3, headers),
        (None, None, 2, ()),
        (b"", b"", 1_700_000_000_000, ()),
    ]
    writer.write(topic, records(*written))
    writer.flush()
    [batch] = reader.read(OffsetRange(topic, 0, 0, 5), max_rows=100)
    assert batch.schema == RECORDS
    assert rows_of([batch]) == [(offset, *row) for offset, row in enumerate(written)]
    assert batch.column("headers").null_count == 4


def test_log_append_timestamps_are_the_brokers(
    log: KafkaLog, reader: KafkaReader, writer: KafkaWriter
) -> None:
    topic = new_topic(log, message_timestamp_type="LogAppendTime")
    writer.write(topic, records((b"k", b"v", 5)))
    writer.flush()
    [(_, _, _, timestamp, _)] = rows_of(list(reader.read(OffsetRange(topic, 0, 0, 1), 10)))
    assert isinstance(timestamp, int)
    assert abs(timestamp - time.time() * 1000) < 60_000


def test_batches_have_at_most_max_rows(log: KafkaLog, reader: KafkaReader, writer: KafkaWriter) -> None:
    topic = new_topic(log)
    writer.write(topic, numbered(0, 10_000))
    writer.flush()
    batches = list(reader.read(OffsetRange(topic, 0, 10, 9_990), max_rows=3_000))
    assert [batch.num_rows for batch in batches] == [3_000, 3_000, 3_000, 980]
    assert offsets_of(batches) == list(range(10, 9_990))


def test_an_empty_range_yields_nothing(log: KafkaLog, reader: KafkaReader) -> None:
    topic = new_topic(log)
    assert list(reader.read(OffsetRange(topic, 0, 0, 0), 10)) == []


def test_big_records_are_handed_on_early(
    log: KafkaLog, reader: KafkaReader, writer: KafkaWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "HELD_BYTES", 1_000_000)
    monkeypatch.setattr(reader_module, "CHUNK", 8)
    topic = new_topic(log)
    writer.write(topic, records(*[(b"k", b"%d" % (number % 10) * 100_000) for number in range(50)]))
    writer.flush()
    batches = list(reader.read(OffsetRange(topic, 0, 0, 50), max_rows=1_000))
    assert offsets_of(batches) == list(range(50))
    assert len(batches) > 1
    assert max(batch.nbytes for batch in batches) < 2_000_000


def test_a_range_that_ends_in_a_commit_marker(
    log: KafkaLog, reader: KafkaReader, broker: KafkaConnection
) -> None:
    topic = new_topic(log)
    span, _ = write_transactions(log, broker, topic, 3)
    assert span == OffsetRange(topic, 0, 0, 4)
    assert offsets_of(list(reader.read(span, 10))) == [0, 1, 2]
    assert list(reader.read(OffsetRange(topic, 0, 3, 4), 10)) == []


def test_aborted_transactions_are_not_read(
    log: KafkaLog, reader: KafkaReader, broker: KafkaConnection
) -> None:
    topic = new_topic(log)
    span, committed = write_transactions(log, broker, topic, 3, -4, 2, -5, -1, 1, -3)
    assert span.end == 26
    assert offsets_of(list(reader.read(span, 4))) == committed
    assert list(reader.read(OffsetRange(topic, 0, 4, 9), 10)) == []  # nothing but an aborted one


def test_an_open_transaction_ends_what_can_be_read(
    log: KafkaLog, reader: KafkaReader, broker: KafkaConnection
) -> None:
    topic = new_topic(log)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for end in (False, True):
        producer.begin_transaction()
        producer.produce(topic, b"value", b"key", 0)
        producer.flush(30)
        if not end:
            producer.commit_transaction(30)
    assert offsets_of(list(reader.read(await_end(log, topic, 2), 10))) == [0]
    producer.abort_transaction(30)
    assert offsets_of(list(reader.read(await_end(log, topic, 4), 10))) == [0]


def test_compacted_topics_have_gaps(log: KafkaLog, reader: KafkaReader, writer: KafkaWriter) -> None:
    topic = new_topic(log, cleanup_policy="compact", segment_ms="1", min_cleanable_dirty_ratio="0.001")
    rows = [(b"k%d" % (number % 3), b"%d" % number, 1_000 + number * 10) for number in range(40)]
    writer.write(topic, records(*rows))
    writer.flush()
    writer.write(topic, records((b"end", b"", 900_000)))  # rolls the segment: only closed ones are compacted
    writer.flush()
    deadline = time.monotonic() + 20
    while len(found := offsets_of(list(reader.read(OffsetRange(topic, 0, 0, 41), 100)))) > 10:
        assert time.monotonic() < deadline, f"not compacted: {found}"
        time.sleep(0.1)
    assert {37, 38, 39, 40} <= set(found)
    inside = OffsetRange(topic, 0, found[0] - 5, found[0])
    assert list(reader.read(inside, 100)) == []
    assert offsets_of(list(reader.read(OffsetRange(topic, 0, 5, 39), 100))) == [37, 38]


def test_a_deleted_part_of_a_range_is_an_error(
    log: KafkaLog, reader: KafkaReader, writer: KafkaWriter, broker: KafkaConnection
) -> None:
    topic = new_topic(log)
    writer.write(topic, numbered(0, 20))
    writer.flush()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for deleted in admin.delete_records([KafkaPartition(topic, 0, 7)]).values():
        deleted.result()
    with pytest.raises(SourceError, match="begins at offset 7 now") as caught:
        list(reader.read(OffsetRange(topic, 0, 5, 20), 100))
    assert caught.value.code == "CS-601"
    assert caught.value.where == {"topic": topic, "partition": 0, "offset": 5}
    assert offsets_of(list(reader.read(OffsetRange(topic, 0, 7, 20), 100))) == list(range(7, 20))


def test_a_missing_topic_or_partition_is_an_error(
    log: KafkaLog, reader: KafkaReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SETTLE_SECONDS", 1.5)
    topic = new_topic(log)
    for span in (OffsetRange("no-such-topic", 0, 0, 5), OffsetRange(topic, 9, 0, 5)):
        with pytest.raises(SourceError) as caught:
            list(reader.read(span, 100))
        assert caught.value.code == "CS-602"
        assert caught.value.where["topic"] == span.topic


def test_a_range_past_the_end_is_an_error(
    log: KafkaLog, writer: KafkaWriter, broker: KafkaConnection
) -> None:
    topic = new_topic(log)
    writer.write(topic, numbered(0, 5))
    writer.flush()
    hasty = KafkaConnection(broker.bootstrap_servers, patience_seconds=4).reader()
    for start in (0, 5, 50):
        with pytest.raises(SourceError, match="ends at offset 5") as caught:
            list(hasty.read(OffsetRange(topic, 0, start, 100), 100))
        assert caught.value.code == "CS-603"
    assert offsets_of(list(hasty.read(OffsetRange(topic, 0, 0, 5), 100))) == list(range(5))
    hasty.close()


def test_a_broker_that_comes_back_in_time_is_waited_for(
    log: KafkaLog, writer: KafkaWriter, reader: KafkaReader, broker_info: BrokerInfo
) -> None:
    topic = new_topic(log)
    writer.write(topic, numbered(0, 100))
    writer.flush()
    with frozen(broker_info, seconds=1.5):
        assert offsets_of(list(reader.read(OffsetRange(topic, 0, 0, 100), 100))) == list(range(100))


def test_a_broker_that_stays_away_is_an_error(log: KafkaLog, broker_info: BrokerInfo) -> None:
    topic = new_topic(log)
    hasty = KafkaConnection(broker_info.bootstrap_servers, patience_seconds=2)
    reader, began = hasty.reader(), time.monotonic()
    with frozen(broker_info), pytest.raises(SourceError, match="no broker answered for 2 s") as caught:
        list(reader.read(OffsetRange(topic, 0, 0, 1), 100))
    assert caught.value.code == "CS-604"
    assert time.monotonic() - began < 15
    reader.close()


def test_nobody_at_the_servers_is_an_error() -> None:
    reader = KafkaConnection("127.0.0.1:1", patience_seconds=1).reader()
    with pytest.raises(SourceError, match="Connection refused") as caught:
        list(reader.read(OffsetRange("any", 0, 0, 1), 100))
    assert caught.value.code == "CS-604"
    reader.close()


@pytest.fixture(scope="module")
def mixed(log: KafkaLog, writer: KafkaWriter, broker: KafkaConnection) -> dict[OffsetRange, list[int]]:
    """Partitions with plain records, with transactions, and with nothing; the offsets they hold."""
    plain, transactional = new_topic(log, 3), new_topic(log)
    for partition, size in ((0, 3_000), (1, 300)):
        writer.write(plain, numbered(0, size), [partition] * size)
    writer.flush()
    span, committed = write_transactions(log, broker, transactional, 50, -100, 1, 1, -1, -1, 150, -60)
    held = {0: list(range(3_000)), 1: list(range(300)), 2: []}
    spans = {whole(log, plain, partition): offsets for partition, offsets in held.items()}
    return {**spans, span: committed}


def gathered(
    reader: KafkaReader, spans: Sequence[OffsetRange], max_rows: int = 1_000
) -> dict[OffsetRange, list[int]]:
    found: dict[OffsetRange, list[pa.RecordBatch]] = {span: [] for span in spans}
    for span, batch in reader.read_many(spans, max_rows):
        assert 0 < batch.num_rows <= max_rows
        found[span].append(batch)
    return {span: offsets_of(batches) for span, batches in found.items()}


def test_many_partitions_at_once(reader: KafkaReader, mixed: dict[OffsetRange, list[int]]) -> None:
    assert gathered(reader, list(mixed)) == mixed


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cuts_give_the_whole(
    data: st.DataObject, reader: KafkaReader, mixed: dict[OffsetRange, list[int]]
) -> None:
    """However ranges are cut, read in whatever company, with or without fetching ahead: the same records."""
    rounds = data.draw(st.integers(1, 4), "rounds")
    cuts = {
        span: [
            span.start,
            *sorted(data.draw(st.lists(st.integers(span.start, span.end), min_size=rounds, max_size=rounds))),
            span.end,
        ]
        for span in mixed
    }
    skipped = data.draw(st.sets(st.tuples(st.integers(0, rounds), st.sampled_from(list(mixed)))))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader_module, "BACKLOG", data.draw(st.sampled_from([1, 100, 100_000]), "backlog"))
        patched.setattr(reader_module, "AHEAD", data.draw(st.sampled_from([0, 500, 20_000]), "ahead"))
        patched.setattr(reader_module, "CHUNK", data.draw(st.sampled_from([3, 37, 4096]), "chunk"))
        for turn in range(rounds + 1):
            parts = [
                OffsetRange(span.topic, span.partition, cuts[span][turn], cuts[span][turn + 1])
                for span in mixed
                if (turn, span) not in skipped
            ]
            expected = {
                part: [offset for offset in held if part.start <= offset < part.end]
                for part in parts
                for span, held in mixed.items()
                if (span.topic, span.partition) == (part.topic, part.partition)
            }
            assert gathered(reader, parts) == expected


def test_ranges_of_one_partition_are_not_read_at_once(
    reader: KafkaReader, mixed: dict[OffsetRange, list[int]]
) -> None:
    big = next(iter(mixed))
    with pytest.raises(ValueError, match="two ranges of one partition"):
        gathered(reader, [OffsetRange(big.topic, 0, start, start + 100) for start in (500, 0)])
    assert gathered(reader, [big]) == {big: mixed[big]}


def test_a_read_may_be_left_halfway(reader: KafkaReader, mixed: dict[OffsetRange, list[int]]) -> None:
    big = next(iter(mixed))
    left = reader.read(big, 100)
    next(left)
    assert gathered(reader, list(mixed)) == mixed
    with pytest.raises(RuntimeError, match="began another read"):
        next(left)
    assert gathered(reader, [big]) == {big: mixed[big]}


def test_a_closed_reader_opens_again(reader: KafkaReader, mixed: dict[OffsetRange, list[int]]) -> None:
    reader.close()
    assert gathered(reader, list(mixed)) == mixed


def test_small_ranges_that_follow_each_other_take_milliseconds(
    log: KafkaLog, reader: KafkaReader, writer: KafkaWriter
) -> None:
    topic = new_topic(log)
    took = []
    for start in range(0, 200, 10):
        writer.write(topic, numbered(start, start + 10))
        writer.flush()
        began = time.perf_counter()
        batches = list(reader.read(OffsetRange(topic, 0, start, start + 10), 100))
        took.append(time.perf_counter() - began)
        assert offsets_of(batches) == list(range(start, start + 10))
    assert sorted(took)[len(took) // 2] < 0.05


def test_a_topic_that_is_new_to_an_open_reader_is_read_at_once(
    log: KafkaLog, reader: KafkaReader, writer: KafkaWriter
) -> None:
    """The client looks for brokers of new topics once a second, unless it is asked: eight would take seconds."""
    topics = [new_topic(log) for _ in range(9)]
    for topic in topics:
        writer.write(topic, records((b"k", b"v", 5)))
    writer.flush()
    read = [list(reader.read(OffsetRange(topics[0], 0, 0, 1), 10))]
    began = time.monotonic()
    read += [list(reader.read(OffsetRange(topic, 0, 0, 1), 10)) for topic in topics[1:]]
    assert time.monotonic() - began < 2
    assert [len(rows_of(batches)) for batches in read] == [1] * 9
