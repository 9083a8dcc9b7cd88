"""What happens to rows that cannot be decoded or processed: stop, skip, or dead letters. Never silence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from crossstream.algebra.change import Changes
from crossstream.algebra.evaluate import Failure
from crossstream.algebra.order import place_of
from crossstream.engine.batch import Batch, Report
from crossstream.errors import CrossStreamError, ProcessingError, SerdeError
from crossstream.records import encode_headers
from crossstream.topology.graph import Node

Write = Callable[[str, pa.RecordBatch], None]


@dataclass(frozen=True, slots=True)
class Policy:
    """``action``: what to do with failed rows; ``topic``: where dead letters go."""

    action: Literal["fail", "skip", "dead-letter"] = "fail"
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Failures:
    """Carries out the policies in one task. ``write``: appends records to a topic."""

    batch: Batch
    report: Report
    decoding: Policy
    processing: Policy
    write: Write

    def undecodable(self, node: Node, changes: Changes, reasons: Sequence[tuple[int, str]], part: str) -> Changes:
        """The changes without the rows that could not be decoded; ``part``: key or value."""
        rows = [row for row, _ in reasons]
        if self.decoding.action == "fail":
            row, reason = reasons[0]
            raise SerdeError(
                f"the {part} of a record cannot be decoded: {reason}",
                code="CS-402",
                where=self.place(node, changes, row),
                next="mend or skip the record: deserialization_errors='skip' or cs.DeadLetter(topic)",
            )
        self.report.count_dropped(node.name, {"undecodable": len(rows)})
        if self.decoding.action == "dead-letter":
            self._bury(self.decoding, node, changes, [(r, f"undecodable {part}: {why}") for r, why in reasons])
        return _without(changes, rows)

    def failed(self, node: Node, changes: Changes, failures: Sequence[Failure]) -> Changes:
        """The changes without the rows on which a function of the user raised."""
        if not failures:
            return changes
        if self.processing.action == "fail":
            raise self.error(node, changes, failures[0])
        self.report.count_dropped(node.name, {"failed": len(failures)})
        if self.processing.action == "dead-letter":
            reasons = [(f.row, f"{type(f.error).__name__}: {f.error}") for f in failures]
            self._bury(self.processing, node, changes, reasons)
        return _without(changes, [failure.row for failure in failures])

    def error(self, node: Node, changes: Changes, failure: Failure) -> CrossStreamError:
        """The error of one failed row, with its place."""
        place = self.place(node, changes, failure.row)
        if isinstance(failure.error, CrossStreamError):
            return failure.error.at(**place)
        error = ProcessingError(
            f"a function of {node.name} raised {type(failure.error).__name__}: {failure.error}",
            code="CS-501",
            where=place,
            next="mend the function, or let the record go: processing_errors='skip' or cs.DeadLetter(topic)",
        )
        error.__cause__ = failure.error
        return error

    def place(self, node: Node, changes: Changes, row: int) -> dict[str, object]:
        """Operator, the user's line, topic, partition, offset and key of a row."""
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

    def _bury(self, policy: Policy, node: Node, changes: Changes, reasons: Sequence[tuple[int, str]]) -> None:
        rows = np.array([row for row, _ in reasons])
        taken = changes.take(rows)
        headers = [
            encode_headers([(f"crossstream.{k}", str(v).encode()) for k, v in self._why(node, changes, row, why).items()])
            for row, why in reasons
        ]
        assert policy.topic is not None
        self.write(
            policy.topic,
            pa.RecordBatch.from_arrays(
                [taken.key.wire(), taken.value.wire(), pa.array(taken.ts), pa.array(headers, pa.large_binary())],
                names=["key", "value", "timestamp", "headers"],
            ),
        )

    def _why(self, node: Node, changes: Changes, row: int, why: str) -> dict[str, object]:
        place = self.place(node, changes, row)
        return {"reason": why} | {name: place[name] for name in ("operator", "topic", "partition", "offset")}


def _without(changes: Changes, rows: Sequence[int]) -> Changes:
    keep = np.ones(changes.rows, bool)
    keep[list(rows)] = False
    return changes.take(np.flatnonzero(keep))


def _shown(changes: Changes, row: int) -> object:
    one = changes.key.take(np.array([row]))
    try:
        return one.objects()[0]
    except SerdeError:
        return one.wire()[0].as_py()
