"""Topics of the test driver as a test sees them: pipe records in, read records out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeGuard

import pyarrow as pa

from crossstream.durations import (
    LATEST,
    Duration,
    Timestamp,
    to_milliseconds,
    to_record_timestamp,
    to_timestamp,
)
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, SerdeError, caller_location, utf8_safe
from crossstream.missing_names import PointsToNames
from crossstream.query.store import check_dict_keys
from crossstream.records import PRODUCER_RECORDS, Header, decode_headers, encode_headers
from crossstream.serdes import Serde, calls
from crossstream.signatures import is_whole
from crossstream.testing.memory import MemoryOutput, Position

_LENGTHS = {2, 3, 4}
"""Lengths of a tuple that is a record."""


@dataclass(frozen=True, slots=True)
class TestRecord:
    """A record of a test topic; two are equal if key, value, timestamp and headers are.

    It keeps a timestamp in ms since the epoch, headers as tuples. Raises `ConfigError` CS-201 for a wrong timestamp.

    >>> from datetime import datetime
    >>> TestRecord("k", "v", datetime(1970, 1, 1, 0, 0, 1), [("a", b"b")])
    TestRecord(key='k', value='v', timestamp=1000, headers=(('a', b'b'),))
    """

    __test__ = False

    key: Any
    value: Any
    timestamp: Timestamp | None = None
    headers: Sequence[Header] = ()

    def __post_init__(self) -> None:
        if self.timestamp is not None and type(self.timestamp) is not int:
            object.__setattr__(self, "timestamp", to_timestamp(self.timestamp))
        if self.headers != ():
            object.__setattr__(self, "headers", _as_tuples(self.headers))


def _as_tuples(headers: Any) -> Any:
    """Pairs as tuples; anything else stays unchanged, and piping refuses it."""
    if headers is None:
        return ()
    if isinstance(headers, Mapping | str | bytes) or not isinstance(headers, Iterable):
        return headers
    return tuple(tuple(pair) if isinstance(pair, list) else pair for pair in headers)


class TestInputTopic(PointsToNames):
    """Pipes records into a topic of the topology. Made by `TopologyTestDriver.create_input_topic`.

    A record without a timestamp gets the time of the topic's own clock, which starts at ``start`` (ms) and then
    moves by ``auto_advance`` (ms).
    """

    __test__ = False

    def __init__(
        self,
        pipe: Callable[[pa.RecordBatch, int | None], None],
        key: Serde,
        value: Serde,
        start: int,
        auto_advance: int,
        partitions: int,
    ) -> None:
        self._pipe = pipe
        self._key = key
        self._value = value
        self._clock = start
        self._advance = auto_advance
        self._partitions = partitions

    def pipe_input(
        self,
        key: Any,
        value: Any,
        timestamp: Timestamp | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
    ) -> None:
        """Pipes one record. ``partition``: of the topic; None: by the key, as Kafka's producer does.

        Raises `ConfigError`: CS-201 for a wrong timestamp, CS-241 for wrong headers or a partition that does not exist.
        """
        self._check_partition(partition)
        keys, values = [calls.serialize(self._key, key)], [calls.serialize(self._value, value)]
        cells = [_cell(headers)]
        self._pipe(self._records(keys, values, self._times([timestamp]), cells), partition)

    def pipe_record(self, record: TestRecord | tuple[Any, ...], partition: int | None = None) -> None:
        """Pipes a `TestRecord`, or a tuple in the order of its fields; raises what `pipe_input` does."""
        whole = record if isinstance(record, TestRecord) else TestRecord(*_fields(record))
        self.pipe_input(whole.key, whole.value, whole.timestamp, whole.headers, partition)

    def pipe_records(self, records: Iterable[TestRecord | tuple[Any, ...]]) -> None:
        """Pipes many records (`TestRecord`, or tuples in the order of its fields), faster than one by one.

        Raises what `pipe_input` does, before it pipes any of them.
        """
        keys, values, timestamps, headers = _columns(records)
        if not keys:
            return
        encoded = _encoded(self._key, keys), _encoded(self._value, values)
        cells = [_cell(given) if given else None for given in headers]
        self._pipe(self._records(*encoded, self._times(timestamps), cells), None)

    def advance_time(self, duration: Duration) -> None:
        """Moves the topic's clock."""
        self._clock += to_milliseconds(duration, unclear="take")

    def _times(self, given: list[Any]) -> list[int]:
        """Timestamps in ms; None gets the topic's clock, which moves only if all are valid."""
        if {int}.issuperset(map(type, given)) and min(given) >= -LATEST and max(given) <= LATEST:
            return given
        clock, found = self._clock, []
        for timestamp in given:
            found.append(to_record_timestamp(clock if timestamp is None else timestamp))
            clock += self._advance if timestamp is None else 0
        self._clock = clock
        return found

    def _check_partition(self, partition: object) -> None:
        if partition is None or (is_whole(partition) and 0 <= partition < self._partitions):
            return
        what = f"the topic has no partition {partition!r}: it has {self._partitions}, numbered from 0"
        step = "leave it out for Kafka's default, or make more: TopologyTestDriver(partitions=…)"
        raise refuse("CS-241", what, step, **caller_location())

    def _records(
        self, keys: Any, values: Any, timestamps: list[int], headers: list[bytes | None]
    ) -> pa.RecordBatch:
        given = zip((keys, values, timestamps, headers), PRODUCER_RECORDS.types, strict=True)
        columns = [pa.array(column, kind) for column, kind in given]
        return pa.RecordBatch.from_arrays(columns, schema=PRODUCER_RECORDS)


def _columns(records: Iterable[TestRecord | tuple[Any, ...]]) -> tuple[list[Any], ...]:
    """Columns of keys, values, timestamps and headers; tuples may be short."""
    if isinstance(records, TestRecord) or not isinstance(records, Iterable):
        raise _error(f"pipe_records takes a list of records, not {records!r}", "pipe_record(…) pipes one")
    rows = [record if type(record) is tuple else _fields(record) for record in records]
    lengths = set(map(len, rows))
    if len(lengths) != 1 or not lengths <= _LENGTHS:
        rows = [_fields(TestRecord(*_fields(row))) for row in rows]
    columns = [list(column) for column in zip(*rows, strict=True)]
    missing = [[value] * len(rows) for value in (None, ())]
    return (*columns, *missing[len(columns) - 2 :]) if rows else ([], [], [], [])


def _fields(record: Any) -> tuple[Any, ...]:
    if isinstance(record, TestRecord):
        return record.key, record.value, record.timestamp, record.headers
    if isinstance(record, tuple | list) and len(record) in _LENGTHS:
        return tuple(record)
    raise _error(
        f"{record!r} is not a record", "write TestRecord(key, value, timestamp), or a tuple in this order"
    )


def _cell(headers: Any) -> bytes | None:
    """The packed headers of a record; None without headers."""
    if not headers:
        return None
    given = list(headers) if isinstance(headers, Iterable) else [headers]
    pairs = list(filter(_is_header, given))
    if len(pairs) < len(given):
        raise _error(f"headers={headers!r} are not pairs of text and bytes", 'write headers=[("a", b"b")]')
    return encode_headers(pairs)


def _is_header(pair: Any) -> TypeGuard[Header]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        return False
    name, value = pair
    is_text = isinstance(name, str) and utf8_safe(name) == name
    return is_text and isinstance(value, bytes | bytearray | memoryview | None)


def _error(what: str, step: str) -> CrossStreamError:
    return refuse("CS-241", what, step, **caller_location())


def _encoded(serde: Serde, values: Sequence[Any]) -> pa.LargeBinaryArray:
    try:
        return calls.encode_objects(serde, values)
    except SerdeError:
        for value in values:
            calls.serialize(serde, value)  # raises the error of the value at fault
        raise


class TestOutputTopic(PointsToNames):
    """Reads what the topology wrote to a topic. Made by `TopologyTestDriver.create_output_topic`.

    Several of one topic share their position, as in Kafka's driver: each record comes out once.

    >>> import crossstream as cs
    >>> text, builder = cs.serdes.string(), cs.StreamsBuilder()
    >>> names = builder.table("names", cs.Consumed(key=text, value=text), cs.Materialized(store="names"))
    >>> names.to_stream().to("out")
    >>> with cs.TopologyTestDriver(builder.build()) as driver:
    ...     driver.create_input_topic("names", text, text).pipe_records([("a", "Ada", 5), ("b", "Bob", 7)])
    ...     out = driver.create_output_topic("out", text, text)
    ...     out.read_record(), out.queue_size, out.read_key_values_to_map(), out.is_empty
    (TestRecord(key='a', value='Ada', timestamp=5, headers=()), 1, {'b': 'Bob'}, True)
    """

    __test__ = False

    def __init__(self, output: MemoryOutput, topic: str, key: Serde, value: Serde) -> None:
        self._output = output
        self._topic = topic
        self._key = key
        self._value = value
        self._position = output.read.setdefault(topic, Position())

    @property
    def queue_size(self) -> int:
        """How many records are unread."""
        return int(sum(records.num_rows for records in self._unread())) - self._position.records

    @property
    def is_empty(self) -> bool:
        """Whether no record is unread."""
        return self.queue_size == 0

    def read_record(self) -> TestRecord:
        """The next record; `IndexError` at the end. Raises what `read_records` does."""
        if self.is_empty:
            raise IndexError(f"no more records in {self._topic}")
        position = self._position
        while (first := self._unread()[0]).num_rows == position.records:
            position.batches, position.records = position.batches + 1, 0
        (record,) = self._decoded(first.slice(position.records, 1))
        position.records += 1
        return record

    def read_records(self) -> list[TestRecord]:
        """All unread records.

        Raises `SerdeError` CS-402 for bytes that the serdes cannot decode; then all stay unread.
        """
        found = self._rest()
        self._skip()
        return found

    def read_values(self) -> list[Any]:
        """The values of all unread records."""
        return [record.value for record in self.read_records()]

    def read_key_values(self) -> list[tuple[Any, Any]]:
        """Key and value of all unread records."""
        return [(record.key, record.value) for record in self.read_records()]

    def read_key_values_to_map(self) -> dict[Any, Any]:
        """The last value of each key among the unread records; deleted keys map to None.

        Raises `StateError` CS-711 for keys that cannot be keys of a dict (dicts), or are equal in it (1 and True);
        then all stay unread.
        """
        found = self._rest()
        keys = [record.key for record in found]
        step = "call read_key_values(): pairs may have any keys"
        check_dict_keys(keys, list(map(repr, keys)), step, topic=self._topic)
        self._skip()
        return {record.key: record.value for record in found}

    def _rest(self) -> list[TestRecord]:
        """All unread records, which stay unread."""
        found, first = [], self._position.records
        for records in self._unread():
            found += self._decoded(records.slice(first))
            first = 0
        return found

    def _skip(self) -> None:
        position = self._position
        position.batches, position.records = position.batches + len(self._unread()), 0

    def _unread(self) -> list[pa.RecordBatch]:
        """Batches with unread records; some of the first batch may be read."""
        return self._output.written.get(self._topic, [])[self._position.batches :]

    def _decoded(self, records: pa.RecordBatch) -> list[TestRecord]:
        keys, values, timestamps, headers = records.columns
        columns = (
            self._objects("key", self._key, keys),
            self._objects("value", self._value, values),
            timestamps.to_pylist(),
            repeat(()) if headers.null_count == len(headers) else map(decode_headers, headers.to_pylist()),
        )
        return list(map(TestRecord, *columns))

    def _objects(self, part: str, serde: Serde, cells: pa.LargeBinaryArray) -> list[Any]:
        try:
            return calls.decode_objects(serde, cells)
        except SerdeError as error:
            raise error.at(topic=self._topic, part=part) from error.__cause__
