"""Row-wise operators, merging and re-keying, in their rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from crossstream.algebra.turns import Parting
from crossstream.serdes.serde import alike
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
from crossstream.topology.meetings import by_topic
from crossstream.topology.placing.gathering import Coming, common_key, gather
from crossstream.topology.plan import Flow
from crossstream.topology.steps import FrameSinkStep, SinkStep, StatelessStep, TopicOrder
from crossstream.topology.visits import Meeting

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
    meeting = Meeting.of(node)
    order = planner.visits.order(meeting)
    flows = [planner.flow(name) for name in (node.parents if order is None else order.usual)]
    number, arrived = _one_round(planner, node, flows) if order is None else _gathered(planner, node, flows)
    arrive = {flow.name: name for flow, name in zip(flows, arrived, strict=True)}
    # The same key of another serde has other bytes, and so another place.
    routed = all(flow.routed and node.key is not None and alike(flow.key, node.key) for flow in flows)
    planner.flow_of(node, node.name, number, routed)
    planner.steps.append(
        StatelessStep(
            node=node.name,
            round=number,
            inputs=arrived,
            output=node.name,
            ordered=order is not None,
            partings=_partings(planner, meeting, number, arrive),
            ways=_ways(planner, node),
        )
    )


def _gathered(planner: Planner, node: Merge, flows: Sequence[Flow]) -> tuple[int, tuple[str, ...]]:
    by = common_key(flows)
    return gather(planner, [Coming(flow, node, by) for flow in flows])


def _one_round(planner: Planner, node: Merge, flows: Sequence[Flow]) -> tuple[int, tuple[str, ...]]:
    """That of the last one; no two have rows of one record."""
    number = max(flow.round for flow in flows)
    return number, tuple(
        flow.name if flow.round == number else planner.arrive(flow, number, node) for flow in flows
    )


def _partings(
    planner: Planner, meeting: Meeting, number: int, arrive: Mapping[str, str] | None = None
) -> tuple[Parting, ...]:
    """None if rows that have turns come from another round, where they leave these. ``arrive``: other names of ends."""
    found = planner.partings.of(meeting)
    if any(parting.ranks is None and planner.flow(parting.flow).round != number for parting in found):
        return ()
    return tuple(parting.renamed(arrive or {}) for parting in found)


def _ways(planner: Planner, node: Node) -> tuple[tuple[str, int], ...]:
    """From parents whose rows part and meet again."""
    parents = [name for name in dict.fromkeys(node.parents) if name in planner.partings.with_turns]
    return tuple((planner.flow(name).name, planner.visits.place_among(name, node)) for name in parents)


def place_stateless(planner: Planner, node: Node) -> None:
    if isinstance(node, Split):
        parent = planner.flow(node.parents[0])
        planner.add(replace(parent, name=node.name))
        planner.steps.append(
            StatelessStep(
                node=node.name,
                round=parent.round,
                inputs=(parent.name,),
                output=node.name,
                ways=_ways(planner, node),
            )
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
            ways=_ways(planner, node),
        )
    )
    if isinstance(node, Filter | MapValues) and node.shape == "table":
        planner.keep(node)


def place_sink(planner: Planner, node: Sink) -> None:
    """By itself, or with the other sinks of its topic, where one record can come to several of them."""
    sinks = planner.sharing.get(node.name)
    if sinks is None:
        parent = planner.flow(node.parents[0])
        planner.steps.append(SinkStep(node=node.name, round=parent.round, inputs=(parent.name,)))
    elif node is sinks[-1]:
        _place_together(planner, sinks)


def _place_together(planner: Planner, sinks: Sequence[Sink]) -> None:
    flows = [planner.flow(sink.parents[0]) for sink in sinks]
    ways = [Coming(flow, sink, sink.key or flow.key) for flow, sink in zip(flows, sinks, strict=True)]
    number, arrived = gather(planner, ways)
    orders = tuple(
        (topic, _topic_order(planner, meeting, number)) for topic, meeting in by_topic(sinks).items()
    )
    for sink, name in zip(sinks, arrived, strict=True):
        planner.steps.append(
            SinkStep(
                node=sink.name,
                round=number,
                inputs=(name,),
                shares=sinks[0].name,
                orders=orders if sink is sinks[-1] else (),
                ways=_ways(planner, sink),
            )
        )


def _topic_order(planner: Planner, meeting: Meeting, number: int) -> TopicOrder:
    """The order of visits."""
    order = planner.visits.order(meeting)
    sinks = tuple(meeting.ends.values()) if order is None else order.usual
    return TopicOrder(sinks, _partings(planner, meeting, number))


def place_frame_sink(planner: Planner, node: FrameSink) -> None:
    parent = planner.flow(node.parents[0])
    planner.steps.append(FrameSinkStep(node=node.name, round=parent.round, inputs=(parent.name,)))
