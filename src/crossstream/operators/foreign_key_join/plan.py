"""The two rounds of a foreign-key join."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.names import inner
from crossstream.graph.nodes import ForeignKeyJoin, Node
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import REFERENCES, REFERRERS, SUBSCRIPTIONS, SUBSCRIPTIONS_HEADERS
from crossstream.planning.plan import Flow, StoreDef
from crossstream.planning.steps import ReferenceStep, ResolveStep, SubscribeStep
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.json.plain import InternalJson
from crossstream.serdes.primitives import Number

_WITH = " with "
"""Between the name of a flow and those of the joins whose foreign keys it has; operators have no blanks in theirs."""


def plan_foreign_key_join(builder: PlanBuilder, node: ForeignKeyJoin) -> None:
    left, right = (builder.topology[name] for name in node.parents)
    flow = left_of(builder, node, left)
    first = builder.earliest(flow) if node.partitioner is None else max(1, flow.round + 1)
    arrived = builder.arrive(flow, first, node, node.partitioner)
    second = max(first + 1, builder.earliest_kept(right))
    named = max(first + 1, builder.earliest(builder.source_of(right)))
    if node.other_partitioner is not None:
        behind = builder.source_of(right).round + 1
        second, named = max(second, behind), max(named, behind)
    table = builder.materialize(right, second, node.other_partitioner, named)
    asks, answers, store = subscribe(
        builder, node, flow, arrived, right.key or InternalJson(), (first, second)
    )
    referrers = None
    if node.kind in ("right", "outer"):  # how many left rows refer to a right key
        referrers = builder.own_store(node, "referrers", REFERRERS, second, store.key, Number("int64")).name
    out = builder.flow_of(node, node.name, second)
    builder.steps.append(
        ResolveStep(
            node=node.name,
            round=second,
            inputs=(
                builder.arrive(asks, second, node, node.other_partitioner),
                builder.arrive(answers, second, node),
                (table.changelog if builder.emits_changelog(node) else table.output) or "",
            ),
            output=out.name,
            subscriptions=store.name,
            right_store=table.store,
            referrers=referrers,
            changelog=builder.emits_changelog(node),
        )
    )
    builder.keep(node)
    builder.put_in_order(node)


def subscribe(
    builder: PlanBuilder,
    node: ForeignKeyJoin,
    flow: Flow,
    arrived: str,
    key: EngineSerde,
    rounds: tuple[int, int],
) -> tuple[Flow, Flow, StoreDef]:
    """Remembers the foreign key of each left row. Returns the subscriptions, the answers, and the store of the former.

    ``flow``: the left changes with their foreign keys, which have ``arrived`` in the first of the ``rounds``; in the
    second are the right rows, whose keys have the serde ``key``. If both are one, answers are where they are needed,
    and subscriptions are kept where the left rows are.
    """
    first, second = rounds
    references = builder.own_store(node, "references", REFERENCES, first, flow.key, key)
    layout = SUBSCRIPTIONS_HEADERS if node.headers in ("left", "both") else SUBSCRIPTIONS
    store = builder.own_store(node, "subscriptions", layout, second, key, flow.value, by_key2=first == second)
    subscriptions = builder.add(Flow(inner(node.name, "subscriptions"), first, key, flow.value))
    answers = builder.add(Flow(inner(node.name, "answers"), first, flow.key, flow.value, first == second))
    builder.steps.append(
        SubscribeStep(
            node=node.name,
            round=first,
            inputs=(arrived,),
            output=subscriptions.name,
            store=references.name,
            column=reference_column(node),
            answers=answers.name,
            changelog=builder.emits_changelog(node),
        )
    )
    return subscriptions, answers, store


def left_of(builder: PlanBuilder, node: ForeignKeyJoin, left: Node) -> Flow:
    """The left changes with their foreign keys: taken while reading, or added where the changes are made."""
    changes = changes_of(builder, left)
    return changes if node.name in changes.name.split(_WITH) else reference_step(builder, node, changes)


def changes_of(builder: PlanBuilder, left: Node) -> Flow:
    """The changes of a left table: its records, or what the store makes of them that keeps it."""
    if not builder.versioned(left):
        source = builder.raw.get(left.name)
        if source is None:
            return builder.flow(left.name)
        if left.reads_input:
            return source
    named = builder.earliest(builder.source_of(left))
    return builder.changes_of(builder.materialize(left, builder.earliest_kept(left), None, named))


def refer(builder: PlanBuilder, node: Node, flow: Flow) -> Flow:
    """Foreign keys of unversioned source tables are taken while reading, decoded once (decision 0008).

    Not where rows expire: no record has the deletes.
    """
    if builder.versioned(node) or node.ttl is not None:
        return flow
    for child in builder.topology.children(node.name):
        if isinstance(child, ForeignKeyJoin) and child.parents[0] == node.name:
            flow = reference_step(builder, child, flow)
    return flow


def reference_step(builder: PlanBuilder, join: ForeignKeyJoin, flow: Flow) -> Flow:
    """Takes the foreign keys of a join; the flow with them has the name of the join in its own."""
    out = builder.add(replace(flow, name=f"{flow.name}{_WITH}{join.name}"))
    builder.steps.append(
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
