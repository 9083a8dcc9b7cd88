"""Suppression and deduplication as plain Python, one record after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Suppression:
    """One task of Kafka's ``KTableSuppressProcessorSupplier``. ``changes``: (key, value, timestamp)."""

    duration: int
    time_of: Callable[[Any, int], int] = lambda key, ts: ts
    final: bool = False
    max_records: int | None = None
    clock: int = -1
    waiting: dict[Any, list[Any]] = field(default_factory=dict)
    out: list[tuple[Any, Any, int]] = field(default_factory=list)

    def process(self, key: Any, wire: bytes, value: Any, ts: int) -> None:
        self.clock = max(self.clock, ts)
        time = self.waiting[key][0] if key in self.waiting else self.time_of(key, ts)
        self.waiting[key] = [time, wire, value, ts]
        self.advance(ts)
        while self.max_records is not None and len(self.waiting) > self.max_records:
            self.leave()

    def advance(self, ts: int) -> None:
        """Stream time is at least ``ts``: with a change that is here, or in another state partition."""
        self.clock = max(self.clock, ts)
        while self.waiting and self.oldest()[0] <= self.clock - self.duration:
            self.leave()

    def oldest(self) -> tuple[int, bytes, Any]:
        return min((time, wire, key) for key, (time, wire, _, _) in self.waiting.items())

    def leave(self) -> None:
        key = self.oldest()[2]
        _, _, value, ts = self.waiting.pop(key)
        if not (self.final and value is None):
            self.out.append((key, value, ts))


def deduplicated(records: Sequence[tuple[Any, Any, int]], within: int) -> list[tuple[Any, Any, int]]:
    """What is left of the records (id, value, timestamp) of one task. A record without an id always stays."""
    kept: dict[Any, list[int]] = {}
    clock, out = -1, []
    for key, value, ts in records:
        clock = max(clock, ts)
        seen = [one for one in kept.get(key, []) if one >= clock - within]
        if key is not None and any(abs(one - ts) <= within for one in seen):
            continue
        kept.setdefault(key, []).append(ts)
        out.append((key, value, ts))
    return out
