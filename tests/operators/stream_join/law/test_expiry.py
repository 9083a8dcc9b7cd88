"""Stores of records by time: rows before the horizon are gone for anybody, and no others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossstream.columns.hashing import partition_of
from crossstream.planning.layouts import WINDOW
from crossstream.runtime.rescaling import Placement, Save
from crossstream.storage.sorted_run import Run, sort_rows
from crossstream.storage.store import Segment, StoreUpdate, Version, advance, saver
from tests.laws.effort import law
from tests.laws.rescaling import cut
from tests.laws.worn_runs import small_runs_count
from tests.storage.rows import KEYS, Memory, window_rows

Step = tuple[list[tuple[bytes, int]], int]
"""Records of a batch, with their timestamps after the horizon, and how far it moves then."""
Row = tuple[bytes, int, int]
"""Key, timestamp, number."""

some_rows = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 12)), max_size=8)
some_steps = st.lists(st.tuples(some_rows, st.integers(0, 6)), min_size=1, max_size=14)
some_bits = st.sampled_from([64, 4])


class Life:
    """A store through some batches, and beside it all the rows that were put into it."""

    def __init__(self, bits: int, save: Save = Segment) -> None:
        self.version = Version(WINDOW)
        self.put: list[Row] = []
        self._bits = bits
        self._save = save

    def step(self, batch: int, records: Sequence[tuple[bytes, int]], moves: int) -> None:
        horizon = self.version.horizon
        rows = [(key, horizon + after) for key, after in records]
        fresh = sort_rows(window_rows(rows, len(self.put), self._bits)) if rows else None
        self.put += [(key, ts, len(self.put) + n) for n, (key, ts) in enumerate(rows)]
        self.version = advance(
            self.version, StoreUpdate(fresh, -1, batch, horizon=horizon + moves), self._save
        )

    @property
    def there(self) -> list[Row]:
        """The rows that have not expired."""
        return sorted(row for row in self.put if row[1] >= self.version.horizon)


def rows_of(version: Version) -> list[Row]:
    """All rows whose bytes are there."""
    runs = [segment.run for part in version.parts for segment in part.segments]
    return sorted(
        row
        for run in runs
        for row in zip(run["key"].to_pylist(), run["s"].tolist(), run["n"].tolist(), strict=True)
    )


def unexpired(version: Version) -> list[Row]:
    return [row for row in rows_of(version) if row[1] >= version.horizon]


def test_no_row_goes_before_its_time() -> None:
    """Whatever is merged, and whatever is rewritten because it has mostly expired."""

    @law
    @given(some_steps, some_bits, st.booleans())
    def check(steps: list[Step], bits: int, stored: bool) -> None:
        life = Life(bits, saver(Memory(), "run") if stored else Segment)
        for batch, (records, moves) in enumerate(steps):
            life.step(batch, records, moves)
            assert unexpired(life.version) == life.there

    with small_runs_count() as rewritten:
        check()
    assert len(rewritten) > law.max_examples


def by_first(partitions: int) -> Placement:
    def places(run: Run) -> np.ndarray:
        return np.array([key[0] % partitions for key in run["key"].to_pylist()])

    return places


@law
@given(some_steps, some_bits, st.lists(st.integers(1, 5), min_size=1, max_size=3), st.booleans())
def test_other_partitions_take_over_what_has_not_expired(
    steps: list[Step], bits: int, numbers: list[int], placed: bool
) -> None:
    life, before = Life(bits), 1
    for batch, (records, moves) in enumerate(steps):
        life.step(batch, records, moves)
    held = {0: life.version}
    for after in numbers:
        held, before = cut(held, before, after, by_first(after) if placed else None), after
        assert sorted(row for version in held.values() for row in rows_of(version)) == life.there
        for pid, version in held.items():
            for part in version.parts:
                for segment in part.segments:
                    places = by_first(after)(segment.run) if placed else partition_of(segment.run["h"], after)
                    assert (places == pid).all()
