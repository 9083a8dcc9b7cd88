"""The round of an aggregation, and the store of its table."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.names import inner, unique
from crossstream.graph.nodes import Aggregate, GroupTable, StoreSpec, WindowSpec
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import KEY_VALUE, WINDOWED, StoreDef
from crossstream.planning.steps import AggregateStep, GroupTableStep, MaterializeStep
from crossstream.serdes.windowed import WindowedSerde


def plan_group_table(builder: PlanBuilder, node: GroupTable) -> None:
    """Where the rows of the table are; they are moved to their groups by what aggregates them."""
    parent = builder.flow(node.parents[0])
    builder.flow_of(node, node.name, parent.round)
    builder.steps.append(
        GroupTableStep(node=node.name, round=parent.round, inputs=(parent.name,), output=node.name)
    )


def plan_aggregate(builder: PlanBuilder, node: Aggregate) -> None:
    """In the first round in which all grouped streams can be in the partitions of their keys."""
    flows = [replace(builder.flow(name), key=node.group_key) for name in node.parents]
    flows = [
        flow if value is None else replace(flow, value=value)
        for flow, value in zip(flows, node.group_values, strict=True)
    ]
    number = max(map(builder.earliest, flows))
    spec = node.store or StoreSpec()
    versioned = spec.history_retention is not None
    windowed = node.windows is not None
    made = builder.flow_of(node, node.name, number, routed=not windowed)
    name = spec.name if spec.name is not None and not versioned else None
    store = builder.put(
        StoreDef(
            name=name or unique(f"{node.name}@{number}", builder.stores),
            layout=WINDOWED if windowed else KEY_VALUE,
            round=number,
            key=node.group_key,
            value=made.value,
            public=name,
            window_size=made.key.size if isinstance(made.key, WindowedSerde) else None,
        )
    )
    changelog = None
    if builder.emits_changelog(node):
        changelog = builder.add(replace(made, name=inner(node.name, "every change"))).name
    step = AggregateStep(
        node=node.name,
        round=number,
        inputs=tuple(builder.arrive(flow, number, node) for flow in flows),
        output=made.name,
        store=store.name,
        retention=None if node.windows is None else _retention(node.windows, spec),
        old=node.name in builder.wants_old,
        changelog=changelog,
        null_key_reason=builder.null_key_reason(node),
    )
    builder.steps.append(step)
    if changelog is not None:
        builder.changes[node.name] = builder.flows[changelog]
    if versioned:
        builder.keep(node)
    elif not windowed and node.name not in builder.wants_headers:
        # A join by key in this round looks the aggregates up where they are.
        builder.tables[node.name, number, None] = MaterializeStep(
            node=node.name,
            round=number,
            inputs=step.inputs,
            output=step.output,
            store=store.name,
            old=step.old,
            changelog=changelog,
        )


def _retention(windows: WindowSpec, spec: StoreSpec) -> int | None:
    if windows.kind == "unlimited":
        return None
    return max(spec.retention or 0, windows.size + windows.grace)
