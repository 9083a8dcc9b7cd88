"""Which batches are small: one task does all rounds of all partitions, and nothing is shuffled (decision 0025)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from crossstream.graph.nodes import lineage
from crossstream.planning.plan import Plan
from crossstream.planning.steps import GlobalResolveStep, ResolveManyStep, ResolveStep
from crossstream.storage.log_entries import SourceRange

USUAL_SECONDS = 10e-6
"""The time per row before any was measured."""
FIXED_SECONDS = 0.25
"""What the tasks of a batch may take together whatever its rows."""
FADING = 0.7
"""How much of what is known stays known from batch to batch."""


@dataclass(frozen=True, slots=True)
class Fan:
    """A join whose right rows change many results each: stores of its left rows, and of the right ones.

    ``tables``: how many right tables the store of the left rows is an index for.
    """

    left: str
    right: str
    tables: int = 1

    def rows(self, held: Mapping[str, int]) -> float:
        """Left rows for each right row, by what the stores hold."""
        return held.get(self.left, 0) / self.tables / max(1, held.get(self.right, 0))


def offsets_of(span: SourceRange) -> int:
    """As many records as a range has offsets."""
    return span.end - span.start


@dataclass(slots=True)
class Sizing:
    """Knows small batches, from what the stores hold and what batches took before.

    ``limit``: rows that one task does alone, if a row takes what is usual. ``fans``: by source, the joins where it
    comes in on the right.
    """

    limit: int
    fans: Mapping[str, tuple[Fan, ...]]
    row_seconds: float = USUAL_SECONDS
    _expected: float = 0.0

    def is_small(
        self,
        ranges: Iterable[SourceRange],
        held: Mapping[str, int],
        rows: Callable[[SourceRange], int] = offsets_of,
    ) -> bool:
        """Whether one task does a batch of these ranges alone; ``held``: rows in each store; ``rows``: of a range."""
        self._expected = sum(rows(span) * self._each(span.node, held) for span in ranges)
        return self.limit > 0 and self._expected * self.row_seconds <= self.limit * USUAL_SECONDS

    def learn(self, seconds: float) -> None:
        """Takes in how long the tasks worked together on the batch that `is_small` was last asked of."""
        expected, self._expected = self._expected, 0.0
        measured = (seconds - FIXED_SECONDS) / expected if expected else 0.0
        self.row_seconds = max(USUAL_SECONDS, FADING * self.row_seconds, measured)

    def _each(self, source: str, held: Mapping[str, int]) -> float:
        """Rows that a record of a source makes work of."""
        return 1 + sum(fan.rows(held) for fan in self.fans.get(source, ()))


def fans_of(plan: Plan) -> dict[str, tuple[Fan, ...]]:
    """The joins of a plan in which a change of a right row may change many results, by the sources it comes from."""
    found: dict[str, list[Fan]] = {}
    for step in plan.steps:
        parents = plan.topology[step.node].parents
        if isinstance(step, ResolveStep):
            fans = [(parents[1], Fan(step.subscriptions, step.right_store))]
        elif isinstance(step, GlobalResolveStep):
            fans = [(parents[1], Fan(step.subscriptions, step.table))]
        elif isinstance(step, ResolveManyStep):
            rights = zip(parents[1:], step.right_stores, strict=True)
            fans = [(parent, Fan(step.referrers, store, len(step.right_stores))) for parent, store in rights]
        else:
            continue
        for parent, fan in fans:
            for node in lineage(plan.topology.nodes, [parent]):
                if not node.parents:
                    found.setdefault(node.name, []).append(fan)
    return {source: tuple(fans) for source, fans in found.items()}
