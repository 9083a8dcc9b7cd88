"""The round in which rows are completed, and the store of the rows before."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.names import inner
from crossstream.graph.nodes import Node
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import KEY_VALUE
from crossstream.planning.plan import Flow
from crossstream.planning.steps import CompleteRowsStep


def plan_complete_rows(builder: PlanBuilder, node: Node, events: Flow) -> Flow:
    """In the state partition of the key, before any reader of the table."""
    number = builder.earliest(events)
    store = builder.own_store(node, "rows", KEY_VALUE, number, events.key, events.value)
    out = builder.add(replace(events, name=inner(node.name, "records"), round=number, routed=True))
    builder.steps.append(
        CompleteRowsStep(
            node=node.name,
            round=number,
            inputs=(builder.arrive(events, number, node),),
            output=out.name,
            store=store.name,
        )
    )
    return out
