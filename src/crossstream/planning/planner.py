"""Making a plan: each operator plans its steps, parents before children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crossstream.graph.nodes import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    ForeignKeyJoin,
    FrameSink,
    FrameSource,
    Graph,
    ManyJoin,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    Repartition,
    SelectKey,
    Sink,
    Source,
    Split,
    StreamGlobalJoin,
    StreamStreamJoin,
    StreamTableJoin,
    TableJoin,
    ToStream,
    ToTable,
)
from crossstream.operators.foreign_key_join.plan import plan_foreign_key_join
from crossstream.operators.global_join.plan import plan_stream_global_join, plan_table_global_join
from crossstream.operators.sink.plan import plan_frame_sink, plan_sink
from crossstream.operators.source.plan import decoded_late, plan_source
from crossstream.operators.star_join.plan import plan_star_join
from crossstream.operators.stateless.plan import plan_merge, plan_repartition, plan_stateless
from crossstream.operators.stream_join.plan import plan_stream_stream_join
from crossstream.operators.stream_table_join.plan import plan_stream_table_join
from crossstream.operators.table.plan import plan_table
from crossstream.operators.table_join.plan import plan_table_join
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import Plan


def plan_topology(topology: Graph) -> Plan:
    """Plans a finished topology."""
    builder = PlanBuilder(topology)
    builder.find_needs()
    for node in topology:
        PLANNERS[type(node)](builder, node)
    return _plan_of(builder)


def _plan_of(builder: PlanBuilder) -> Plan:
    """The plan of all operators. Values that are read after a shuffle only are decoded there."""
    stage = None if builder.globals is None else _plan_of(builder.globals)
    exchanges = list(builder.exchanges.values())
    steps, exchanges_ = decoded_late(builder.topology, builder.steps, builder.flows, exchanges)
    return Plan(builder.topology, steps, builder.flows, exchanges_, builder.stores, stage)


def _plan_foreign_key_join(builder: PlanBuilder, node: ForeignKeyJoin) -> None:
    is_global = builder.topology[node.parents[1]].shape == "global"
    (plan_table_global_join if is_global else plan_foreign_key_join)(builder, node)


def _plan_to_table(builder: PlanBuilder, node: ToTable) -> None:
    plan_table(builder, node, builder.flow(node.parents[0]))


PLANNERS: dict[type[Node], Callable[[PlanBuilder, Any], None]] = {
    Source: plan_source,
    FrameSource: plan_source,
    ToTable: _plan_to_table,
    TableJoin: plan_table_join,
    ForeignKeyJoin: _plan_foreign_key_join,
    ManyJoin: plan_star_join,
    StreamGlobalJoin: plan_stream_global_join,
    StreamStreamJoin: plan_stream_stream_join,
    StreamTableJoin: plan_stream_table_join,
    Repartition: plan_repartition,
    Merge: plan_merge,
    Sink: plan_sink,
    FrameSink: plan_frame_sink,
    Filter: plan_stateless,
    MapValues: plan_stateless,
    Map: plan_stateless,
    SelectKey: plan_stateless,
    FlatMap: plan_stateless,
    FlatMapValues: plan_stateless,
    Peek: plan_stateless,
    Split: plan_stateless,
    Branch: plan_stateless,
    ToStream: plan_stateless,
}
"""The function that plans each kind of operator."""
