"""Which columns of a store are the key, the value and the time of a row, as a record of its table has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossstream.planning.layouts import (
    ORDERED_ROWS,
    SESSIONS,
    SUBSCRIPTIONS,
    VERSIONED,
    WINDOWED,
    read_as,
)
from crossstream.records import RECORDS
from crossstream.serdes.arrays import from_fixed_rows, joined
from crossstream.storage.columns import Columns as Held
from crossstream.storage.sorted_run import Layout

_ROWS = frozenset(
    {"key-value", VERSIONED.kind, SUBSCRIPTIONS.kind, WINDOWED.kind, SESSIONS.kind, ORDERED_ROWS.kind}
)
"""The kinds of stores that have the rows of a table, without what they keep beside these."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of a store as those of records.

    ``key``: the name of the column with the key of the row. ``window``: the columns with the ends and starts of windows
    that belong to the key. ``time``: of the timestamps, in ms. ``identity``: by which a newer row replaces an older
    one. ``is_timed``: a key has a row for each time at which its value changed.
    """

    key: str
    time: str
    identity: tuple[str, ...]
    window: tuple[str, ...] = ()
    has_headers: bool = False
    is_timed: bool = False

    def records(self, held: Held, offsets: np.ndarray) -> pa.RecordBatch:
        """Rows as `RECORDS`."""
        headers = held["headers"] if self.has_headers else pa.nulls(len(offsets), pa.large_binary())
        columns = [self._keys(held), held["value"], pa.array(held[self.time]), pa.array(offsets), headers]
        return pa.RecordBatch.from_arrays(columns, schema=RECORDS)

    def _keys(self, held: Held) -> pa.Array:
        if not self.window:
            return held[self.key]
        numbers = np.column_stack([held[name] for name in self.window]).astype(">i8")
        tails = from_fixed_rows(numbers.view(np.uint8).ravel(), 8 * len(self.window), None)
        return joined(held[self.key], tails)


def columns_of(layout: Layout) -> RecordColumns | None:
    """The columns of a layout; None for stores that have no rows of a table."""
    kind = read_as(layout.kind)
    is_many = layout.kind.startswith("rows(")
    if not is_many and kind not in _ROWS:
        return None
    identity = tuple(name for name in layout.names if name in ("h", "s", "key", "key2"))
    time = {VERSIONED.kind: "s", ORDERED_ROWS.kind: "seen"}.get(kind, "ts")
    window = {WINDOWED.kind: ("s",), SESSIONS.kind: ("s", "start")}.get(kind, ())
    return RecordColumns(
        "key2" if layout.second_key else "key",
        time,
        identity,
        window,
        "headers" in layout.names,
        layout.versioned,
    )
