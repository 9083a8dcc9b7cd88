"""Finds functions that give other results each time: a batch is run twice, and what they gave is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from crossstream.api.topology import Topology
from crossstream.errors import CrossStreamError
from crossstream.graph.nodes import Node
from crossstream.query.text import to_json
from crossstream.recompute.reason import located
from crossstream.recompute.stops import has_stops, with_stops

MOST = 100_000
"""Calls of a batch whose results are compared, at most."""

Call = tuple[str, str, str, int]
"""An operator, the key and the arguments as JSON, and how often they came before."""


@dataclass(frozen=True, slots=True)
class Unsteady:
    """A function that gave two results for the same arguments. ``operator``: with the line that made it."""

    operator: str
    key: str
    first: str
    second: str


@dataclass(slots=True)
class _Notes:
    """What functions gave, as JSON."""

    given: dict[Call, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    _seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def called(self, node: Node, key: Any, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        known = None
        if len(self.given) < MOST:
            with suppress(CrossStreamError, TypeError, ValueError):  # objects that JSON does not hold
                known = (node.name, to_json(key), to_json(list(arguments)))
        result = call(*arguments)
        if known is not None:
            self._seen[known] += 1
            self.nodes[node.name] = node
            with suppress(CrossStreamError, TypeError, ValueError):
                self.given[(*known, self._seen[known])] = to_json(result)
        return result


def unsteady(topology: Topology, run: Callable[[Topology], object]) -> list[Unsteady]:
    """The operators whose functions gave two results for the same arguments, each with the first case of it.

    ``run``: runs a batch with a topology.
    """
    if not has_stops(topology):
        return []
    notes = [_Notes(), _Notes()]
    for one in notes:
        run(with_stops(topology, one.called))
    found: dict[str, Unsteady] = {}
    for call, first in notes[0].given.items():
        second = notes[1].given.get(call, first)
        if second != first and call[0] not in found:
            found[call[0]] = Unsteady(located(notes[0].nodes[call[0]]), call[1], first, second)
    return list(found.values())
