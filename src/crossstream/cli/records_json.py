"""Records of a topic as JSON lines, both ways."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from crossstream.cli.texts import from_bytes, from_plain, to_bytes, to_json, to_plain
from crossstream.errors import SerdeError
from crossstream.records import RECORDS, Header, decode_headers, encode_headers
from crossstream.serdes import Serde
from crossstream.settings import is_whole
from crossstream.topics import TopicPartition

FIELDS = ("key", "value", "timestamp", "partition", "offset", "headers")
"""What a line may hold. ``offset`` is shown when reading and not looked at when writing."""
_WRITTEN = pa.schema([RECORDS.field(name) for name in ("key", "value", "timestamp", "headers")])


@dataclass(frozen=True, slots=True)
class Lines:
    """Translates with the serdes of a topic."""

    key: Serde
    value: Serde

    def written(self, lines: Sequence[tuple[int, bytes]]) -> tuple[pa.RecordBatch, list[int | None]]:
        """Records and the partitions asked for, from numbered lines. `SerdeError` CS-420: a line is wrong.

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
                code="CS-420",
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
