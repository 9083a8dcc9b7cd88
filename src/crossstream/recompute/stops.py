"""A topology whose functions let a debugger look at each call: it gets the key of the row, and the function.

A processor is made as ever; its ``process`` is called the same way, with the key of its record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from crossstream.api.topology import Topology
from crossstream.columns.functions import Function
from crossstream.error_codes import refuse
from crossstream.graph.nodes import Node
from crossstream.recompute.suspects import functions_of

Called = Callable[[Node, Any, Callable[..., Any], tuple[Any, ...]], Any]
"""Makes a call: of which operator, for which key, of what, with which arguments. Returns what the call gives."""


def with_stops(topology: Topology, called: Called, at: str | None = None) -> Topology:
    """The topology, each call of its Python functions made by ``called``.

    ``at``: those of this operator only, by its name or that of its store; or the functions of this name, or in this
    place of an operator, such as "joiner". Raises `ConfigError` CS-281 if there is nothing to stop in.
    """
    nodes = {node.name: _stopping(node, called, at) for node in topology}
    if all(nodes[node.name] is node for node in topology):
        known = [
            f"{node.name}: {', '.join(dict.fromkeys(names))}" for node in topology if (names := _names(node))
        ]
        what = (
            "the topology has no Python functions"
            if at is None
            else f"no operator or Python function is {at!r}"
        )
        step = (
            f"choose one of: {'; '.join(known)}"
            if known
            else "Polars runs expressions: no debugger stops there"
        )
        raise refuse("CS-281", what, step)
    return Topology(nodes, topology.frames)


def has_stops(topology: Topology) -> bool:
    """Whether there is a Python function to stop in."""
    return any(map(_names, topology))


def _names(node: Node) -> list[str]:
    """What the Python functions of an operator are called."""
    names = [_name(one) or field for field, one in functions_of(node) if _is_code(one)]
    return [*names, "process"] if hasattr(node, "supplier") and node.runs_processor else names


def _name(function: Function) -> str | None:
    """The name of a function that has one."""
    name = getattr(function.call, "__name__", None)
    return name if isinstance(name, str) and name.isidentifier() else None


def _is_code(function: Function) -> bool:
    """Whether it is the user's: the name of a field is looked up by a callable of this package."""
    return function.call is not None and not type(function.call).__module__.startswith("crossstream.")


def _stopping(node: Node, called: Called, at: str | None) -> Node:
    """The operator; another one if it has functions to stop in."""
    is_whole = at is None or at in (node.name, *node.queryable_names)
    changed: dict[str, Any] = {}

    def watched(field: str, value: Any) -> Any:
        wanted = isinstance(value, Function) and _is_code(value) and (is_whole or at in (field, _name(value)))
        return _watched(node, value, called) if wanted else value

    for field in fields(node):
        value = getattr(node, field.name)
        if field.name == "supplier" and node.runs_processor and (is_whole or at == "process"):
            changed[field.name] = _supplier(node, value, called)
        elif isinstance(value, Function):
            changed[field.name] = watched(field.name, value)
        elif isinstance(value, tuple) and any(isinstance(one, Function) for one in value):
            changed[field.name] = tuple(watched(field.name, one) for one in value)
    changed = {name: value for name, value in changed.items() if value != getattr(node, name)}
    return replace(node, **changed) if changed else node


def _watched(node: Node, function: Function, called: Called) -> Function:
    call, with_key = function.call, function.with_key
    assert call is not None

    def watched(key: Any, *arguments: Any) -> Any:
        return called(node, key, call, (key, *arguments) if with_key else arguments)

    return replace(function, call=watched, with_key=True)


def _supplier(node: Node, supplier: Callable[[], Any], called: Called) -> Callable[[], Any]:
    def made() -> Any:
        processor = supplier()
        process = getattr(processor, "process", None)
        return (
            _Watched(processor, partial(_process, node, process, called)) if callable(process) else processor
        )

    return made


def _process(node: Node, process: Callable[..., Any], called: Called, record: Any) -> Any:
    return called(node, record.key, process, (record,))


@dataclass(frozen=True, slots=True)
class _Watched:
    """A processor whose ``process`` is another one; a class with slots takes none."""

    processor: Any
    process: Callable[[Any], Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.processor, name)
