"""The round of a stream–table join."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from crossstream.serdes import Serde
from crossstream.topology.graph import StreamTableJoin
from crossstream.topology.plan import BUFFER, StoreDef
from crossstream.topology.steps import StreamTableJoinStep

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def place_stream_table_join(planner: Planner, node: StreamTableJoin) -> None:
    """The join in the first round that has both the records and the table; the table is kept there.

    The join reads what the table is kept from: every change, where the step that keeps it hands on the last.
    """
    stream, table = planner.flow(node.parents[0]), planner.topology[node.parents[1]]
    number = max(planner.earliest(stream), planner.earliest(planner.source_of(table)))
    kept = planner.materialize(table, number, None)
    store = planner.stores[kept.store]
    wanted = replace(stream, key=store.key, value=node.stream_value or stream.value)
    arrived = planner.arrive(wanted, number, node)
    out = planner.flow_of(node, node.name, number, True)
    planner.steps.append(
        StreamTableJoinStep(
            node=node.name,
            round=number,
            inputs=(arrived, *kept.inputs),
            output=out.name,
            store=store.name,
            buffer=_buffer(planner, node, number, store.key, wanted.value),
            looking_first=planner.visits.looking_first(node),
            refusal=planner.refusal(node),
        )
    )


def _buffer(planner: Planner, node: StreamTableJoin, number: int, key: Serde, value: Serde) -> str | None:
    """The store of the records that wait; how long they do is part of what must stay the same."""
    if node.grace is None:
        return None
    name = planner.inner_store(node, "buffer")
    planner.put(StoreDef(name=name, layout=BUFFER, round=number, key=key, value=value, history=node.grace))
    return name
