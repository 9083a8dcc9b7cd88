"""Where records come in: one read step a source, decoded for its first reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossstream.algebra.functions import Function
from crossstream.topology.graph import FrameSource, Node, Source
from crossstream.topology.placing.foreign_key import refer
from crossstream.topology.placing.globals import place_global_table
from crossstream.topology.placing.tables import place_table
from crossstream.topology.steps import ReadStep

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def place_source(planner: Planner, node: Source | FrameSource) -> None:
    if isinstance(node, Source) and node.shape == "global":
        place_global_table(planner, node)
        return
    is_table = node.shape == "table"
    raw = f"{node.name}.records" if is_table else node.name
    flow = planner.flow_of(node, raw, 0)
    planner.steps.append(
        ReadStep(
            node=node.name,
            round=0,
            inputs=(),
            output=raw,
            table=is_table,
            form=form(planner, node),
            fields=fields(planner, node),
        )
    )
    if is_table:
        place_table(planner, node, refer(planner, node, flow))


def form(planner: Planner, node: Node) -> str | None:
    """How the first reader of a source's values wants them, so that checking them is the decoding."""
    for function in readers(planner, node):
        return "objects" if function.expression is None else "series"
    return None


def fields(planner: Planner, node: Node) -> frozenset[str] | None:
    """The fields that the expressions over a source's values name; None: they want values whole."""
    names = {name for function in readers(planner, node) for name in function.columns} - {"key", "timestamp"}
    return None if "value" in names or not names else frozenset(names)


def readers(planner: Planner, node: Node) -> list[Function]:
    """The functions over single values that read a node directly, the first to run first."""
    found: list[Function | None] = []
    extractor = getattr(node, "timestamp_extractor", None)
    if extractor is not None:
        found.append(Function.of(extractor, arguments=3))
    for child in planner.topology.children(node.name):
        if child.parents[0] == node.name:
            found.append(getattr(child, "foreign_key", None))
            found += getattr(child, "foreign_keys", ())
            found.append(getattr(child, "key_selector", None))
        found += [getattr(child, "predicate", None), getattr(child, "mapper", None)]
    return [function for function in found if function is not None]
