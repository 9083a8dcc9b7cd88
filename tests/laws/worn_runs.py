"""What the laws of expiry share: small runs, too, are written anew when they have mostly expired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from crossstream.storage import compaction as expiry
from crossstream.storage import store as state_store
from crossstream.storage.compaction import Part


@contextmanager
def small_runs_count() -> Iterator[list[int]]:
    """Sizes are as if a run of two rows were a large one; gives the rows of each run that is written anew."""
    found: list[int] = []
    worn_run = state_store.worn_run

    def noted(parts: Sequence[Part], horizon: int) -> int | None:
        place = worn_run(parts, horizon)
        if place is not None:
            found.append(parts[place].rows)
        return place

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiry, "FEW", 1)
        patch.setattr(state_store, "SEGMENT_ROWS", 3)
        patch.setattr(state_store, "worn_run", noted)
        yield found
