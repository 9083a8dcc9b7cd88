"""The first records of a time, in topics that hold aborted records and the markers of transactions as well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes, topics
from crossstream.errors import SourceError
from crossstream.kafka import KafkaConnection
from crossstream.kafka.consumer import KafkaReader
from crossstream.kafka.log import KafkaLog
from crossstream.runtime.backlog import Cutter, Span, count
from crossstream.topics import OffsetAndTimestamp, OffsetRange, TopicPartition
from tests.faults.one_process import application
from tests.kafka.fixtures import await_end, new_topic, rows_of, whole

pytestmark = pytest.mark.kafka

PAST = 1_700_000_000_000
MINUTE = 60_000
Held = dict[OffsetRange, list[OffsetAndTimestamp]]
"""Partitions, and their committed records."""


def write(
    log: KafkaLog, broker: KafkaConnection, topic: str, partition: int, *parts: tuple[str, Sequence[int]]
) -> tuple[OffsetRange, list[OffsetAndTimestamp]]:
    """Records of these times, each part "committed", "aborted" or "plain"; returns what is held afterwards."""
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": f"{topic}-{partition}"})
    producer.init_transactions(30)
    plain = Producer(servers)
    held, offset = [], 0
    for kind, times in parts:
        writer = plain if kind == "plain" else producer
        if kind != "plain":
            producer.begin_transaction()
        for number, time in enumerate(times, offset):
            writer.produce(topic, str(number).encode(), b"k", partition, timestamp=time)
        writer.flush(30)
        if kind != "plain":
            (producer.commit_transaction if kind == "committed" else producer.abort_transaction)(30)
        if kind != "aborted":
            held += [OffsetAndTimestamp(number, time) for number, time in enumerate(times, offset)]
        offset += len(times) + (kind != "plain")
        await_end(log, topic, offset, partition)
    return whole(log, topic, partition), held


def first(held: Sequence[OffsetAndTimestamp], span: OffsetRange, timestamp: int) -> OffsetAndTimestamp | None:
    """The truth."""
    late = (one for one in held if span.start <= one.offset < span.end and one.timestamp >= timestamp)
    return next(late, None)


@pytest.fixture(scope="module")
def mixed(log: KafkaLog, broker: KafkaConnection) -> Held:
    """Past times in and out of order, in transactions of several sizes, without any, and one after the other."""
    topic = new_topic(log, 5)
    steps = [PAST + number * MINUTE for number in range(120)]
    shaken = [time - (number % 7) * 5 * MINUTE for number, time in enumerate(steps)]
    return dict(
        [
            write(log, broker, topic, 0, *(("committed", steps[n : n + 10]) for n in range(0, 120, 10))),
            write(
                log,
                broker,
                topic,
                1,
                ("committed", shaken[:3]),
                ("aborted", [PAST + 10**9, PAST]),
                ("committed", shaken[3:60]),
                ("aborted", steps[:20]),
                ("aborted", [PAST + 10**10]),
                ("committed", shaken[60:]),
                ("aborted", steps[:5]),
            ),
            write(
                log, broker, topic, 2, ("committed", steps[:40]), ("aborted", steps), ("plain", shaken[40:])
            ),
            write(log, broker, topic, 3, ("plain", steps)),
            write(
                log,
                broker,
                topic,
                4,
                ("plain", steps[:50]),
                ("aborted", [time + MINUTE // 2 for time in steps[50:90]]),
                ("plain", steps[50:]),
            ),
        ]
    )


@pytest.fixture
def chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "CHUNK", 7)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_first_committed_record_of_a_time(
    data: st.DataObject, mixed: Held, broker: KafkaConnection, chunk: None
) -> None:
    """Whatever was asked before, from any offsets on; with a limit, no more is looked at than is needed."""
    log = broker.log()
    for _ in range(data.draw(st.integers(1, 5))):
        spans = []
        for span in data.draw(st.lists(st.sampled_from(list(mixed)), min_size=1, unique=True), "partitions"):
            start = data.draw(st.integers(0, span.end - 1), "start")
            spans.append(OffsetRange(span.topic, span.partition, start, span.end))
        timestamp = PAST + data.draw(st.integers(-1, 125)) * MINUTE + data.draw(st.integers(-1, 1))
        most = data.draw(st.sampled_from([1_000, 60, 10, 1]), "most")
        found = log.offsets_for_times(spans, timestamp, most)
        truth = {span: first(held, span, timestamp) for span in spans for held in [held_in(mixed, span)]}
        told = {span: found[TopicPartition(span.topic, span.partition)] for span in spans}
        if told != truth:
            assert sum(passed(span, moment) for span, moment in told.items()) > most
        for span, moment in told.items():
            assert passed(span, moment) <= passed(span, truth[span])
            assert moment == truth[span] or (moment is not None and moment.timestamp < timestamp)
    log.close()


def held_in(mixed: Held, part: OffsetRange) -> list[OffsetAndTimestamp]:
    return next(held for span, held in mixed.items() if span.partition == part.partition)


def passed(span: OffsetRange, moment: OffsetAndTimestamp | None) -> int:
    return (span.end if moment is None else moment.offset) - span.start


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[OffsetRange]:
    """The ranges that are read."""
    ranges: list[OffsetRange] = []
    read_many = KafkaReader.read_many

    def noting(reader: KafkaReader, spans: Iterable[OffsetRange], max_rows: int) -> object:
        wanted = list(spans)
        ranges.extend(wanted)
        return read_many(reader, wanted, max_rows)

    monkeypatch.setattr(KafkaReader, "read_many", noting)
    return ranges


def cut(log: KafkaLog, spans: Sequence[OffsetRange], most: int) -> list[list[Span]]:
    """The batches of a backlog."""
    cutter = Cutter(log)
    left: list[Span] = [("node", span.topic, span.partition, span.start, span.end) for span in spans]
    batches = []
    while left:
        batches.append(cutter.cut(left, most))
        ends = {(topic, partition): end for _, topic, partition, _, end in batches[-1]}
        moved = [(*span[:3], ends.get(span[1:3], span[3]), span[4]) for span in left]
        left = [span for span in moved if span[3] < span[4]]
    return batches


def test_a_backlog_is_looked_at_once(
    mixed: Held, broker: KafkaConnection, looked_at: list[OffsetRange]
) -> None:
    spans = [span for span in mixed if span.partition in (0, 1)]
    log = broker.log()
    batches = cut(log, spans, 40)
    log.close()
    assert max(map(count, batches)) <= 40
    assert len(batches) < 12
    looks = [span for span in looked_at if span.end - span.start > 1]
    assert sum(span.end - span.start for span in looks) <= sum(span.end for span in spans)
    for before, after in pairwise(batches):
        assert newest(mixed, before) <= oldest(mixed, after)


def running(mixed: Held, batch: list[Span]) -> Iterator[int]:
    """The latest time in a partition up to each record of the batch."""
    for _, topic, partition, start, end in batch:
        held = held_in(mixed, OffsetRange(topic, partition, start, end))
        for row, moment in enumerate(held):
            if start <= moment.offset < end:
                yield max(one.timestamp for one in held[: row + 1])


def newest(mixed: Held, batch: list[Span]) -> int:
    return max(running(mixed, batch))


def oldest(mixed: Held, batch: list[Span]) -> int:
    return min(running(mixed, batch))


def test_of_plain_topics_single_records_are_looked_at(
    log: KafkaLog, broker: KafkaConnection, looked_at: list[OffsetRange]
) -> None:
    topic = new_topic(log, 2)
    times = [PAST + number * 1_000 for number in range(200)]
    spans = [write(log, broker, topic, partition, ("plain", times))[0] for partition in range(2)]
    fresh = broker.log()
    batches = cut(fresh, spans, 40)
    fresh.close()
    assert len(batches) >= 10
    assert {span.end - span.start for span in looked_at} == {1}
    assert len(looked_at) == len(set(looked_at)) <= 3 * len(spans) * len(batches)


def test_what_was_deleted_is_told_by_those_who_read_it(
    mixed: Held, broker: KafkaConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted(*_: object) -> None:
        raise SourceError("gone", code="CS-601", next="go on")

    log = broker.log()
    monkeypatch.setattr(KafkaReader, "read_many", deleted)
    [span] = [OffsetRange(one.topic, 0, 20, one.end) for one in mixed if one.partition == 0]
    place = TopicPartition(span.topic, 0)
    assert log.offsets_for_times([span], PAST, 10) == {place: OffsetAndTimestamp(20, PAST)}
    log.close()


TEXT = serdes.string()


def own(key: str, value: str, timestamp: int) -> int:
    return timestamp


def topology(names: Sequence[str], extractor: Any) -> cs.Topology:
    """A join of streams, and a look-up in a table."""
    left, right, table, pairs, looked_up = names
    builder = cs.StreamsBuilder()
    consumed = cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=extractor)
    produced = cs.Produced(key=TEXT, value=TEXT)
    stream = builder.stream(left, consumed)
    windows = cs.JoinWindows.of("1 minute", grace="1 minute")
    stream.join(builder.stream(right, consumed), lambda a, b: f"{a},{b}", windows).to(pairs, produced)
    stream.left_join(builder.table(table, consumed), lambda a, b: f"{a},{b}").to(looked_up, produced)
    return builder.build()


@pytest.mark.parametrize("extractor", [None, own])
@pytest.mark.parametrize("most", [None, 10])
def test_a_limit_on_batches_changes_no_result(
    log: KafkaLog,
    reader: KafkaReader,
    broker: KafkaConnection,
    tmp_path: Path,
    most: int | None,
    extractor: Any,
) -> None:
    """A topic of long ago beside one of an hour and a table, written in transactions, with an aborted one between."""
    names = [new_topic(log) for _ in range(5)]
    for topic, begin, step, end in ((names[0], 0, 20, 40), (names[1], 0, 1, 40), (names[2], -1, 60, 14)):
        times = [PAST + begin + number * step * MINUTE for number in range(end)]
        parts = [("committed", times[start : start + 5]) for start in range(0, end, 5)]
        write(log, broker, topic, 0, *parts[:2], ("aborted", [PAST, PAST + 10**9]), *parts[2:])
    config = cs.StreamsConfig(
        application_id=names[0],
        bootstrap_servers=broker.bootstrap_servers,
        state_dir=tmp_path,
        partitions=1,
        max_records_per_batch=most,
    )
    with application(topology(names, extractor), config) as engine:
        engine.run_until(engine.inputs.end_offsets())
    pairs, looked_up = (
        [(row[3], row[2]) for row in rows_of(list(reader.read(whole(log, topic), 1_000)))]
        for topic in names[3:]
    )
    # The aborted transaction takes the offsets 12 to 14, each of those before it one more than its five records.
    value = [number + number // 5 + 3 * (number >= 10) for number in range(40)]
    matching = [(n, m) for n in range(40) for m in range(40) if abs(20 * n - m) <= 1]
    assert sorted(pairs) == sorted(
        (PAST + max(20 * n, m) * MINUTE, b"%d,%d" % (value[n], value[m])) for n, m in matching
    )
    assert looked_up == [(PAST + 20 * n * MINUTE, b"%d,%d" % (value[n], value[n // 3])) for n in range(40)]
