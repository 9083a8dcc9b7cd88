"""What happens to records that cannot be decoded, processed or written: stop, skip, or dead letters. Never silence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure, Raised, encoded, first_refused
from crossstream.columns.order import place_of
from crossstream.columns.values import Values
from crossstream.error_codes import CODES, refuse
from crossstream.errors import CrossStreamError, SerdeError, type_and_text
from crossstream.graph.nodes import Graph, Node
from crossstream.records import decode_headers
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.errors import OF_REGISTRY, UNDECODABLE
from crossstream.serdes.registry.serde import frame_hint
from crossstream.tables.joined import JoinerInputs
from crossstream.task.batch import Batch, Policy, Report
from crossstream.task.dead_letters import Forms, Letter, about, as_records, letters

_FIX_RECORD = "fix or skip the record: deserialization_errors='skip' or cs.DeadLetter(topic)"

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
            raise refuse(
                "CS-402",
                f"the {part} of a record cannot be decoded: {reason}",
                _FIX_RECORD,
                **(self.place(node, changes, row) | {"serde": None if serde is None else serde.name}),
            )
        self.report.count_dropped(node.name, {"undecodable": len(rows)})
        if self.decoding.action == "dead-letter":
            refused = [
                Refusal(r, f"undecodable {part}: {why}", refuse("CS-402", why, _FIX_RECORD))
                for r, why in reasons
            ]
            self._bury(self.decoding, node, changes, refused)
        return _readable(changes.without(rows))

    def failed(
        self,
        node: Node,
        changes: Changes,
        failures: Sequence[Failure],
        given: JoinerInputs | None = None,
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
        error = refuse("CS-501", f"the {failure.role} of {node.name} raised {type_and_text(cause)}", **place)
        error.__cause__ = cause
        return error

    def writable(self, node: Node, changes: Changes, part: Part, serde: EngineSerde) -> Changes:
        """The changes without the rows whose key or value (``part``) the serde refuses, if they do not stop all."""
        values: Values = getattr(changes, part)
        if values.serde == serde and not values.made():
            return changes
        try:
            values.wire(serde)
            return changes
        except SerdeError as error:
            if self.processing.action == "fail" or error.code in OF_REGISTRY:
                refusal = self.unserializable(node, changes, part, serde, error)
                raise refusal from refusal.__cause__
        column, wrong = encoded(values, serde)
        if wrong:
            forms = Forms.of_unwritable(self.topology, node, part)
            self.failed(node, changes, [Failure(row, refusal) for row, refusal in wrong], forms=forms)
        written = Values(serde, wire=column)
        changes = replace(changes, key=written) if part == "key" else replace(changes, value=written)
        return changes.without([row for row, _ in wrong])

    def unserializable(
        self, node: Node, changes: Changes, part: str, serde: EngineSerde | None, error: SerdeError
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
        of_lake = span is not None and self.topology[span.node].lake is not None
        return {
            "operator": node.name,
            "line": None if node.location is None else str(node.location),
            "topic": None if span is None else span.topic,
            "partition": None if span is None or of_lake else span.partition,
            "offset": None if span is None or of_lake else span.start + offset,
            **({} if span is None or not of_lake else {"versions": f"{span.start} to {span.end - 1}"}),
            "key": _shown(changes, row),
        }

    def _bury(
        self,
        policy: Policy,
        node: Node,
        changes: Changes,
        refused: Sequence[Refusal],
        joined: JoinerInputs | None = None,
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
            said = about(self.place(node, changes, one.row), one.reason, one.error)
            whole.append(Letter(k, v, ts, decode_headers(own), *said))
        self.write(policy.topic, as_records([letter.within(limit, policy.spill) for letter in whole]))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that becomes a dead letter: why, in one line, and the error."""

    row: int
    reason: str
    error: BaseException


def explained(values: Values, reasons: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    """The reasons; of rows that look like those of a schema registry, with the serdes that read them."""
    if values.serde is not None and values.serde.knows_topics:
        return reasons
    wire = values.wire()
    frames = [frame_hint(wire[row].as_py()) for row, _ in reasons]
    return [(row, reason + hint) for (row, reason), hint in zip(reasons, frames, strict=True)]


def _first(changes: Changes, failures: Sequence[Failure]) -> Failure:
    """The failure of the row that arrived first; of rows of one trigger, the first. A KeyboardInterrupt before all."""
    interrupts = [failure for failure in failures if isinstance(failure.error, KeyboardInterrupt)]
    failures = interrupts or failures
    rows = np.array([failure.row for failure in failures])
    return failures[int(np.lexsort((rows, changes.minor[rows], changes.major[rows]))[0])]


def _of_operator(error: CrossStreamError) -> CrossStreamError:
    """Bytes that their source takes for a record, and an expression cannot read, are no matter of decoding."""
    if error.code == UNDECODABLE:
        error.next = CODES["CS-501"].step
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
