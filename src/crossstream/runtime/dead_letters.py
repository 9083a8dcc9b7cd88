"""Dead letters that are larger than their topic allows: what is cut, and where the whole record is kept.

A dead letter has more headers than its record had, so it may be too large for a topic of the same limit. It is cut
until it fits, and its headers say so. The whole record is put into a file if there is a folder for that.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from crossstream.columns.changes import Changes
from crossstream.columns.values import Values
from crossstream.errors import SerdeError, SinkError
from crossstream.graph.nodes import Graph, Node, StreamStreamJoin, StreamTableJoin
from crossstream.operators.table_join.kernel import Given
from crossstream.records import Header, encode_headers
from crossstream.serdes import Serde
from crossstream.serdes import serde as calls
from crossstream.serdes.serde import alike
from crossstream.storage.columns import take_or_null
from crossstream.storage.files import force

SPILLED = "crossstream.spilled"
"""The header that names the file with the whole record."""
KEY_CUT, HEADERS_CUT, VALUE_CUT = (f"crossstream.{part}-truncated" for part in ("key", "headers", "value"))
"""Headers that have the full size in bytes of what was cut."""

_RECORD_BYTES = 97
"""Of a batch of one record, beside key, value and headers: 61, and at most 36 of the record itself."""
_HEADER_BYTES = 10
"""At most, for the lengths of a header's name and value."""
_MARK_BYTES = sum(len(name) + 20 + _HEADER_BYTES for name in (KEY_CUT, HEADERS_CUT, VALUE_CUT))
"""Of the three headers about what was cut; a size has at most 20 digits."""
_NAME_BYTES = 100
"""Of a topic's name in that of a file, which may have 255 bytes."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. ``headers``: the record's own; ``reason``, ``place``: those that say why, and where."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[Header]
    reason: Header
    place: Sequence[Header]

    @property
    def size(self) -> int:
        """Bytes that it takes in a topic, before compression."""
        return _RECORD_BYTES + _length(self.key) + _length(self.value) + _bytes_of(self.all_headers)

    @property
    def all_headers(self) -> list[Header]:
        return [*self.headers, self.reason, *self.place]

    def within(self, limit: int | None, folder: str | None) -> Letter:
        """The letter, cut if it is larger than ``limit``; a file of ``folder`` has then all of it, if there is one."""
        if limit is None or self.size <= limit:
            return self
        return (self if folder is None else self.spilled(folder)).fitting(limit)

    def fitting(self, limit: int) -> Letter:
        """The letter with at most ``limit`` bytes: as much as fits of its reason, key, own headers and value.

        Each of them, in this order, may have all that those after it leave over, or else half of what there is.
        """
        name, reason = self.reason[0], self.reason[1] or b""
        room = limit - _RECORD_BYTES - _MARK_BYTES - _bytes_of([*self.place, (name, None)])
        sizes = [len(reason), _length(self.key), _bytes_of(self.headers), _length(self.value)]
        for_reason, for_key, for_headers, for_value = _shared(sizes, room)
        key = None if self.key is None else self.key[:for_key]
        value = None if self.value is None else self.value[:for_value]
        headers = _first(self.headers, for_headers)
        cut = {
            KEY_CUT: (_length(self.key), _length(key)),
            HEADERS_CUT: (_bytes_of(self.headers), _bytes_of(headers)),
            VALUE_CUT: (_length(self.value), _length(value)),
        }
        marks = [(mark, b"%d" % whole) for mark, (whole, left) in cut.items() if left < whole]
        kept = reason[:for_reason].decode(errors="ignore").encode()
        return replace(
            self, key=key, value=value, headers=headers, reason=(name, kept), place=[*self.place, *marks]
        )

    def spilled(self, folder: str) -> Letter:
        """The letter with a header that names a file of ``folder`` which has all of it.

        A letter that is written again has the same file. Raises `SinkError` (CS-665) if that cannot be written.
        """
        place = {name.removeprefix("crossstream."): (value or b"").decode() for name, value in self.place}
        reason = (self.reason[1] or b"").decode()
        whole = {"key": self.key, "value": self.value, "timestamp": self.timestamp, "headers": self.headers}
        content = msgspec.json.encode({**place, "reason": reason, **whole})
        file = Path(folder, self._file_name(place))
        try:
            _write(file, content)
        except OSError as error:
            raise SinkError(
                f"a bad record that is too large for its dead-letter topic cannot be kept in a file: {error}",
                code="CS-665",
                where={"file": str(file)},
                next="check free space and permissions of DeadLetter(spill=…)",
            ) from error
        return replace(self, place=[*self.place, (SPILLED, str(file).encode())])

    def _file_name(self, place: dict[str, str]) -> str:
        """By the record that was processed; the rest differs for what several operators, or one, made of it."""
        known = [self.key, self.value, self.timestamp, self.headers, place.get("operator")]
        digest = xxhash.xxh3_64_hexdigest(msgspec.msgpack.encode(known))
        if "topic" not in place:
            return f"{digest}.json"
        return f"{place['topic'][:_NAME_BYTES]}-{place['partition']}-{place['offset']}-{digest}.json"


def as_records(letters: Sequence[Letter]) -> pa.RecordBatch:
    """The records that the letters are written as."""
    columns = [
        pa.array([letter.key for letter in letters], pa.large_binary()),
        pa.array([letter.value for letter in letters], pa.large_binary()),
        pa.array([letter.timestamp for letter in letters], pa.int64()),
        pa.array([encode_headers(letter.all_headers) for letter in letters], pa.large_binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["key", "value", "timestamp", "headers"])


def _length(data: bytes | None) -> int:
    return 0 if data is None else len(data)


def _bytes_of(headers: Sequence[Header]) -> int:
    return sum(len(name.encode()) + _length(value) + _HEADER_BYTES for name, value in headers)


def _shared(sizes: Sequence[int], room: int) -> list[int]:
    """How much each part gets of the room."""
    parts = []
    for place, size in enumerate(sizes):
        others = sum(sizes[place + 1 :])
        parts.append(max(0, min(size, max(room // 2, room - others))))
        room -= parts[-1]
    return parts


def _first(headers: Sequence[Header], most: int) -> list[Header]:
    """The first of the headers, as many as there is room for."""
    kept = list(headers)
    while kept and _bytes_of(kept) > most:
        kept.pop()
    return kept


def _write(file: Path, content: bytes) -> None:
    """Puts a file there as a whole, for its owner only; returns when it has reached the disk."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(".part", dir=file.parent)  # with the mode 0600
    try:
        with os.fdopen(number, "wb") as part:
            part.write(content)
        force(Path(name))
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    force(file.parent)


@dataclass(frozen=True, slots=True)
class Forms:
    """The serdes of dead letters; None: only the engine has bytes of these.

    ``value``: of the records, or of those of a join's left side; ``right``: of those of its right side.
    """

    key: Serde | None
    value: Serde | None
    right: Serde | None = None

    @classmethod
    def of_input(cls, topology: Graph, node: Node) -> Forms:
        """Of records that an operator takes; a source takes what it yields."""
        taken = topology[node.parents[0]] if node.parents else node
        return cls(taken.key, taken.value)

    @classmethod
    def of_join(cls, topology: Graph, node: Node) -> Forms:
        """Of results of a join, with the values of its sides."""
        return cls(node.key, *_sides(topology, node))


def letters(forms: Forms, changes: Changes, given: Given | None) -> tuple[Any, Any]:
    """Keys and values (`pyarrow.LargeBinaryArray`) of changes that failed. ``given``: to a joiner, for each of them."""
    key = bytes_of(changes.key, forms.key)
    if given is None:
        return key, bytes_of(changes.value, forms.value)
    sides = [bytes_of(given.left, forms.value), bytes_of(given.right, forms.right)]
    rows = np.arange(changes.rows)
    return key, take_or_null(pa.concat_arrays(sides), np.where(given.is_right, changes.rows + rows, rows))


def bytes_of(values: Values, serde: Serde | None) -> pa.LargeBinaryArray:
    """Bytes that others can read: in the serde, or as JSON, or else as text."""
    if serde is None:
        return _each(values, _text)
    if values.serde is not None and alike(values.serde, serde):
        return values.wire()
    try:
        return values.wire(serde)
    except SerdeError:
        return _each(values, lambda value: _serialized(value, serde))


def _sides(topology: Graph, node: Node) -> tuple[Serde | None, Serde | None]:
    if isinstance(node, StreamStreamJoin):
        return node.store.value, node.other_store.value
    left, right = (topology[name].value for name in node.parents[:2])
    return (node.stream_value, right) if isinstance(node, StreamTableJoin) else (left, right)


def _each(values: Values, written: Any) -> pa.LargeBinaryArray:
    return pa.array(
        [None if value is None else written(value) for value in values.objects()], pa.large_binary()
    )


def _serialized(value: Any, serde: Serde) -> bytes | None:
    try:
        return calls.serialize(serde, value)
    except SerdeError:
        return _text(value)


def _text(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except Exception:  # whatever the value's own conversion raises
        return repr(value).encode()
