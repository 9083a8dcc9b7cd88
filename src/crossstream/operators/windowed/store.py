"""The store of windows in a batch: keys and positions, which are starts, of sessions ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from crossstream.columns.changes import Changes
from crossstream.operators.aggregate.kernel import END, GROUP, START, put
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column, take_all
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import begins_of


@dataclass(frozen=True, slots=True)
class StoredWindows:
    """``horizon``: the oldest position of its windows, but for those that are remembered.

    ``retention``: how long (ms) it keeps windows; None: for good. ``final``: windows come out when they have closed.
    """

    view: Snapshot
    serde: EngineSerde
    horizon: int
    retention: int | None
    final: bool

    def put(self, net: Changes, hashes: np.ndarray) -> None:
        """Keeps aggregates; a null one deletes its row. ``net``: one row for each window, in the form of the store."""
        (_put_sessions if "start" in self.view.layout.names else put)(self.view, net, hashes)

    def between(self, low: int, high: int) -> dict[str, Column] | None:
        """The windows from one position to another, by position, start and key; None if there are none."""
        columns = self.view.live_between(low, high)
        if not len(columns["h"]):
            return None
        keys = pl.Series(pl.from_arrow(columns["key"])).rank("dense").to_numpy()
        order = (keys, columns["s"]) if "start" not in columns else (keys, columns["start"], columns["s"])
        return take_all(columns, np.lexsort(order))

    def count(self, low: int, high: int) -> int:
        """The number of windows from one position up to another one."""
        return len(self.view.live_between(max(low, 0), high - 1)["h"]) if low < high else 0


def _put_sessions(view: Snapshot, net: Changes, hashes: np.ndarray) -> None:
    """Keeps sessions by key and end: a tombstone counts unless another session has the same end now."""
    missing = net.value.missing()
    order = np.lexsort((missing, net.extra[END], net.extra[GROUP]))
    net, missing, hashes = net.take(order), missing[order], hashes[order]
    group, ends = np.asarray(net.extra[GROUP]), np.asarray(net.extra[END])
    first = begins_of(group, ends)
    net, missing, hashes = net.where(first), missing[first], hashes[first]
    columns: dict[str, Column] = {
        "h": hashes,
        "s": np.asarray(net.extra[END]),
        "key": net.key.wire(),
        "value": net.value.wire(),
        "ts": net.ts,
        "start": np.asarray(net.extra[START]),
        "gone": missing.astype(np.uint8),
    }
    columns.update({name: net.extra[name] for name, _ in view.layout.values if name not in columns})
    view.put(columns)
