"""Runs operators over some records, and notes what each of them gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossstream.api.topology import Topology
from crossstream.catalog.planners import plan_topology
from crossstream.columns.functions import Function
from crossstream.graph import nodes as graph
from crossstream.graph.nodes import Graph, Node, lineage
from crossstream.recompute.pool import Pool
from crossstream.recompute.replay import Replay
from crossstream.task.batch import Settings

Key = tuple[Any, Any]
TAP = "crossstream-why:"
"""In front of the names of operators that are added."""


@dataclass(slots=True)
class Taps:
    """What each operator gave, in order, and the run."""

    rows: dict[str, list[Key]]
    replay: Replay


def run_with_taps(
    topology: Graph,
    names: Iterable[str],
    pool: Pool,
    partitions: int,
    settings: Settings,
    chosen: np.ndarray | None = None,
    only: frozenset[str] | None = None,
) -> Taps:
    """Runs the operators above ``names``, and notes the records and changes that each of them gives."""
    found: dict[str, list[Key]] = {}
    made: dict[str, Node] = {}
    for node in part_of(topology, names):
        made[node.name] = node
        if node.shape not in ("stream", "table") or isinstance(node, graph.GroupTable | graph.Split):
            continue
        if only is not None and node.name not in only:
            continue
        tapped = node
        if node.shape == "table":
            tapped = graph.ToStream(name=f"{TAP}{node.name}:changes", parents=(node.name,), **as_stream(node))
            made[tapped.name] = tapped
        action = Function(_noting(found.setdefault(node.name, [])), with_key=True)
        made[TAP + node.name] = graph.Peek(
            name=TAP + node.name, parents=(tapped.name,), shape="none", action=action, terminal=True
        )
    plan = plan_topology(Topology(made, topology.frames))
    return Taps(found, pool.replayed(plan, partitions, settings, chosen))


def _noting(rows: list[Key]) -> Callable[[Any, Any], None]:
    def note(key: Any, value: Any) -> None:
        rows.append((key, value))

    return note


def part_of(topology: Graph, names: Iterable[str]) -> Topology:
    """The operators of these names, and those that make them."""
    above = {node.name for node in lineage(topology.nodes, names)}
    nodes = {node.name: node for node in topology if node.name in above}
    return Topology(nodes, topology.frames)


def as_stream(node: Node) -> dict[str, Any]:
    types = ("key", "value", "key_type", "value_type", "location")
    return {"shape": "stream", **{name: getattr(node, name) for name in types}}
