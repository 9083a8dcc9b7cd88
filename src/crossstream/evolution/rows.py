"""Where the rows come from that a change needs: out of old stores, computed from such, or read again from topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from crossstream.error_codes import refuse
from crossstream.evolution.decision import StoredTable
from crossstream.evolution.old_state import OldState, same_but_types
from crossstream.graph.node import Graph, Node, lineage
from crossstream.storage.noted import NotedNode, NotedStore

Way = Literal["rows", "computed", "read", "replayed"]
"""How a node's rows are had: out of a store; from those of its parents; from its topic; or with all above it, from
topics, as what comes out depends on the order in which records came."""
_UNSTORED = "no store has its rows as the new code needs them"


@dataclass(frozen=True, slots=True)
class Needs:
    """What has to be computed, each with the reason in words.

    ``keepers``: operators with stores that are rebuilt, and these stores. ``tables``: those of changed results.
    ``events``: sinks whose events are sent again.
    """

    keepers: Mapping[str, Collection[NotedStore]]
    tables: Collection[str]
    events: Collection[str]
    why: Mapping[str, str]


@dataclass(slots=True)
class Origins:
    """Finds for each node where its rows come from. ``noted``: the new operators, with the meanings to compare by.

    ``sources``: new sources, with the old ones that they are. ``marked``: operators that are computed again.
    ``rows``, ``read``: what was found, by node.
    """

    topology: Graph
    noted: Mapping[str, NotedNode]
    old: OldState
    sources: Mapping[str, str]
    marked: Collection[str] = ()
    rows: dict[str, StoredTable] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    _ways: dict[str, Way] = field(default_factory=dict)
    _headers: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._headers = _with_headers(self.topology)

    def find(self, needs: Needs) -> None:
        """Finds the rows that these need. Raises `StateError` CS-751 for rows that cannot be had."""
        cut = {name for name, stores in needs.keepers.items() if self._is_copied(name, stores)}
        run = [name for name in needs.keepers if name not in cut]
        replayed = [name for name in run if self._computed(self.topology[name]) == "replayed"]
        replayed += [name for name in (*needs.tables, *cut) if self.way(name) == "replayed"]
        replayed += needs.events
        for name in replayed:
            self._replay(name, needs.why[name])
        whole = {node.name for node in lineage(self.topology.nodes, replayed)}
        for name in run:
            for parent in self.topology[name].parents:
                self._need(parent, whole, needs.why[name])
        for name in (*needs.tables, *cut):
            self._need(name, whole, needs.why[name])

    def way(self, name: str) -> Way:
        """How the rows of a node are had."""
        if name not in self._ways:
            self._ways[name] = self._way(self.topology[name])
        return self._ways[name]

    def stored(self, name: str) -> StoredTable | None:
        """The old store with the rows of a node, if there is one."""
        node = self.topology[name]
        if node.shape not in ("table", "global") or name in self.marked:
            return None
        found = self.old.rows_of(self.noted[name].meaning, headers=name in self._headers)
        return found or self._of_topic(node)

    def _is_copied(self, name: str, stores: Iterable[NotedStore]) -> bool:
        """Whether the stores of a node have its rows and no more, so that other rows of it fill them."""
        return self.topology[name].reads_input or (
            all(not one.part and one.kind.startswith("key-value") for one in stores)
            and self.stored(name) is not None
        )

    def _way(self, node: Node) -> Way:
        if self.stored(node.name) is not None:
            return "rows"
        if node.reads_input:
            return "read" if node.shape != "stream" else "replayed"
        return self._computed(node)

    def _computed(self, node: Node) -> Way:
        if node.reads_input:
            return self.way(node.name)
        follows = node.from_rows and all(self.way(name) != "replayed" for name in node.parents)
        return "computed" if follows else "replayed"

    def _need(self, name: str, whole: Collection[str], why: str) -> None:
        """Notes where the rows of a node come from, and of those that they are computed from."""
        if name in whole or name in self.rows or name in self.read:
            return
        node, stored = self.topology[name], self.stored(name)
        if stored is not None:
            self.rows[name] = stored
        elif node.reads_input:
            first = "it is read for the first time" if name not in self.sources else _UNSTORED
            self._read(node, f"{first}, and {why}")
        else:
            for parent in node.parents:
                self._need(parent, whole, why)

    def _replay(self, name: str, why: str) -> None:
        """A node below a stream is read again from topics with all that is above it, tables too."""
        for node in lineage(self.topology.nodes, [name]):
            if node.reads_input:
                self._read(node, f"{why}, from every record that came")

    def _read(self, node: Node, why: str) -> None:
        if not node.reads_topics:
            what = f"the rows of the DataFrame {node.name!r} are needed again, and it cannot be read again: {why}"
            raise refuse("CS-751", what, **node.where)
        self.read.setdefault(node.name, why)

    def _of_topic(self, node: Node) -> StoredTable | None:
        """The rows of a source table as the topic has them, read with another type of values.

        Stores keep the bytes of the records that they were read from; the rows of change events have bytes of their
        own, and so have values that came as columns.
        """
        name = self.sources.get(node.name)
        if name is None or not node.reads_topics or not node.is_of_bytes:
            return None
        if node.depends_on_time or node.key is None or node.value is None:
            return None
        before = self.old.noted.node(name)
        if not same_but_types(before, self.noted[node.name]):
            return None
        for store, one in self.old.holding(name, headers=node.name in self._headers):
            found = self.old.table(store, node.key, node.value)
            if (found.by_second_key or one.key == before.key) and one.value == before.value:
                return found
        return None


def _with_headers(topology: Graph) -> frozenset[str]:
    """The tables whose rows need their headers, for results have them."""
    found: set[str] = set()
    for node in reversed(list(topology)):
        if node.rows_with_headers:
            found.update(node.rows_with_headers)
        elif node.name in found:
            found.update(node.parents)
    return frozenset(found)
