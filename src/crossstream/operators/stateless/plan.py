"""Row-wise operators, merging and re-keying, in their rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from crossstream.columns.branch_order import Parting
from crossstream.graph.nodes import (
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
from crossstream.graph.traversal import Meeting, by_topic
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.meetings import gather, shared_keys
from crossstream.planning.plan import Flow
from crossstream.planning.steps import FrameSinkStep, SinkStep, StatelessStep, TopicOrder
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
    """The streams one after the other in the order of visits, where one record can be in several of them."""
    meeting = Meeting.of(node)
    order = builder.visits.order(meeting)
    flows = [builder.flow(name) for name in (node.parents if order is None else order.usual)]
    number, arrived = _one_round(builder, node, flows) if order is None else _gathered(builder, node, flows)
    arrive = {flow.name: name for flow, name in zip(flows, arrived, strict=True)}
    # The same key of another serde has other bytes, and so another place.
    routed = all(flow.routed and node.key is not None and alike(flow.key, node.key) for flow in flows)
    builder.flow_of(node, node.name, number, routed)
    builder.steps.append(
        StatelessStep(
            node=node.name,
            round=number,
            inputs=arrived,
            output=node.name,
            ordered=order is not None,
            partings=_partings(builder, meeting, number, arrive),
            ways=_ways(builder, node),
        )
    )


def _gathered(builder: PlanBuilder, node: Merge, flows: Sequence[Flow]) -> tuple[int, tuple[str, ...]]:
    return gather(builder, flows, shared_keys(flows), [node] * len(flows))


def _one_round(builder: PlanBuilder, node: Merge, flows: Sequence[Flow]) -> tuple[int, tuple[str, ...]]:
    """That of the last one; no two have rows of one record."""
    number = max(flow.round for flow in flows)
    return number, tuple(
        flow.name if flow.round == number else builder.arrive(flow, number, node) for flow in flows
    )


def _partings(
    builder: PlanBuilder, meeting: Meeting, number: int, arrive: Mapping[str, str] | None = None
) -> tuple[Parting, ...]:
    """None if rows that have turns come from another round, where they leave these. ``arrive``: other names of ends."""
    found = builder.partings.of(meeting)
    if any(parting.ranks is None and builder.flow(parting.flow).round != number for parting in found):
        return ()
    return tuple(parting.renamed(arrive or {}) for parting in found)


def _ways(builder: PlanBuilder, node: Node) -> tuple[tuple[str, int], ...]:
    """From parents whose rows part and meet again."""
    parents = [name for name in dict.fromkeys(node.parents) if name in builder.partings.with_turns]
    return tuple((builder.flow(name).name, builder.visits.place_among(name, node)) for name in parents)


def plan_stateless(builder: PlanBuilder, node: Node) -> None:
    if isinstance(node, Split):
        parent = builder.flow(node.parents[0])
        builder.add(replace(parent, name=node.name))
        builder.steps.append(
            StatelessStep(
                node=node.name,
                round=parent.round,
                inputs=(parent.name,),
                output=node.name,
                ways=_ways(builder, node),
            )
        )
        return
    parent = builder.flow(node.parents[0])
    same_key = isinstance(node, Filter | MapValues | Peek | Branch | ToStream) and not (
        isinstance(node, ToStream) and node.mapper is not None
    )
    builder.flow_of(node, node.name, parent.round, parent.routed and same_key)
    builder.steps.append(
        StatelessStep(
            node=node.name,
            round=parent.round,
            inputs=(parent.name,),
            output=node.name,
            old=not builder.knows_old(node),
            ways=_ways(builder, node),
        )
    )
    if isinstance(node, Filter | MapValues) and node.shape == "table":
        builder.keep(node)


def plan_sink(builder: PlanBuilder, node: Sink) -> None:
    """By itself, or with the other sinks of its topic, where one record can come to several of them."""
    sinks = builder.sharing.get(node.name)
    if sinks is None:
        parent = builder.flow(node.parents[0])
        builder.steps.append(SinkStep(node=node.name, round=parent.round, inputs=(parent.name,)))
    elif node is sinks[-1]:
        _plan_together(builder, sinks)


def _plan_together(builder: PlanBuilder, sinks: Sequence[Sink]) -> None:
    flows = [builder.flow(sink.parents[0]) for sink in sinks]
    keys = [sink.key or flow.key for flow, sink in zip(flows, sinks, strict=True)]
    number, arrived = gather(builder, flows, keys, sinks)
    orders = tuple(
        (topic, _topic_order(builder, meeting, number)) for topic, meeting in by_topic(sinks).items()
    )
    for sink, name in zip(sinks, arrived, strict=True):
        builder.steps.append(
            SinkStep(
                node=sink.name,
                round=number,
                inputs=(name,),
                shares=sinks[0].name,
                orders=orders if sink is sinks[-1] else (),
                ways=_ways(builder, sink),
            )
        )


def _topic_order(builder: PlanBuilder, meeting: Meeting, number: int) -> TopicOrder:
    """The order of visits."""
    order = builder.visits.order(meeting)
    sinks = tuple(meeting.ends.values()) if order is None else order.usual
    return TopicOrder(sinks, _partings(builder, meeting, number))


def plan_frame_sink(builder: PlanBuilder, node: FrameSink) -> None:
    parent = builder.flow(node.parents[0])
    builder.steps.append(FrameSinkStep(node=node.name, round=parent.round, inputs=(parent.name,)))
