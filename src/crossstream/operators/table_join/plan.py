"""Plans a primary-key join: both tables are kept in one round, in the state partition of their key."""

from __future__ import annotations

from crossstream.graph.nodes import TableJoin
from crossstream.planning.builder import PlanBuilder, is_stored
from crossstream.planning.steps import TableJoinStep


def plan_table_join(builder: PlanBuilder, node: TableJoin) -> None:
    left, right = (builder.topology[name] for name in node.parents)
    number = max(map(builder.earliest_kept, (left, right)))
    named = max(map(builder.earliest, map(builder.source_of, (left, right))))
    sides = [builder.materialize(side, number, None, named) for side in (left, right)]
    out = builder.flow_of(node, node.name, number, True)
    old, changelog = node.name in builder.wants_old, builder.emits_changelog(node)
    builder.steps.append(
        TableJoinStep(
            node=node.name,
            round=number,
            inputs=tuple((side.changelog if changelog else side.output) or "" for side in sides),
            output=out.name,
            stores=(sides[0].store, sides[1].store),
            old=old,
            changelog=changelog,
            stored=is_stored(node),
        )
    )
    builder.keep(node)
