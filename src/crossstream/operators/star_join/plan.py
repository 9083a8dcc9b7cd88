"""The three rounds of a star join: by primary key, by the foreign keys, and by primary key again."""

from __future__ import annotations

from functools import partial

from crossstream.columns.functions import fields_of
from crossstream.graph.names import inner
from crossstream.graph.nodes import ManyJoin
from crossstream.operators.foreign_key_join.plan import changes_of
from crossstream.operators.star_join.subscriptions import PARTITION, RAW
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.layouts import INDEX, INTERESTED, KEY_VALUE, REFERRERS, many_references, many_rows
from crossstream.planning.plan import Flow
from crossstream.planning.steps import AnswerManyStep, ReferManyStep, ResolveManyStep
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.own import columns_in


def plan_star_join(builder: PlanBuilder, node: ManyJoin) -> None:
    left, *rights = (builder.topology[name] for name in node.parents)
    flow = changes_of(builder, left)
    first = builder.earliest(flow)
    second = max(first + 1, *(builder.earliest_kept(right) for right in rights))
    named = max(first + 1, *(builder.earliest(builder.source_of(right)) for right in rights))
    third = second + 1
    arrived = builder.arrive(flow, first, node)
    tables = [builder.materialize(right, second, None, named) for right in rights]
    changelog, own_store = builder.emits_changelog(node), partial(builder.own_store, node)
    rows = builder.add(Flow(inner(node.name, "rows"), first, flow.key, flow.value, routed=True))
    asks = builder.add(Flow(inner(node.name, "asks"), first, RAW, RAW))
    answers = builder.add(Flow(inner(node.name, "answers"), second, RAW, RAW))
    builder.steps.append(
        ReferManyStep(
            node=node.name,
            round=first,
            inputs=(arrived,),
            output=rows.name,
            references=own_store("references", many_references(node.names), first, flow.key, RAW).name,
            counts=own_store("interest", REFERRERS, first, RAW, RAW, derived=True).name,
            asks=asks.name,
            changelog=changelog,
        )
    )
    builder.steps.append(
        AnswerManyStep(
            node=node.name,
            round=second,
            inputs=(
                builder.arrive(asks, second, node),
                *((table.changelog if changelog else table.output) or "" for table in tables),
            ),
            output=answers.name,
            subscribers=own_store("interested", INTERESTED, second, RAW, RAW, derived=True).name,
            right_stores=tuple(table.store for table in tables),
            changelog=changelog,
        )
    )
    out = builder.flow_of(node, node.name, third, routed=True)
    builder.steps.append(
        ResolveManyStep(
            node=node.name,
            round=third,
            inputs=(
                builder.arrive(rows, third, node, columns=_joined(node, flow.value)),
                builder.arrive(answers, third, node, partition_column=PARTITION),
            ),
            output=out.name,
            rows=own_store("rows", many_rows(node.names), third, flow.key, flow.value).name,
            referrers=own_store("referrers", INDEX, third, RAW, RAW, derived=True).name,
            right_rows=own_store("partners", KEY_VALUE, third, RAW, RAW, derived=True).name,
            right_stores=tuple(table.store for table in tables),
            changelog=changelog,
        )
    )
    builder.keep(node)


def _joined(node: ManyJoin, serde: EngineSerde) -> frozenset[str]:
    """The fields of left rows that the joiner reads, if they are fixed and not all."""
    fields = None if columns_in(serde) is None else fields_of(node.joiner, "left")
    return frozenset() if fields is None else fields
