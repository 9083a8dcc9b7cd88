"""Few events over a long time: many windows and sessions."""

from __future__ import annotations

import polars as pl
from benchmarks.nexmark.events import START_MS, Events, events

FACTOR = 60


def stretched(count: int, seed: int = 1) -> Events:
    """Events as generated, with 60 times as much time between them."""
    times = {name: START_MS + (pl.col(name) - START_MS) * FACTOR for name in ("dateTime", "expires")}
    return Events(
        *(
            rows.with_columns(**{name: of for name, of in times.items() if name in rows.columns})
            for _, rows in events(count, seed).tables()
        )
    )
