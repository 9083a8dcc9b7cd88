"""Plans sinks: each alone, or together with the sinks of its topic that the same record can reach."""

from __future__ import annotations

from collections.abc import Sequence

from crossstream.columns.order import TopicOrder
from crossstream.graph.nodes import FrameSink, Sink, TableSink
from crossstream.graph.traversal import MergePoint, by_topic
from crossstream.operators.stateless.plan import branches_of, forks_of, gather
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import Flow
from crossstream.planning.steps import FrameSinkStep, SinkStep
from crossstream.serdes.contract import EngineSerde


def plan_sink(builder: PlanBuilder, node: Sink) -> None:
    sinks = builder.sharing.get(node.name)
    if sinks is None:
        parent = builder.flow(node.parents[0])
        builder.steps.append(SinkStep(node=node.name, round=parent.round, inputs=(parent.name,)))
    elif node is sinks[-1]:
        _plan_together(builder, sinks)


def _plan_together(builder: PlanBuilder, sinks: Sequence[Sink]) -> None:
    flows = [builder.flow(sink.parents[0]) for sink in sinks]
    keys = [_travel_key(flow, sink) for flow, sink in zip(flows, sinks, strict=True)]
    number, arrived = gather(builder, flows, keys, sinks)
    orders = tuple((topic, _topic_order(builder, point, number)) for topic, point in by_topic(sinks).items())
    for sink, name in zip(sinks, arrived, strict=True):
        builder.steps.append(
            SinkStep(
                node=sink.name,
                round=number,
                inputs=(name,),
                shares=sinks[0].name,
                orders=orders if sink is sinks[-1] else (),
                branches=branches_of(builder, sink),
            )
        )


def _travel_key(flow: Flow, sink: Sink) -> EngineSerde:
    """The sink's serde, so that equal keys of the topic go to one task; but a function gets the stream's own keys."""
    reads_key = sink.topic_of is not None or sink.partitioner is not None
    return flow.key if sink.key is None or (reads_key and not flow.key.stays_inside) else sink.key


def _topic_order(builder: PlanBuilder, point: MergePoint, number: int) -> TopicOrder:
    order = builder.visits.order(point)
    sinks = tuple(point.inputs.values()) if order is None else order.usual
    return TopicOrder(sinks, forks_of(builder, point, number))


def plan_frame_sink(builder: PlanBuilder, node: FrameSink | TableSink) -> None:
    parent = builder.flow(node.parents[0])
    step = FrameSinkStep(node=node.name, round=parent.round, inputs=(parent.name,), parallel=node.parallel)
    builder.steps.append(step)
