"""The round of an aggregation in windows, and the store of its windows."""

from __future__ import annotations

from crossstream.graph.nodes import Aggregate, StoreSpec, ToStream
from crossstream.operators.aggregate.builtin.composition import AggregateParts
from crossstream.operators.aggregate.folding import PACKED
from crossstream.operators.aggregate.plan import finish_table, grouped_flows, plan_table
from crossstream.operators.windowed.closing import Closing
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import SESSIONS, WINDOWED, aggregates
from crossstream.planning.steps import WindowedAggregateStep
from crossstream.storage.sorted_run import Layout


def plan_windowed(builder: PlanBuilder, node: Aggregate) -> None:
    """In the first round in which all grouped streams can be in the partitions of their keys, and say their time."""
    assert node.windows is not None
    flows, closing = grouped_flows(builder, node), Closing.of(node.windows)
    number = max(map(builder.earliest_timed, flows))
    made = builder.flow_of(node, node.name, number)
    table = plan_table(builder, node, flows, made, _layout(node), closing.remembered)
    builder.steps.append(
        WindowedAggregateStep(
            node=node.name,
            round=number,
            inputs=table.inputs,
            output=node.name,
            store=table.store,
            old=node.name in builder.wants_old,
            changelog=table.changelog,
            null_key_reasons=table.null_key_reasons,
            retention=closing.retention((node.store or StoreSpec()).retention),
            repeats=all(isinstance(child, ToStream) for child in builder.topology.children(node.name)),
        )
    )
    finish_table(builder, node, table)


def _layout(node: Aggregate) -> Layout:
    assert node.windows is not None
    plain = SESSIONS if node.windows.merge else WINDOWED
    if node.columns is None:
        return plain
    return aggregates(PACKED if node.windows.move else AggregateParts.of(node.columns).layout, plain)
