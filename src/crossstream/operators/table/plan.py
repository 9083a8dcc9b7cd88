"""Plans tables: where each one is kept."""

from __future__ import annotations

from crossstream.graph.nodes import FrameSource, Source, ToTable
from crossstream.operators.expire.plan import plan_expiring
from crossstream.planning.builder import PlanBuilder, is_kept_below
from crossstream.planning.plan import Flow


def plan_table(builder: PlanBuilder, node: Source | FrameSource | ToTable, raw: Flow) -> None:
    """A table of records: kept now if it has a name or a reader of its changes, else where it is joined."""
    if node.ttl is not None:
        plan_expiring(builder, node, raw)
        return
    builder.raw[node.name] = raw
    spec = node.store
    named = spec is not None and (spec.name is not None or spec.history_retention is not None)
    row_wise = any(child.derives_rows for child in builder.topology.children(node.name))
    wanted = named or row_wise or node.name in builder.wants_old or bool(node.parents)
    if wanted and not is_kept_below(builder, node):
        step = builder.materialize(node, builder.earliest_kept(node, raw), None, builder.earliest(raw))
        builder.changes[node.name] = builder.changes_of(step)
    else:
        builder.changes[node.name] = raw
