"""Decoding what was read, once, in the form that is wanted first (decision 0023); bad records are found here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.algebra.change import Changes
from crossstream.algebra.values import Values, missing_in
from crossstream.errors import CrossStreamError, SerdeError
from crossstream.serdes import Serde, calls
from crossstream.serdes.serde import NOBODY, Checking, Passing, bisected, invalid_rows, is_varied
from crossstream.topology.graph import Node
from crossstream.topology.steps import ReadStep

if TYPE_CHECKING:
    from crossstream.engine.batch import Report
    from crossstream.engine.failures import Failures

_FEW = 64
"""Rows up to which decoding one by one is cheaper than as a column."""

Part = Literal["key", "value"]


class ReadingTask(Protocol):
    """The part of a task that reading needs."""

    @property
    def report(self) -> Report: ...

    @property
    def failures(self) -> Failures: ...

    def node(self, name: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes records of a source. ``where``: what is known of their place, where no single row is at fault."""

    task: ReadingTask
    step: ReadStep
    where: Mapping[str, object] = field(default_factory=dict)

    def decoded(self, changes: Changes, parts: Sequence[Part]) -> Changes:
        """Without undecodable records; keys and values decoded once, in the form that is wanted first."""
        node: Node = self.task.node(self.step.node)
        for part in parts:
            serde = getattr(changes, part).serde
            if serde is None or not changes.rows:
                continue
            varied = part == "key" and is_varied(serde)
            by_column = not varied and self._as_series(serde, changes.rows)
            series = by_column if part == "key" else self.step.form == "series"
            read = self._in_one_text if varied else partial(self._decoded_part, part=part, series=series)
            changes = self._readable(node, changes, part, series, read)
        return changes

    def _readable(
        self, node: Node, changes: Changes, part: Part, series: bool, read: Callable[[Changes], Changes]
    ) -> Changes:
        """What ``read`` makes of the records; without those that it fails on, of the others.

        Of keys the same is told, however many there are.
        """
        while changes.rows:
            try:
                return read(changes)
            except SerdeError as error:
                reasons = self._reasons(node, changes, part, series and part == "value")
                if not reasons and series and part == "key":
                    reasons = self._reasons(node, changes, part, series)
                if not reasons:
                    raise self._at(node, error) from error.__cause__
                changes = self._without(node, changes, reasons, part, error)
        return changes

    def _as_series(self, serde: Serde, rows: int) -> bool:
        """Whether keys are cheaper to decode, and so to check, as a column."""
        return serde.dtype is not None and rows > _FEW

    def _in_one_text(self, changes: Changes) -> Changes:
        """Keys as serialising them gives them, however they were written."""
        serde, read = changes.key.serde, changes.key.wire()
        assert serde is not None
        written = calls.encode_objects(serde, changes.key.objects())
        return changes if written.equals(read) else replace(changes, key=Values(serde, wire=written))

    def _decoded_part(self, changes: Changes, part: Part, series: bool) -> Changes:
        """With nulls on the wire where bytes stand for null, as the text ``null`` does in JSON."""
        values: Values = getattr(changes, part)
        wire = values.wire()
        fields = self.step.fields if part == "value" else None
        if series:
            nothing = missing_in(values.series(fields, checked=self.step.readers))
        elif (unread := self._unread(values, part)) is not None:
            nothing = np.fromiter(unread.nulls(wire), bool, values.rows)
        else:
            nothing = np.fromiter((value is None for value in values.objects()), bool, values.rows)
        if int(nothing.sum()) == wire.null_count:
            return changes
        nulled = pc.if_else(pa.array(nothing), pa.scalar(None, wire.type), wire)
        plain = Values(values.serde, wire=nulled)
        return replace(changes, key=plain) if part == "key" else replace(changes, value=plain)

    def _unread(self, values: Values, part: Part) -> Passing | None:
        """The serde of values that nobody reads, if it can check them without."""
        serde: object = values.serde
        passes = part == "value" and self.step.readers == NOBODY
        return serde if passes and isinstance(serde, Passing) else None

    def _reasons(self, node: Node, changes: Changes, part: Part, series: bool) -> list[tuple[int, str]]:
        values: Values = getattr(changes, part)
        way: Literal["objects", "series"] = "series" if series else "objects"
        needed = self.step.fields if series and part == "value" else None
        assert values.serde is not None
        try:
            if needed is not None and isinstance(values.serde, Checking):
                check = partial(values.serde.decode_checked, fields=needed, readers=self.step.readers)
                return bisected(check, values.wire())
            if (unread := self._unread(values, part)) is not None:
                return bisected(unread.nulls, values.wire())
            return invalid_rows(values.serde, values.wire(), None, way)
        except SerdeError as error:
            raise self._at(node, error) from error.__cause__

    def _without(
        self, node: Node, changes: Changes, reasons: list[tuple[int, str]], part: Part, error: SerdeError
    ) -> Changes:
        """Without the undecodable rows, if they do not stop all; ``error``: what decoding them raised."""
        try:
            return self.task.failures.undecodable(node, changes, reasons, part)
        except SerdeError as refusal:
            raise refusal from error.__cause__

    def _at(self, node: Node, error: SerdeError) -> CrossStreamError:
        line = None if node.location is None else str(node.location)
        return error.at(operator=node.name, line=line, **self.where)
