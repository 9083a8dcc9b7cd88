"""Empty inputs: how long a batch waits for them, and when stream time moves with the clock instead."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from crossstream.graph.nodes import Graph, lineage
from crossstream.planning.layouts import BUFFER, SUPPRESSED, WAITING
from crossstream.planning.plan import Plan
from crossstream.planning.steps import ExpireStep, WindowedAggregateStep
from crossstream.runtime.scheduler import SourcePlanner
from crossstream.storage.log_entries import Silence
from crossstream.topics import TopicPartition

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

    def holds(self, sources: SourcePlanner, ends: Mapping[TopicPartition, int], now: int) -> bool:
        """Whether the records up to ``ends`` wait for other inputs; ``now``: what the clock shows, in ms."""
        if not self.inputs or sources.bootstrapping:
            return False
        waiting = sources.waiting(self.inputs, ends)
        records = sum(waiting.values())
        if not records:
            return False
        patience = max(self.most, MOMENT_MS if records > LARGE_RECORDS else 0)
        empty = [tp for tp, count in waiting.items() if not count]
        latest = now + patience  # not later, where the clock was set back
        self.deadlines = {tp: min(self.deadlines.get(tp, latest), latest) for tp in empty}
        return any(now < deadline for deadline in self.deadlines.values())


def inputs_of_stream_joins(topology: Graph) -> frozenset[str]:
    """The sources whose records meet others in the order in which they are read."""
    joins = (node for node in topology if node.joins_stream and node.by_key)
    met = lineage(topology.nodes, (parent for join in joins for parent in join.parents))
    return frozenset(node.name for node in met if node.reads_topics and node.shape != "global")


TICK_MS = 1_000
"""How often stream time moves, at most; also not more than ten times in `after`."""


@dataclass(slots=True)
class Listener:
    """Notes what comes in, and gives each batch the time of the clock. All times in ms, as the clock shows them.

    ``after``: None where stream time stands still without input. ``since``: from when on the application has read
    all there is; the time before its start does not count. ``heard``, ``ticked``: the last batch with records, and
    the last one without; ``moved``: the last one without that was followed by a change of what is kept. ``shown``:
    what the clock showed last; where it is set back, the silence begins again.
    """

    after: int | None
    since: int
    heard: int = 0
    ticked: int = 0
    moved: int = 0
    shown: int = 0

    def silence(self, now: int, taken: int, *, has_more: bool) -> Silence | None:
        """What a batch that takes so many records knows; nothing where there is, or may be, more to read."""
        if now < self.shown:
            self._begin_again(now)
        self.shown = now
        if taken:
            self.heard = now
        if has_more:
            self.since = now
        if self.after is None or has_more:
            return None
        return Silence(now, self.since, self.after)

    def is_tick(self, silence: Silence | None) -> bool:
        """Whether a batch without records is due, if rows wait for stream time to move.

        No row does where one changed nothing although every partition had been silent for long enough: for twice as
        long, as one that takes a time of a clock that was set back for its last input may need.
        """
        if silence is None or silence.clock - max(silence.since, self.heard) < silence.after:
            return False
        if self.ticked - max(silence.since, self.heard, self.moved) > 2 * silence.after:
            return False
        if silence.clock - self.ticked < max(TICK_MS, silence.after // 10):
            return False
        self.ticked = silence.clock
        return True

    def stored(self) -> None:
        """Notes that the last batch changed what is kept: rows may wait again."""
        self.moved = self.ticked

    def _begin_again(self, now: int) -> None:
        """The clock was set back, so it cannot say how long it has been silent."""
        self.since = now
        self.heard, self.ticked, self.moved = (min(t, now) for t in (self.heard, self.ticked, self.moved))


def rows_wait(plan: Plan, state: Mapping[str, tuple[int, int]]) -> bool:
    """Whether records or windows may wait for stream time to move; ``state``: (rows, bytes) by ``store/partition``."""
    kinds = (WAITING.kind, BUFFER.kind, SUPPRESSED.kind)
    waiting = {store.name for store in plan.stores.values() if store.layout.kind in kinds}
    waiting.update(
        step.store
        for step in plan.steps
        if isinstance(step, WindowedAggregateStep) and getattr(plan.topology[step.node], "emit_final", False)
    )
    waiting.update(step.store for step in plan.steps if isinstance(step, ExpireStep) and not step.by_clock)
    return any(rows and partition.rpartition("/")[0] in waiting for partition, (rows, _) in state.items())


def milliseconds() -> int:
    """What the clock shows."""
    return time.time_ns() // 1_000_000
