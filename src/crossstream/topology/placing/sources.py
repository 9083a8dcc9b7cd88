"""Where records come in: one read step a source, decoded for its first reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from crossstream.algebra.functions import Function
from crossstream.algebra.uses import WHOLE, fields_of
from crossstream.serdes.serde import columns_in
from crossstream.topology.graph import (
    Branch,
    Filter,
    ForeignKeyJoin,
    FrameSource,
    ManyJoin,
    Node,
    Peek,
    Source,
    Split,
    StreamStreamJoin,
    StreamTableJoin,
    Topology,
)
from crossstream.topology.names import inner
from crossstream.topology.placing.foreign_key import refer
from crossstream.topology.placing.globals import place_global_table
from crossstream.topology.placing.reading import named, named_sides, over_values, readers_of
from crossstream.topology.placing.tables import place_table
from crossstream.topology.plan import Exchange, Flow
from crossstream.topology.steps import ReadStep, ReferManyStep, Step

if TYPE_CHECKING:
    from crossstream.topology.planner import Planner


def place_source(planner: Planner, node: Source | FrameSource) -> None:
    if isinstance(node, Source) and node.shape == "global":
        place_global_table(planner, node)
        return
    is_table = node.shape == "table"
    raw = inner(node.name, "records") if is_table else node.name
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
            readers=readers_of(planner.topology, node),
        )
    )
    if is_table:
        place_table(planner, node, refer(planner, node, flow))


def decoded_late(
    topology: Topology, steps: Sequence[Step], flows: Mapping[str, Flow], exchanges: Sequence[Exchange]
) -> tuple[tuple[Step, ...], tuple[Exchange, ...]]:
    """Steps and exchanges, where values that are looked at after a shuffle only are not decoded before it.

    They are decoded where they arrive, for all who read them there; a join of many that is the only one does so itself.
    """
    found: dict[str, ReadStep] = {}
    for step in steps:
        if isinstance(step, ReadStep) and step.output is not None:
            leaving = [exchange for exchange in exchanges if exchange.flow == step.output]
            is_read = any(other.round == 0 and step.output in other.inputs for other in steps)
            same = all(exchange.value == flows[step.output].value for exchange in leaving)
            timed = getattr(topology[step.node], "timestamp_extractor", None) is not None
            if leaving and same and not is_read and not timed and isinstance(topology[step.node], Source):
                found[step.output] = replace(step, later=True)
    by_join = {}
    for exchange in exchanges:
        taking = [step for step in steps if exchange.arrives in step.inputs]
        if exchange.flow in found and len(taking) == 1 and isinstance(taking[0], ReferManyStep):
            by_join[exchange.arrives] = found[exchange.flow]
    return (
        tuple(_decoding(step, found, by_join) for step in steps),
        tuple(
            replace(exchange, undecoded=None if exchange.arrives in by_join else found.get(exchange.flow))
            for exchange in exchanges
        ),
    )


def _decoding(step: Step, read: Mapping[str, ReadStep], by_join: Mapping[str, ReadStep]) -> Step:
    """A step that reads, or decodes, or neither."""
    if isinstance(step, ReadStep):
        return read.get(step.output or "", step)
    if isinstance(step, ReferManyStep):
        return replace(step, undecoded=by_join.get(step.inputs[0]))
    return step


def form(planner: Planner, node: Node) -> str | None:
    """How the first reader of a source's values wants them, so that checking them is the decoding.

    The expression of a joiner looks at both sides as columns; without a declared type these may not exist. Fields
    without a column form are looked at by objects only.
    """
    if node.value is not None and node.value.dtype is None and readers_of(planner.topology, node).callables:
        return "objects"
    for function in readers(planner, node):
        return "objects" if function.expression is None else "series"
    declared = _is_declared(node)
    joiners = [getattr(child, "joiner", None) for child in planner.topology.children(node.name)]
    for joiner in filter(None, joiners):
        return "series" if declared and joiner.expression is not None else "objects"
    return None


def fields(planner: Planner, node: Node) -> frozenset[str] | None:
    """The fields that the expressions over a source's values name; None: they want values whole.

    Where all fields of a declared type are checked, these are also those of expressions that read later what is
    decoded here; there may be none.
    """
    if not _is_declared(node):
        return None
    functions = readers(planner, node)
    names = named(functions) | _named_later(planner, node) | _joined(planner, node, bool(functions))
    return None if WHOLE in names else frozenset(names)


def _is_declared(node: Node) -> bool:
    """Whether values have a declared type."""
    return columns_in(node.value) is not None


def _named_later(planner: Planner, node: Node) -> set[str]:
    """What is read of the values after they were let through."""
    found: set[str] = set()
    for child in planner.topology.children(node.name):
        if isinstance(child, Filter | Split | Branch | Peek):
            found |= named(readers(planner, child)) | _joined(planner, child, True)
            found |= _named_later(planner, child)
    return found


def _joined(planner: Planner, node: Node, only_here: bool) -> set[str]:
    """What expressions of joiners read. ``only_here``: those of joins that come before any shuffle."""
    found: set[str] = set()
    for child in planner.topology.children(node.name):
        joiner = getattr(child, "joiner", None)
        if joiner is not None and joiner.expression is not None:
            for parent, side in _sides(planner, child, only_here):
                if parent == node.name:
                    read = fields_of(joiner, side)
                    found |= {WHOLE} if read is None else read
    return found


def _sides(planner: Planner, join: Node, only_here: bool) -> Sequence[tuple[str, str]]:
    """The parents whose values the joiner gets as they were decoded first, and what it knows them by."""
    named = named_sides(join)
    if any(planner.topology[parent].shape == "global" for parent in join.parents):
        return named[:1]
    if isinstance(join, StreamTableJoin):
        return [] if only_here else named[:1]
    if isinstance(join, ForeignKeyJoin | ManyJoin):
        return [] if only_here else named[1:]
    if isinstance(join, StreamStreamJoin) and not only_here:
        return named[: ("inner", "left", "outer").index(join.kind)]  # of the others few have partners
    return []  # decoded again where they meet what is stored


def readers(planner: Planner, node: Node) -> list[Function]:
    """The functions over single values that read a node directly, the first to run first."""
    found: list[Function | None] = []
    extractor = getattr(node, "timestamp_extractor", None)
    if extractor is not None:
        found.append(Function.of(extractor, arguments=3))
    for child in planner.topology.children(node.name):
        found += over_values(child, node.name)
    return [function for function in found if function is not None]
