"""Change events of a database, one after the other: what the table holds after each of them.

c, r, u     the row after the change; a value that is left out is the one before
d, null     no row
behind      an event with a smaller place in the log than one before of its key: nothing
unknown     a value is left out, the field may not be null, and no row is there that has it: nothing, counted
"""

from __future__ import annotations

from collections import Counter
from typing import Any

LEFT_OUT = "__debezium_unavailable_value"


class Rows:
    """The rows by key."""

    def __init__(self, ordered: bool) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        self.newest: dict[Any, int] = {}
        self.ordered = ordered
        self.truncated_at = -1
        self.dropped: Counter[str] = Counter()

    def truncate(self, position: int) -> None:
        self.truncated_at = max(self.truncated_at, position)
        self.rows = {
            key: row for key, row in self.rows.items() if self.newest.get(key, -1) >= self.truncated_at
        }

    def apply(self, op: str, key: Any, row: dict[str, Any] | None, position: int | None) -> None:
        """``op``: that of the event, or "tombstone"."""
        if op == "tombstone":
            if self.ordered:
                self.dropped["tombstone"] += 1
            else:
                self.rows.pop(key, None)
            return
        if self.ordered and position is not None:
            if position < max(self.newest.get(key, position), self.truncated_at):
                self.dropped["out-of-order-event"] += 1
                return
            self.newest[key] = position
        elif self.ordered:
            self.newest[key] = max(self.newest.get(key, -1), self.truncated_at)
        if op == "d":
            self.rows.pop(key, None)
            return
        assert row is not None
        before = self.rows.get(key)
        made = {}
        for name, value in row.items():
            if value != LEFT_OUT:
                made[name] = value
            elif before is not None:
                made[name] = before[name]
            else:
                self.dropped["failed"] += 1
                return
        self.rows[key] = made
