"""The order of records that several sinks write to one topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.order import CameFrom, in_branch_order
from crossstream.columns.values import Values
from crossstream.operators.star_join.subscriptions import RAW
from crossstream.planning.steps import SinkStep

_PARTITION = "partition"
"""Extra column: the partition of a row, or `_ANY`."""
_ANY = -1
"""Kafka's default partition, by the key."""

Sent = tuple[str, pa.RecordBatch, Sequence[int] | None]
"""A topic, records for it, and the partition of each; None: by their keys."""


@dataclass(slots=True)
class SharedTopics:
    """Records that wait for the other sinks of their topic, by (group of sinks, topic)."""

    _parts: dict[tuple[str, str], list[tuple[str, Changes]]] = field(default_factory=dict)

    def put(
        self,
        step: SinkStep,
        topic: str,
        records: pa.RecordBatch,
        changes: Changes,
        partitions: Sequence[int] | None,
    ) -> None:
        """Keeps the records of a sink. ``changes``: the rows they come from."""
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
        """The records of all sinks of a group, in order."""
        orders = dict(step.orders)
        for name, topic in [part for part in self._parts if part[0] == step.shares]:
            order = orders.get(topic) or orders[None]
            parts = sorted(self._parts.pop((name, topic)), key=lambda part: order.sinks.index(part[0]))
            yield from _sent(topic, in_branch_order(parts, order.forks, came_from))


def _sent(topic: str, written: Changes) -> Iterator[Sent]:
    """Runs of records whose partitions are all chosen, or all Kafka's default."""
    partitions = np.asarray(written.extra[_PARTITION])
    given = partitions != _ANY
    bounds = [0, *(np.flatnonzero(given[1:] != given[:-1]) + 1).tolist(), written.rows]
    for start, stop in pairwise(bounds):
        part = written.slice(start, stop)
        assert part.headers is not None
        columns = [part.key.wire(), part.value.wire(), pa.array(part.ts), part.headers]
        records = pa.RecordBatch.from_arrays(columns, names=["key", "value", "timestamp", "headers"])
        yield topic, records, partitions[start:stop].tolist() if given[start] else None
