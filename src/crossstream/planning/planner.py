"""Making a plan: each operator is asked for its place, parents before children."""

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
from crossstream.operators.foreign_key_join.plan import place_foreign_key_join
from crossstream.operators.global_join.plan import place_stream_global_join, place_table_global_join
from crossstream.operators.source.plan import decoded_late, place_source
from crossstream.operators.star_join.plan import place_join_many
from crossstream.operators.stateless.plan import (
    place_frame_sink,
    place_merge,
    place_repartition,
    place_sink,
    place_stateless,
)
from crossstream.operators.stream_join.plan import place_stream_stream_join
from crossstream.operators.stream_table_join.plan import place_stream_table_join
from crossstream.operators.table.plan import place_table, place_table_join
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import Plan


def plan_topology(topology: Graph) -> Plan:
    """The plan of a finished topology."""
    builder = PlanBuilder(topology)
    builder.ask()
    for node in topology:
        PLACES[type(node)](builder, node)
    return _placed(builder)


def _placed(builder: PlanBuilder) -> Plan:
    """The plan of what has been placed. Values that are looked at after a shuffle only are not decoded before it."""
    before = None if builder.globals is None else _placed(builder.globals)
    exchanges = list(builder.exchanges.values())
    steps, exchanges_ = decoded_late(builder.topology, builder.steps, builder.flows, exchanges)
    return Plan(builder.topology, steps, builder.flows, exchanges_, builder.stores, before)


def _place_foreign_key_join(builder: PlanBuilder, node: ForeignKeyJoin) -> None:
    """Two rounds, or with a global table one."""
    is_global = builder.topology[node.parents[1]].shape == "global"
    (place_table_global_join if is_global else place_foreign_key_join)(builder, node)


def _place_to_table(builder: PlanBuilder, node: ToTable) -> None:
    place_table(builder, node, builder.flow(node.parents[0]))


PLACES: dict[type[Node], Callable[[PlanBuilder, Any], None]] = {
    Source: place_source,
    FrameSource: place_source,
    ToTable: _place_to_table,
    TableJoin: place_table_join,
    ForeignKeyJoin: _place_foreign_key_join,
    ManyJoin: place_join_many,
    StreamGlobalJoin: place_stream_global_join,
    StreamStreamJoin: place_stream_stream_join,
    StreamTableJoin: place_stream_table_join,
    Repartition: place_repartition,
    Merge: place_merge,
    Sink: place_sink,
    FrameSink: place_frame_sink,
    Filter: place_stateless,
    MapValues: place_stateless,
    Map: place_stateless,
    SelectKey: place_stateless,
    FlatMap: place_stateless,
    FlatMapValues: place_stateless,
    Peek: place_stateless,
    Split: place_stateless,
    Branch: place_stateless,
    ToStream: place_stateless,
}
"""How each kind of operator is placed."""
