"""The two rounds of a foreign-key join."""

from __future__ import annotations

from dataclasses import replace

from crossstream.graph.names import inner
from crossstream.graph.nodes import ForeignKeyJoin, Node
from crossstream.operators.foreign_key_join.subscriptions import PRIMARY
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import REFERENCES, REFERRERS, SUBSCRIPTIONS, SUBSCRIPTIONS_HEADERS
from crossstream.planning.plan import Flow, StoreDef
from crossstream.planning.steps import MaterializeStep, ReferenceStep, ResolveStep, SubscribeStep
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.json.plain import InternalJson
from crossstream.serdes.primitives import Number

REFERRING = "referring"
"""The flow of rows that begin or cease to refer to hot keys."""
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
    spreads = can_spread(builder, node, right, second)
    asks, answers, store = subscribe(
        builder, node, flow, arrived, right.key or InternalJson(), (first, second), spreads=spreads
    )
    referrers = None
    if node.kind in ("right", "outer"):  # how many left rows refer to a right key
        referrers = builder.own_store(node, "referrers", REFERRERS, second, store.key, Number("int64")).name
    copies, of_hot_keys = (
        _hot(builder, node, right, table, store.name) if spreads else (None, tuple[str, ...]())
    )
    out = builder.flow_of(node, node.name, second)
    spread = (store.name, PRIMARY) if spreads else None
    builder.steps.append(
        ResolveStep(
            node=node.name,
            round=second,
            inputs=(
                builder.arrive(asks, second, node, node.other_partitioner, spread=spread),
                builder.arrive(answers, second, node),
                (table.changelog if builder.emits_changelog(node) else table.output) or "",
                *of_hot_keys,
            ),
            output=out.name,
            subscriptions=store.name,
            right_store=table.store,
            referrers=referrers,
            changelog=builder.emits_changelog(node),
            copies=copies,
        )
    )
    builder.keep(node)
    builder.put_in_order(node)


def can_spread(builder: PlanBuilder, node: ForeignKeyJoin, right: Node, number: int) -> bool:
    """Whether subscriptions of hot keys are spread: the right rows come from an earlier round, and have no versions.

    Where a partitioner of the user places them, they stay there.
    """
    source = builder.source_of(right)
    comes = source.round < number or not source.routed
    return node.other_partitioner is None and comes and not builder.versioned(right)


def _hot(
    builder: PlanBuilder, node: ForeignKeyJoin, right: Node, table: MaterializeStep, store: str
) -> tuple[str, tuple[str, ...]]:
    """What spread subscriptions look up (decision 0053): the store of copies, and the flows that come with it.

    ``store``: of the subscriptions; ``table``: keeps the right rows.
    """
    kept, number = builder.stores[table.store], table.round
    copies = builder.own_store(
        node,
        "copies",
        kept.layout,
        number,
        kept.key,
        kept.value,
        results=kept.results,
        repeats=kept.repeats,
        derived=True,
        begins_empty=True,
        copies=(store, kept.name),
    )
    source = replace(builder.source_of(right), key=kept.key, value=kept.value)
    out = builder.add(Flow(inner(copies.name, "changes"), number, kept.key, kept.value))
    every = builder.emits_changelog(node)
    changelog = builder.add(replace(out, name=inner(copies.name, "every change"))).name if every else None
    builder.steps.append(
        MaterializeStep(
            node=right.name,
            round=number,
            inputs=(builder.copied(source, number, right, store),),
            output=out.name,
            store=copies.name,
            changelog=changelog,
            counts=False,
            copies=True,
        )
    )
    flows: tuple[str, ...] = (changelog or out.name,)
    if node.kind in ("right", "outer"):
        referring = builder.flows[inner(node.name, REFERRING)]
        flows = (*flows, builder.arrive(referring, number, node))
    return copies.name, flows


def subscribe(
    builder: PlanBuilder,
    node: ForeignKeyJoin,
    flow: Flow,
    arrived: str,
    key: EngineSerde,
    rounds: tuple[int, int],
    *,
    spreads: bool = False,
) -> tuple[Flow, Flow, StoreDef]:
    """Remembers the foreign key of each left row. Returns the subscriptions, the answers, and the store of the former.

    ``flow``: the left changes with their foreign keys, which have ``arrived`` in the first of the ``rounds``; in the
    second are the right rows, whose keys have the serde ``key``. If both are one, answers are where they are needed,
    and subscriptions are kept where the left rows are. ``spreads``: those of hot keys are spread.
    """
    first, second = rounds
    references = builder.own_store(node, "references", REFERENCES, first, flow.key, key)
    layout = SUBSCRIPTIONS_HEADERS if node.headers in ("left", "both") else SUBSCRIPTIONS
    store = builder.own_store(
        node, "subscriptions", layout, second, key, flow.value, by_key2=first == second, spread=spreads
    )
    subscriptions = builder.add(Flow(inner(node.name, "subscriptions"), first, key, flow.value))
    answers = builder.add(Flow(inner(node.name, "answers"), first, flow.key, flow.value, first == second))
    referring = None
    if spreads and node.kind in ("right", "outer"):
        referring = builder.add(Flow(inner(node.name, REFERRING), first, key, flow.value)).name
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
            referring=None if referring is None else (referring, store.name),
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
