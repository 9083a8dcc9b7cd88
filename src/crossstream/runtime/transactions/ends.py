"""The transactions of a transaction topic that have ended, in order, and what events each has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import polars as pl

from crossstream.runtime.transactions.ahead import PENDING
from crossstream.serdes.debezium.boundaries import Boundaries, Remembered
from crossstream.storage.log_entries import Stand

REMEMBERED = 50_000
"""Records of the topic before the position that are known: a connector that starts again repeats some of these."""

Key = tuple[str, str]
"""A transaction, by the part of its id that events have, and a collection."""


@dataclass(slots=True)
class Ends:
    """Transactions that have ended. A transaction is known by the offset of its first END event: its rank.

    ``position``: the offset behind the END after which the last batch ends; ``end``: up to where the topic is known.
    ``latest``: the time of its last record, in ms; -1: none is known. ``open``: a transaction that has begun after all
    that ended. By transaction: ``lsns``, ``times`` of the database, and ``moments``, the timestamps of the END records.
    """

    position: int
    end: int
    latest: int = -1
    open: str | None = None
    ranks: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    ids: list[str] = field(default_factory=list)
    lsns: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    times: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    moments: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    counted: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """By collection of a transaction, its rank; `names` and `counts` go with it."""
    names: list[str] = field(default_factory=list)
    counts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    repeated: int = 0
    """How many END events came again."""
    _seen: dict[str, int] = field(default_factory=dict)
    _keys: dict[Key, int] = field(default_factory=dict)
    _short: dict[str, int] = field(default_factory=dict)

    def add(self, found: Boundaries, offsets: np.ndarray, times: np.ndarray, end: int) -> None:
        """Takes in the records up to ``end``, which follow. An END that comes again is passed over."""
        self.end = end
        if len(times):
            self.latest, self.open = max(self.latest, int(times.max())), found.open
        ranks = offsets[found.rows].tolist()
        first = list(map(self._seen.setdefault, found.ids, ranks))
        new = np.fromiter(map(int.__eq__, first, ranks), np.bool_, len(ranks))
        self.repeated += len(new) - int(new.sum())
        each = np.repeat(new, found.sizes)
        short = _where(found.short, new)
        names = _where(found.names, each)
        numbers = np.array(ranks, np.int64)
        of_each = np.repeat(numbers, found.sizes)[each]
        shorts = np.repeat(np.array(found.short, np.object_), found.sizes)[each].tolist()
        self._keys.update(zip(zip(shorts, names, strict=True), of_each.tolist(), strict=True))
        self._short.update(zip(short, numbers[new].tolist(), strict=True))
        self.ranks = np.concatenate([self.ranks, numbers[new]])
        self.ids += short
        self.lsns = np.concatenate([self.lsns, found.lsns[new]])
        self.times = np.concatenate([self.times, found.times[new]])
        self.moments = np.concatenate([self.moments, times[found.rows][new]])
        self.counted = np.concatenate([self.counted, of_each])
        self.names += names
        self.counts = np.concatenate([self.counts, found.counts[each]])

    def remember(self, found: Remembered, offsets: np.ndarray, end: int) -> None:
        """Takes in transactions of before the position by their ids alone, for those that come again."""
        self.end = end
        ranks = offsets[found.rows].tolist()
        self._short.update(zip(found.short, map(self._seen.setdefault, found.ids, ranks), strict=True))

    def ranks_of(self, ids: pl.Series, collections: pl.Series, *, one_origin: bool) -> np.ndarray:
        """The ranks of events. ``one_origin``: ids alone say which transaction it is, where END does not count them."""
        texts = ids.to_list()
        keys = zip(texts, collections.to_list(), strict=True)
        found = list(map(self._keys.get, keys, repeat(PENDING)))
        if one_origin and PENDING in found:
            alone = map(self._short.get, texts, repeat(PENDING))
            found = [one if one != PENDING else other for one, other in zip(found, alone, strict=True)]
        return np.array(found, np.int64)

    def advance(self, position: int) -> None:
        """The last batch ends before ``position``; what is long before it is forgotten."""
        self.position = position
        old = int(np.searchsorted(self.ranks, position - REMEMBERED))
        if old > REMEMBERED // 4:
            self._forget(old)

    def _forget(self, old: int) -> None:
        first = int(self.ranks[old]) if old < len(self.ranks) else self.end
        few = int(np.searchsorted(self.counted, first))
        self.ranks, self.lsns = self.ranks[old:], self.lsns[old:]
        self.times, self.moments = self.times[old:], self.moments[old:]
        self.counted, self.counts = self.counted[few:], self.counts[few:]
        self.ids, self.names = self.ids[old:], self.names[few:]
        self._seen = {id: rank for id, rank in self._seen.items() if rank >= first}
        self._keys = {key: rank for key, rank in self._keys.items() if rank >= first}
        self._short = {id: rank for id, rank in self._short.items() if rank >= first}

    def row(self, rank: int) -> int:
        """The row of a transaction in `ranks` and what goes with it."""
        return int(np.searchsorted(self.ranks, rank))

    @property
    def first_new(self) -> int:
        """The row of the first transaction after the last batch."""
        return self.row(self.position)

    def stand(self, rank: int, collections: dict[str, tuple[str, ...]]) -> Stand:
        """Where a batch stands that ends behind a transaction."""
        row = self.row(rank)
        lsn = int(self.lsns[row])
        return Stand(rank + 1, self.ids[row], None if lsn < 0 else lsn, int(self.times[row]), collections)

    def has(self, id: str) -> bool:
        """Whether a transaction has ended; its id is the part that events have."""
        return id in self._short

    def id(self, rank: int) -> str:
        """The id of a transaction."""
        return self.ids[self.row(rank)]


def _where(values: Sequence[str], rows: np.ndarray) -> list[str]:
    return list(np.array(values, np.object_)[rows]) if len(values) else []
