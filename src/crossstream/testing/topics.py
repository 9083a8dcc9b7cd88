"""Test topics: records in as values, records out as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from crossstream.durations import Duration, to_milliseconds, to_timestamp
from crossstream.records import decode_headers, encode_headers
from crossstream.serdes import Serde
from crossstream.testing.memory import MemoryOutput, Row


@dataclass(frozen=True, slots=True)
class TestRecord:
    """A record of a test topic; two are equal if key, value, timestamp (ms) and headers are.

    >>> TestRecord("k", "v", 5) == TestRecord("k", "v", 5)
    True
    """

    __test__ = False

    key: Any
    value: Any
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class TestInputTopic:
    """Pipes records into a topic of the topology. Made by `TopologyTestDriver.create_input_topic`.

    Records without a timestamp get the topic's own clock, which starts at ``start`` (ms) and moves by
    ``auto_advance`` (ms) after each of them.
    """

    __test__ = False

    def __init__(
        self,
        pipe: Callable[[list[tuple[Row, int | None]]], None],
        key: Serde,
        value: Serde,
        start: int,
        auto_advance: int,
    ) -> None:
        self._pipe = pipe
        self._key = key
        self._value = value
        self._clock = start
        self._advance = auto_advance

    def pipe_input(
        self,
        key: Any,
        value: Any,
        timestamp: int | datetime | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
    ) -> None:
        """Pipes one record. ``partition``: of the topic; None: by the key, as Kafka's producer does."""
        self._pipe([(self._row(key, value, timestamp, headers), partition)])

    def pipe_record(self, record: TestRecord, partition: int | None = None) -> None:
        """Pipes one record."""
        self.pipe_input(record.key, record.value, record.timestamp, record.headers, partition)

    def pipe_records(self, records: Iterable[TestRecord | tuple[Any, ...]]) -> None:
        """Pipes many records (`TestRecord`, or tuples in the order of its fields), faster than one by one."""
        rows = []
        for record in records:
            r = record if isinstance(record, TestRecord) else TestRecord(*record)
            rows.append((self._row(r.key, r.value, r.timestamp, r.headers), None))
        self._pipe(rows)

    def advance_time(self, duration: Duration) -> None:
        """Moves the topic's clock."""
        self._clock += to_milliseconds(duration)

    def _row(
        self,
        key: Any,
        value: Any,
        timestamp: int | datetime | None,
        headers: Iterable[tuple[str, bytes | None]] | None,
    ) -> Row:
        if timestamp is None:
            timestamp = self._clock
            self._clock += self._advance
        elif isinstance(timestamp, datetime):
            timestamp = to_timestamp(timestamp)
        packed = encode_headers(headers) if headers else None
        return self._key.serialize(key), self._value.serialize(value), timestamp, packed


class TestOutputTopic:
    """Reads what the topology wrote to a topic. Made by `TopologyTestDriver.create_output_topic`."""

    __test__ = False

    def __init__(self, output: MemoryOutput, topic: str, key: Serde, value: Serde) -> None:
        self._output = output
        self._topic = topic
        self._key = key
        self._value = value
        self._next = 0

    @property
    def queue_size(self) -> int:
        """Records that have not been read."""
        return len(self._rows()) - self._next

    @property
    def is_empty(self) -> bool:
        """Whether every record has been read."""
        return self.queue_size == 0

    def read_record(self) -> TestRecord:
        """The next record; `IndexError` if there is none."""
        if self.is_empty:
            raise IndexError(f"no more records in {self._topic}")
        row = self._rows()[self._next]
        self._next += 1
        return self._record(row)

    def read_records(self) -> list[TestRecord]:
        """All records not read yet."""
        rows = self._rows()[self._next :]
        self._next += len(rows)
        return [self._record(row) for row in rows]

    def read_values(self) -> list[Any]:
        """The values of all records not read yet."""
        return [record.value for record in self.read_records()]

    def read_key_values(self) -> list[tuple[Any, Any]]:
        """Key and value of all records not read yet."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_key_values_to_map(self) -> dict[Any, Any]:
        """The last value of each key among the records not read yet; deleted keys map to None."""
        return dict(self.read_key_values())

    def _rows(self) -> list[Row]:
        return self._output.written.get(self._topic, [])

    def _record(self, row: Row) -> TestRecord:
        key, value, timestamp, headers = row
        return TestRecord(
            self._key.deserialize(key), self._value.deserialize(value), timestamp, decode_headers(headers)
        )
