"""A topology while it is built, and how a new node is added below another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

import polars as pl

from crossstream.api.checks import check_option
from crossstream.api.options import Materialized, Named
from crossstream.api.serde_rules import needed_key, stored_value
from crossstream.api.topology import Topology
from crossstream.api.types import check_fits
from crossstream.columns.functions import Function
from crossstream.errors import Location, TopologyError, caller_location, user_location
from crossstream.graph.names import Paths
from crossstream.graph.nodes import FrameSource, JoinKind, Node, Source, StoreSpec
from crossstream.graph.stores import queryable_names
from crossstream.graph.validate import check_new_name, check_new_source, check_new_store
from crossstream.serdes import Serde

N = TypeVar("N", bound=Node)


@dataclass(slots=True, eq=False)
class Draft:
    """What a `StreamsBuilder` and its handles share.

    ``stores``: store names, and the nodes that keep them. ``open_splits``: the lines of splits that are not finished.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    frames: dict[str, Any] = field(default_factory=dict)
    stores: dict[str, str] = field(default_factory=dict)
    open_splits: dict[object, Location | None] = field(default_factory=dict)
    paths: Paths = field(default_factory=Paths)

    def add(self, kind: type[N], path: str, given: str | None, /, **attributes: Any) -> N:
        """Adds a node, named ``given`` or by its path (``path`` under its first parent).

        Raises CS-120 if the name or its store's name is taken, CS-122 for topics that another source reads.
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
        """Refuses (CS-120) a name that an operator has."""
        check_new_name(self.nodes, name)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Adds several nodes, or none if one of them is refused."""
        nodes, stores, paths = dict(self.nodes), dict(self.stores), self.paths.copy()
        try:
            yield
        except BaseException:
            self.nodes, self.stores, self.paths = nodes, stores, paths
            raise

    def same_source(self, wanted: Source) -> Source | None:
        """The stream source of exactly these topics, which two streams share. Raises CS-122 for other options."""
        for node in self.nodes.values():
            if isinstance(node, Source) and node.shape == "stream" and _same_topics(node, wanted):
                _check_same_options(node, wanted)
                return node
        return None

    def finish(self) -> Topology:
        """The topology so far, as frozen data. Raises CS-126 without a source, CS-127 for an open split."""
        if not any(isinstance(node, Source | FrameSource) for node in self.nodes.values()):
            raise TopologyError(
                "the topology reads nothing",
                code="CS-126",
                where=caller_location(),
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
            code="CS-122",
            where={**caller_location(source.name), "first read at": str(source.location)},
            next="read them once and use the stream twice, or pass the same Consumed",
        )


OPERATORS: Mapping[JoinKind, str] = MappingProxyType(
    {"inner": "join", "left": "left_join", "outer": "outer_join"}
)
"""The method of each kind of join."""

class Handle:
    """A node of a draft in the user's hands: a `KStream`, `KTable` or `GlobalKTable`."""

    __slots__ = ("_draft", "_node")

    def __init__(self, draft: Draft, node: Node) -> None:
        self._draft = draft
        self._node = node

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._node.name}>"


def given_name(operator: str, named: Named | None, **others: type[object]) -> str | None:
    """The name in ``named``. Raises CS-101 for other objects. ``others``: see `check_option`."""
    option = check_option(operator, "named", named, Named, **others)
    return None if option is None else option.name


def misplaced_name(operator: str, argument: str) -> TopologyError:
    """CS-101: a `Named` where another argument belongs, as in Java's overloads."""
    return TopologyError(
        f"{argument} of {operator} is a Named",
        code="CS-101",
        where=caller_location(operator),
        next='name the argument: named=Named("…")',
    )


def child(
    draft: Draft, kind: type[N], path: str, parent: Node, name: str | None = None, /, **attributes: Any
) -> N:
    """Adds a node below ``parent``, with the parent's serdes and shape unless ``attributes`` have others."""
    kept: dict[str, Any] = {"parents": (parent.name,), "shape": parent.shape}
    for part in ("key", "value"):
        kept[part], kept[f"{part}_type"] = getattr(parent, part), getattr(parent, f"{part}_type")
    made = {**kept, **attributes}
    check_fits(path.partition("(")[0], made["value_type"], made["value"])
    return draft.add(kind, path, name, **made)


def table_result(
    operator: str,
    left: Node,
    joiner: Function,
    materialized: Materialized | None,
    either: Serde | None = None,
) -> dict[str, Any]:
    """Joiner, serdes and store of a join of tables, keyed like the left side or by ``either``."""
    option = check_option(operator, "materialized", materialized, Materialized)
    asked = option or Materialized()
    key = needed_key(operator, either or left.key, asked.key, "materialized=Materialized(key=…)")
    made = made_value(joiner, asked, left)
    store: StoreSpec | None = None if option is None else option.spec(key, made["value"])
    return {"joiner": returning(joiner, made["value"]), "key": key, "store": store, **made}


def made_value(function: Function, asked: Materialized, like: Node) -> dict[str, Any]:
    """The serde of values that a function makes for a table, and of their type. ``like``: the (left) input."""
    value = stored_value(asked.value, function.returns, queryable=asked.store is not None, like=like.value)
    return {"value": value, "value_type": function.returns}


def returning(function: Function, value: Serde | None) -> Function:
    """The function with the type of the serde for its results, if the serde declares one."""
    return function if value is None or value.dtype is None else replace(function, returns=value)


def check_same_builder(operator: str, mine: Draft, other: Draft) -> None:
    """Refuses (CS-135) inputs of different builders."""
    if mine is not other:
        raise TopologyError(
            f"the two inputs of {operator} come from different builders",
            code="CS-135",
            where=caller_location(operator),
            next="make both with one StreamsBuilder",
        )
