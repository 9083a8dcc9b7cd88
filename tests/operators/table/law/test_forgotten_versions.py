"""A versioned store forgets what nobody can ask for any more: no more than that, and no less in the long run."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.columns.hashing import hash_keys
from crossstream.planning.layouts import VERSIONED
from crossstream.storage.compaction import Part, remembered
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import sort_rows
from crossstream.storage.store import (
    Segment,
    StoreUpdate,
    Version,
    advance,
    load_version,
    saver,
    store_version,
)
from crossstream.tables.rows import version_at
from tests.laws.effort import cases
from tests.laws.rescaling import cut
from tests.storage.rows import KEYS, Memory, binary, version_rows

HISTORY = 4
LATEST = np.iinfo(np.int64).max
DELETED = (b"0", 0, None)

Put = tuple[bytes, int, bytes | None]
"""Key, timestamp against stream time, value."""
Rows = dict[tuple[bytes, int], bytes | None]

puts = st.tuples(st.sampled_from(KEYS[:3]), st.integers(-HISTORY, 3), st.sampled_from([None, b"x", b"y"]))
steps = st.lists(st.lists(puts, max_size=4), min_size=12, max_size=30)


class Life:
    """A versioned store through some batches, and beside it all versions that it accepted."""

    def __init__(self, bits: int) -> None:
        self.version = Version(VERSIONED)
        self.put: Rows = {}
        self.time = 0
        self._bits = bits
        self._storage = Memory()
        self._batches = count()

    def step(self, given_: list[Put]) -> None:
        batch, rows = next(self._batches), self._accepted(given_)
        fresh = sort_rows(version_rows(rows, self._bits)) if rows else None
        save = saver(self._storage, f"{batch:03d}")
        self.version = advance(self.version, StoreUpdate(fresh, self.time, batch), save, history=HISTORY)
        self.put |= rows

    def _accepted(self, given_: list[Put]) -> Rows:
        rows: Rows = {}
        for key, after, value in given_:
            rows[key, max(self.time + after, 0)] = value
            self.time = max(self.time, self.time + after)
        return {row: value for row, value in rows.items() if row[1] >= self.time - HISTORY}

    def reloaded(self) -> Version:
        name = f"{self.version.batch:03d}.manifest"
        stored = store_version(self.version, self._storage, name)
        return load_version(self._storage, VERSIONED, stored.name or "")

    def check(self) -> None:
        """Every time that can be asked for has the value it had, and so has now; and what is late is so still."""
        for time in (*range(max(self.time - HISTORY, 0), self.time + 1), LATEST):
            found = version_at(self.version.snapshot(), *self._keys(), np.full(len(KEYS), time), None)
            values = dict(zip(self._sorted(), found.values.wire().to_pylist(), strict=True))
            assert values == {key: valid(self.put, key, time)[1] for key in KEYS}, time
            if time == LATEST:
                for key, ts in zip(self._sorted(), found.ts.tolist(), strict=True):
                    oldest = self.time - HISTORY
                    assert max(ts, oldest) == max(valid(self.put, key, time)[0], oldest), key

    def _sorted(self) -> list[bytes]:
        return [KEYS[n] for n in np.argsort(hash_keys(binary(KEYS), self._bits), kind="stable")]

    def _keys(self) -> tuple[np.ndarray, object]:
        keys = binary(self._sorted())
        return hash_keys(keys, self._bits), keys


def valid(rows: Mapping[tuple[bytes, int], bytes | None], key: bytes, time: int) -> tuple[int, bytes | None]:
    """The version of a key at a time: since when, and its value."""
    ts = max((ts for k, ts in rows if k == key and ts <= time), default=-1)
    return ts, rows.get((key, ts))


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merges of a few rows a step, so that several are under way at once."""
    monkeypatch.setattr("crossstream.storage.store.SEGMENT_ROWS", 6)


@cases(0.5)
@given(steps, st.sampled_from([64, 4, 1]), st.booleans())
@example([[DELETED]] + [[(b"1", 1, b"x")]] * 30, 64, False)
def test_what_can_be_asked_for_stays(given_: list[list[Put]], bits: int, again: bool) -> None:
    life = Life(bits)
    for puts_ in given_:
        life.step(puts_)
        life.check()
        if again:
            life.version = life.reloaded()
            life.check()


@cases(0.5)
@given(steps, st.sampled_from([64, 4]))
def test_a_version_read_anew_goes_on_like_the_one_in_memory(given_: list[list[Put]], bits: int) -> None:
    held, read = Life(bits), Life(bits)
    for puts_ in given_:
        held.step(puts_)
        read.step(puts_)
        read.version = read.reloaded()
        assert shape(held.version) == shape(read.version)


def shape(version: Version) -> list[tuple[int, bool, list[list[tuple[int, int]]]]]:
    return [
        (
            p.job,
            p.output,
            [list(zip(r.run["h"].tolist(), r.run["s"].tolist(), strict=True)) for r in p.segments],
        )
        for p in version.parts
    ]


@cases(0.5)
@given(steps, st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_other_partitions_go_on_with_it(given_: list[list[Put]], numbers: list[int]) -> None:
    life, before = Life(64), 1
    for puts_ in given_:
        life.step(puts_)
    held = {0: life.version}
    for after in numbers:
        held, before = cut(held, before, after), after
    life.version = one_of(held)
    life.check()


def one_of(held: Mapping[int, Version]) -> Version:
    """The rows of all partitions, which have no keys in common, as those of one."""

    class Together(Version):
        def snapshot(self) -> Snapshot:
            levels = tuple(level for version in held.values() for level in version.snapshot().levels)
            return Snapshot(self.layout, levels)

    return Together(VERSIONED)


# What one step of a merge leaves, with stream time 11: nobody asks for less than 7.

A5, A6, A7, B7 = (b"a", 5), (b"a", 6), (b"a", 7), (b"b", 7)


def left(rows: Rows, beside: Rows | None = None, done: Rows | None = None, bits: int = 64) -> Rows:
    """Of the rows of a step; ``beside``: rows in another run; ``done``: those of the steps before."""
    job = [Part(segments(rows, bits), 1), Part(segments(done or {}, bits), 1, output=True)]
    others = [Part(segments(beside, bits))] if beside else []
    run = remembered(sort_rows(version_rows(rows, bits)), [*others, *job], 1, 11 - HISTORY)
    columns = (run["key"].to_pylist(), run["s"].tolist(), run["value"].to_pylist())
    return {(key, ts): value for key, ts, value in zip(*columns, strict=True)}


def segments(rows: Rows, bits: int) -> tuple[Segment, ...]:
    return (Segment(sort_rows(version_rows(rows, bits))),) if rows else ()


def test_of_what_was_replaced_the_last_stays() -> None:
    assert left({A5: b"x", A6: b"y"}) == {A6: b"y"}
    assert left({A5: b"x", A7: b"y"}) == {A7: b"y"}
    assert left({A5: b"x", (b"a", 8): b"y"}) == {A5: b"x", (b"a", 8): b"y"}
    assert left({A5: b"x", B7: b"y"}) == {A5: b"x", B7: b"y"}
    assert left({A5: b"x", B7: b"y"}, bits=0) == {A5: b"x", B7: b"y"}, "another key of the same hash"


def test_a_delete_goes_if_there_is_nothing_older() -> None:
    assert left({A5: b"x", A7: None}) == {}
    assert left({A5: None, (b"a", 8): b"y"}) == {(b"a", 8): b"y"}
    assert left({A7: None}, beside={(b"a", 8): b"z", (b"c", 9): b"z"}) == {}
    assert left({(b"a", 8): None, B7: b"y"}) == {(b"a", 8): None, B7: b"y"}, "one of 7 may come, and is late"


def test_a_delete_hides_what_is_older() -> None:
    assert left({A7: None}, beside={A6: b"late"}) == {A7: None}
    assert left({A7: None}, beside={A7: b"the same, before"}) == {A7: None}
    assert left({A7: None}, done={A6: b"done"}) == {A7: None}
    assert left({A7: None}, done={A6: b"done"}, bits=0) == {A7: None}
    assert left({A5: b"x", B7: None}, bits=0) == {A5: b"x", B7: None}, (
        "it may be of the same key, by its hash"
    )


@pytest.mark.parametrize("each", [pytest.param(1, marks=pytest.mark.slow), 7, 100])
def test_what_nobody_asks_for_goes(each: int) -> None:
    """A few keys for a long time, in batches of any size; one that was deleted leaves nothing behind."""
    life, most = Life(64), 0
    numbers = iter(range(20_000))
    for batch in range(20_000 // each // 10):
        rows = [(b"%d" % (next(numbers) % 5), 1, b"x") for _ in range(each)]
        life.step([*rows, (b"gone-%d" % batch, 0, b"y"), (b"gone-%d" % batch, 1, None)])
        most = max(most, life.version.rows)
    # Five keys, a few versions of each, and as many again for each run that waits to be merged.
    assert most <= 8 * (each + 2) + 8 * 8 * (5 + HISTORY)
