"""The stores that operators keep: their names, and which of them a look-up reads."""

from __future__ import annotations

from collections.abc import Mapping

from crossstream.graph.names import unique
from crossstream.graph.nodes import (
    Aggregate,
    Filter,
    ForeignKeyJoin,
    FrameSource,
    GlobalJoin,
    ManyJoin,
    MapValues,
    Node,
    Source,
    StoreSpec,
    StreamStreamJoin,
    StreamTableJoin,
    TableJoin,
    ToTable,
)


def queryable_name(node: Node) -> str | None:
    """The name under which the rows of ``node`` can be queried; None if `Materialized` gave none."""
    spec: StoreSpec | None = getattr(node, "store", None)
    return None if spec is None else spec.name


def store_name(node: Node) -> str | None:
    """The name of the store that ``node`` itself keeps, for people; None if it keeps none.

    A table read from a topic, a DataFrame or a stream always counts as kept, a join's result where any
    `Materialized` was given, a filter or `map_values` only where it was named (semantics 2.2.1). A store
    without a name of its own is called after its node.
    """
    is_source = isinstance(node, Source | FrameSource | ToTable) and node.shape in ("table", "global")
    is_kept_join = isinstance(node, TableJoin | ForeignKeyJoin | ManyJoin) and node.store is not None
    return queryable_name(node) or (
        node.name if is_source or is_kept_join or isinstance(node, Aggregate) else None
    )


def store_names(nodes: Mapping[str, Node], node: Node) -> list[str]:
    """The names of all stores that ``node`` itself keeps, for people; a join of streams keeps two."""
    if isinstance(node, StreamStreamJoin):
        parts = (("left", node.store), ("right", node.other_store))
        return [spec.name or inner_store(nodes, node, part) for part, spec in parts]
    if isinstance(node, StreamTableJoin):
        return [] if node.grace is None else [inner_store(nodes, node, "buffer")]
    name = store_name(node)
    return [] if name is None else [name]


def keepers(nodes: Mapping[str, Node], name: str) -> list[str]:
    """The nodes whose stores a look-up in a table reads: its own, or those it is computed from (semantics 2.2.1)."""
    node = nodes[name]
    store: StoreSpec | None = getattr(node, "store", None)
    if isinstance(node, Filter | MapValues) and (store is None or store.name is None):
        return keepers(nodes, node.parents[0])
    if isinstance(node, GlobalJoin) or (isinstance(node, TableJoin) and store is None):
        return list(dict.fromkeys(keeper for parent in node.parents for keeper in keepers(nodes, parent)))
    return [name]


def queryable_names(node: Node) -> list[str]:
    """The names under which anything that ``node`` keeps can be queried."""
    specs: list[StoreSpec | None] = [getattr(node, setting, None) for setting in ("store", "other_store")]
    return [spec.name for spec in specs if spec is not None and spec.name is not None]


def inner_store(nodes: Mapping[str, Node], node: Node, part: str) -> str:
    """The name of a store that ``node`` keeps for itself: names that users gave come first."""
    return unique(f"{node.name}.{part}", {store for one in nodes.values() for store in queryable_names(one)})


def history_of(nodes: Mapping[str, Node], name: str) -> int | None:
    """For how long (ms) a table keeps versions; None: it keeps none.

    What is derived row by row from a versioned table is versioned too, unless it has a store of its own (semantics
    2.2.6).
    """
    node = nodes[name]
    spec: StoreSpec | None = getattr(node, "store", None)
    if spec is not None and (spec.history_retention is not None or spec.name is not None):
        return spec.history_retention
    if isinstance(node, Filter | MapValues) and node.shape == "table":
        return history_of(nodes, node.parents[0])
    return None


def keeps_versions(node: Node) -> bool:
    """Whether ``node`` has a versioned store of its own."""
    spec: StoreSpec | None = getattr(node, "store", None)
    return spec is not None and spec.history_retention is not None
