"""Row-wise operators, merging and re-keying, in their rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from crossstream.topology.graph import (
    Branch,
    Filter,
    FrameSink,
    MapValues,
    Merge,
    Node,
    Peek,
    Repartition,
    Sink,
    Split,
    ToStream,
)
from crossstream.topology.steps import FrameSinkStep, SinkStep, StatelessStep
from crossstream.topology.visits import by_visit

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def place_repartition(planner: Planner, node: Repartition) -> None:
    parent = planner.flow(node.parents[0])
    number = parent.round + 1
    moved = replace(parent, key=node.key or parent.key, value=node.value or parent.value, routed=False)
    arrived = planner.arrive(moved, number, node, node.partitioner)
    planner.add(replace(moved, name=node.name, round=number, routed=node.partitioner is None))
    planner.steps.append(
        StatelessStep(
            node=node.name,
            round=number,
            inputs=(arrived,),
            output=node.name,
            null_keys=planner.keeps_null_keys(node.name),
        )
    )


def place_merge(planner: Planner, node: Merge) -> None:
    """The streams one after the other in the order of visits, where one record can be in several of them."""
    ordered = by_visit(planner.topology, node)
    flows = [planner.flow(name) for name in ordered or node.parents]
    number = max(flow.round for flow in flows)
    inputs = tuple(
        flow.name if flow.round == number else planner.arrive(flow, number, node) for flow in flows
    )
    # The same key of another serde has other bytes, and so another place.
    routed = all(flow.routed and node.key is not None and flow.key.name == node.key.name for flow in flows)
    planner.flow_of(node, node.name, number, routed)
    planner.steps.append(
        StatelessStep(
            node=node.name, round=number, inputs=inputs, output=node.name, ordered=ordered is not None
        )
    )


def place_stateless(planner: Planner, node: Node) -> None:
    if isinstance(node, Split):
        parent = planner.flow(node.parents[0])
        planner.add(replace(parent, name=node.name))
        planner.steps.append(
            StatelessStep(node=node.name, round=parent.round, inputs=(parent.name,), output=node.name)
        )
        return
    parent = planner.flow(node.parents[0])
    same_key = isinstance(node, Filter | MapValues | Peek | Branch | ToStream) and not (
        isinstance(node, ToStream) and node.mapper is not None
    )
    planner.flow_of(node, node.name, parent.round, parent.routed and same_key)
    planner.steps.append(
        StatelessStep(
            node=node.name,
            round=parent.round,
            inputs=(parent.name,),
            output=node.name,
            old=not planner.knows_old(node),
        )
    )
    if isinstance(node, Filter | MapValues) and node.shape == "table":
        planner.keep(node)


def place_sink(planner: Planner, node: Sink | FrameSink) -> None:
    parent = planner.flow(node.parents[0])
    step = SinkStep if isinstance(node, Sink) else FrameSinkStep
    planner.steps.append(step(node=node.name, round=parent.round, inputs=(parent.name,)))
