"""Plans row-wise operators, merges and re-keying: in which round they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from crossstream.columns.order import Fork
from crossstream.graph import nodes as graph
from crossstream.graph.nodes import Merge, Node, Repartition, Split
from crossstream.graph.traversal import MergePoint
from crossstream.planning.builder import PlanBuilder, is_stored
from crossstream.planning.plan import Flow
from crossstream.planning.steps import StatelessStep, Step, StreamGlobalJoinStep, StreamTableJoinStep
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.json.plain import InternalJson
from crossstream.serdes.own import alike


def plan_repartition(builder: PlanBuilder, node: Repartition) -> None:
    parent = builder.flow(node.parents[0])
    number = parent.round + 1
    moved = replace(parent, key=node.key or parent.key, value=node.value or parent.value, routed=False)
    arrived = builder.arrive(moved, number, node, node.partitioner)
    builder.add(replace(moved, name=node.name, round=number, routed=node.partitioner is None))
    builder.steps.append(
        StatelessStep(
            node=node.name,
            round=number,
            inputs=(arrived,),
            output=node.name,
            null_keys=builder.keeps_null_keys(node.name),
        )
    )


def plan_merge(builder: PlanBuilder, node: Merge) -> None:
    """In the round of the last input; in visit order where one record can be in several inputs."""
    point = MergePoint.of(node)
    order = builder.visits.order(point)
    flows = [builder.flow(name) for name in (node.parents if order is None else order.usual)]
    if order is None:
        number = max(flow.round for flow in flows)
        arrived = tuple(
            flow.name if flow.round == number else builder.arrive(flow, number, node) for flow in flows
        )
    else:
        number, arrived = gather(builder, flows, shared_keys(flows), [node] * len(flows))
    names = {flow.name: name for flow, name in zip(flows, arrived, strict=True)}
    # Another serde gives the same key other bytes, and so another partition.
    routed = all(flow.routed and node.key is not None and alike(flow.key, node.key) for flow in flows)
    builder.flow_of(node, node.name, number, routed)
    builder.steps.append(
        StatelessStep(
            node=node.name,
            round=number,
            inputs=arrived,
            output=node.name,
            ordered=order is not None,
            forks=forks_of(builder, point, number, names),
            branches=branches_of(builder, node),
        )
    )


def plan_stateless(builder: PlanBuilder, node: Node) -> None:
    parent = builder.flow(node.parents[0])
    if isinstance(node, Split):
        builder.add(replace(parent, name=node.name))
    else:
        builder.flow_of(node, node.name, parent.round, parent.routed and node.keeps_place)
    builder.steps.append(
        StatelessStep(
            node=node.name,
            round=parent.round,
            inputs=(parent.name,),
            output=node.name,
            old=not builder.knows_old(node),
            stored=is_stored(node),
            branches=branches_of(builder, node),
        )
    )
    if node.derives_rows and node.shape == "table":
        builder.keep(node)


_IN_PLACE = StatelessStep | StreamGlobalJoinStep | StreamTableJoinStep
"""Steps that leave rows in the task that they came to."""


def gather(
    builder: PlanBuilder, flows: Sequence[Flow], keys: Sequence[EngineSerde], nodes: Sequence[graph.Node]
) -> tuple[int, tuple[str, ...]]:
    """The round in which flows merge, and the name of each flow there.

    Flows whose rows of one record are in one task stay there. Others go to the state partition of their key, each in
    the serde of ``keys`` for it: equal keys of one serde go to one partition. ``nodes``: the readers of the flows.
    """
    names = tuple(flow.name for flow in flows)
    number = max(flow.round for flow in flows)
    if number == 0 or len(_origins(builder, names)) == 1:
        return number, names
    moved = [
        replace(flow, key=key, routed=flow.routed and alike(flow.key, key))
        for flow, key in zip(flows, keys, strict=True)
    ]
    number = max(map(builder.earliest, moved))
    return number, tuple(builder.arrive(flow, number, node) for flow, node in zip(moved, nodes, strict=True))


def shared_keys(flows: Sequence[Flow]) -> list[EngineSerde]:
    """The serde in which keys of each flow travel to a merge: its own, or without one, that of another flow.

    Of several serdes it takes the one of a flow that is in its state partition already.
    """
    known = [flow for flow in flows if not flow.key.stays_inside]
    common = max(known, key=lambda flow: (flow.routed, flow.round)).key if known else InternalJson()
    return [common if flow.key.stays_inside else flow.key for flow in flows]


def _origins(builder: PlanBuilder, names: Sequence[str]) -> frozenset[str]:
    """The flows that these are made from without leaving the task."""
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


def _above(step: Step | None, made_by: Mapping[str | None, Step]) -> Sequence[str]:
    """The flows that a step takes its rows from, if it leaves all of them where they are.

    Of a merge only the flows made in its round: rows that arrive for it have moved.
    """
    if not isinstance(step, _IN_PLACE):
        return ()
    inputs = step.inputs[:1] if isinstance(step, StreamTableJoinStep) else step.inputs
    return inputs if len(inputs) == 1 or all(name in made_by for name in inputs) else ()


def forks_of(
    builder: PlanBuilder, point: MergePoint, number: int, arrived: Mapping[str, str] | None = None
) -> tuple[Fork, ...]:
    """The forks above a merge point; none if tagged rows come from another round, for tags do not travel.

    ``arrived``: the names that the inputs have in the round.
    """
    found = builder.forks.of(point)
    if any(fork.ranks is None and builder.flow(fork.flow).round != number for fork in found):
        return ()
    return tuple(fork.renamed(arrived or {}) for fork in found)


def branches_of(builder: PlanBuilder, node: graph.Node) -> tuple[tuple[str, int], ...]:
    """The forks among a node's parents, and the number of the branch that begins at the node."""
    parents = [name for name in dict.fromkeys(node.parents) if name in builder.forks.tagged]
    return tuple((builder.flow(name).name, builder.visits.child_number(name, node)) for name in parents)
