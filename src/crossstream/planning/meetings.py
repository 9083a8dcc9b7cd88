"""Ways of a record that meet again: in one round, and the rows of one key in one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crossstream.graph.nodes import Node
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import Flow
from crossstream.planning.steps import StatelessStep, Step, StreamGlobalJoinStep, StreamTableJoinStep
from crossstream.serdes import Serde
from crossstream.serdes.kept import is_kept, kept
from crossstream.serdes.serde import alike

_IN_PLACE = StatelessStep | StreamGlobalJoinStep | StreamTableJoinStep
"""What leaves rows in the task that they came to."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A flow on its way to a meeting, at ``node``. ``by``: the serde whose bytes say which of its keys are the same."""

    flow: Flow
    node: Node
    by: Serde

    def at_its_place(self) -> Flow:
        """The flow, routed if its rows are in the state partition of these bytes already.

        Keys that have no serde of their own travel in the one that says which of them are the same.
        """
        key = self.by if is_kept(self.flow.key) else self.flow.key
        return replace(self.flow, key=key, routed=self.flow.routed and alike(self.flow.key, self.by))

    def other_bytes(self) -> Serde | None:
        """The serde, if keys do not travel in it; JSON of the same key may differ."""
        return None if alike(self.at_its_place().key, self.by) and not is_kept(self.by) else self.by


def gather(builder: PlanBuilder, ways: Sequence[Coming]) -> tuple[int, tuple[str, ...]]:
    """The round of a meeting, and what each flow is called there.

    As they are, if the rows of one record are in one task; else all go to the state partition of their key.
    """
    number = max(way.flow.round for way in ways)
    names = [way.flow.name for way in ways]
    if number == 0 or len(_came_from(builder, names)) == 1:
        return number, tuple(names)
    flows = [way.at_its_place() for way in ways]
    number = max(map(builder.earliest, flows))
    return number, tuple(
        builder.arrive(flow, number, way.node, by=way.other_bytes())
        for flow, way in zip(flows, ways, strict=True)
    )


def common_key(flows: Sequence[Flow]) -> Serde:
    """A serde for the keys of all: one that spares flows their way, if there is one."""
    known = [flow for flow in flows if not is_kept(flow.key)]
    return max(known, key=lambda flow: (flow.routed, flow.round)).key if known else kept()


def _came_from(builder: PlanBuilder, names: Sequence[str]) -> frozenset[str]:
    """The flows that these have come from without leaving the task."""
    made_by = {step.output: step for step in builder.steps}
    waiting, seen, found = list(names), set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            above = _above(made_by.get(name), made_by)
            waiting += above
            found |= {name} if not above else set()
    return frozenset(found)


def _above(step: Step | None, made_by: dict[str | None, Step]) -> Sequence[str]:
    """The flows that a step takes its rows from, if it leaves all of them where they are.

    Of a merge, only those that are made in its round: what arrives for it is put in place for the merge.
    """
    if not isinstance(step, _IN_PLACE):
        return ()
    inputs = step.inputs[:1] if isinstance(step, StreamTableJoinStep) else step.inputs
    return inputs if len(inputs) == 1 or all(name in made_by for name in inputs) else ()
