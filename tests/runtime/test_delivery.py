"""How results reach their topics: what the driver and a worker may rely on, for each of the three ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from crossstream.filetopics import FileTopics
from crossstream.records import RECORDS
from crossstream.runtime.delivery import AtOnce, Delivery, Place, TaskId
from crossstream.storage.log_entries import BatchEntry, Commit, Publication
from crossstream.storage.root import root_of
from crossstream.topics import all_partitions

TASK = TaskId(7, 1, 0)
ROWS = pa.RecordBatch.from_pylist(
    [{"key": b"k", "value": b"v", "timestamp": 1, "offset": 0, "headers": None}], schema=RECORDS
)


class Producer:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")

    def write(self, topic: str, records: pa.RecordBatch, partitions: Sequence[int] | None = None) -> None:
        self.calls.append("write")

    def partition_count(self, topic: str) -> int:
        return 3

    def record_limit(self, topic: str) -> int | None:
        return 1000

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


def place(root: Path) -> Place:
    return Place("app", root_of(root / "state"), root / "staged")


def in_files(root: Path) -> Delivery:
    return FileTopics(str(root / "topics")).delivery(place(root))


def in_transactions(root: Path) -> Delivery:
    pytest.importorskip("confluent_kafka")
    from crossstream.kafka import TransactionalKafka

    return TransactionalKafka("nowhere:9", application="app").delivery(place(root))


def at_once(root: Path) -> Delivery:
    return AtOnce(Producer)


WAYS = {"at once": at_once, "files": in_files, "transaction": in_transactions}
PROMISES = {
    # Whether the next start can finish a batch; whether it looks where topics ended; which files the state has.
    "at once": (False, False, []),
    "files": (True, True, []),
    "transaction": (True, False, ["a.arrow"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_says_what_the_driver_has_to_do(tmp_path: Path, way: str) -> None:
    delivery = WAYS[way](tmp_path)
    kept = delivery.kept([("a.arrow", "out", 0, 1, b"")])
    assert (delivery.is_staged, delivery.looks_at_ends, kept) == PROMISES[way]


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_without_staged_records_is_noted_once(tmp_path: Path, way: str) -> None:
    """As one is that writes tables alone: no client is opened for it."""
    noted: list[int] = []
    delivery = WAYS[way](tmp_path)
    publication = Publication(Commit(7, 1), (), "out", ())
    delivery.publish(BatchEntry(7, (), 0.0), publication, "state", lambda: noted.append(7))
    delivery.close()
    assert noted == [7]


WRITING: dict[str, tuple[Callable[[Any], None], list[str]]] = {
    "one task": (lambda delivery: used(delivery, is_part=False), ["write", "flush"]),
    "two parts": (
        lambda delivery: (used(delivery, is_part=True), used(delivery, is_part=True), delivery.settle()),
        ["write", "write", "flush"],
    ),
    "a task without results": (lambda delivery: delivery.writer(TASK).finish(is_part=False), []),
    "nothing": (lambda delivery: delivery.settle(), []),
}


def used(delivery: Delivery, *, is_part: bool) -> None:
    writer = delivery.writer(TASK)
    writer.write("out", ROWS)
    writer.finish(is_part=is_part)
    assert writer.staged == ()


@pytest.mark.parametrize("case", WRITING)
def test_at_once_waits_for_the_brokers_once(case: str) -> None:
    producer, (act, expected) = Producer(), WRITING[case]
    act(AtOnce(lambda: producer))
    assert producer.calls == expected


def test_the_tasks_of_a_process_share_one_producer() -> None:
    made: list[Producer] = []

    def make() -> Producer:
        made.append(Producer())
        return made[-1]

    delivery = AtOnce(make)
    delivery.connect()
    writer = delivery.writer(TASK)
    assert (writer.partition_count("out"), writer.record_limit("out")) == (3, 1000)
    delivery.close()
    delivery.close()
    assert [producer.calls for producer in made] == [["open", "close"]]


@pytest.mark.parametrize("way", ["files", "transaction"])
def test_what_a_task_stages_waits_for_the_driver(tmp_path: Path, way: str) -> None:
    delivery = WAYS[way](tmp_path)
    writer = delivery.writer(TASK)
    writer.write("out", ROWS)
    writer.finish(is_part=True)
    ((_, topic, _, rows, _),) = writer.staged
    assert (topic, rows) == ("out", 1)
    log = FileTopics(str(tmp_path / "topics")).log()
    ends = log.end_offsets(all_partitions(log.topics(), log.topics()))
    assert set(ends.values()) <= {0}, "nothing is in the topics yet"
