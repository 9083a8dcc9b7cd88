"""What state notes of its topology when other code continues it without a change of its rows (decision 0049).

A start refuses other stores, and not another joiner: from then on results are made by the new code, and the rows that
are there stay as they were made. So the note keeps saying what the state was made by. What is of both from now on means
nothing any more: a later `crossstream evolve` computes it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from crossstream.graph.noting import Same
from crossstream.planning.meanings import noted
from crossstream.planning.plan import Plan
from crossstream.storage.noted import NotedFunction, NotedTopology


def unclear(
    old: NotedTopology, new: NotedTopology
) -> Iterator[tuple[str, str, NotedFunction, NotedFunction]]:
    """Functions that look the same, and have hashes of other versions: operator, role, the one before, the one now."""
    before = {node.name: node for node in old.nodes}
    for node in new.nodes:
        known = before[node.name].functions if node.name in before else {}
        for role, function in node.functions.items():
            was = known.get(role)
            if was is None or was.text != function.text or was.code == function.code:
                continue
            if version_of(old, was) != version_of(new, function):
                yield node.name, role, was, function


def as_before(old: NotedTopology, new: NotedTopology) -> Same:
    """The codes that functions count with which cannot be compared: those that they had."""
    return {(name, role): was.code for name, role, was, _ in unclear(old, new)}


def version_of(topology: NotedTopology, function: NotedFunction) -> str:
    """What the hash of a function is of."""
    return f"Polars {topology.polars}" if function.is_expression else f"Python {topology.python}"


def continued(old: NotedTopology, plan: Plan) -> NotedTopology:
    """What is noted when the code of a plan continues state of ``old``: all of it is new if nothing differs.

    Else ``old`` stays, and operators and stores whose meaning is another one now have none.
    """
    new = structs.replace(noted(plan), gone=old.gone)
    if not old.nodes:
        return new
    same = as_before(old, new)
    now = noted(plan, same) if same else new
    meanings = {node.name: node.meaning for node in now.nodes}
    if meanings == {node.name: node.meaning for node in old.nodes} and now.stores == old.stores:
        return new
    nodes = tuple(
        node if meanings.get(node.name) == node.meaning else structs.replace(node, meaning="")
        for node in old.nodes
    )
    stores = {
        name: store
        if name in now.stores and now.stores[name].meaning == store.meaning
        else structs.replace(store, meaning="")
        for name, store in old.stores.items()
    }
    return structs.replace(old, nodes=nodes, stores=stores)
