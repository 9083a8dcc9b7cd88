"""A transaction that is too large to wait for: it is taken in parts, and the application says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from crossstream.runtime.transactions.ahead import Ahead, Events
from crossstream.storage.log_entries import Stand
from crossstream.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a transaction. ``ends``: where the batch ends; ``taken``: events of the part, by collection."""

    transaction: str
    ends: dict[TopicPartition, int]
    taken: Mapping[str, int]

    def stand(self, before: Stand, collections: dict[str, tuple[str, ...]]) -> Stand:
        """Where a batch stands that ends in the transaction: as the one before, and it is split."""
        earlier = before.taken if before.split == self.transaction else {}
        taken = {name: earlier.get(name, 0) + self.taken.get(name, 0) for name in {*earlier, *self.taken}}
        return Stand(
            before.position, before.transaction, before.lsn, before.time, collections, self.transaction, taken
        )


def split_of(
    transaction: str, rank: int, parts: Sequence[Ahead], names: Mapping[int, str], most: int
) -> Split:
    """The next part: about ``most`` records, of no later transaction. ``names``: of collections, by their codes.

    ``rank``: of the transaction, `PENDING` if it has not ended.
    """
    rows = [_rows(ahead.events, transaction, rank) for ahead in parts]
    total = sum(rows)
    share = [count if total <= most else -(-count * most // total) for count in rows]
    ends, counted = {}, list[pl.DataFrame]()
    for ahead, count in zip(parts, share, strict=True):
        events = ahead.events.part(0, count)
        whole = count == len(ahead.events.offsets)
        ends[ahead.tp] = ahead.end if whole else int(ahead.events.offsets[count])
        mine = (events.ids == transaction).fill_null(value=False).to_numpy()
        counted.append(pl.DataFrame({"code": events.codes[mine], "order": events.orders[mine]}))
    taken = pl.concat(counted).unique().group_by("code").len()
    return Split(transaction, ends, {names[code]: count for code, count in taken.iter_rows()})


def _rows(events: Events, transaction: str, rank: int) -> int:
    """How many records are in front of the first event of a later transaction."""
    own = (events.ids == transaction).fill_null(value=True).to_numpy()
    later = np.flatnonzero(~own & (events.ranks >= rank))
    return int(later[0]) if len(later) else len(events.offsets)
