"""`crossstream topics`: JSON lines to and from topics, in files or in Kafka."""

from __future__ import annotations

import errno
import json
import os
import select
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crossstream.cli.console import say, show_table
from crossstream.cli.places import connection_of, described, partitions_of
from crossstream.cli.texts import from_bytes, from_plain, serde_named, to_bytes, to_json, to_plain
from crossstream.errors import ConfigError, SerdeError
from crossstream.partitioning import default_partitions
from crossstream.records import RECORDS, Header, decode_headers, encode_headers
from crossstream.serdes import Serde
from crossstream.signatures import is_whole
from crossstream.topics import OffsetRange, RangeReader, RecordWriter, TopicLog, TopicPartition, is_internal

PAUSE_SECONDS = 0.2
"""Between two looks for new records."""
READ_ROWS = 10_000
READ_BYTES = 1 << 20


def write(arguments: Namespace) -> int:
    """Appends JSON lines to a topic, as they come in."""
    connection = connection_of(arguments)
    log = connection.log()
    known = log.topics()
    count = partitions_of(known, arguments.topic, arguments)
    writer = connection.writer()
    lines = Lines(serde_named(arguments.key_serde), serde_named(arguments.value_serde))
    written = 0
    try:
        for chunk in _numbered(arguments.file):
            records, partitions = lines.written(chunk)
            _append(writer, arguments.topic, records, partitions, count)
            written += records.num_rows
    finally:
        writer.close()
        log.close()
        say(f"{written:,} record{'' if written == 1 else 's'} written to {arguments.topic}")
    return 0


def read(arguments: Namespace) -> int:
    """Prints records as JSON lines: partition by partition what there is, then what comes."""
    connection = connection_of(arguments)
    reading = _Reading(arguments, connection.log(), connection.reader())
    try:
        for line in reading.lines():
            print(line)
    except KeyboardInterrupt:
        pass  # the way to end --follow
    finally:
        reading.close()
    return 0


def list_topics(arguments: Namespace) -> int:
    """Prints the topics of a place."""
    log = connection_of(arguments).log()
    try:
        topics = {name: count for name, count in log.topics().items() if not is_internal(name)}
        places = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
        begins, ends = log.begin_offsets(places), log.end_offsets(places)
    finally:
        log.close()
    held = {topic: sum(ends[p] - begins[p] for p in places if p.topic == topic) for topic in topics}
    if arguments.format == "json":
        for topic, count in topics.items():
            print(to_json({"topic": topic, "partitions": count, "offsets": held[topic]}))
    elif topics:
        rows = [(topic, str(count), f"{held[topic]:,}") for topic, count in topics.items()]
        show_table(("topic", "partitions", "offsets"), rows, (False, True, True))
    else:
        say(f"no topics in {described(arguments)}")
    return 0


def create(arguments: Namespace) -> int:
    """Makes topics; one that is there already is an error."""
    log = connection_of(arguments).log()
    try:
        for topic in arguments.topic:
            log.create_topic(topic, arguments.partitions, dict(arguments.config))
            say(f"{topic} created, partitions: {arguments.partitions}")
    finally:
        log.close()
    return 0


def _numbered(path: str | None) -> Iterator[list[tuple[int, bytes]]]:
    """Lines with their numbers, as many at a time as there are; blank ones left out."""
    number, rest = 0, b""
    file = sys.stdin.fileno() if path is None else _open(path)
    try:
        while chunk := _what_is_there(file):
            *lines, rest = (rest + chunk).split(b"\n")
            yield [(number + place, line) for place, line in enumerate(lines, 1) if line.strip()]
            number += len(lines)
        if rest.strip():
            yield [(number + 1, rest)]
    finally:
        if path is not None:
            os.close(file)


def _what_is_there(file: int) -> bytes:
    """Waits for something to read, and reads what there is, up to some bytes; empty at the end."""
    chunk = os.read(file, READ_BYTES)
    size = len(chunk)
    parts = [chunk]
    while chunk and size < READ_BYTES and select.select([file], [], [], 0)[0]:
        chunk = os.read(file, READ_BYTES)
        size += len(chunk)
        parts.append(chunk)
    return b"".join(parts)


def _open(path: str) -> int:
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", code="CS-270", next="give a file of JSON lines"
        ) from error


def _append(
    writer: RecordWriter, topic: str, records: pa.RecordBatch, partitions: list[int | None], count: int
) -> None:
    if not records.num_rows:
        return
    if any(partition is not None for partition in partitions):
        default = default_partitions(records.column("key"), count).tolist()
        chosen = [d if p is None else p for p, d in zip(partitions, default, strict=True)]
        writer.write(topic, records, chosen)
    else:
        writer.write(topic, records)
    writer.flush()


@dataclass(slots=True)
class _Reading:
    """What ``topics read`` has read so far."""

    arguments: Namespace
    log: TopicLog
    reader: RangeReader

    def lines(self) -> Iterator[str]:
        """One for each record, until there is nothing more to come."""
        lines = Lines(serde_named(self.arguments.key_serde), serde_named(self.arguments.value_serde))
        left = self.arguments.max
        for place, records in self._records():
            if left is not None:
                records = records.slice(0, left)
                left -= records.num_rows
            yield from lines.shown(place, records)
            if left == 0:
                return

    def _records(self) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        places = self._places()
        from_end = self.arguments.start == "end"
        positions = dict((self.log.end_offsets if from_end else self.log.begin_offsets)(places))
        while True:
            ends = self.log.end_offsets(places)
            rows = min(READ_ROWS, self.arguments.max or READ_ROWS)
            for place in places:
                span = OffsetRange(place.topic, place.partition, positions[place], ends[place])
                for records in self.reader.read(span, rows):
                    yield place, records
                positions[place] = max(positions[place], ends[place])
            if not self.arguments.follow:
                return
            sys.stdout.flush()
            time.sleep(PAUSE_SECONDS)

    def _places(self) -> list[TopicPartition]:
        topic, wanted = self.arguments.topic, self.arguments.partition
        count = partitions_of(self.log.topics(), topic, self.arguments)
        places = [TopicPartition(topic, partition) for partition in range(count)]
        if wanted is None:
            return places
        if wanted < count:
            return [places[wanted]]
        raise ConfigError(
            f"{topic} has no partition {wanted}",
            code="CS-281",
            next=f"its partitions are 0 to {count - 1}",
        )

    def close(self) -> None:
        self.reader.close()
        self.log.close()


FIELDS = ("key", "value", "timestamp", "partition", "offset", "headers")
"""What a line may hold. ``offset`` is shown when reading and not looked at when writing."""
_WRITTEN = pa.schema([RECORDS.field(name) for name in ("key", "value", "timestamp", "headers")])


@dataclass(frozen=True, slots=True)
class Lines:
    """Translates with the serdes of a topic."""

    key: Serde
    value: Serde

    def written(self, lines: Sequence[tuple[int, bytes]]) -> tuple[pa.RecordBatch, list[int | None]]:
        """Records and the partitions asked for, from numbered lines. `SerdeError` CS-402: a line is wrong.

        A record without a timestamp gets the time of this moment.
        """
        now = time.time_ns() // 1_000_000
        rows = [self._row(number, line, now) for number, line in lines]
        columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(_WRITTEN)]
        return pa.RecordBatch.from_arrays(columns, schema=_WRITTEN), [row[4] for row in rows]

    def shown(self, place: TopicPartition, records: pa.RecordBatch) -> Iterator[str]:
        """A line for each record. `SerdeError` CS-402, with its place: one cannot be decoded."""
        keys = self._decoded(self.key, "key", place, records)
        values = self._decoded(self.value, "value", place, records)
        stamps, offsets, headers = (records.column(n).to_pylist() for n in ("timestamp", "offset", "headers"))
        for key, value, stamp, offset, cell in zip(keys, values, stamps, offsets, headers, strict=True):
            line = {
                "key": to_plain(key),
                "value": to_plain(value),
                "timestamp": stamp,
                "partition": place.partition,
                "offset": offset,
            }
            if cell is not None:
                line["headers"] = _shown_headers(decode_headers(cell))
            yield to_json(line)

    def _row(self, number: int, line: bytes, now: int) -> tuple[Any, ...]:
        try:
            record = json.loads(line)
            _check(record)
            return (
                self.key.serialize(from_plain(self.key, record.get("key"))),
                self.value.serialize(from_plain(self.value, record.get("value"))),
                now if record.get("timestamp") is None else record["timestamp"],
                encode_headers(_headers(record.get("headers"))),
                record.get("partition"),
            )
        except (ValueError, SerdeError) as error:
            raise SerdeError(
                f"line {number} is not a record: {getattr(error, 'what', error)}",
                code="CS-402",
                where={"line": line.decode(errors="replace")[:200]},
                next='write {"key": …, "value": …}; `crossstream topics write --help` tells more',
            ) from error

    def _decoded(self, serde: Serde, part: str, place: TopicPartition, records: pa.RecordBatch) -> list[Any]:
        column = records.column(part)
        try:
            return serde.decode_objects(column)
        except SerdeError:
            row, reason = serde.find_invalid(column, way="objects")[0]
            offset = records.column("offset")[row].as_py()
            raise SerdeError(
                f"the {part} of a record is not {serde.name}: {reason}",
                code="CS-402",
                where={"topic": place.topic, "partition": place.partition, "offset": offset},
                next=f"name its serde with --{part}-serde; bytes shows anything",
            ) from None


def _check(record: Any) -> None:
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    unknown = record.keys() - set(FIELDS)
    if unknown:
        raise ValueError(f"it has no field {', '.join(sorted(unknown))}; there are {', '.join(FIELDS)}")
    if "key" not in record and "value" not in record:
        raise ValueError("it has neither key nor value")
    for name, bits in (("timestamp", 64), ("partition", 32)):
        number = record.get(name)
        if number is None:
            continue
        if not is_whole(number) or number < 0:
            raise ValueError(f"its {name} is not a whole number from 0")
        if number.bit_length() >= bits:
            raise ValueError(f"its {name} has more than {bits} bits")


def _headers(headers: Any) -> list[Header]:
    pairs: Iterable[Any] = headers.items() if isinstance(headers, dict) else headers or ()
    try:
        return [(str(name), to_bytes(value)) for name, value in pairs]
    except TypeError as error:
        raise ValueError("its headers are not {name: text} or [[name, text], …]") from error


def _shown_headers(headers: tuple[Header, ...]) -> Any:
    pairs = [(name, None if value is None else from_bytes(value)) for name, value in headers]
    return dict(pairs) if len(dict(pairs)) == len(pairs) else [list(pair) for pair in pairs]
