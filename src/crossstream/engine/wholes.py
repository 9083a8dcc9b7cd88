"""Global tables as the tasks of a batch see them: all partitions, read-only, in files they share (decision 0020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from crossstream.algebra.change import Changes
from crossstream.algebra.history import History
from crossstream.algebra.whole_table import WholeTable
from crossstream.engine.batch import Batch
from crossstream.engine.stores import FolderStores, MemoryStores
from crossstream.state.manifest import PieceRef
from crossstream.state.view import View
from crossstream.topology.plan import Plan, StoreDef


@dataclass(slots=True)
class Wholes:
    """The global tables of a batch, opened when they are first looked up.

    ``stores``: none that anything is written through, so that versions before the batch stay open in it.
    """

    plan: Plan
    batch: Batch
    stores: MemoryStores | FolderStores
    _opened: dict[str, WholeTable] = field(default_factory=dict)
    _changes: dict[str, Changes | None] = field(default_factory=dict)

    def open(self, name: str) -> WholeTable:
        """A table as it was before the batch, with the changes that the batch makes to it."""
        if name not in self._opened:
            store, places = self.plan.stores[name], range(self.batch.partitions)
            manifests, histories = self.batch.versions.get(name, {}), self.batch.histories.get(name, {})
            self._opened[name] = WholeTable(
                [self.stores.open(store, place, manifests.get(place)).view() for place in places],
                [self._history(store, place, histories.get(place)) for place in places],
                store.key,
                store.value,
            )
        return self._opened[name]

    def opened(self) -> Iterator[tuple[StoreDef, View]]:
        """The state partitions of the tables that have been looked up, as they were before the batch."""
        for name, table in self._opened.items():
            yield from ((self.plan.stores[name], view) for view in table.views)

    def changes(self, name: str) -> Changes | None:
        """The last change that the batch makes of each key of a table, in order of the hash; None if there is none."""
        if name not in self._changes:
            self._changes[name] = self.open(name).changes()
        return self._changes[name]

    def _history(self, store: StoreDef, place: int, ref: PieceRef | None) -> History | None:
        return None if ref is None else History.from_run(self.stores.recall(store, place, ref))
