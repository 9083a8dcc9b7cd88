"""The one round of a table's join with a global table (KIP-314)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.topology.graph import ForeignKeyJoin
from crossstream.topology.placing.foreign_key import left_of, subscribe
from crossstream.topology.steps import GlobalResolveStep

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def place_table_global_join(planner: Planner, node: ForeignKeyJoin) -> None:
    """Both halves where the left rows are: each partition finds the whole other table, and keeps its own subscribers.

    So left rows are not moved to the partition of their foreign key, nor results back (decision 0021).
    """
    left, table = (planner.topology[name] for name in node.parents)
    flow = left_of(planner, node, left)
    number = planner.earliest(flow)
    arrived = planner.arrive(flow, number, node)
    whole = planner.stores[planner.wholes[table.name]]
    asking = subscribe(planner, node, flow, arrived, whole.key, (number, number))
    out = planner.flow_of(node, node.name, number, True)
    planner.steps.append(
        GlobalResolveStep(
            node=node.name,
            round=number,
            inputs=(asking.subscriptions.name, asking.answers.name),
            output=out.name,
            subscriptions=asking.store.name,
            table=whole.name,
            every=planner.every(node),
        )
    )
    planner.keep(node)
    planner.put_in_order(node)
