"""The two rounds of a foreign-key join."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crossstream import serdes
from crossstream.serdes import Serde
from crossstream.serdes.kept import kept
from crossstream.topology.graph import ForeignKeyJoin, FrameSource, Node, Source
from crossstream.topology.names import inner
from crossstream.topology.plan import REFERENCES, REFERRERS, SUBSCRIPTIONS, Flow, StoreDef
from crossstream.topology.steps import ReferenceStep, ResolveStep, SubscribeStep

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner

_WITH = " with "
"""Between the name of a flow and those of the joins whose foreign keys it has; operators have no blanks in theirs."""


def place_foreign_key_join(planner: Planner, node: ForeignKeyJoin) -> None:
    left, right = (planner.topology[name] for name in node.parents)
    flow = left_of(planner, node, left)
    first = planner.earliest(flow) if node.partitioner is None else max(1, flow.round + 1)
    arrived = planner.arrive(flow, first, node, node.partitioner)
    second = max(first + 1, planner.earliest(planner.source_of(right)))
    if node.other_partitioner is not None:
        second = max(second, planner.source_of(right).round + 1)
    table = planner.materialize(right, second, node.other_partitioner)
    asking = subscribe(planner, node, flow, arrived, right.key or kept(), (first, second))
    referrers = _referrers(planner, node, second, asking.store.key)
    out = planner.flow_of(node, node.name, second)
    planner.steps.append(
        ResolveStep(
            node=node.name,
            round=second,
            inputs=(
                planner.arrive(asking.subscriptions, second, node, node.other_partitioner),
                planner.arrive(asking.answers, second, node),
                (table.every if planner.every(node) else table.output) or "",
            ),
            output=out.name,
            subscriptions=asking.store.name,
            right_store=table.store,
            referrers=referrers,
            every=planner.every(node),
        )
    )
    planner.keep(node)
    planner.put_in_order(node)


@dataclass(frozen=True, slots=True)
class Asking:
    """The left half of a foreign-key join: what it hands to the right half, and the store that is kept there."""

    subscriptions: Flow
    answers: Flow
    store: StoreDef


def subscribe(
    planner: Planner, node: ForeignKeyJoin, flow: Flow, arrived: str, key: Serde, rounds: tuple[int, int]
) -> Asking:
    """Remembers the foreign key of each left row, and who subscribed to each right one.

    ``flow``: the left changes with their foreign keys, which have ``arrived`` in the first of the ``rounds``; in the
    second are the right rows, whose keys have the serde ``key``. If both are one, answers are where they are wanted,
    and subscriptions are kept where the left rows are.
    """
    first, second = rounds
    references = planner.put(
        StoreDef(
            name=planner.inner_store(node, "references"),
            layout=REFERENCES,
            round=first,
            key=flow.key,
            value=key,
        )
    )
    store = planner.put(
        StoreDef(
            name=planner.inner_store(node, "subscriptions"),
            layout=SUBSCRIPTIONS,
            round=second,
            key=key,
            value=flow.value,
            by_key2=first == second,
        )
    )
    subscriptions = planner.add(Flow(inner(node.name, "subscriptions"), first, key, flow.value))
    answers = planner.add(Flow(inner(node.name, "answers"), first, flow.key, flow.value, first == second))
    planner.steps.append(
        SubscribeStep(
            node=node.name,
            round=first,
            inputs=(arrived,),
            output=subscriptions.name,
            store=references.name,
            column=reference_column(node),
            answers=answers.name,
            every=planner.every(node),
        )
    )
    return Asking(subscriptions, answers, store)


def _referrers(planner: Planner, node: ForeignKeyJoin, number: int, key: Serde) -> str | None:
    """The store of how many left rows refer to a right key, for joins that have the rows nobody refers to."""
    if node.kind not in ("right", "outer"):
        return None
    name = planner.inner_store(node, "referrers")
    planner.put(StoreDef(name=name, layout=REFERRERS, round=number, key=key, value=serdes.int64()))
    return name


def left_of(planner: Planner, node: ForeignKeyJoin, left: Node) -> Flow:
    """The left changes with their foreign keys: taken while reading, or added where the changes are made."""
    changes = changes_of(planner, left)
    return changes if node.name in changes.name.split(_WITH) else reference_step(planner, node, changes)


def changes_of(planner: Planner, left: Node) -> Flow:
    """The changes of a left table: its records, or what the store makes of them that keeps it."""
    if not planner.versioned(left):
        source = planner.raw.get(left.name)
        if source is None:
            return planner.flow(left.name)
        if isinstance(left, Source | FrameSource):
            return source
    return planner.changes_of(planner.materialize(left, planner.earliest(planner.source_of(left)), None))


def refer(planner: Planner, node: Node, flow: Flow) -> Flow:
    """Foreign keys of unversioned source tables are taken while reading, decoded once (decision 0008)."""
    if planner.versioned(node):
        return flow
    for child in planner.topology.children(node.name):
        if isinstance(child, ForeignKeyJoin) and child.parents[0] == node.name:
            flow = reference_step(planner, child, flow)
    return flow


def reference_step(planner: Planner, join: ForeignKeyJoin, flow: Flow) -> Flow:
    """Takes the foreign keys of a join; the flow with them has the name of the join in its own."""
    out = planner.add(replace(flow, name=f"{flow.name}{_WITH}{join.name}"))
    planner.steps.append(
        ReferenceStep(
            node=join.name,
            round=flow.round,
            inputs=(flow.name,),
            output=out.name,
            column=reference_column(join),
        )
    )
    return out


def reference_column(join: ForeignKeyJoin) -> str:
    """The extra column with the foreign keys of a join."""
    return f"fk {join.name}"
