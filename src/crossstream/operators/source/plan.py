"""Plans sources: one read step each, decoded for its first reader (projection pushdown)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from crossstream.columns.functions import WHOLE, Fields, Function, columns_of, fields_of
from crossstream.graph.names import inner
from crossstream.graph.nodes import (
    FrameSource,
    Graph,
    Node,
    Sink,
    Source,
    StreamStreamJoin,
    readings,
)
from crossstream.operators.debezium.plan import plan_complete_rows
from crossstream.operators.foreign_key_join.plan import refer
from crossstream.operators.global_join.plan import plan_global_table
from crossstream.operators.table.plan import plan_table
from crossstream.planning.builder import PlanBuilder
from crossstream.planning.plan import Exchange, Flow
from crossstream.planning.steps import ReadStep, ReferManyStep, Step
from crossstream.serdes.contract import ANY_READER, Readers
from crossstream.serdes.own import columns_in


def plan_source(builder: PlanBuilder, node: Source | FrameSource) -> None:
    if isinstance(node, Source) and node.shape == "global":
        plan_global_table(builder, node)
        return
    is_table = node.shape == "table"
    raw = inner(node.name, "records") if is_table else node.name
    unwrap = node.unwrap
    if unwrap is not None and unwrap.needs_rows:
        raw = inner(node.name, "events")
    flow = builder.flow_of(node, raw, 0)
    builder.steps.append(
        ReadStep(
            node=node.name,
            round=0,
            inputs=(),
            output=raw,
            table=is_table,
            form=_form(builder, node),
            fields=_decoded_fields(builder, node),
            readers=_readers_of(builder.topology, node),
            snapshots_begin=node.loads_first
            and unwrap is not None
            and _feeds_versions(builder.topology, node),
        )
    )
    if unwrap is not None and unwrap.needs_rows:
        flow = plan_complete_rows(builder, node, flow)
    if is_table:
        plan_table(builder, node, refer(builder, node, flow))


def _feeds_versions(topology: Graph, table: Node) -> bool:
    """Whether a table, or one that is made of it, keeps versions."""
    found = {table.name: table}
    for node in (waiting := [table]):
        if node.history is not None:
            return True
        new = [one for one in topology.children(node.name) if one.shape == "table" and one.name not in found]
        found.update((one.name, one) for one in new)
        waiting += new
    return False


def decoded_late(
    topology: Graph, steps: Sequence[Step], flows: Mapping[str, Flow], exchanges: Sequence[Exchange]
) -> tuple[tuple[Step, ...], tuple[Exchange, ...]]:
    """The steps and exchanges, with values decoded after a shuffle if nothing reads them before it.

    The task that they arrive in decodes them for all readers; a star join that is the only reader does it itself.
    """
    late = {
        step.output: replace(step, later=True)
        for step in steps
        if isinstance(step, ReadStep) and step.output and _is_late(topology, step, steps, flows, exchanges)
    }
    by_join: dict[str, ReadStep] = {}
    for exchange in exchanges:
        taking = [step for step in steps if exchange.arrives in step.inputs]
        if exchange.flow in late and len(taking) == 1 and isinstance(taking[0], ReferManyStep):
            by_join[exchange.arrives] = late[exchange.flow]

    def decoding(step: Step) -> Step:
        if isinstance(step, ReadStep):
            return late.get(step.output or "", step)
        if isinstance(step, ReferManyStep):
            return replace(step, undecoded=by_join.get(step.inputs[0]))
        return step

    def carrying(exchange: Exchange) -> Exchange:
        return replace(exchange, undecoded=None if exchange.arrives in by_join else late.get(exchange.flow))

    return tuple(map(decoding, steps)), tuple(map(carrying, exchanges))


def _is_late(
    topology: Graph,
    read: ReadStep,
    steps: Sequence[Step],
    flows: Mapping[str, Flow],
    exchanges: Sequence[Exchange],
) -> bool:
    """Whether values of a topic are read after a shuffle only, and travel in the serde they were read by.

    Not the rows of change events: reading an event has checked its row.
    """
    node = topology[read.node]
    if not node.reads_topics or node.timestamp_extractor is not None or node.unwrap is not None:
        return False
    if node.lake is not None or node.past is not None:
        return False  # its values are columns
    leaving = [exchange for exchange in exchanges if exchange.flow == read.output]
    is_read = any(step.round == 0 and read.output in step.inputs for step in steps)
    same = all(exchange.value == flows[exchange.flow].value for exchange in leaving)
    return bool(leaving) and same and not is_read


def _form(builder: PlanBuilder, node: Node) -> str | None:
    """The form in which a source's values are decoded: that of the first reader, so that decoding is the check.

    Objects if the values have no column form and a callable reads them, or if a joiner's expression reads values
    without a declared type.
    """
    if node.value is not None and node.value.dtype is None and _readers_of(builder.topology, node).callables:
        return "objects"
    for function in _readers(builder, node):
        return "objects" if function.expression is None else "series"
    declared = _is_declared(node)
    joiners = [child.joiner for child in builder.topology.children(node.name)]
    for joiner in filter(None, joiners):
        return "series" if declared and joiner.expression is not None else "objects"
    return None


def _decoded_fields(builder: PlanBuilder, node: Node) -> frozenset[str] | None:
    """The fields that expressions over a source's values read; None: whole values.

    With a declared type they include the fields that later expressions read of what is decoded here.
    """
    if not _is_declared(node):
        return None
    functions = _readers(builder, node)
    names = _named(functions) | _named_later(builder, node) | _joined(builder, node, bool(functions))
    return None if WHOLE in names else frozenset(names)


def _is_declared(node: Node) -> bool:
    """Whether values have a declared type."""
    return columns_in(node.value) is not None


def _named_later(builder: PlanBuilder, node: Node) -> set[str]:
    """The fields that are read of values below row-wise operators that forward them."""
    found: set[str] = set()
    for child in builder.topology.children(node.name):
        if child.row_wise and child.keeps_place and child.forwards_values:
            found |= _named(_readers(builder, child)) | _joined(builder, child, True)
            found |= _named_later(builder, child)
    return found


def _joined(builder: PlanBuilder, node: Node, only_here: bool) -> set[str]:
    """The fields that expressions of joiners read. ``only_here``: in joins before any shuffle."""
    found: set[str] = set()
    for child in builder.topology.children(node.name):
        joiner = child.joiner
        if joiner is not None and joiner.expression is not None:
            for parent, side in _sides(builder, child, only_here):
                if parent == node.name:
                    read = fields_of(joiner, side)
                    found |= {WHOLE} if read is None else read
    return found


def _sides(builder: PlanBuilder, join: Node, only_here: bool) -> Sequence[tuple[str, str]]:
    """The parents whose values the joiner reads as they were first decoded, with their names in the joiner."""
    named = _named_sides(join)
    if any(builder.topology[parent].shape == "global" for parent in join.parents):
        return named[:1]
    if join.as_of_record:
        return [] if only_here else named[:1]
    if join.by_foreign_key:
        return [] if only_here else named[1:]
    if isinstance(join, StreamStreamJoin) and not only_here:
        return named[: ("inner", "left", "outer").index(join.kind)]  # of the others few have partners
    return []  # decoded again where they meet what is stored


def _readers(builder: PlanBuilder, node: Node) -> list[Function]:
    """The functions over single values that read a node directly, the first to run first."""
    found: list[Function] = []
    extractor = node.timestamp_extractor
    if extractor is not None:
        found.append(Function.of(extractor, arguments=3))
    for child in builder.topology.children(node.name):
        found += _over_values(child, node.name)
    return found


def _readers_of(topology: Graph, node: Node) -> Readers:
    """Who reads the values of a source, directly or below operators that forward them."""
    extractor = node.timestamp_extractor
    found: list[tuple[Function | None, Fields]] = []
    if extractor is not None:
        function = Function.of(extractor, arguments=3)
        found.append((function, _fields_read(function)))
    for parent, child in readings(topology, node.name, lambda _, child: child.forwards_values):
        reads = list(_reads(child, parent))
        if child.forwards_values:
            if child.value not in (None, node.value):  # read by one serde, and written by another
                return ANY_READER
        elif not (reads or child.only_counts(node.value)):
            return ANY_READER
        found += reads
    callables = any(function is None or function.expression is None for function, _ in found)
    fields = [read for function, read in found if function is not None and function.expression is not None]
    known = [read for read in fields if read is not None]
    return Readers(frozenset().union(*known) if len(known) == len(fields) else None, callables)


def _reads(node: Node, parent: str) -> Iterator[tuple[Function | None, Fields]]:
    """The functions of an operator that read values of this parent, with their fields; None: a plain callable."""
    for function in (*_over_values(node, parent), *node.also_reads):
        yield function, _fields_read(function)
    joiner = node.joiner
    if joiner is not None:
        yield from (
            (joiner, fields_of(joiner, side)) for above, side in _named_sides(node) if above == parent
        )
    if isinstance(node, Sink) and (node.topic_of or node.partitioner):
        yield None, None


def _fields_read(function: Function) -> Fields:
    read = _named([function])
    return None if WHOLE in read else frozenset(read)


def _named(functions: Sequence[Function]) -> set[str]:
    """The fields that expressions over single values name."""
    return {name for function in functions for name in columns_of(function)} - {"key"}


def _named_sides(join: Node) -> list[tuple[str, str]]:
    """The parents of a join, with their names in the joiner."""
    return list(zip(join.parents, join.side_names, strict=True))


def _over_values(node: Node, parent: str) -> tuple[Function, ...]:
    """The functions of an operator that get single values of this parent, the first to run first."""
    return () if node.references and node.parents[0] != parent else node.over_values
