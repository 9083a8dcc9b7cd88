"""Dead letters: the bytes of a record that failed, and headers that say why, as Kafka Streams writes them too.

A dead letter has more headers than its record had, so it may be too large for a topic of the same limit. It is cut
until it fits, and its headers say so. The whole record is put into a file if there is a folder for that.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from crossstream.columns.changes import Changes
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import SerdeError, type_and_text
from crossstream.graph.nodes import Aggregate, Graph, Node, StreamStreamJoin, StreamTableJoin
from crossstream.records import REASON, Header, encode_headers
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.own import alike
from crossstream.storage.columns import take_or_null
from crossstream.storage.files import Folder, force
from crossstream.tables.joined import JoinerInputs

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
_STACKTRACE = "__streams.errors.stacktrace"
_NAME_BYTES = 100
"""Of a topic's name in that of a file, which may have 255 bytes."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. ``headers``: the record's own; ``reason``, ``place``: those that say why, and where.

    ``errors``: what Kafka Streams says of both.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[Header]
    reason: Header
    place: Sequence[Header]
    errors: Sequence[Header] = ()

    @property
    def size(self) -> int:
        """Bytes that it takes in a topic, before compression."""
        return _RECORD_BYTES + _length(self.key) + _length(self.value) + _bytes_of(self.all_headers)

    @property
    def all_headers(self) -> list[Header]:
        return [*self.headers, self.reason, *self.place, *self.errors]

    def within(self, limit: int | None, folder: str | None) -> Letter:
        """The letter, cut if it is larger than ``limit``; a file of ``folder`` has then all of it, if there is one.

        It first loses its stack trace, then all that Kafka Streams says: that is no part of the record.
        """
        if limit is None or self.size <= limit:
            return self
        for errors in ([header for header in self.errors if header[0] != _STACKTRACE], []):
            lean = replace(self, errors=errors)
            if lean.size <= limit:
                return lean
        return (lean if folder is None else lean.spilled(folder)).fitting(limit)

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
        headers = list(self.headers)
        while headers and _bytes_of(headers) > for_headers:
            headers.pop()
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
            Folder(file.parent).put(file.name, content, forced=True)
            force(file.parent)
        except OSError as error:
            what = (
                f"a bad record that is too large for its dead-letter topic cannot be kept in a file: {error}"
            )
            step = "check free space and permissions of DeadLetter(spill=…)"
            raise refuse("CS-665", what, step, file=str(file)) from error
        return replace(self, place=[*self.place, (SPILLED, str(file).encode())])

    def _file_name(self, place: dict[str, str]) -> str:
        """By the record that was processed; the rest differs for what several operators, or one, made of it."""
        known = [self.key, self.value, self.timestamp, self.headers, place.get("operator")]
        digest = xxhash.xxh3_64_hexdigest(msgspec.msgpack.encode(known))
        if "topic" not in place:
            return f"{digest}.json"
        return f"{place['topic'][:_NAME_BYTES]}-{place['partition']}-{place['offset']}-{digest}.json"


def as_records(letters: Sequence[Letter]) -> pa.RecordBatch:
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


@dataclass(frozen=True, slots=True)
class Forms:
    """The serdes of dead letters; None: only the engine has bytes of these.

    ``value``: of the records, or of those of a join's left side; ``right``: of those of its right side.
    """

    key: EngineSerde | None
    value: EngineSerde | None
    right: EngineSerde | None = None

    @classmethod
    def of_input(cls, topology: Graph, node: Node) -> Forms:
        """Of records that an operator takes; a source takes what it yields."""
        taken = topology[node.parents[0]] if node.parents else node
        return cls(taken.key, taken.value)

    @classmethod
    def of_unwritable(cls, topology: Graph, node: Node, part: str) -> Forms:
        """Of records that an operator cannot write, for their key or their value (``part``) has no bytes.

        The results of some operators have keys of another kind than their records.
        """
        if part == "key":
            return cls(None, None)
        if node.by_foreign_key and node.answers_by_key:
            return cls(topology[node.parents[0]].key, None)
        return cls(node.group_key if isinstance(node, Aggregate) else node.key, None)

    @classmethod
    def of_join(cls, topology: Graph, node: Node) -> Forms:
        """Of results of a join, with the values of its sides."""
        if isinstance(node, StreamStreamJoin):
            return cls(node.key, node.store.value, node.other_store.value)
        left, right = (topology[name].value for name in node.parents[:2])
        return cls(node.key, node.stream_value if isinstance(node, StreamTableJoin) else left, right)


def letters(forms: Forms, changes: Changes, given: JoinerInputs | None) -> tuple[Any, Any]:
    """Keys and values (`pyarrow.LargeBinaryArray`) of changes that failed. ``given``: to a joiner, for each of them."""
    key = bytes_of(changes.key, forms.key)
    if given is None:
        return key, bytes_of(changes.value, forms.value)
    sides = [bytes_of(given.left, forms.value), bytes_of(given.right, forms.right)]
    rows = np.arange(changes.rows)
    return key, take_or_null(pa.concat_arrays(sides), np.where(given.is_right, changes.rows + rows, rows))


def bytes_of(values: Values, serde: EngineSerde | None) -> pa.LargeBinaryArray:
    """Bytes that others can read: in the serde, or as JSON, or else as text."""
    if serde is None:
        return _each(values, _text)
    if values.serde is not None and alike(values.serde, serde):
        return values.wire()
    try:
        return values.wire(serde)
    except SerdeError:
        return _each(values, lambda value: _serialized(value, serde))


def _each(values: Values, written: Any) -> pa.LargeBinaryArray:
    return pa.array(
        [None if value is None else written(value) for value in values.objects()], pa.large_binary()
    )


def _serialized(value: Any, serde: EngineSerde) -> bytes | None:
    try:
        return calls.serialize(serde, value)
    except SerdeError:
        return _text(value)


def _text(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except Exception:  # whatever the value's own conversion raises
        return repr(value).encode()


def about(
    place: Mapping[str, object], reason: str, error: BaseException
) -> tuple[Header, list[Header], list[Header]]:
    """The headers of a letter that say why, where, and what Kafka Streams says of both (KIP-1034).

    ``place``: operator, topic, partition and offset, None where they are not known. Exception and stack trace look as
    Python shows them.

    >>> place = {"operator": "names", "topic": "in", "partition": 0, "offset": None}
    >>> reason, where, errors = about(place, "no number", ZeroDivisionError("by zero"))
    >>> dict(where)
    {'crossstream.operator': b'names', 'crossstream.topic': b'in', 'crossstream.partition': b'0'}
    >>> dict(errors)["__streams.errors.exception"]
    b'ZeroDivisionError: by zero'
    """
    known = {name: place[name] for name in ("operator", "topic", "partition", "offset")}
    message = type_and_text(error).partition(": ")[2]
    kind, module = type(error).__qualname__, type(error).__module__
    said: dict[str, object] = {
        "exception": f"{kind if module == 'builtins' else f'{module}.{kind}'}: {message}",
        "message": message,
        "stacktrace": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
        **{name: known[name] for name in ("topic", "partition", "offset")},
    }
    return (REASON, _utf8(reason)), _headers("crossstream", known), _headers("__streams.errors", said)


def _headers(prefix: str, values: Mapping[str, object]) -> list[Header]:
    return [(f"{prefix}.{name}", _utf8(str(value))) for name, value in values.items() if value is not None]


def _utf8(text: str) -> bytes:
    """The bytes of a text, which may have halves of characters."""
    return text.encode(errors="backslashreplace")
