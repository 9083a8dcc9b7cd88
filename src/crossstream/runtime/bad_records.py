"""What happens to records that cannot be decoded, processed or written: stop, skip, or dead letters. Never silence.

A dead letter has more headers than its record had, so it may be too large for a topic of the same limit. It is cut
until it fits, and its headers say so. The whole record is put into a file if there is a folder for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, Raised, encoded, first_refused
from crossstream.columns.order import place_of
from crossstream.columns.values import Values
from crossstream.errors import CrossStreamError, ProcessingError, SerdeError, SinkError, type_and_text
from crossstream.graph.nodes import Graph, Node, StreamStreamJoin, StreamTableJoin
from crossstream.operators.table_join.kernel import Given
from crossstream.records import REASON, Header, decode_headers, encode_headers
from crossstream.runtime.batch import Batch, Policy, Report
from crossstream.runtime.error_headers import STACKTRACE, as_kafka_says
from crossstream.serdes import Serde
from crossstream.serdes import serde as calls
from crossstream.serdes.refusals import OF_REGISTRY, UNDECODABLE
from crossstream.serdes.registry_serde import frame_hint
from crossstream.serdes.serde import ForTopic, alike
from crossstream.storage.columns import take_or_null
from crossstream.storage.files import Folder, force

_FIX_RECORD = "fix or skip the record: deserialization_errors='skip' or cs.DeadLetter(topic)"
_NEXT = "fix the function, or skip such records: processing_errors='skip' or cs.DeadLetter(topic)"

Part = Literal["key", "value"]

Write = Callable[[str, pa.RecordBatch], None]


@dataclass(frozen=True, slots=True)
class Failures:
    """Carries out the policies in one task.

    ``write``: appends records to a topic; ``limit``: the most bytes that a record of a topic may have, None for any.
    """

    topology: Graph
    batch: Batch
    report: Report
    decoding: Policy
    processing: Policy
    write: Write
    limit: Callable[[str], int | None]

    def undecodable(
        self, node: Node, changes: Changes, reasons: Sequence[tuple[int, str]], part: str
    ) -> Changes:
        """The changes without the rows that could not be decoded; ``part``: key, value or timestamp."""
        if part != "timestamp":
            reasons = explained(getattr(changes, part), reasons)
        rows = [row for row, _ in reasons]
        if self.decoding.action == "fail":
            row, reason = reasons[0]
            serde = None if part == "timestamp" else getattr(changes, part).serde
            raise SerdeError(
                f"the {part} of a record cannot be decoded: {reason}",
                code="CS-402",
                where=self.place(node, changes, row) | {"serde": None if serde is None else serde.name},
                next=_FIX_RECORD,
            )
        self.report.count_dropped(node.name, {"undecodable": len(rows)})
        if self.decoding.action == "dead-letter":
            refused = [
                Refusal(r, f"undecodable {part}: {why}", SerdeError(why, code="CS-402", next=_FIX_RECORD))
                for r, why in reasons
            ]
            self._bury(self.decoding, node, changes, refused)
        return _readable(changes.without(rows))

    def failed(
        self,
        node: Node,
        changes: Changes,
        failures: Sequence[Failure],
        given: Given | None = None,
        forms: Forms | None = None,
    ) -> None:
        """Stops with the first to arrive, or counts and buries, of the rows on which a function of the user raised.

        ``given``: what a joiner got for each of them, where the changes are the results of a join. ``forms``: the
        serdes of dead letters, where they are not those of the operator's input. A KeyboardInterrupt always stops.
        """
        first = _first(changes, failures)
        if self.processing.action == "fail" or isinstance(first.error, KeyboardInterrupt):
            raise self.error(node, changes, first)
        self.report.count_dropped(node.name, {"failed": len(failures)})
        if self.processing.action == "dead-letter":
            refused = [Refusal(f.row, type_and_text(_of_user(f.error)), _of_user(f.error)) for f in failures]
            self._bury(self.processing, node, changes, refused, given, forms)

    def error(self, node: Node, changes: Changes, failure: Failure) -> CrossStreamError:
        """The error of one failed row, with its place."""
        place = self.place(node, changes, failure.row)
        if isinstance(failure.error, CrossStreamError):
            return _of_operator(failure.error).at(**place)
        cause = _of_user(failure.error)
        error = ProcessingError(
            f"the {failure.role} of {node.name} raised {type_and_text(cause)}",
            code="CS-501",
            where=place,
            next=_NEXT,
        )
        error.__cause__ = cause
        return error

    def writable(self, node: Node, changes: Changes, part: Part, serde: Serde) -> Changes:
        """The changes without the rows whose key or value (``part``) the serde refuses, if they do not stop all."""
        values: Values = getattr(changes, part)
        try:
            values.wire(serde)
            return changes
        except SerdeError as error:
            if self.processing.action == "fail" or error.code in OF_REGISTRY:
                refusal = self.unserializable(node, changes, part, serde, error)
                raise refusal from refusal.__cause__
        column, wrong = encoded(values, serde)
        if wrong:
            forms = Forms(None if part == "key" else node.key, None)
            self.failed(node, changes, [Failure(row, refusal) for row, refusal in wrong], forms=forms)
        written = Values(serde, wire=column)
        changes = replace(changes, key=written) if part == "key" else replace(changes, value=written)
        return changes.without([row for row, _ in wrong])

    def unserializable(
        self, node: Node, changes: Changes, part: str, serde: Serde | None, error: SerdeError
    ) -> CrossStreamError:
        """The error of the first row to arrive whose key or value (``part``) the serde refuses, with its place."""
        arrived = np.lexsort((changes.minor, changes.major))
        values: Values = getattr(changes, part).take(arrived)
        if error.code in OF_REGISTRY:
            serde = None
        with suppress(SerdeError):  # the column itself cannot be read: no row is at fault
            found = None if serde is None else first_refused(values, serde)
            if found is not None:
                row, refusal = found
                return refusal.at(**self.place(node, changes, int(arrived[row])), part=part)
        line = None if node.location is None else str(node.location)
        return error.at(operator=node.name, line=line, part=part)

    def place(self, node: Node, changes: Changes, row: int) -> dict[str, object]:
        """Operator, the user's line and key of a row; topic, partition and offset of the record that made it come.

        A row that had waited is not that record's own. If it was the clock, there is no record: None.
        """
        rank, offset = place_of(int(changes.minor[row]))
        span = self.batch.of_rank(rank)
        return {
            "operator": node.name,
            "line": None if node.location is None else str(node.location),
            "topic": None if span is None else span.topic,
            "partition": None if span is None else span.partition,
            "offset": None if span is None else span.start + offset,
            "key": _shown(changes, row),
        }

    def _bury(
        self,
        policy: Policy,
        node: Node,
        changes: Changes,
        refused: Sequence[Refusal],
        joined: Given | None = None,
        forms: Forms | None = None,
    ) -> None:
        taken = changes.take(np.array([one.row for one in refused]))
        forms = forms or (Forms.of_input if joined is None else Forms.of_join)(self.topology, node)
        key, value = letters(forms, taken, joined)
        given = [None] * taken.rows if taken.headers is None else taken.headers.to_pylist()
        assert policy.topic is not None
        limit = self.limit(policy.topic)
        columns = zip(key.to_pylist(), value.to_pylist(), taken.ts.tolist(), given, refused, strict=True)
        whole = []
        for k, v, ts, own, one in columns:
            place = self.place(node, changes, one.row)
            reason = REASON, _utf8(one.reason)
            errors = as_kafka_says(one.error, place)
            whole.append(Letter(k, v, ts, decode_headers(own), reason, _where(place), errors))
        self.write(policy.topic, as_records([letter.within(limit, policy.spill) for letter in whole]))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that becomes a dead letter: why, in one line, and the error."""

    row: int
    reason: str
    error: BaseException


def _where(place: Mapping[str, object]) -> list[Header]:
    known = {f"crossstream.{name}": place[name] for name in ("operator", "topic", "partition", "offset")}
    return [(name, _utf8(str(value))) for name, value in known.items() if value is not None]


def explained(values: Values, reasons: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    """The reasons; of rows that look like those of a schema registry, with the serdes that read them."""
    serde: object = values.serde
    if isinstance(serde, ForTopic):
        return reasons
    wire = values.wire()
    frames = [frame_hint(wire[row].as_py()) for row, _ in reasons]
    return [(row, reason + hint) for (row, reason), hint in zip(reasons, frames, strict=True)]


def _utf8(text: str) -> bytes:
    """The bytes of a text, which may have halves of characters."""
    return text.encode(errors="backslashreplace")


def _first(changes: Changes, failures: Sequence[Failure]) -> Failure:
    """The failure of the row that arrived first; of rows of one trigger, the first. A KeyboardInterrupt before all."""
    interrupts = [failure for failure in failures if isinstance(failure.error, KeyboardInterrupt)]
    failures = interrupts or failures
    rows = np.array([failure.row for failure in failures])
    return failures[int(np.lexsort((rows, changes.minor[rows], changes.major[rows]))[0])]


def _of_operator(error: CrossStreamError) -> CrossStreamError:
    """Bytes that their source takes for a record, and an expression cannot read, are no matter of decoding."""
    if error.code == UNDECODABLE:
        error.next = _NEXT
    return error


def _of_user(error: BaseException) -> BaseException:
    """What the function itself raised."""
    return error.error if isinstance(error, Raised) else error


def _readable(changes: Changes) -> Changes:
    """The rows as columns of their own, so that the dropped rows are not decoded with them."""
    key, value = (Values(values.serde, wire=values.wire()) for values in (changes.key, changes.value))
    return replace(changes, key=key, value=value)


def _shown(changes: Changes, row: int) -> object:
    one = changes.key.take(np.array([row]))
    try:
        return one.objects()[0]
    except SerdeError:
        return one.wire()[0].as_py()


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
        for errors in ([header for header in self.errors if header[0] != STACKTRACE], []):
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
        if isinstance(node, StreamStreamJoin):
            return cls(node.key, node.store.value, node.other_store.value)
        left, right = (topology[name].value for name in node.parents[:2])
        return cls(node.key, node.stream_value if isinstance(node, StreamTableJoin) else left, right)


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
