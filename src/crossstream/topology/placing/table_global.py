"""The one round of a table's join with a global table (KIP-314)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.topology.graph import ForeignKeyJoin
from crossstream.topology.names import unique
from crossstream.topology.placing.foreign_key import left_of, reference_column
from crossstream.topology.plan import REFERENCES, SUBSCRIPTIONS, Flow, StoreDef
from crossstream.topology.steps import GlobalResolveStep, SubscribeStep

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
    references = StoreDef(
        name=unique(f"{node.name}.references", planner.stores),
        layout=REFERENCES,
        round=number,
        key=flow.key,
        value=whole.key,
    )
    planner.stores[references.name] = references
    subscriptions = StoreDef(
        name=unique(f"{node.name}.subscriptions", planner.stores),
        layout=SUBSCRIPTIONS,
        round=number,
        key=whole.key,
        value=flow.value,
    )
    planner.stores[subscriptions.name] = subscriptions
    asked = planner.add(Flow(f"{node.name}.subscriptions", number, whole.key, flow.value))
    answers = planner.add(Flow(f"{node.name}.answers", number, flow.key, flow.value, True))
    planner.steps.append(
        SubscribeStep(
            node=node.name,
            round=number,
            inputs=(arrived,),
            output=asked.name,
            store=references.name,
            column=reference_column(node),
            answers=answers.name,
            every=planner.every(node),
        )
    )
    out = planner.flow_of(node, node.name, number, True)
    planner.steps.append(
        GlobalResolveStep(
            node=node.name,
            round=number,
            inputs=(asked.name, answers.name),
            output=out.name,
            subscriptions=subscriptions.name,
            table=whole.name,
            every=planner.every(node),
        )
    )
    planner.keep(node)
