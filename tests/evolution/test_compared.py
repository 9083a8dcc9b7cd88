"""Which rows of two tables differ, whatever runs, state partitions and ranges of the hash they are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream import serdes
from crossstream.columns.hashing import hash_keys
from crossstream.evolution import compared
from crossstream.evolution.compared import END, Held, differing
from crossstream.evolution.differences import _unmarked
from crossstream.serdes.own import known
from crossstream.storage.sorted_run import Run, sort_rows
from tests.laws.effort import law

RAW = known(serdes.bytes())
Batch = Mapping[bytes, bytes | None]
"""What a batch writes: None deletes."""

keys = st.sampled_from([b"a", b"b", b"c", b"d", b"", b"longer key"])
values = st.none() | st.binary(max_size=3)
tables = st.lists(st.dictionaries(keys, values, max_size=6), max_size=4)


def run_of(batch: Batch, ts: int, bits: int, *, versions: bool) -> Run:
    column = pa.array(list(batch), pa.large_binary())
    rows = len(batch)
    columns: dict[str, Any] = {"h": hash_keys(column, bits)}
    if versions:
        columns["s"] = np.full(rows, ts, np.int64)
    columns |= {"key": column, "value": pa.array(list(batch.values()), pa.large_binary())}
    if not versions:
        columns["ts"] = np.full(rows, ts, np.int64)
    columns["gone"] = np.array([value is None for value in batch.values()], np.uint8)
    return sort_rows(columns)


def held(batches: Sequence[Batch], bits: int, *, versions: bool = False) -> Held:
    """The newest run first; with versions each batch is a later time."""
    runs = [run_of(batch, ts, bits, versions=versions) for ts, batch in enumerate(batches) if batch]
    return Held(tuple(reversed(runs)), RAW)


def folded(batches: Sequence[Batch]) -> dict[bytes, tuple[bytes, int]]:
    rows: dict[bytes, tuple[bytes, int]] = {}
    for ts, batch in enumerate(batches):
        for key, value in batch.items():
            rows.pop(key, None)
            if value is not None:
                rows[key] = (value, ts)
    return rows


@law
@given(tables, tables, st.sampled_from([64, 1, 0]), st.booleans(), st.booleans(), st.integers(1, 7))
def test_what_differs(
    after: list[Batch], before: list[Batch], bits: int, one: bool, other: bool, chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compared, "CHUNK_ROWS", chunk)
        sides = held(after, bits or 1, versions=one), held(before, bits or 1, versions=other)
        found: dict[bytes, Any] = {}
        for part in differing(*sides, 0, END):
            rows = zip(
                part.key.to_pylist(),
                part.after.to_pylist(),
                part.before.to_pylist(),
                part.ts.tolist(),
                part.ts_before.tolist(),
                strict=True,
            )
            for key, *row in rows:
                assert key not in found, "once"
                found[key] = tuple(row)
    new, old = folded(after), folded(before)
    wanted = {}
    for key in new.keys() | old.keys():
        (value, ts), (was, then) = new.get(key, (None, None)), old.get(key, (None, -1))
        if value != was:
            wanted[key] = (value, was, then if ts is None else ts, then)
    assert found == wanted


@law
@given(tables)
def test_without_old_rows_all_are_new(after: list[Batch]) -> None:
    parts = list(differing(held(after, 64), None, 0, END))
    found = {
        key: value
        for part in parts
        for key, value in zip(part.key.to_pylist(), part.after.to_pylist(), strict=True)
    }
    assert found == {key: value for key, (value, _) in folded(after).items()}


@law
@given(st.lists(values, min_size=1, max_size=8), st.integers(0, 3))
def test_marked_and_back(given: list[bytes | None], skip: int) -> None:
    marked = pa.array([b"\0" if one is None else b"\1" + one for one in given], pa.large_binary())
    there, found = _unmarked(marked.slice(skip)) if skip < len(given) else (np.empty(0, bool), marked[:0])
    assert found.to_pylist() == given[skip:] or skip >= len(given)
    assert there.tolist() == [one is not None for one in given[skip:]]
