"""The round in which rows are completed, and the store of the rows before."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.names import inner
from crossstream.graph.nodes import Node
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import KEY_VALUE, ORDERED_ROWS, SHOWN_KEYS
from crossstream.planning.plan import Flow
from crossstream.planning.steps import CompleteRowsStep
from crossstream.serdes.debezium.settings import Debezium
from crossstream.storage.sorted_run import Layout


def plan_complete_rows(builder: PlanBuilder, node: Node, events: Flow) -> Flow:
    """In the state partition of the key, before any reader of the table."""
    number = builder.earliest(events)
    assert node.unwrap is not None
    layout = _layout(node.unwrap)
    store = builder.own_store(node, "rows", layout, number, events.key, events.value)
    out = builder.add(replace(events, name=inner(node.name, "records"), round=number, routed=True))
    builder.steps.append(
        CompleteRowsStep(
            node=node.name,
            round=number,
            inputs=(builder.arrive(events, number, node),),
            output=out.name,
            store=store.name,
            snapshots=node.unwrap.follows_snapshots,
        )
    )
    return out


def _layout(settings: Debezium) -> Layout:
    if settings.ordered_by is not None and settings.follows_snapshots:
        return ORDERED_ROWS
    return KEY_VALUE if settings.needs_values else SHOWN_KEYS
