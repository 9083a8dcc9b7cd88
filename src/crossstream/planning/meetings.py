"""Ways of a record that meet again: in one round, and the rows of one key in one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crossstream.graph.nodes import Node
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import Flow
from crossstream.planning.steps import StatelessStep, Step, StreamGlobalJoinStep, StreamTableJoinStep
from crossstream.serdes import Serde
from crossstream.serdes.kept import is_kept, kept
from crossstream.serdes.serde import alike

_IN_PLACE = StatelessStep | StreamGlobalJoinStep | StreamTableJoinStep
"""What leaves rows in the task that they came to."""


def gather(
    builder: PlanBuilder, flows: Sequence[Flow], keys: Sequence[Serde], nodes: Sequence[Node]
) -> tuple[int, tuple[str, ...]]:
    """The round in which flows meet, and what each is called there.

    Where the rows of one record are in one task, they stay there. Else all go to the state partition of their key, each
    in the serde of ``keys`` for it: in one serde, equal keys go to one partition. ``nodes``: the readers of the flows.
    """
    names = tuple(flow.name for flow in flows)
    number = max(flow.round for flow in flows)
    if number == 0 or len(_came_from(builder, names)) == 1:
        return number, names
    moved = [
        replace(flow, key=key, routed=flow.routed and alike(flow.key, key))
        for flow, key in zip(flows, keys, strict=True)
    ]
    number = max(map(builder.earliest, moved))
    return number, tuple(builder.arrive(flow, number, node) for flow, node in zip(moved, nodes, strict=True))


def shared_keys(flows: Sequence[Flow]) -> list[Serde]:
    """The serde in which the keys of each flow travel to a merge: its own, or, where it has none, that of the others.

    Of several serdes it is one that spares flows the way.
    """
    known = [flow for flow in flows if not is_kept(flow.key)]
    common = max(known, key=lambda flow: (flow.routed, flow.round)).key if known else kept()
    return [common if is_kept(flow.key) else flow.key for flow in flows]


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
