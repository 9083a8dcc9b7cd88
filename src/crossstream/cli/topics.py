"""`crossstream topics`: JSON lines to and from topics, in files or in Kafka."""

from __future__ import annotations

import json
import select
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from io import FileIO
from typing import Any

import pyarrow as pa

from crossstream import serdes
from crossstream.cli.console import counted, say, show_table
from crossstream.cli.options import WINDOWED, duration, kafka_settings, of_option, wrong_usage
from crossstream.durations import to_milliseconds
from crossstream.error_codes import refuse
from crossstream.errors import ConfigError, SerdeError
from crossstream.partitioning import default_partitions
from crossstream.query.text import from_bytes, from_plain, harmless, to_bytes, to_json, to_plain
from crossstream.records import PRODUCER_RECORDS, Header, decode_headers, encode_headers
from crossstream.serdes import Serde
from crossstream.serdes.calls import find_invalid
from crossstream.signatures import is_whole
from crossstream.storage.bucket import is_uri, shown
from crossstream.topics import (
    OffsetRange,
    RangeReader,
    RecordWriter,
    TopicConnection,
    TopicLog,
    TopicPartition,
    all_partitions,
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
    count = _partitions_of(log.topics(), arguments.topic, arguments)
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
        say(f"{counted(written, 'record')} written to {arguments.topic}")
    return 0


def read(arguments: Namespace) -> int:
    """Prints records as JSON lines, partition by partition; with ``--follow`` then waits for new ones."""
    connection = _connection_of(arguments)
    lines, left = _json_lines(arguments), arguments.max
    with (
        closing(connection.log()) as log,
        closing(connection.reader()) as reader,
        suppress(KeyboardInterrupt),
    ):
        for tp, records in _records(arguments, log, reader):
            if left is not None:
                records = records.slice(0, left)
                left -= records.num_rows
            for line in lines.from_records(tp, records):
                print(harmless(line))
            if left == 0:
                break
    return 0


def list_topics(arguments: Namespace) -> int:
    """Prints the topics, without Kafka's internal ones."""
    with closing(_connection_of(arguments).log()) as log:
        topics = {name: count for name, count in log.topics().items() if not is_internal(name)}
        partitions = all_partitions(topics, topics)
        begins, ends = log.begin_offsets(partitions), log.end_offsets(partitions)
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
    with closing(_connection_of(arguments).log()) as log:
        for topic in arguments.topic:
            log.create_topic(topic, arguments.partitions, dict(arguments.config))
            say(f"{topic} created, partitions: {arguments.partitions}")
    return 0


def delete(arguments: Namespace) -> int:
    """Deletes topics; one that does not exist is an error, before any is deleted."""
    with closing(_connection_of(arguments).log()) as log:
        topics = log.topics()
        for topic in arguments.topic:
            _partitions_of(topics, topic, arguments)
        for topic in arguments.topic:
            log.delete_topic(topic)
            say(f"{topic} deleted")
    return 0


def _connection_of(arguments: Namespace) -> TopicConnection:
    """The topics of ``--topics-dir`` or ``--bootstrap-servers``."""
    if arguments.topics_dir is None:
        from crossstream.kafka import KafkaConnection

        try:
            patience = (
                to_milliseconds(arguments.broker_patience, "broker_patience", minimum=1, unclear="refuse")
                / 1000
            )
        except ConfigError as error:
            raise of_option(error) from None
        return KafkaConnection(arguments.bootstrap_servers, kafka_settings(arguments), patience)
    if arguments.kafka or arguments.kafka_config:
        what = "--kafka settings are given, but the topics are files"
        raise refuse("CS-203", what, "drop them, or use --bootstrap-servers instead of --topics-dir")
    if is_uri(arguments.topics_dir):
        what = f"topics_dir cannot be {shown(arguments.topics_dir)!r}"
        raise refuse("CS-201", what, "give the path of a folder: only the state may be at a URI")
    from crossstream.filetopics import FileTopics

    return FileTopics(arguments.topics_dir)


def _connection_text(arguments: Namespace) -> str:
    return arguments.topics_dir or arguments.bootstrap_servers  # type: ignore[no-any-return]


def _partitions_of(topics: Mapping[str, int], topic: str, arguments: Namespace) -> int:
    """How many partitions the topic has; `SourceError` CS-602 if it does not exist."""
    if topic in topics:
        return topics[topic]
    listed = [name for name in topics if not is_internal(name)]
    step = f"its topics are: {', '.join(listed) or 'none'}; `crossstream topics create` makes one"
    raise refuse("CS-602", f"there is no topic {topic!r}", step, topics=_connection_text(arguments))


def _json_lines(arguments: Namespace) -> JsonLines:
    return JsonLines(_serde(arguments.key_serde), _serde(arguments.value_serde))


def _serde(name: str) -> Serde:
    """The serde of a name that the command line has accepted. `ConfigError` CS-210: a size that is not a duration."""
    made = WINDOWED.fullmatch(name)
    if made is None:
        serde: Serde = getattr(serdes, name)()
        return serde
    if made["session"]:
        return serdes.session_windowed(_serde(made["session"]))
    return serdes.windowed(_serde(made["time"]), duration(made["size"]))


def _numbered_lines(path: str | None) -> Iterator[list[tuple[int, bytes]]]:
    """Lines with their numbers, as many at a time as are available, without blank ones."""
    number, rest = 0, b""
    try:
        source = open(sys.stdin.fileno() if path is None else path, "rb", 0, closefd=path is not None)  # noqa: SIM115
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}"
        raise refuse("CS-270", what, "give a file of JSON lines") from error
    with source as file:
        while chunk := _read_available(file):
            *lines, rest = (rest + chunk).split(b"\n")
            yield [(number + index, line) for index, line in enumerate(lines, 1) if line.strip()]
            number += len(lines)
        if rest.strip():
            yield [(number + 1, rest)]


def _read_available(file: FileIO) -> bytes:
    """Waits for input and reads what is there, up to `READ_BYTES` and a bit; empty at the end."""
    chunk = file.read(READ_BYTES)
    size, parts = len(chunk), [chunk]
    while chunk and size < READ_BYTES and select.select([file], [], [], 0)[0]:
        chunk = file.read(READ_BYTES)
        size += len(chunk)
        parts.append(chunk)
    return b"".join(parts)


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


def _records(
    arguments: Namespace, log: TopicLog, reader: RangeReader
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    topic, wanted = arguments.topic, arguments.partition
    count = _partitions_of(log.topics(), arguments.topic, arguments)
    if wanted is not None and wanted >= count:
        next = f"choose one of its partitions, 0 to {count - 1}"
        raise wrong_usage(f"{topic} has no partition {wanted}", next)
    partitions = [TopicPartition(topic, p) for p in range(count) if wanted in (None, p)]
    if arguments.start == "end" and not arguments.follow:
        if arguments.max is None:
            say("nothing to print: add --max N for the last N records, or --follow for those that come")
            return
        yield from _last(arguments.max, log, reader, partitions)
        return
    positions = dict((log.end_offsets if arguments.start == "end" else log.begin_offsets)(partitions))
    while True:
        ends = log.end_offsets(partitions)
        rows = min(READ_ROWS, arguments.max or READ_ROWS)
        for one in partitions:
            span = OffsetRange(one.topic, one.partition, positions[one], ends[one])
            for records in reader.read(span, rows):
                yield one, records
            positions[one] = max(positions[one], ends[one])
        if not arguments.follow:
            return
        sys.stdout.flush()
        time.sleep(PAUSE_SECONDS)


def _last(
    count: int, log: TopicLog, reader: RangeReader, partitions: Sequence[TopicPartition]
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The last records: of each partition in the order of its offsets, of several by their timestamps."""
    begins, ends = log.begin_offsets(partitions), log.end_offsets(partitions)
    left = {one: _last_of(one, begins[one], ends[one], count, reader) for one in partitions}
    chosen: list[tuple[TopicPartition, pa.RecordBatch]] = []
    while len(chosen) < count and (waiting := [one for one in partitions if left[one]]):
        latest = max(waiting, key=lambda one: left[one][-1].column("timestamp")[0].as_py())
        chosen.append((latest, left[latest].pop()))
    yield from reversed(chosen)


def _last_of(
    one: TopicPartition, begin: int, end: int, count: int, reader: RangeReader
) -> list[pa.RecordBatch]:
    """The last records of a partition, one in each batch; offsets may have gaps."""
    span = count
    while True:
        start = max(begin, end - span)
        batches = list(reader.read(OffsetRange(one.topic, one.partition, start, end), READ_ROWS))
        if start == begin or sum(batch.num_rows for batch in batches) >= count:
            rows = [batch.slice(row, 1) for batch in batches for row in range(batch.num_rows)]
            return rows[-count:]
        span *= 4


FIELDS = ("key", "value", "timestamp", "partition", "offset", "headers")
"""What a line may hold. ``offset`` is printed when reading and ignored when writing."""


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Translates records of a topic to JSON lines and back."""

    key: Serde
    value: Serde

    def to_records(self, lines: Sequence[tuple[int, bytes]]) -> tuple[pa.RecordBatch, list[int | None]]:
        """Records and the partitions they name, from numbered lines. `SerdeError` CS-402: a line is wrong.

        A record without a timestamp gets the current time.
        """
        now = time.time_ns() // 1_000_000
        rows = [self._row(number, line, now) for number, line in lines]
        columns = [
            pa.array([row[index] for row in rows], field.type) for index, field in enumerate(PRODUCER_RECORDS)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=PRODUCER_RECORDS), [row[4] for row in rows]

    def from_records(self, source: TopicPartition, records: pa.RecordBatch) -> Iterator[str]:
        """A line for each record. `SerdeError` CS-402 if the serdes cannot decode one."""
        keys = self._decoded(self.key, "key", source, records)
        values = self._decoded(self.value, "value", source, records)
        stamps, offsets, headers = (records.column(n).to_pylist() for n in ("timestamp", "offset", "headers"))
        for key, value, stamp, offset, cell in zip(keys, values, stamps, offsets, headers, strict=True):
            line = {
                "key": to_plain(key),
                "value": to_plain(value),
                "timestamp": stamp,
                "partition": source.partition,
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
            what = f"line {number} is not a record: {getattr(error, 'what', error)}"
            step = (
                "write what the serde takes, or choose another one, such as --key-serde json"
                if isinstance(error, SerdeError)
                else 'write {"key": …, "value": …}; see `crossstream topics write --help`'
            )
            raise refuse("CS-402", what, step, line=line.decode(errors="replace")[:200]) from error

    def _decoded(self, serde: Serde, part: str, source: TopicPartition, records: pa.RecordBatch) -> list[Any]:
        column = records.column(part)
        try:
            return serde.decode_objects(column)
        except SerdeError:
            row, reason = find_invalid(serde, column, way="objects")[0]
            offset = records.column("offset")[row].as_py()
            what = f"the {part} of a record is not {serde.name}: {reason}"
            step = f"name its serde with --{part}-serde; bytes shows anything"
            raise refuse(
                "CS-402", what, step, topic=source.topic, partition=source.partition, offset=offset
            ) from None


def _check(record: Any) -> None:
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    unknown = record.keys() - set(FIELDS)
    if unknown:
        names = ", ".join(sorted(unknown))
        raise ValueError(f"a record has no field {names}; its fields are {', '.join(FIELDS)}")
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
