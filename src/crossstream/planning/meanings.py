"""What each store of a plan means: which operator keeps it, whose rows it holds, and what it is filled with.

Two stores of one meaning hold the same rows after the same input, whatever they and their operators are called
(decision 0049). What an operator keeps for itself does not depend on the settings that decide its results alone: a
foreign-key join with another joiner has the same subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import polars as pl

from crossstream.graph.callables import PYTHON, digest, noted_function
from crossstream.graph.node import Node
from crossstream.graph.noting import Same, inner_meaning, noted_nodes, serde_text
from crossstream.planning.kept import kept
from crossstream.planning.plan import Plan, StoreDef
from crossstream.planning.steps import Step
from crossstream.storage.noted import NotedNode, NotedStore, NotedTopology

POLARS = ".".join(pl.__version__.split(".")[:2])
"""The version whose JSON of expressions the hashes are of."""


def noted(plan: Plan, same: Same | None = None, changed: Iterable[str] = ()) -> NotedTopology:
    """A topology and the stores of its plan as a state folder notes them; ``same``, ``changed``: see `noted_nodes`."""
    nodes = noted_nodes(plan.topology, same, changed)
    found: dict[str, NotedStore] = {}
    marked = set(changed)
    placed = _placed(plan)
    for step in _steps(plan):
        for store, part in kept(step):
            if store not in found:
                node = plan.topology[step.node]
                found[store] = _store(
                    plan.stores[store],
                    part,
                    node,
                    nodes,
                    same or {},
                    (placed.get(store, ""), node.name in marked),
                )
    return NotedTopology(tuple(nodes.values()), found, PYTHON, POLARS)


def _steps(plan: Plan) -> Iterator[Step]:
    if plan.global_stage is not None:
        yield from plan.global_stage.steps
    yield from plan.steps


def _store(
    store: StoreDef,
    part: str,
    node: Node,
    nodes: Mapping[str, NotedNode],
    same: Same,
    marks: tuple[str, bool],
) -> NotedStore:
    mine, (placed, is_changed) = nodes[node.name], marks
    key, value = serde_text(store.key), serde_text(store.value)
    filled = mine.meaning
    if part:
        above = [nodes[name].meaning for name in node.fills(part)]
        above += (nodes[name].key for name in node.parents)  # what refers to rows has the bytes of their keys
        filled = digest([inner_meaning(mine, node, above, same), "changed" if is_changed else ""])
    form = (store.layout.kind, key, value, store.history, store.window_size, store.remembered)
    flags: tuple[object, ...] = (store.results, store.repeats, store.by_key2, store.anywhere, placed)
    if part == "subscriptions" and not (store.spread or store.by_key2):
        flags = (*flags, "at home")  # rows of hot keys are not where another one has them (decision 0053)
    return NotedStore(
        node=node.name,
        part=part,
        holds=(node.holds(part) or "") if part else node.name,
        meaning=digest([part, filled, repr(form), repr(flags)]),
        kind=store.layout.kind,
        key=key,
        value=value,
    )


def _placed(plan: Plan) -> dict[str, str]:
    """The stores whose rows are where a partitioner of the user puts them, with what is known of it."""
    found: dict[str, str] = {}
    by_name = {
        exchange.arrives: exchange.partitioner
        for exchange in plan.exchanges
        if exchange.partitioner is not None
    }
    for step in plan.steps:
        for name in step.inputs[:1]:
            if name in by_name:
                function = noted_function(by_name[name])
                found.update((store, function.code or function.text) for store, _ in kept(step))
    return found
