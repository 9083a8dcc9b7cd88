"""`crossstream topics`: JSON lines to and from topics, in files or in Kafka."""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from crossstream.cli.console import say, show_table
from crossstream.cli.options import kafka_settings, of_option
from crossstream.cli.texts import JsonLines, serde_named, to_json
from crossstream.durations import to_milliseconds
from crossstream.errors import ConfigError, SourceError
from crossstream.partitioning import default_partitions
from crossstream.storage.bucket import is_uri, shown
from crossstream.topics import (
    OffsetRange,
    RangeReader,
    RecordWriter,
    TopicConnection,
    TopicLog,
    TopicPartition,
    is_internal,
)

PAUSE_SECONDS = 0.2
"""The wait before it looks for new records again."""
READ_ROWS = 10_000
READ_BYTES = 1 << 20


def write(arguments: Namespace) -> int:
    """Appends JSON lines to a topic, as they come in."""
    connection = _connection_of(arguments)
    log = connection.log()
    count = _partitions_of(log.topics(), arguments)
    writer = connection.writer()
    lines = _json_lines(arguments)
    written = 0
    try:
        for chunk in _numbered_lines(arguments.file):
            records, partitions = lines.to_records(chunk)
            _append(writer, arguments.topic, records, partitions, count)
            written += records.num_rows
    finally:
        writer.close()
        log.close()
        say(f"{written:,} record{'' if written == 1 else 's'} written to {arguments.topic}")
    return 0


def read(arguments: Namespace) -> int:
    """Prints records as JSON lines, partition by partition; with ``--follow`` then waits for new ones."""
    connection = _connection_of(arguments)
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
    """Prints the topics, without Kafka's internal ones."""
    log = _connection_of(arguments).log()
    try:
        topics = {name: count for name, count in log.topics().items() if not is_internal(name)}
        partitions = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
        begins, ends = log.begin_offsets(partitions), log.end_offsets(partitions)
    finally:
        log.close()
    held = {topic: sum(ends[p] - begins[p] for p in partitions if p.topic == topic) for topic in topics}
    if arguments.format == "json":
        for topic, count in topics.items():
            print(to_json({"topic": topic, "partitions": count, "offsets": held[topic]}))
    elif topics:
        rows = [(topic, str(count), f"{held[topic]:,}") for topic, count in topics.items()]
        show_table(("topic", "partitions", "offsets"), rows, (False, True, True))
    else:
        say(f"no topics in {_connection_text(arguments)}")
    return 0


def create(arguments: Namespace) -> int:
    """Creates topics; one that exists already is an error."""
    log = _connection_of(arguments).log()
    try:
        for topic in arguments.topic:
            log.create_topic(topic, arguments.partitions, dict(arguments.config))
            say(f"{topic} created, partitions: {arguments.partitions}")
    finally:
        log.close()
    return 0


def _connection_of(arguments: Namespace) -> TopicConnection:
    """The topics of ``--topics-dir`` or ``--bootstrap-servers``."""
    if arguments.topics_dir is None:
        from crossstream.kafka import KafkaConnection

        try:
            patience = to_milliseconds(arguments.broker_patience, "broker_patience", minimum=1) / 1000
        except ConfigError as error:
            raise of_option(error) from None
        return KafkaConnection(arguments.bootstrap_servers, kafka_settings(arguments), patience)
    if arguments.kafka or arguments.kafka_config:
        raise ConfigError(
            "--kafka settings are given, but the topics are files",
            code="CS-203",
            next="drop them, or use --bootstrap-servers instead of --topics-dir",
        )
    if is_uri(arguments.topics_dir):
        raise ConfigError(
            f"topics_dir cannot be {shown(arguments.topics_dir)!r}",
            code="CS-201",
            next="give the path of a folder: only the state may be at a URI",
        )
    from crossstream.filetopics import FileTopics

    return FileTopics(arguments.topics_dir)


def _connection_text(arguments: Namespace) -> str:
    return arguments.topics_dir or arguments.bootstrap_servers  # type: ignore[no-any-return]


def _partitions_of(topics: Mapping[str, int], arguments: Namespace) -> int:
    """How many partitions the topic has; `SourceError` CS-602 if it does not exist."""
    topic = arguments.topic
    if topic in topics:
        return topics[topic]
    listed = [name for name in topics if not is_internal(name)]
    raise SourceError(
        f"there is no topic {topic!r}",
        code="CS-602",
        where={"topics": _connection_text(arguments)},
        next=f"its topics are: {', '.join(listed) or 'none'}; `crossstream topics create` makes one",
    )


def _json_lines(arguments: Namespace) -> JsonLines:
    return JsonLines(serde_named(arguments.key_serde), serde_named(arguments.value_serde))


def _numbered_lines(path: str | None) -> Iterator[list[tuple[int, bytes]]]:
    """Lines with their numbers, as many at a time as are available, without blank ones."""
    number, rest = 0, b""
    file = sys.stdin.fileno() if path is None else _open(path)
    try:
        while chunk := _read_available(file):
            *lines, rest = (rest + chunk).split(b"\n")
            yield [(number + index, line) for index, line in enumerate(lines, 1) if line.strip()]
            number += len(lines)
        if rest.strip():
            yield [(number + 1, rest)]
    finally:
        if path is not None:
            os.close(file)


def _read_available(file: int) -> bytes:
    """Waits for input and reads what is there, up to `READ_BYTES` and a bit; empty at the end."""
    chunk = os.read(file, READ_BYTES)
    size, parts = len(chunk), [chunk]
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
    """One run of ``topics read``."""

    arguments: Namespace
    log: TopicLog
    reader: RangeReader

    def lines(self) -> Iterator[str]:
        """A line for each record, until ``--max`` or the end."""
        lines = _json_lines(self.arguments)
        left = self.arguments.max
        for partition, records in self._records():
            if left is not None:
                records = records.slice(0, left)
                left -= records.num_rows
            yield from lines.from_records(partition, records)
            if left == 0:
                return

    def _records(self) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
        partitions = self._partitions()
        from_end = self.arguments.start == "end"
        positions = dict((self.log.end_offsets if from_end else self.log.begin_offsets)(partitions))
        while True:
            ends = self.log.end_offsets(partitions)
            rows = min(READ_ROWS, self.arguments.max or READ_ROWS)
            for one in partitions:
                span = OffsetRange(one.topic, one.partition, positions[one], ends[one])
                for records in self.reader.read(span, rows):
                    yield one, records
                positions[one] = max(positions[one], ends[one])
            if not self.arguments.follow:
                return
            sys.stdout.flush()
            time.sleep(PAUSE_SECONDS)

    def _partitions(self) -> list[TopicPartition]:
        topic, wanted = self.arguments.topic, self.arguments.partition
        count = _partitions_of(self.log.topics(), self.arguments)
        if wanted is not None and wanted >= count:
            raise ConfigError(
                f"{topic} has no partition {wanted}",
                code="CS-281",
                next=f"choose one of its partitions, 0 to {count - 1}",
            )
        return [TopicPartition(topic, p) for p in range(count) if wanted in (None, p)]

    def close(self) -> None:
        self.reader.close()
        self.log.close()
