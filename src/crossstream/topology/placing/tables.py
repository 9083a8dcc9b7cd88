"""Tables kept and joined by primary key, in their rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.topology.graph import Filter, FrameSource, MapValues, Source, TableJoin, ToTable
from crossstream.topology.placing.keeping import is_kept_below
from crossstream.topology.plan import Flow
from crossstream.topology.steps import TableJoinStep

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def place_table(planner: Planner, node: Source | FrameSource | ToTable, raw: Flow) -> None:
    """A table from records: materialised now if its name or its own changes are wanted, else where it is joined."""
    planner.raw[node.name] = raw
    spec = node.store
    named = spec is not None and (spec.name is not None or spec.history_retention is not None)
    row_wise = any(isinstance(c, Filter | MapValues) for c in planner.topology.children(node.name))
    wanted = named or row_wise or node.name in planner.wants_old or isinstance(node, ToTable)
    if wanted and not is_kept_below(planner, node):
        step = planner.materialize(node, planner.earliest(raw), None)
        planner.changes[node.name] = planner.changes_of(step)
    else:
        planner.changes[node.name] = raw


def place_table_join(planner: Planner, node: TableJoin) -> None:
    left, right = (planner.topology[name] for name in node.parents)
    number = max(planner.earliest(planner.source_of(left)), planner.earliest(planner.source_of(right)))
    sides = [planner.materialize(side, number, None) for side in (left, right)]
    out = planner.flow_of(node, node.name, number, True)
    old, every = node.name in planner.wants_old, planner.every(node)
    planner.steps.append(
        TableJoinStep(
            node=node.name,
            round=number,
            inputs=tuple((side.every if every else side.output) or "" for side in sides),
            output=out.name,
            stores=(sides[0].store, sides[1].store),
            old=old,
            every=every,
        )
    )
    planner.keep(node)
