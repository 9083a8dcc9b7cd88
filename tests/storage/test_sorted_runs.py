"""Runs and views against plain dicts: look-ups, scans in chunks, collisions, newest row wins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.columns.hashing import hash_keys
from crossstream.planning.layouts import KEY_VALUE, SUBSCRIPTIONS, VERSIONED
from crossstream.storage import snapshot
from crossstream.storage.columns import equal, same_rows, take_all, take_or_null
from crossstream.storage.snapshot import Level, Snapshot
from crossstream.storage.sorted_run import (
    Layout,
    Run,
    bisect,
    expand,
    identities,
    merge,
    newest,
    sort_rows,
    stable_order,
)
from tests.laws.effort import cases
from tests.storage.rows import KEYS, binary, key_value_rows, keys_of, subscription_rows, version_rows

bits = st.sampled_from([64, 4, 1])
keys = st.sampled_from(KEYS)
batches = st.lists(st.dictionaries(keys, st.none() | st.binary(max_size=3), min_size=1), max_size=6)
law = cases(1.67)


def view_of(layout: Layout, runs: list[Run], cut: int = 1) -> Snapshot:
    """A view of runs, oldest first, each cut into segments of about so many rows at changes of the hash."""
    levels = []
    for run in reversed(runs):
        places = [0, *(n for n in range(cut, run.rows, cut) if run["h"][n] != run["h"][n - 1]), run.rows]
        levels.append(Level(tuple(run.slice(a, b) for a, b in pairwise(places))))
    return Snapshot(layout, tuple(levels))


@st.composite
def columns_and_pairs(draw: st.DrawFn) -> tuple[list[list[bytes | None]], np.ndarray]:
    """Two columns, of one length or not, and pairs of their rows that are not null."""
    width = draw(st.sampled_from([None, 1, 5, 8, 16, 65]))
    cell = st.binary(max_size=9) if width is None else st.binary(min_size=width, max_size=width)
    few = draw(st.lists(cell, min_size=1, max_size=3))  # so that many are the same
    cells = st.lists(st.sampled_from(few) | draw(st.sampled_from([st.nothing(), st.none()])), min_size=1)
    sides = [[*draw(cells), few[0]] for _ in range(2)]
    there = [[row for row, value in enumerate(side) if value is not None] for side in sides]
    pairs = draw(st.lists(st.tuples(*map(st.sampled_from, there)), max_size=60))
    return sides, np.array(pairs, np.int64).reshape(-1, 2).T


@law
@given(columns_and_pairs(), st.integers(0, 2), st.booleans())
@example(([[b"a\0", b"a"], [b"a", b"a\0"]], np.array([[0, 1] * 20, [0, 1] * 20])), 0, False)
@example(([[b"a\0"] * 40, [b"a\1"] * 40], np.array([range(40), range(40)])), 1, False)
def test_pairs_of_rows_are_the_same_if_their_bytes_are(
    drawn: tuple[list[list[bytes | None]], np.ndarray], offset: int, itself: bool
) -> None:
    (left, right), (rows, others) = drawn
    columns = [pa.array([b"x" * 7] * offset + side, pa.large_binary())[offset:] for side in (left, right)]
    if itself:
        right, others, columns[1] = left, rows[::-1], columns[0]
    found = same_rows(columns[0], rows, columns[1], others)
    assert found.tolist() == [left[a] == right[b] for a, b in zip(rows, others, strict=True)]
    if None not in right and len(rows) == len(right):
        found = same_rows(columns[0], rows, columns[1], None)
        assert found.tolist() == [left[a] == value for a, value in zip(rows, right, strict=True)]


@law
@given(
    seed=st.integers(0, 1 << 32),
    rows=st.sampled_from([0, 1, 3, 200]),
    queries=st.sampled_from([1, 64, 65, 300]),
    space=st.sampled_from([2, 150, 1 << 63]),
    alike=st.booleans(),
)
def test_candidates_are_all_rows_with_the_hash(
    seed: int, rows: int, queries: int, space: int, alike: bool
) -> None:
    rng = np.random.default_rng(seed)
    h = np.sort(rng.integers(0, space, rows).astype(np.uint64))
    if alike:
        h = np.unique(h)
    others = rng.integers(0, space, queries).astype(np.uint64)
    asked = np.sort(np.where(rng.random(queries) < 0.5, rng.choice(h, queries) if rows else others, others))
    found = Run({"h": h}).candidates(asked)
    wanted = [(query, row) for query, one in enumerate(asked) for row in np.flatnonzero(h == one)]
    assert list(zip(*(part.tolist() for part in found), strict=True)) == wanted


@law
@given(
    seed=st.integers(0, 1 << 32),
    rows=st.integers(1, 600),
    span=st.sampled_from([1, 2, 700, 1 << 40, 1 << 63]),
    low=st.sampled_from([0, 5, 1 << 63]),
    cut=st.floats(0, 1),
)
def test_what_a_run_has_passes_its_sieve_and_those_of_its_slices(
    seed: int, rows: int, span: int, low: int, cut: float
) -> None:
    """Whatever the hashes; and of others between them few do, where they are spread."""
    rng = np.random.default_rng(seed)
    h = np.sort(rng.integers(0, span, rows).astype(np.uint64) + np.uint64(low))
    run = Run({"h": h})
    assert run.sieve.passing(h).tolist() == list(range(rows))
    assert run.sieve.bits.nbytes <= 2 * rows + 1
    part = run.slice(int(cut * (rows - 1)), rows)
    assert part.sieve.passing(part["h"]).tolist() == list(range(part.rows))
    others = rng.integers(int(h[0]), int(h[-1]) + 1, 2_000, np.uint64)
    if span == 1 << 63 and rows >= 50:
        assert len(run.sieve.passing(others)) < 0.3 * len(others)


@law
@given(seed=st.integers(0, 1 << 32), runs=st.integers(1, 6), cut=st.sampled_from([1, 37, 400, 5_000]))
def test_many_keys_are_looked_up_in_many_segments(seed: int, runs: int, cut: int) -> None:
    """As many rows and keys as sieves are made for; some keys are deleted, some were never there."""
    rng, rows, made = np.random.default_rng(seed), dict[bytes, Any](), list[Run]()
    for size in sorted(rng.integers(1, 3_000, runs).tolist(), reverse=True):
        drawn = rng.choice(4_000, size, replace=False).tolist()
        batch = {b"%d" % key: None if key % 7 == 0 else b"%d" % size for key in drawn}
        made.append(sort_rows(key_value_rows(batch)))
        rows |= batch
    wanted = [b"%d" % key for key in range(0, 5_000, 3)]
    hashes = hash_keys(binary(wanted))
    order = np.argsort(hashes)
    match = view_of(KEY_VALUE, made, cut).lookup(hashes[order], binary(wanted).take(pa.array(order)))
    assert match.gather("value").to_pylist() == [rows.get(wanted[place]) for place in order]


@law
@given(batches, bits, st.integers(1, 5), st.booleans(), st.booleans())
def test_a_look_up_finds_the_newest_row(
    batches: list[dict[bytes, Any]], bits: int, cut: int, fresh: bool, sieved: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "_MANY", 1 if sieved else 512)
        patch.setattr(snapshot, "_SHARE", 0 if sieved else 4)
        _look_up(batches, bits, cut, fresh)


def _look_up(batches: list[dict[bytes, Any]], bits: int, cut: int, fresh: bool) -> None:
    runs = [sort_rows(key_value_rows(batch, bits)) for batch in batches]
    view = view_of(KEY_VALUE, runs, cut)
    rows = {key: value for batch in batches for key, value in batch.items()}
    if fresh:
        view.put(key_value_rows({KEYS[0]: b"fresh", KEYS[1]: None}, bits))
        view.put(key_value_rows({KEYS[1]: b"again"}, bits))
        rows |= {KEYS[0]: b"fresh", KEYS[1]: b"again"}
    wanted = sorted([*KEYS, b"never"], key=lambda key: hash_keys(binary([key]), bits)[0])
    match = view.lookup(hash_keys(binary(wanted), bits), binary(wanted))
    assert match.gather("value").to_pylist() == [rows.get(key) for key in wanted]
    assert match.found.tolist() == [rows.get(key) is not None for key in wanted]
    assert match.gather("ts").tolist() == [7 if rows.get(key) is not None else 0 for key in wanted]
    live = view.live()
    assert dict(zip(keys_of(live), live["value"].to_pylist(), strict=True)) == {
        key: value for key, value in rows.items() if value is not None
    }


@law
@given(
    st.lists(
        st.dictionaries(st.tuples(keys, keys), st.none() | st.binary(max_size=2), min_size=1), max_size=5
    ),
    bits,
    st.integers(1, 6),
    st.integers(1, 5),
    st.sets(keys, min_size=1),
)
@example(
    [dict.fromkeys([(key, b"0") for key in KEYS], b"")], 4, 10, 9, {b"3", b"4", b"0"}
)  # 3 and 4 have one hash
def test_a_scan_gives_every_row_of_a_key_once(
    batches: list[dict[tuple[bytes, bytes], Any]], bits: int, chunk: int, cut: int, wanted: set[bytes]
) -> None:
    runs = [sort_rows(subscription_rows(batch, bits)) for batch in batches]
    view = view_of(SUBSCRIPTIONS, runs, cut)
    rows = {pair: value for batch in batches for pair, value in batch.items()}
    expected = {pair: value for pair, value in rows.items() if value is not None and pair[0] in wanted}
    asked = sorted(wanted, key=lambda key: hash_keys(binary([key]), bits)[0])
    found = {}
    for queries, columns in view.scan(hash_keys(binary(asked), bits), binary(asked), chunk):
        second, value = columns["key2"].to_pylist(), columns["value"].to_pylist()
        for query, key, key2, one in zip(
            queries.tolist(), columns["key"].to_pylist(), second, value, strict=True
        ):
            assert asked[query] == key
            assert (key, key2) not in found, "a row came twice"
            found[key, key2] = one
    assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 7, 100, 10_000])
def test_a_large_fan_out_comes_in_chunks(chunk: int) -> None:
    """Ten runs, each with a thousand subscribers of one key; every second one is gone again."""
    pairs = [(b"popular", b"%d" % n) for n in range(10_000)]
    runs = [sort_rows(subscription_rows(dict.fromkeys(pairs[n::10], b"x"), 64)) for n in range(10)]
    runs.append(sort_rows(subscription_rows(dict.fromkeys(pairs[::2]), 64)))
    view = view_of(SUBSCRIPTIONS, runs, 100_000)
    wanted = binary([b"popular"])
    sizes, found = [], set()
    for queries, columns in view.scan(hash_keys(wanted), wanted, chunk):
        sizes.append(len(queries))
        found.update(columns["key2"].to_pylist())
    assert found == {key2 for _, key2 in pairs[1::2]}
    assert sum(sizes) == 5_000
    assert max(sizes) <= chunk + len(runs)


@law
@given(
    st.lists(
        st.dictionaries(st.tuples(keys, st.integers(0, 9)), st.none() | st.binary(max_size=2)), max_size=5
    ),
    bits,
)
def test_versions_are_found_by_range_of_time(batches: list[dict[tuple[bytes, int], Any]], bits: int) -> None:
    batches = [batch for batch in batches if batch]
    runs = [sort_rows(version_rows(batch, bits)) for batch in batches]
    rows = {version: value for batch in batches for version, value in batch.items()}
    merged = merge(runs[::-1], drop_gone=True) if runs else None
    if merged is not None:
        held = zip(keys_of(merged), merged["s"].tolist(), merged["value"].to_pylist(), strict=True)
        assert {(key, ts): value for key, ts, value in held} == rows
        asked = binary(sorted(KEYS, key=lambda key: hash_keys(binary([key]), bits)[0]))
        low, high = np.full(len(KEYS), 2), np.full(len(KEYS), 5)
        queries, places = merged.match_range(hash_keys(asked, bits), asked, low, high)
        found = [(asked[q].as_py(), int(merged["s"][row])) for q, row in zip(queries, places, strict=True)]
        assert sorted(found) == sorted(version for version in rows if 2 <= version[1] <= 5)


def test_an_empty_store_answers() -> None:
    for layout in (KEY_VALUE, SUBSCRIPTIONS, VERSIONED):
        view = Snapshot(layout)
        wanted = binary([b"a"])
        assert view.live().rows == 0
        assert list(view.scan(hash_keys(wanted), wanted, 5)) == []
    assert not Snapshot(KEY_VALUE).lookup(hash_keys(wanted), wanted).found.any()
    assert Snapshot(KEY_VALUE).lookup(hash_keys(wanted), wanted).gather("value").to_pylist() == [None]


# The parts


@law
@given(st.lists(st.integers(0, 5)))
def test_stable_order(values: list[int]) -> None:
    h = np.array(values, np.uint64)
    assert stable_order(h).tolist() == sorted(range(len(values)), key=lambda row: values[row])


@law
@given(
    st.integers(0, 2**32),
    st.sampled_from([65, 300, 1000]),
    st.sampled_from([3, 50, 2**62]),
    st.integers(0, 63),
)
def test_stable_order_of_many(seed: int, rows: int, different: int, shift: int) -> None:
    """Also of hashes that differ in their lowest bits only, or in their uppermost."""
    h = np.random.default_rng(seed).integers(0, different, rows).astype(np.uint64) << np.uint64(shift)
    assert stable_order(h).tolist() == np.argsort(h, kind="stable").tolist()


@law
@given(st.integers(0, 2**32), st.sampled_from(["int64", "uint64"]))
def test_rows_are_sorted_by_hash_and_number(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    h, s = rng.integers(0, 9, 200).astype(np.uint64), rng.integers(0, 5, 200).astype(kind)
    run = sort_rows({"h": h, "s": s, "row": np.arange(200)})
    assert run["row"].tolist() == np.lexsort((s, h)).tolist()


@law
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(-1, 10))), st.booleans())
def test_bisect(ranges: list[tuple[int, int, int]], right: bool) -> None:
    s = np.array([0, 2, 2, 3, 5, 5, 5, 8, 9, 9])
    first, last, bound = (np.array([r[n] for r in ranges], np.int64) for n in range(3))
    side = "right" if right else "left"
    wanted = [a + int(np.searchsorted(s[a:b], x, side)) if a < b else a for a, b, x in ranges]
    assert bisect(s, first, last, bound, right=right).tolist() == wanted


@law
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6))))
def test_expand(ranges: list[tuple[int, int]]) -> None:
    first, last = (np.array([r[n] for r in ranges], np.int64) for n in (0, 1))
    queries, rows = expand(first, last)
    wanted = [(i, row) for i, (a, b) in enumerate(ranges) for row in range(a, b)]
    assert list(zip(queries.tolist(), rows.tolist(), strict=True)) == wanted


@law
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([b"", b"a", b"b"]), st.sampled_from([b"a", b"c"])))
)
def test_identities_are_exact(rows: list[tuple[int, bytes, bytes]]) -> None:
    columns: list[Any] = [np.array([row[0] for row in rows], np.uint64)]
    columns += [binary([row[n] for row in rows]) for n in (1, 2)]
    numbers = identities(columns).tolist()
    assert all((numbers[i] == numbers[j]) == (rows[i] == rows[j]) for i in range(len(rows)) for j in range(i))


@law
@given(
    seed=st.integers(0, 1 << 32),
    runs=st.integers(1, 6),
    rows=st.sampled_from([1, 5, 40, 300]),
    width=st.sampled_from([None, 1, 8, 70]),
    bits=bits,
    second=st.booleans(),
    drop_gone=st.booleans(),
)
def test_merged_runs_hold_the_newest_row_of_each_identity(
    seed: int, runs: int, rows: int, width: int | None, bits: int, second: bool, drop_gone: bool
) -> None:
    """Many rows, of keys of one length or of several, with colliding hashes or without; old runs are overwritten."""
    rng = np.random.default_rng(seed)
    names = [b"%d" % number if width is None else b"%d" % (number % 10) * width for number in range(rows)]
    wanted: dict[tuple[bytes, ...], tuple[bytes, int]] = {}
    made = []
    for number in range(runs):
        identities = {
            tuple(names[at] for at in rng.integers(0, rows, 1 + second)): (
                b"%d" % number,
                int(rng.random() < 0.3),
            )
            for _ in range(rows)
        }
        wanted |= identities
        keys = [binary([identity[part] for identity in identities]) for part in range(1 + second)]
        columns: dict[str, Any] = {"h": hash_keys(keys[0], bits), "key": keys[0]}
        if second:
            columns |= {"s": hash_keys(keys[1], bits), "key2": keys[1]}
        values, gone = zip(*identities.values(), strict=True)
        made.append(sort_rows({**columns, "value": binary(list(values)), "gone": np.array(gone, np.uint8)}))
    merged = merge(made[::-1], drop_gone=drop_gone)
    found = [merged[name].to_pylist() for name in ("key", "key2") if name in merged.columns]
    rest = zip(merged["value"].to_pylist(), merged["gone"].tolist(), strict=True)
    held = list(zip(zip(*found, strict=True), rest, strict=True))
    assert len(dict(held)) == len(held)
    assert dict(held) == {one: row for one, row in wanted.items() if not (drop_gone and row[1])}
    order = list(zip(merged["h"].tolist(), merged["s"].tolist() if second else [0] * len(held), strict=True))
    assert order == sorted(order)
    assert list(merged.columns) == list(made[0].columns)


@law
@given(st.lists(st.tuples(st.integers(0, 1), keys), max_size=8))
def test_newest_keeps_the_first_of_each_identity(rows: list[tuple[int, bytes]]) -> None:
    rows.sort(key=lambda row: row[0])
    columns = {"h": np.array([h for h, _ in rows], np.uint64), "key": binary([key for _, key in rows])}
    seen: set[tuple[int, bytes]] = set()
    wanted = [row not in seen and not seen.add(row) for row in rows]  # type: ignore[func-returns-value]
    assert newest(columns).tolist() == wanted
    backwards = np.arange(len(rows))[::-1]
    mixed = take_all(columns, backwards)
    assert newest(mixed, backwards).tolist() == wanted


def slices() -> Iterator[pa.Array]:
    whole = binary([b"x", None, b"", b"yy", b"z" * 100, b"y"])
    yield whole
    yield whole.slice(1, 4)
    yield whole.slice(3)


@pytest.mark.parametrize("column", list(slices()), ids=len)
def test_columns_of_slices(column: pa.Array) -> None:
    rows = np.array([2, -1, 0, 2, 1])
    cells = column.to_pylist()
    assert take_or_null(column, rows).to_pylist() == [None if row < 0 else cells[row] for row in rows]
    filled = column.fill_null(b"-")
    assert equal(filled, filled.take(pa.array(np.arange(len(filled))))).all()


@st.composite
def lives(draw: st.DrawFn) -> list[tuple[bytes, int, int, list[int]]]:
    """Records: key, timestamp, the batch that puts each, and those after it that delete it."""
    records = []
    for _ in range(draw(st.integers(1, 40))):
        put = draw(st.integers(0, 7))
        gone = sorted(draw(st.sets(st.integers(put + 1, 9), max_size=3)))
        records.append((draw(keys), draw(st.integers(0, 2)), put, gone))
    return records


def record_runs(records: list[tuple[bytes, int, int, list[int]]], bits: int) -> list[Run]:
    """A run for each batch, oldest first; a record is its place in the list."""
    rows: list[list[tuple[bytes, int, int, int]]] = [[] for _ in range(10)]
    for number, (key, ts, put, gone) in enumerate(records):
        rows[put].append((key, ts, number, 0))
        for batch in gone:
            rows[batch].append((key, ts, number, 1))
    runs = []
    for batch in rows:
        keys_ = binary([row[0] for row in batch])
        columns = {
            "h": hash_keys(keys_, bits),
            "s": np.array([row[1] for row in batch], np.int64),
            "key": keys_,
            "n": np.array([row[2] for row in batch], np.uint64),
            "side": np.zeros(len(batch), np.uint8),
            "gone": np.array([row[3] for row in batch], np.uint8),
        }
        runs.append(sort_rows(columns))
    return runs


@law
@given(lives(), bits, st.lists(st.tuples(st.integers(0, 9), st.integers(2, 9)), max_size=6))
def test_deleted_records_leave_with_their_rows_in_any_merges(
    records: list[tuple[bytes, int, int, list[int]]], bits: int, merges: list[tuple[int, int]]
) -> None:
    """Neighbours are merged, in any order; what is left is what has not been deleted, and nothing comes back."""
    runs = record_runs(records, bits)
    held = sum(run.rows for run in runs)
    for start, count in merges:
        some = runs[start : start + count]
        if len(some) > 1:
            runs[start : start + count] = [merge(some[::-1], drop_gone=False)]
    assert sum(run.rows for run in runs) <= held
    live = {number for number, (*_, gone) in enumerate(records) if not gone}
    assert set(merge(runs[::-1], drop_gone=True)["n"].tolist()) == live


def test_a_deleted_record_and_its_row_take_no_place_once_they_have_met() -> None:
    runs = record_runs([(b"1", 0, 0, [1]), (b"1", 0, 0, []), (b"2", 0, 2, [3, 4])], 1)
    assert merge([runs[1], runs[0]], drop_gone=False)["n"].tolist() == [1]
    assert merge([runs[4], runs[3]], drop_gone=False)["n"].tolist() == [2]  # its row is in an older run
    assert merge(runs[4:1:-1], drop_gone=False).rows == 0
