"""Records, keys and values as text: what a person types, what JSON can hold, and what serdes take.

JSON has no bytes: bytes that are UTF-8 are shown as text, others as ``{"base64": …}``; both can be typed.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from crossstream import serdes
from crossstream.cli.options import wrong_usage
from crossstream.errors import ConfigError, SerdeError
from crossstream.records import PRODUCER_RECORDS, Header, decode_headers, encode_headers
from crossstream.serdes import Serde
from crossstream.serdes.keys import LeftOrRight, LeftOrRightSerde
from crossstream.serdes.serde import find_invalid
from crossstream.signatures import is_whole
from crossstream.topics import TopicPartition

_BASE64 = "base64"


def serde_named(name: str) -> Serde:
    """The serde of this name on the command line."""
    serde: Serde = getattr(serdes, name)()
    return serde


def to_plain(value: Any) -> Any:
    """The value as JSON can hold it; dataclasses and structs become dicts."""
    if isinstance(value, bytes | bytearray | memoryview):
        return _from_bytes(bytes(value))
    if isinstance(value, LeftOrRight):
        return list(map(to_plain, value))
    return msgspec.to_builtins(value, enc_hook=str, str_keys=True)


def to_json(value: Any) -> str:
    """The value as compact JSON."""
    return msgspec.json.encode(to_plain(value)).decode()


def _from_bytes(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}


def _to_bytes(value: Any) -> bytes | None:
    """Reverses `_from_bytes`. Raises `ValueError`."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {_BASE64} and isinstance(value[_BASE64], str):
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from error
    raise ValueError('write bytes as text, or as {"base64": …}')


def _from_plain(serde: Serde, value: Any) -> Any:
    """What the serde takes for a JSON value. Raises `ValueError`."""
    if value is None:
        return None
    if serde.name == "bytes":
        return _to_bytes(value)
    if serde.name != "uuid":
        return value
    if not isinstance(value, str):
        raise ValueError(f"write a UUID as text, not as {to_json(value)}")
    return UUID(value)


def parse_key(serde: Serde | None, text: str) -> Any:
    """The key that a text means; `ConfigError` CS-281 if it cannot be a key of the store.

    For a JSON key it is JSON if the serde accepts it, else a text: quotes make it a text in any case.
    """
    try:
        if serde is None:
            raise ValueError("its keys have no serde")
        return _key(serde, text)
    except (ValueError, KeyError, SerdeError) as error:
        raise ConfigError(
            f"{text!r} is not a key of this store: {getattr(error, 'what', error)}",
            code="CS-281",
            where={"serde": None if serde is None else serde.name},
            next="type a key as `crossstream query STATE_DIR STORE` shows it",
        ) from error


def _key(serde: Serde, text: str) -> Any:
    name = serde.name
    if isinstance(serde, LeftOrRightSerde):
        return _left_or_right(serde, text.encode())
    if name.startswith("json"):
        with suppress(SerdeError):
            key = serde.deserialize(text.encode())
            if key is not None:
                return key
        return serde.deserialize(json.dumps(text).encode())
    if name == "bytes":
        with suppress(ValueError):
            return _to_bytes(json.loads(text)) if text.startswith("{") else text.encode()
        return text.encode()
    if name.startswith("int"):
        return int(text)
    if name.startswith("float"):
        return float(text)
    if name == "boolean":
        return {"true": True, "false": False}[text.lower()]
    return _from_plain(serde, text)


def _left_or_right(serde: LeftOrRightSerde, text: bytes) -> LeftOrRight:
    """A key of one of two tables, as `to_json` shows it. Raises `ValueError`, `SerdeError`."""
    try:
        left, right = map(bytes, msgspec.json.decode(text, type=tuple[msgspec.Raw, msgspec.Raw]))
    except msgspec.MsgspecError as error:
        raise ValueError("a key of one of two tables is [key, null] or [null, key]") from error
    key = LeftOrRight(_from_json(serde.left, left), _from_json(serde.right, right))
    serde.serialize(key)
    return key


def _from_json(serde: Serde, text: bytes) -> Any:
    if isinstance(serde, LeftOrRightSerde) and text != b"null":
        return _left_or_right(serde, text)
    return serde.deserialize(text) if serde.name.startswith("json") else _from_plain(serde, json.loads(text))


def parse_time(text: str) -> int | datetime:
    """Milliseconds since the epoch, or an ISO time (UTC without a zone); `ConfigError` CS-281 for anything else."""
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
    except ValueError as error:
        next = "give milliseconds since the epoch, or a time such as 2026-01-31T12:00:00"
        raise wrong_usage(f"{text!r} is not a time", next) from error


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
                self.key.serialize(_from_plain(self.key, record.get("key"))),
                self.value.serialize(_from_plain(self.value, record.get("value"))),
                now if record.get("timestamp") is None else record["timestamp"],
                encode_headers(_headers(record.get("headers"))),
                record.get("partition"),
            )
        except (ValueError, SerdeError) as error:
            raise SerdeError(
                f"line {number} is not a record: {getattr(error, 'what', error)}",
                code="CS-402",
                where={"line": line.decode(errors="replace")[:200]},
                next='write {"key": …, "value": …}; see `crossstream topics write --help`',
            ) from error

    def _decoded(self, serde: Serde, part: str, source: TopicPartition, records: pa.RecordBatch) -> list[Any]:
        column = records.column(part)
        try:
            return serde.decode_objects(column)
        except SerdeError:
            row, reason = find_invalid(serde, column, way="objects")[0]
            offset = records.column("offset")[row].as_py()
            raise SerdeError(
                f"the {part} of a record is not {serde.name}: {reason}",
                code="CS-402",
                where={"topic": source.topic, "partition": source.partition, "offset": offset},
                next=f"name its serde with --{part}-serde; bytes shows anything",
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
        return [(str(name), _to_bytes(value)) for name, value in pairs]
    except TypeError as error:
        raise ValueError("its headers are not {name: text} or [[name, text], …]") from error


def _shown_headers(headers: tuple[Header, ...]) -> Any:
    pairs = [(name, None if value is None else _from_bytes(value)) for name, value in headers]
    return dict(pairs) if len(dict(pairs)) == len(pairs) else [list(pair) for pair in pairs]
