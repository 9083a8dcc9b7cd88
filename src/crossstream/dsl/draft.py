"""A topology while the user writes it: nodes are added, names, stores and topics kept apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from crossstream.errors import TopologyError
from crossstream.topology.graph import FrameSource, Location, Node, Source, Topology
from crossstream.topology.location import here, user_location
from crossstream.topology.naming import Paths
from crossstream.topology.validate import check_new_name, check_new_source, check_new_store, queryable_names

N = TypeVar("N", bound=Node)


@dataclass(slots=True, eq=False)
class Draft:
    """What a `StreamsBuilder` and its handles share.

    ``stores`` maps the user's store names to the nodes that keep them; ``open_splits`` holds
    the lines of splits that were begun and not finished.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    frames: dict[str, Any] = field(default_factory=dict)
    stores: dict[str, str] = field(default_factory=dict)
    open_splits: dict[object, Location | None] = field(default_factory=dict)
    paths: Paths = field(default_factory=Paths)

    def add(self, kind: type[N], path: str, given: str | None, /, **attributes: Any) -> N:
        """A new node of the graph, named ``given`` or by its place (``path`` under its first parent).

        Raises `TopologyError`: CS-120 name taken, CS-121 store name taken, CS-122 to CS-124 topics that
        another source reads.
        """
        parents: tuple[str, ...] = attributes.get("parents", ())
        parent = parents[0] if parents else None
        node = kind(name=given or self.paths.name(parent, path), location=user_location(), **attributes)
        if isinstance(node, Source):
            check_new_source(self.nodes.values(), node)
        self.check_name(node.name)
        check_new_store(self.nodes, self.stores, node)
        self.paths.count(parent, path)
        self._put(node)
        return node

    def check_name(self, name: str) -> None:
        """CS-120 if an operator has the name."""
        check_new_name(self.nodes, name)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Several nodes at once: if one is refused, none is added."""
        nodes, stores, paths = dict(self.nodes), dict(self.stores), self.paths.copy()
        try:
            yield
        except BaseException:
            self.nodes, self.stores, self.paths = nodes, stores, paths
            raise

    def same_source(self, wanted: Source) -> Source | None:
        """The stream source of exactly these topics, if there is one: two streams share it.

        Raises `TopologyError` CS-125 if it is read with other options.
        """
        for node in self.nodes.values():
            if isinstance(node, Source) and node.shape == "stream" and _same_topics(node, wanted):
                _check_same_options(node, wanted)
                return node
        return None

    def finish(self) -> Topology:
        """The topology so far, as frozen data. Raises `TopologyError` CS-126 no source, CS-127 open split."""
        if not any(isinstance(node, Source | FrameSource) for node in self.nodes.values()):
            raise TopologyError(
                "the topology reads nothing",
                code="CS-126",
                where=here(),
                next="begin with builder.stream(topic, Consumed(…)) or builder.table(topic, Consumed(…))",
            )
        for line in self.open_splits.values():
            raise TopologyError(
                "a split was begun but not finished",
                code="CS-127",
                where={"operator": "split", "line": None if line is None else str(line)},
                next="end it with .default_branch() or .no_default_branch(), which give the branches",
            )
        return Topology(dict(self.nodes), dict(self.frames))

    def _put(self, node: Node) -> None:
        self.nodes[node.name] = node
        for store in queryable_names(node):
            self.stores[store] = node.name


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, pl.Expr) or isinstance(other, pl.Expr):
        return one is other
    return bool(one == other)


def _same_topics(source: Source, other: Source) -> bool:
    if source.pattern is None or other.pattern is None:
        return source.pattern is other.pattern and set(source.topics) == set(other.topics)
    return (source.pattern.pattern, source.pattern.flags) == (other.pattern.pattern, other.pattern.flags)


def _check_same_options(source: Source, wanted: Source) -> None:
    options = ("key", "value", "timestamp_extractor", "offset_reset")
    different = [name for name in options if not _equal(getattr(source, name), getattr(wanted, name))]
    if different:
        raise TopologyError(
            f"the topics of {source.name} are read a second time with another {' and '.join(different)}",
            code="CS-125",
            where={**here(source.name), "first read at": str(source.location)},
            next="read them once and use the stream twice, or pass the same Consumed",
        )
