"""Whether a table need be kept where it is made: not if all its readers keep it where they look it up, or need none.

A named table that is the right side of a foreign-key join would otherwise be kept twice: in the first round for its
name, and in the second for the join. Who asks for it by name does not care which round it is kept in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.topology.graph import ForeignKeyJoin, ManyJoin, Node, StreamTableJoin, TableJoin, ToTable

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def is_kept_below(planner: Planner, table: Node) -> bool:
    """Whether some join keeps ``table`` by the hash of its key, and nobody reads its net changes elsewhere."""
    if table.name in planner.wants_old:
        return False
    children = planner.topology.children(table.name)
    reads = [
        (child, place)
        for child in children
        for place, parent in enumerate(child.parents)
        if parent == table.name
    ]
    return all(_keeps(*read) or _needs_no_store(planner, table, *read) for read in reads) and any(
        _keeps(*read) for read in reads
    )


def _keeps(child: Node, place: int) -> bool:
    """Whether a reader of a table keeps it in its own round; ``place``: which of its parents the table is."""
    if isinstance(child, ForeignKeyJoin):
        return place == 1 and child.other_partitioner is None
    return isinstance(child, TableJoin) or (place > 0 and isinstance(child, ManyJoin | StreamTableJoin))


def _needs_no_store(planner: Planner, table: Node, child: Node, place: int) -> bool:
    """Whether a reader takes the rows as they come: their foreign keys, which are remembered instead of them."""
    if place > 0 or not isinstance(child, ForeignKeyJoin | ManyJoin) or isinstance(table, ToTable):
        return False
    return not planner.versioned(table)
