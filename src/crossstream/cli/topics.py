"""`crossstream topics`: JSON lines to and from topics, in files or in Kafka."""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from crossstream.cli.console import say, show_table
from crossstream.cli.places import connection_of, described, partitions_of
from crossstream.cli.records_json import Lines
from crossstream.cli.texts import serde_named, to_json
from crossstream.errors import ConfigError
from crossstream.partitioning import default_partitions
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
            code="CS-280",
            next=f"its partitions are 0 to {count - 1}",
        )

    def close(self) -> None:
        self.reader.close()
        self.log.close()
