"""Global tables, kept in rounds before those of the batch, and the joins that look them up."""

from __future__ import annotations

from crossstream.graph.names import inner
from crossstream.graph.nodes import ForeignKeyJoin, GlobalJoin, Source, StoreSpec, StreamGlobalJoin
from crossstream.operators.foreign_key_join.plan import left_of, subscribe
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import StoreDef, ViewDef
from crossstream.planning.steps import GlobalResolveStep, GlobalStep, ReadStep, StreamGlobalJoinStep
from crossstream.serdes.json.plain import InternalJson


def plan_global_table(builder: PlanBuilder, node: Source) -> None:
    """Read and kept in the plan that runs before: all its state partitions are there for every task after it."""
    before = builder.global_stage
    records = before.flow_of(node, inner(node.name, "records"), 0)
    before.steps.append(
        ReadStep(node=node.name, round=0, inputs=(), output=records.name, table=True, form=None)
    )
    spec = node.store or StoreSpec()
    store = before.put(
        StoreDef(
            name=spec.name or f"{node.name}@global",
            layout=builder.layout(node),
            round=1,
            key=records.key,
            value=records.value,
            public=spec.name,
        )
    )
    builder.put(store)
    builder.global_stores[node.name] = store.name
    before.steps.append(
        GlobalStep(node=node.name, round=1, inputs=(before.arrive(records, 1, node),), store=store.name)
    )


def plan_view(builder: PlanBuilder, node: GlobalJoin) -> None:
    """No step: each look-up resolves it."""
    left, right = (builder.global_stores[name] for name in node.parents)
    name = builder.global_stores[node.name] = inner(node.name, "view")
    builder.views[name] = ViewDef(node.name, left, right, node.value_type or InternalJson())


def plan_stream_global_join(builder: PlanBuilder, node: StreamGlobalJoin) -> None:
    """In the round of the stream, wherever its records are: nothing is moved, keys stay as they are."""
    stream, table = node.parents
    parent = builder.flow(stream)
    builder.flow_of(node, node.name, parent.round, parent.routed)
    builder.steps.append(
        StreamGlobalJoinStep(
            node=node.name,
            round=parent.round,
            inputs=(parent.name,),
            output=node.name,
            store=builder.global_stores[table],
        )
    )


def plan_table_global_join(builder: PlanBuilder, node: ForeignKeyJoin) -> None:
    """Both halves where the left rows are: each partition finds the whole other table, and keeps its own subscribers.

    So left rows are not moved to the partition of their foreign key, nor results back (decision 0021).
    """
    left, table = (builder.topology[name] for name in node.parents)
    flow = left_of(builder, node, left)
    number = builder.earliest(flow)
    arrived = builder.arrive(flow, number, node)
    assert table.key is not None
    asks, answers, store = subscribe(builder, node, flow, arrived, table.key, (number, number))
    out = builder.flow_of(node, node.name, number, True)
    builder.steps.append(
        GlobalResolveStep(
            node=node.name,
            round=number,
            inputs=(asks.name, answers.name),
            output=out.name,
            subscriptions=store.name,
            table=builder.global_stores[table.name],
            changelog=builder.emits_changelog(node),
        )
    )
    builder.keep(node)
    builder.put_in_order(node)
