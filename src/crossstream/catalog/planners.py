"""Making a plan: each operator plans its steps, parents before children."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from crossstream.graph import nodes
from crossstream.operators.aggregate.plan import plan_aggregate, plan_group_table
from crossstream.operators.deduplicate.plan import plan_deduplicate
from crossstream.operators.foreign_key_join.plan import plan_foreign_key_join
from crossstream.operators.global_join.plan import plan_stream_global_join, plan_table_global_join, plan_view
from crossstream.operators.process.plan import plan_process
from crossstream.operators.sink.plan import plan_frame_sink, plan_sink
from crossstream.operators.source.plan import decoded_late, plan_source
from crossstream.operators.star_join.plan import plan_star_join
from crossstream.operators.stateless.plan import plan_merge, plan_repartition, plan_stateless
from crossstream.operators.stream_join.plan import plan_stream_stream_join
from crossstream.operators.stream_table_join.plan import plan_stream_table_join
from crossstream.operators.suppress.plan import plan_suppress
from crossstream.operators.table.plan import plan_table
from crossstream.operators.table_join.plan import plan_table_join
from crossstream.operators.windowed.plan import plan_windowed
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import Plan
from crossstream.planning.timelines import timed


def plan_topology(topology: nodes.Graph) -> Plan:
    """Plans a finished topology."""
    builder = PlanBuilder(topology)
    builder.find_needs()
    for node in topology:
        PLANNERS.get(type(node), plan_stateless)(builder, node)
    return _plan_of(builder)


def _plan_of(builder: PlanBuilder) -> Plan:
    """The plan of all operators. Values that are read after a shuffle only are decoded there."""
    stage = None if builder.globals is None else _plan_of(builder.globals)
    exchanges = list(builder.exchanges.values())
    steps, exchanges_ = decoded_late(builder.topology, builder.steps, builder.flows, exchanges)
    times = timed(builder.topology, steps, exchanges_, builder.stores)
    return Plan(
        builder.topology, steps, builder.flows, exchanges_, builder.stores, stage, builder.views, times
    )


def _plan_aggregate(builder: PlanBuilder, node: nodes.Aggregate) -> None:
    (plan_aggregate if node.windows is None else plan_windowed)(builder, node)


def _plan_foreign_key_join(builder: PlanBuilder, node: nodes.ForeignKeyJoin) -> None:
    is_global = builder.topology[node.parents[1]].shape == "global"
    (plan_table_global_join if is_global else plan_foreign_key_join)(builder, node)


def _plan_to_table(builder: PlanBuilder, node: nodes.ToTable) -> None:
    plan_table(builder, node, builder.flow(node.parents[0]))


PLANNERS: Mapping[type[nodes.Node], Callable[[PlanBuilder, Any], None]] = MappingProxyType(
    {
        nodes.Source: plan_source,
        nodes.FrameSource: plan_source,
        nodes.ToTable: _plan_to_table,
        nodes.GroupTable: plan_group_table,
        nodes.Aggregate: _plan_aggregate,
        nodes.Deduplicate: plan_deduplicate,
        nodes.Process: plan_process,
        nodes.TransformBatches: plan_process,
        nodes.Suppress: plan_suppress,
        nodes.TableJoin: plan_table_join,
        nodes.ForeignKeyJoin: _plan_foreign_key_join,
        nodes.ManyJoin: plan_star_join,
        nodes.GlobalJoin: plan_view,
        nodes.StreamGlobalJoin: plan_stream_global_join,
        nodes.StreamStreamJoin: plan_stream_stream_join,
        nodes.StreamTableJoin: plan_stream_table_join,
        nodes.Repartition: plan_repartition,
        nodes.Merge: plan_merge,
        nodes.Sink: plan_sink,
        nodes.FrameSink: plan_frame_sink,
        nodes.TableSink: plan_frame_sink,
    }
)
"""The function that plans each kind of operator; `plan_stateless` plans all others."""
