"""The state before a change: which of its stores has the rows of a table, and whether it has all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from crossstream.evolution.decision import StoredTable
from crossstream.graph.noting import serde_text
from crossstream.planning.layouts import REFERENCES, layout_of
from crossstream.planning.plan import Plan
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import take, valid
from crossstream.storage.files import in_threads
from crossstream.storage.log_entries import Application, Commit
from crossstream.storage.manifest import Manifest, read_manifest
from crossstream.storage.noted import NotedNode, NotedStore, NotedTopology
from crossstream.storage.root import StateRoot, state_partition
from crossstream.storage.store import load_version

_SUBSCRIBED = ("subscriptions", "subscriptions+headers")
"""Kinds of stores with the rows of a left table that have a foreign key, under that key and their own."""
_ROWS = ("key-value", "key-value+headers", "aggregates", "rows", *_SUBSCRIBED)
"""Kinds of stores with rows of a table as they are now."""


@dataclass(frozen=True, slots=True)
class OldState:
    """State as it was noted, and its last commit. ``serdes``: those of the new code, by what is noted of them."""

    root: StateRoot
    application: Application
    commit: Commit
    serdes: Mapping[str, EngineSerde]
    _whole: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, root: StateRoot, application: Application, commit: Commit, plan: Plan) -> OldState:
        return cls(root, application, commit, serdes_of(plan))

    @property
    def noted(self) -> NotedTopology:
        return self.application.topology

    def rows_of(self, meaning: str, *, headers: bool = False) -> StoredTable | None:
        """The store with the rows of a table of this meaning, read with the serdes that wrote them.

        ``headers``: with their headers, too. The first key of a subscription is a foreign key; the second is the row's.
        """
        for node in self.noted.nodes:
            if node.meaning == meaning and node.shape in ("table", "global"):
                for name, store in self.holding(node.name, headers=headers):
                    own_key = node.key if base(store.kind) in _SUBSCRIBED else store.key
                    key, value = self.serdes.get(own_key), self.serdes.get(store.value)
                    if key is not None and value is not None:
                        return self.table(name, key, value)
        return None

    def holding(self, node: str, *, headers: bool = False) -> Iterator[tuple[str, NotedStore]]:
        """The stores that have all rows of a table as they are now, those that need no look first."""
        known = self.noted.stores.items()
        found = [(name, one) for name, one in known if one.holds == node and _fits(one.kind, headers)]
        for name, store in sorted(found, key=lambda one: base(one[1].kind) in _SUBSCRIBED):
            if self.is_whole(name, store):
                yield name, store

    def table(self, name: str, key: EngineSerde, value: EngineSerde) -> StoredTable:
        kind = self.noted.stores[name].kind
        return StoredTable(name, key, value, kind, by_second_key=base(kind) in _SUBSCRIBED)

    def is_whole(self, name: str, store: NotedStore) -> bool:
        """Whether a store has all rows of its table: subscriptions lack those without a foreign key."""
        if base(store.kind) not in _SUBSCRIBED:
            return True
        if name not in self._whole:
            beside = [
                other
                for other, one in self.noted.stores.items()
                if one.node == store.node and one.part == "references"
            ]
            self._whole[name] = bool(beside) and not any(map(self._lacks_keys, beside))
        return self._whole[name]

    def _lacks_keys(self, name: str) -> bool:
        """Whether a row has no foreign key, by the store of these."""
        for partition, manifest in self.commit.versions.get(name, {}).items():
            with state_partition(self.root, name, partition) as storage:
                view = load_version(storage, REFERENCES, manifest).snapshot()
            for run in view.segments():
                lacking = np.flatnonzero(~valid(run["reference"]) & (run["gone"] == 0))
                if len(lacking):
                    order = np.argsort(run["h"][lacking], kind="stable")
                    lacking = lacking[order]
                    match = view.lookup(run["h"][lacking], take(run["key"], lacking))
                    if (match.found & ~valid(match.gather("reference"))).any():
                        return True
        return False


def manifests_of(root: StateRoot, store: str, versions: Mapping[int, str]) -> list[Manifest]:
    """The manifests of a store. Raises `StateError` CS-701 with the state partition of one that cannot be read."""

    def one(partition: int) -> Manifest:
        with state_partition(root, store, partition) as storage:
            return read_manifest(storage, versions[partition])

    return in_threads(one, versions)


def _fits(kind: str, headers: bool) -> bool:
    return base(kind) in _ROWS and (not headers or kind.endswith("+headers"))


def base(kind: str) -> str:
    """The kind of a layout, without the names of its columns.

    >>> base("rows(customer,shop)"), base("key-value+headers"), base("aggregates(0:int64)")
    ('rows', 'key-value+headers', 'aggregates')
    """
    return kind.partition("(")[0]


def is_known(kind: str) -> bool:
    """Whether this version reads stores of a kind."""
    layout = layout_of(kind)
    return layout is not None and layout.is_known


def serdes_of(plan: Plan) -> dict[str, EngineSerde]:
    """Every serde of a plan, by what is noted of it."""
    given: list[EngineSerde | None] = []
    given += [serde for store in plan.stores.values() for serde in (store.key, store.value)]
    given += [serde for flow in plan.flows.values() for serde in (flow.key, flow.value)]
    for node in plan.topology:
        given += [node.key, node.value, node.key_type, node.value_type]
    return {serde_text(serde): serde for serde in given if serde is not None}


def same_but_types(old: NotedNode, new: NotedNode) -> bool:
    """Whether two sources read the same records, and declare other types of their values at most."""
    return _without_types(old) == _without_types(new)


def _without_types(node: NotedNode) -> tuple[object, ...]:
    """What a source is, without the type of its values."""
    return (node.kind, node.shape, node.topics, node.key, node.settings, node.functions)
