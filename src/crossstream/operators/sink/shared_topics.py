"""Topics that several sinks write to: records that come on several ways stay in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from crossstream.columns.branch_order import CameFrom, in_branch_order
from crossstream.columns.changes import Changes
from crossstream.columns.values import Values
from crossstream.operators.star_join.right_rows import RAW
from crossstream.planning.steps import SinkStep

_PARTITION = "partition"
"""Extra column: the partition that a row goes to, or this if nobody says."""
_ANY = -1

Sent = tuple[str, pa.RecordBatch, Sequence[int] | None]
"""A topic, records for it, and the partition of each; None: by their keys."""


@dataclass(slots=True)
class SharedTopics:
    """Rows that wait for those of other sinks, as they go to topics: by what the sinks are called together."""

    _parts: dict[tuple[str, str], list[tuple[str, Changes]]] = field(default_factory=dict)

    def put(
        self,
        step: SinkStep,
        topic: str,
        records: pa.RecordBatch,
        changes: Changes,
        partitions: Sequence[int] | None,
    ) -> None:
        """What a sink has to write; ``changes``: where the records come from."""
        assert step.shares is not None
        key, value, _, headers = records.columns
        chosen = np.full(changes.rows, _ANY) if partitions is None else np.array(partitions)
        written = Changes(
            Values(RAW, wire=key),
            Values(RAW, wire=value),
            changes.ts,
            changes.major,
            changes.minor,
            headers,
            extra={**changes.extra, _PARTITION: chosen},
        )
        self._parts.setdefault((step.shares, topic), []).append((step.node, written))

    def take(self, step: SinkStep, came_from: CameFrom) -> Iterator[Sent]:
        """All that the sinks together have to write, in order."""
        orders = dict(step.orders)
        for name, topic in [place for place in self._parts if place[0] == step.shares]:
            order = orders.get(topic) or orders[None]
            parts = sorted(self._parts.pop((name, topic)), key=lambda part: order.sinks.index(part[0]))
            yield from _sent(topic, in_branch_order(parts, order.forks, came_from))


def _sent(topic: str, written: Changes) -> Iterator[Sent]:
    """Neighbours together that go where their keys say, and those that do not."""
    partitions = np.asarray(written.extra[_PARTITION])
    given = partitions != _ANY
    bounds = [0, *(np.flatnonzero(given[1:] != given[:-1]) + 1).tolist(), written.rows]
    for start, stop in pairwise(bounds):
        part = written.slice(start, stop)
        assert part.headers is not None
        columns = [part.key.wire(), part.value.wire(), pa.array(part.ts), part.headers]
        records = pa.RecordBatch.from_arrays(columns, names=["key", "value", "timestamp", "headers"])
        yield topic, records, partitions[start:stop].tolist() if given[start] else None
