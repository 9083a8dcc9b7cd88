"""What an application read of its tables before all other records: `Consumed(load="first")` (decision 0044)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crossstream.graph.loading import loading
from crossstream.graph.nodes import Graph, Source
from crossstream.runtime.in_process import Span

Offsets = Mapping[str, Mapping[int, int]]
"""By topic and partition."""


@dataclass(frozen=True, slots=True)
class Loads:
    """``ends``: up to where topics were loaded; ``snapshots``: up to where rows of snapshots have the time 0."""

    ends: Offsets = field(default_factory=dict)
    snapshots: Offsets = field(default_factory=dict)

    @classmethod
    def of_all(cls, topology: Graph, spans: Sequence[Span]) -> Loads:
        """Of an application that starts now, with these spans in its topics."""
        names = {node.name for node in loading(topology.each(Source))}
        ends: dict[str, dict[int, int]] = {}
        for node, topic, partition, _, end in spans:
            if node in names:
                ends.setdefault(topic, {})[partition] = end
        return cls(ends, ends)

    def end_of(self, topic: str, partition: int) -> int:
        return self.ends.get(topic, {}).get(partition, 0)

    def batches(self, topology: Graph, spans: Sequence[Span]) -> list[list[Span]]:
        """The spans in one batch, or in two: what was loaded, with the global tables, and the rest."""
        if not any(self.ends.values()):
            return [list(spans)]
        first, rest = [], []
        for node, topic, partition, start, end in spans:
            border = end if topology[node].shape == "global" else self.end_of(topic, partition)
            middle = min(max(border, start), end)
            first.append((node, topic, partition, start, middle))
            rest.append((node, topic, partition, middle, end))
        parts = [[span for span in part if span[3] < span[4]] for part in (first, rest)]
        return [part for part in parts if part]
