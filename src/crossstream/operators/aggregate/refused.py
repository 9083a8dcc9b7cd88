"""The rows of a table that an adder refused, where bad records are skipped: they are in no aggregate.

Story: the adder fails on row r2 with 13, and the record is skipped. Then r2 becomes 5. Taking 13 away would make the
aggregate too small, for it was never added; so that half of the change is passed over, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.hashing import hash_keys
from crossstream.operators.aggregate.kernel import ROW_KEY, GroupedRows
from crossstream.storage.columns import take
from crossstream.storage.snapshot import Snapshot

NOT_ADDED = "not-added"
"""The reason under which rows are counted that are not taken away."""

RefusedRow: TypeAlias = tuple[int, bytes]
"""The number of a group, and the serialised key of a row in the table."""

_CHUNK = 1 << 18


@dataclass(slots=True)
class RefusedRows:
    """``view``: the store; ``groups``: those of the batch. ``passed``: the rows so far that were not taken away."""

    view: Snapshot
    groups: GroupedRows
    bits: int
    passed: int = 0
    _held: set[RefusedRow] = field(default_factory=set)
    _now: set[RefusedRow] = field(default_factory=set)

    def begin(self) -> bool:
        """Reads the rows of the batch's groups; whether there are any."""
        self.passed, self._held = 0, set()
        for queries, columns in self.view.scan(self.groups.hashes, self.groups.keys, _CHUNK):
            self._held.update(zip(queries.tolist(), columns["key2"].to_pylist(), strict=True))
        self._now = set(self._held)
        return bool(self._held)

    def keys(self, rows: Changes) -> list[bytes]:
        """The keys of the rows in the table."""
        keys: list[bytes] = rows.extra[ROW_KEY].to_pylist()
        return keys

    def add(self, row: RefusedRow) -> None:
        """Notes that the adder refused a row."""
        self._now.add(row)

    def passes(self, row: RefusedRow) -> bool:
        """Whether a row was refused, and so is not taken away; it is known no longer."""
        if row not in self._now:
            return False
        self._now.remove(row)
        self.passed += 1
        return True

    def put(self) -> None:
        """Keeps what is refused at the end of the batch."""
        changed = sorted(self._held ^ self._now)
        if not changed:
            return
        group = np.array([group for group, _ in changed])
        keys = pa.array([key for _, key in changed], pa.large_binary())
        self.view.put(
            {
                "h": self.groups.hashes[group],
                "s": hash_keys(keys, self.bits),
                "key": take(self.groups.keys, group),
                "key2": keys,
                "gone": np.array([row not in self._now for row in changed], np.uint8),
            }
        )
