"""Plans row-wise operators, merges and re-keying: in which round they run."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.nodes import Branch, Filter, MapValues, Merge, Node, Peek, Repartition, Split, ToStream
from crossstream.graph.traversal import MergePoint
from crossstream.planning.builder import PlanBuilder, branches_of, forks_of, gather, shared_keys
from crossstream.planning.steps import StatelessStep
from crossstream.serdes.serde import alike


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
        same_key = isinstance(node, Filter | MapValues | Peek | Branch) or (
            isinstance(node, ToStream) and node.mapper is None
        )
        builder.flow_of(node, node.name, parent.round, parent.routed and same_key)
    builder.steps.append(
        StatelessStep(
            node=node.name,
            round=parent.round,
            inputs=(parent.name,),
            output=node.name,
            old=not builder.knows_old(node),
            branches=branches_of(builder, node),
        )
    )
    if isinstance(node, Filter | MapValues) and node.shape == "table":
        builder.keep(node)
