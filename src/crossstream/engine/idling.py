"""Whether the next batch waits for inputs of a join of streams that have nothing yet, while others have.

What a stream record finds depends on what was read before it. Inputs that fill at about the same time, as when a
transaction over several topics becomes visible partition by partition, should therefore be read together. Kafka's
tasks read them in small pieces, so the others are there after a few; a batch takes all there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crossstream.engine.planning import SourcePlanner
from crossstream.topics import TopicPartition
from crossstream.topology.graph import Source, StreamStreamJoin, StreamTableJoin, Topology, lineage

LARGE_RECORDS = 1_000
"""What one of Kafka's tasks reads before it looks at all its inputs again: batches of more wait for a moment."""
MOMENT_MS = 100
"""How long these wait."""


@dataclass(slots=True)
class Idling:
    """Waits for each empty partition at most once, until it has had records again (Kafka's ``max.task.idle.ms``).

    ``inputs``: names of the sources that feed joins of streams. ``most``: how long any batch waits, in ms.
    ``deadlines``: until when empty partitions are waited for.
    """

    inputs: frozenset[str]
    most: int
    deadlines: dict[TopicPartition, int] = field(default_factory=dict)

    @classmethod
    def of(cls, topology: Topology, most: int) -> Idling:
        return cls(inputs_of_stream_joins(topology), most)

    def holds(self, sources: SourcePlanner, ends: Mapping[TopicPartition, int], now: int) -> bool:
        """Whether the records up to ``ends`` wait for other inputs; ``now``: what the clock shows, in ms."""
        if not self.inputs or sources.bootstrapping:
            return False
        waiting = sources.waiting(self.inputs, ends)
        records = sum(waiting.values())
        if not records:
            return False
        patience = max(self.most, MOMENT_MS if records > LARGE_RECORDS else 0)
        empty = [place for place, count in waiting.items() if not count]
        latest = now + patience  # not later, where the clock was set back
        self.deadlines = {place: min(self.deadlines.get(place, latest), latest) for place in empty}
        return any(now < deadline for deadline in self.deadlines.values())


def inputs_of_stream_joins(topology: Topology) -> frozenset[str]:
    """The sources whose records meet others in the order in which they are read."""
    joins = (node for node in topology if isinstance(node, StreamStreamJoin | StreamTableJoin))
    met = lineage(topology.nodes, (parent for join in joins for parent in join.parents))
    return frozenset(node.name for node in met if isinstance(node, Source) and node.shape != "global")
