"""The three rounds of a join of many: by primary key, by the foreign keys, and by primary key again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.algebra.interest import PLACE, RAW
from crossstream.algebra.uses import fields_of
from crossstream.serdes import Serde
from crossstream.serdes.serde import columns_in
from crossstream.state.run import Layout
from crossstream.topology.graph import ManyJoin
from crossstream.topology.names import inner
from crossstream.topology.placing.foreign_key import changes_of
from crossstream.topology.plan import (
    INDEX,
    INTERESTED,
    KEY_VALUE,
    REFERRERS,
    Flow,
    StoreDef,
    many_references,
    many_rows,
)
from crossstream.topology.steps import AnswerManyStep, ReferManyStep, ResolveManyStep

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def place_join_many(planner: Planner, node: ManyJoin) -> None:
    left, *rights = (planner.topology[name] for name in node.parents)
    flow = changes_of(planner, left)
    first = planner.earliest(flow)
    second = max(first + 1, *(planner.earliest(planner.source_of(right)) for right in rights))
    third = second + 1
    arrived = planner.arrive(flow, first, node)
    tables = [planner.materialize(right, second, None) for right in rights]
    every, keep = planner.every(node), _Stores(planner, node)
    rows = planner.add(Flow(inner(node.name, "rows"), first, flow.key, flow.value, routed=True))
    asks = planner.add(Flow(inner(node.name, "asks"), first, RAW, RAW))
    answers = planner.add(Flow(inner(node.name, "answers"), second, RAW, RAW))
    planner.steps.append(
        ReferManyStep(
            node=node.name,
            round=first,
            inputs=(arrived,),
            output=rows.name,
            references=keep("references", many_references(node.names), first, flow.key),
            interest=keep("interest", REFERRERS, first, RAW, derived=True),
            asks=asks.name,
            every=every,
        )
    )
    planner.steps.append(
        AnswerManyStep(
            node=node.name,
            round=second,
            inputs=(
                planner.arrive(asks, second, node),
                *((table.every if every else table.output) or "" for table in tables),
            ),
            output=answers.name,
            interested=keep("interested", INTERESTED, second, RAW, derived=True),
            right_stores=tuple(table.store for table in tables),
            every=every,
        )
    )
    out = planner.flow_of(node, node.name, third, routed=True)
    planner.steps.append(
        ResolveManyStep(
            node=node.name,
            round=third,
            inputs=(
                planner.arrive(rows, third, node, columns=_joined(node, flow.value)),
                planner.arrive(answers, third, node, place=PLACE),
            ),
            output=out.name,
            rows=keep("rows", many_rows(node.names), third, flow.key, flow.value),
            referrers=keep("referrers", INDEX, third, RAW, derived=True),
            partners=keep("partners", KEY_VALUE, third, RAW, derived=True),
            right_stores=tuple(table.store for table in tables),
            every=every,
        )
    )
    planner.keep(node)


def _joined(node: ManyJoin, serde: Serde) -> frozenset[str]:
    """The fields of left rows that the joiner reads, if they are fixed and not all."""
    fields = None if columns_in(serde) is None else fields_of(node.joiner, "left")
    return frozenset() if fields is None else fields


class _Stores:
    """Makes the stores of a join, named after it."""

    def __init__(self, planner: Planner, node: ManyJoin) -> None:
        self.planner = planner
        self.node = node

    def __call__(
        self, kind: str, layout: Layout, number: int, key: Serde, value: Serde = RAW, *, derived: bool = False
    ) -> str:
        name = self.planner.inner_store(self.node, kind)
        self.planner.put(
            StoreDef(name=name, layout=layout, round=number, key=key, value=value, derived=derived)
        )
        return name
