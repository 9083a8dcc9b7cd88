"""The round of a stream–table join."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.nodes import StreamTableJoin
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import BUFFER
from crossstream.planning.steps import StreamTableJoinStep


def plan_stream_table_join(builder: PlanBuilder, node: StreamTableJoin) -> None:
    """The join in the first round that has both the records and the table; the table is kept there.

    The join reads what the table is kept from: every change, where the step that keeps it emits the last.
    """
    stream, table = builder.flow(node.parents[0]), builder.topology[node.parents[1]]
    earliest = builder.earliest if node.grace is None else builder.earliest_timed
    number = max(earliest(stream), builder.earliest_kept(table))
    named = max(map(builder.earliest, (stream, builder.source_of(table))))
    kept = builder.materialize(table, number, None, named)
    store = builder.stores[kept.store]
    wanted = replace(stream, key=store.key, value=node.stream_value or stream.value)
    arrived = builder.arrive(wanted, number, node)
    out = builder.flow_of(node, node.name, number, True)
    buffer = None
    if node.grace is not None:  # how long records wait is part of what must stay the same
        buffer = builder.own_store(
            node, "buffer", BUFFER, number, store.key, wanted.value, history=node.grace
        ).name
    builder.steps.append(
        StreamTableJoinStep(
            node=node.name,
            round=number,
            inputs=(arrived, *kept.inputs),
            output=out.name,
            store=store.name,
            buffer=buffer,
            looking_first=builder.visits.looking_first(node),
            refusal=builder.null_key_reason(node),
        )
    )
