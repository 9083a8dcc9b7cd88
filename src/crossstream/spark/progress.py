"""What the last batch of an application did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Progress:
    """The last batch: rows by operator, dropped rows by operator and reason, milliseconds by phase.

    ``state_rows``, ``state_bytes``: what each store holds on disk, rows that wait to be merged away among them.
    ``lag``: records that were there when the batch was planned and are left. Totals: since the start.
    """

    batch: int = -1
    rows: int = 0
    seconds: float = 0.0
    rows_in: dict[str, int] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    state_rows: dict[str, int] = field(default_factory=dict)
    state_bytes: dict[str, int] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    lag: int = 0
    total_rows: int = 0
    total_dropped: dict[str, int] = field(default_factory=dict)


def by_store(places: Mapping[str, tuple[int, int]], which: int = 0) -> dict[str, int]:
    """Sums over the partitions; ``places``: (rows, bytes) by ``store/partition``; ``which``: 0 rows, 1 bytes."""
    found: dict[str, int] = {}
    for place, numbers in places.items():
        store = place.rpartition("/")[0]
        found[store] = found.get(store, 0) + numbers[which]
    return found
