"""The round of an aggregation, and the store of its table."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import polars as pl

from crossstream.graph.names import inner, unique
from crossstream.graph.nodes import Aggregate, GroupTable
from crossstream.operators.aggregate.builtin.composition import AggregateParts
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import GROUP_ROWS, KEY_VALUE, REFUSED_ROWS, aggregates
from crossstream.planning.plan import Flow, StoreDef
from crossstream.planning.steps import AggregateStep, GroupTableStep, MaterializeStep
from crossstream.serdes.json.plain import InternalJson, SchemaJson
from crossstream.storage.sorted_run import Layout


def plan_group_table(builder: PlanBuilder, node: GroupTable) -> None:
    """Where the rows of the table are; they are moved to their groups by what aggregates them."""
    parent = builder.flow(node.parents[0])
    if builder.versioned(builder.topology[node.parents[0]]):
        parent = _latest_rows(builder, node, parent)
    builder.flow_of(node, node.name, parent.round)
    builder.steps.append(
        GroupTableStep(
            node=node.name,
            round=parent.round,
            inputs=(parent.name,),
            output=node.name,
            row_keys=any(
                isinstance(child, Aggregate) and _keeps_rows(builder, child)
                for child in builder.topology.children(node.name)
            ),
            row_keys_to_skip=any(
                isinstance(child, Aggregate) and child.subtractor is not None
                for child in builder.topology.children(node.name)
            ),
        )
    )


def _latest_rows(builder: PlanBuilder, node: GroupTable, flow: Flow) -> Flow:
    """The rows that a table with versions has now, each with the row before: versions do not forward old rows.

    A version behind a newer one is no change of them (KIP-914).
    """
    number = builder.earliest(flow)
    store = builder.own_store(node, "latest", KEY_VALUE, number, flow.key, flow.value)
    net = builder.add(replace(flow, name=inner(store.name, "changes"), round=number, routed=True))
    every = builder.add(replace(net, name=inner(store.name, "every change")))
    builder.steps.append(
        MaterializeStep(
            node=node.name,
            round=number,
            inputs=(builder.arrive(flow, number, node),),
            output=net.name,
            store=store.name,
            old=True,
            changelog=every.name,
            latest=True,
        )
    )
    return every


def plan_aggregate(builder: PlanBuilder, node: Aggregate) -> None:
    """In the first round in which all grouped streams can be in the partitions of their keys."""
    flows = grouped_flows(builder, node)
    number = max(map(builder.earliest, flows))
    layout = (
        KEY_VALUE if node.columns is None else aggregates(AggregateParts.of(node.columns).layout, KEY_VALUE)
    )
    table = plan_table(builder, node, flows, builder.flow_of(node, node.name, number, routed=True), layout)
    step = AggregateStep(
        node=node.name,
        round=number,
        inputs=table.inputs,
        output=node.name,
        store=table.store,
        old=node.name in builder.wants_old,
        changelog=table.changelog,
        null_key_reasons=table.null_key_reasons,
        rows=_rows_store(builder, node, number),
        refused=_refused_store(builder, node, number),
    )
    builder.steps.append(step)
    finish_table(builder, node, table)
    if node.history is None and node.name not in builder.wants_headers:
        # A join by key in this round looks the aggregates up where they are.
        builder.tables[node.name, number, None] = MaterializeStep(
            node=node.name,
            round=number,
            inputs=(table.changelog or node.name,),
            output=node.name,
            store=step.store,
            old=step.old,
            changelog=step.changelog,
        )


class PlannedTable(NamedTuple):
    """What a table of aggregates reads and makes: names of flows, of its store, and for each input a reason."""

    inputs: tuple[str, ...]
    store: str
    changelog: str | None
    null_key_reasons: tuple[str, ...]


def grouped_flows(builder: PlanBuilder, node: Aggregate) -> list[Flow]:
    """What is grouped, with the serdes that it travels in."""
    flows = [replace(builder.flow(name), key=node.group_key) for name in node.parents]
    return [
        flow if value is None else replace(flow, value=value)
        for flow, value in zip(flows, node.group_values, strict=True)
    ]


def plan_table(
    builder: PlanBuilder, node: Aggregate, flows: list[Flow], made: Flow, layout: Layout, remembered: int = 0
) -> PlannedTable:
    """The store of the aggregates, and what the step reads and makes in the round of ``made``, its output."""
    name = node.queryable_name if node.history is None else None
    store = builder.put(
        StoreDef(
            name=name or unique(f"{node.name}@{max(map(builder.earliest, flows))}", builder.stores),
            layout=layout,
            round=made.round,
            key=node.group_key,
            value=made.value,
            public=name,
            window_size=made.key.window_size,
            remembered=remembered,
        )
    )
    changelog = None
    if builder.emits_changelog(node):
        changelog = builder.add(replace(made, name=inner(node.name, "every change"))).name
    inputs = tuple(builder.arrive(flow, made.round, node) for flow in flows)
    reasons = tuple(builder.null_key_reason(node, side) for side in range(len(flows)))
    return PlannedTable(inputs, store.name, changelog, reasons)


def finish_table(builder: PlanBuilder, node: Aggregate, table: PlannedTable) -> None:
    """Notes where the changes of the table are, and keeps its history if that was asked for."""
    if table.changelog is not None:
        builder.changes[node.name] = builder.flows[table.changelog]
    if node.history is not None:
        builder.keep(node)


def _keeps_rows(builder: PlanBuilder, node: Aggregate) -> bool:
    """Whether the rows of the groups of a table are kept."""
    of_table = isinstance(builder.topology[node.parents[0]], GroupTable)
    return of_table and node.columns is not None and node.columns.of_rows


def _rows_store(builder: PlanBuilder, node: Aggregate, number: int) -> str | None:
    if node.columns is None or not _keeps_rows(builder, node):
        return None
    fields = pl.Struct({str(n): dtype for n, dtype in enumerate(node.columns.field_types)})
    return builder.own_store(node, "rows", GROUP_ROWS, number, node.group_key, SchemaJson(fields)).name


def _refused_store(builder: PlanBuilder, node: Aggregate, number: int) -> str | None:
    if node.subtractor is None:
        return None
    layout, key = REFUSED_ROWS, node.group_key
    return builder.own_store(node, "refused", layout, number, key, InternalJson(), begins_empty=True).name
