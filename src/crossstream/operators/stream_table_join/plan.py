"""The round of a stream–table join."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.nodes import StreamTableJoin
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import BUFFER, StoreDef
from crossstream.planning.steps import StreamTableJoinStep
from crossstream.serdes import Serde


def plan_stream_table_join(builder: PlanBuilder, node: StreamTableJoin) -> None:
    """The join in the first round that has both the records and the table; the table is kept there.

    The join reads what the table is kept from: every change, where the step that keeps it emits the last.
    """
    stream, table = builder.flow(node.parents[0]), builder.topology[node.parents[1]]
    number = max(builder.earliest(stream), builder.earliest(builder.source_of(table)))
    kept = builder.materialize(table, number, None)
    store = builder.stores[kept.store]
    wanted = replace(stream, key=store.key, value=node.stream_value or stream.value)
    arrived = builder.arrive(wanted, number, node)
    out = builder.flow_of(node, node.name, number, True)
    builder.steps.append(
        StreamTableJoinStep(
            node=node.name,
            round=number,
            inputs=(arrived, *kept.inputs),
            output=out.name,
            store=store.name,
            buffer=_buffer(builder, node, number, store.key, wanted.value),
            looking_first=builder.visits.looking_first(node),
            refusal=builder.null_key_reason(node),
        )
    )


def _buffer(builder: PlanBuilder, node: StreamTableJoin, number: int, key: Serde, value: Serde) -> str | None:
    """The store of the records that wait; how long they do is part of what must stay the same."""
    if node.grace is None:
        return None
    name = builder.inner_store(node, "buffer")
    builder.put(StoreDef(name=name, layout=BUFFER, round=number, key=key, value=value, history=node.grace))
    return name
