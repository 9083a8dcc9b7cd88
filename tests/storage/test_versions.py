"""Versions of a store in a folder: any number of batches, merges and reloads against a plain dict; damage."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream.errors import StateError
from crossstream.planning.layouts import KEY_VALUE, SUBSCRIPTIONS, VERSIONED
from crossstream.storage.compaction import FAN_IN, JOINED
from crossstream.storage.files import Folder, Storage
from crossstream.storage.manifest import read_manifest, read_run
from crossstream.storage.sorted_run import Layout, Run, sort_rows
from crossstream.storage.store import (
    Segment,
    StoreUpdate,
    Version,
    advance,
    load_version,
    saver,
    store_version,
)
from tests.laws.effort import cases
from tests.storage.rows import (
    KEYS,
    Memory,
    binary,
    key_value_rows,
    keys_of,
    subscription_rows,
    version_rows,
)

Rows = dict[Any, bytes | None]
many = [b"%d" % n for n in range(40)]
MAKERS: dict[str, tuple[Layout, Callable[..., dict[str, Any]], st.SearchStrategy[Any]]] = {
    "key-value": (KEY_VALUE, key_value_rows, st.sampled_from(many)),
    "subscriptions": (
        SUBSCRIPTIONS, subscription_rows, st.tuples(st.sampled_from(KEYS[:3]), st.sampled_from(many)),
    ),
    "versioned": (VERSIONED, version_rows, st.tuples(st.sampled_from(KEYS), st.integers(0, 20))),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merges of a few rows a step, so that several are under way at once."""
    monkeypatch.setattr("crossstream.storage.store.SEGMENT_ROWS", 8)


def held(version: Version) -> Rows:
    """The rows of a version as a dict; a null version of a versioned store is a row."""
    live = version.snapshot().live()
    values = live["value"].to_pylist()
    if version.layout.second_key:
        return dict(zip(zip(keys_of(live), live["key2"].to_pylist(), strict=True), values, strict=True))
    if version.layout.sort:
        return dict(zip(zip(keys_of(live), live["s"].tolist(), strict=True), values, strict=True))
    return dict(zip(keys_of(live), values, strict=True))


def keeps_nulls(layout: Layout) -> bool:
    return layout is VERSIONED


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("place", ["folder", "memory"])
@cases(0.417)
@given(st.data())
def test_every_version_stays_what_it_was(
    place: str, kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    layout, make, identity = MAKERS[kind]
    storage: Storage = Folder(tmp_path_factory.mktemp("store")) if place == "folder" else Memory()
    bits = data.draw(st.sampled_from([64, 4]), "bits")
    version, rows = Version(layout), dict[Any, bytes | None]()
    kept: list[tuple[str, dict[Any, Any], int]] = []
    for batch in range(data.draw(st.integers(1, 40), "batches")):
        fresh = data.draw(st.dictionaries(identity, st.none() | st.binary(max_size=2), max_size=12))
        run = sort_rows(make(fresh, bits)) if fresh else None
        version = advance(version, StoreUpdate(run, batch, batch), saver(storage, f"{batch:03d}"))
        rows |= fresh
        check_parts(version)
        if data.draw(st.booleans(), "stored"):
            version = store_version(version, storage, f"{batch:03d}.manifest")
            present = {k: v for k, v in rows.items() if v is not None or keeps_nulls(layout)}
            kept.append((f"{batch:03d}.manifest", present, batch))
            if data.draw(st.booleans(), "reloaded"):
                version = load_version(storage, layout, f"{batch:03d}.manifest")
    opened: dict[str, Any] = {}
    for name, present, batch in kept:
        loaded = load_version(storage, layout, name, opened if data.draw(st.booleans(), "shared") else None)
        assert held(loaded) == present
        assert (loaded.batch, loaded.stream_time) == (batch, batch)
        assert read_manifest(storage, name).files() == loaded.files()


def check_parts(version: Version) -> None:
    """Pieces of a run are ascending and disjoint; no run is in two merges."""
    for part in version.parts:
        places = [places_of(segment.run) for segment in part.segments]
        assert all(rows == sorted(rows) for rows in places)
        assert all(a[-1] < b[0] for a, b in pairwise(places))
    outputs = [part.job for part in version.parts if part.output]
    assert len(outputs) == len(set(outputs))


def places_of(run: Run) -> list[tuple[int, int]]:
    """The hash of each row, and its secondary number."""
    second = run["s"] if "s" in run.columns else np.zeros(run.rows, np.int64)
    return list(zip(run["h"].tolist(), second.tolist(), strict=True))


@pytest.mark.parametrize("rows_each", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_runs_stay_few_and_deleted_rows_vanish(rows_each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of one size for a long time; then everything is deleted, again in batches."""
    monkeypatch.setattr("crossstream.storage.store.SEGMENT_ROWS", 16)
    version, storage = Version(KEY_VALUE), Memory()
    keys = [b"%d" % n for n in range(500)]
    classes = 1 + math.ceil(math.log2(600 * rows_each) / 3)
    for batch in range(600):
        chosen = [keys[(batch * 7 + n) % 500] for n in range(rows_each)]
        fresh = sort_rows(key_value_rows(dict.fromkeys(chosen, b"x" if batch < 400 else None)))
        version = advance(version, StoreUpdate(fresh, batch, batch), saver(storage, f"{batch:04d}"))
        assert len(version.parts) <= 2 * FAN_IN * classes
        assert all(part.rows <= 600 * rows_each for part in version.parts)
    gone = {keys[(batch * 7 + n) % 500] for batch in range(400, 600) for n in range(rows_each)}
    put = {keys[(batch * 7 + n) % 500] for batch in range(400) for n in range(rows_each)}
    assert held(version).keys() == put - gone


@pytest.mark.slow
def test_no_merge_waits_for_a_large_one_and_large_runs_have_few_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A merge of many rows takes a hundred batches, whose own runs are merged meanwhile."""
    monkeypatch.setattr("crossstream.storage.store.SEGMENT_ROWS", 64)
    version, rng, saved = Version(KEY_VALUE), np.random.default_rng(1), list[Run]()

    def save(run: Run) -> Segment:
        saved.append(run)
        return Segment(run)

    for batch in range(600):
        fresh = sort_rows(key_value_rows({b"%d" % key: b"" for key in rng.integers(0, 60_000, 60)}))
        saved.clear()
        version = advance(version, StoreUpdate(fresh, batch, batch), save)
        used = {id(segment.run) for part in version.parts for segment in part.segments}
        assert used.issuperset(map(id, saved)), "a file that no version names stays until the next start"
        assert len(version.parts) <= 5 * FAN_IN
        assert sum(len(part.segments) for part in version.parts) <= 20 * FAN_IN, "a file for each step"


def test_a_batch_without_rows_changes_nothing_but_time() -> None:
    version = advance(Version(KEY_VALUE), StoreUpdate(None, -1, 0), _no_saving)
    assert version == Version(KEY_VALUE)
    later = advance(version, StoreUpdate(None, 5, 1), _no_saving)
    assert (later.stream_time, later.batch, later.parts) == (5, 1, ())


def _no_saving(run: Any) -> Segment:
    raise AssertionError("there is nothing to save")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows of many keys", "subscribers of one key", "versions of one key"])
def test_the_work_of_a_batch_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large the store is, and one key in it, a small batch rewrites a bounded number of rows."""
    monkeypatch.setattr("crossstream.storage.store.SEGMENT_ROWS", 64)
    saved: list[int] = []

    def save(run: Any) -> Segment:
        saved.append(run.rows)
        return Segment(run)

    layout = {"rows": KEY_VALUE, "subscribers": SUBSCRIPTIONS, "versions": VERSIONED}[kind.split()[0]]
    version = Version(layout)
    for batch in range(1000):
        before = len(saved)
        version = advance(version, StoreUpdate(ten_rows(layout, batch), batch, batch), save)
        assert sum(saved[before:]) <= 10 + 5 * 64 + JOINED * 2 * 64
        steps = [rows for rows in saved[before:] if rows <= 3 * 64]
        joined = [rows for rows in saved[before:] if rows > 3 * 64]
        assert sum(steps) <= 10 + 5 * 64, "a step takes about as many rows as it should"
        assert sum(joined) <= JOINED * 2 * 64, (
            "and once in so many its rows are put together with those before"
        )
        check_parts(version)
    assert len(held(version)) == 10_000
    assert sum(saved) < 10 * 10_000


def ten_rows(layout: Layout, batch: int) -> Run:
    numbers = range(batch * 10, batch * 10 + 10)
    if layout is SUBSCRIPTIONS:
        return sort_rows(subscription_rows({(b"one", b"%d" % n): b"x" for n in numbers}))
    if layout is VERSIONED:
        return sort_rows(version_rows({(b"one", n): b"x" for n in numbers}))
    return sort_rows(key_value_rows({b"%d" % n: b"x" for n in numbers}))


# Damage


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Folder, str]:
    """A store of several runs, one of them cut, and the name of its manifest."""
    folder, version = Folder(tmp_path / "0"), Version(KEY_VALUE)
    for batch in range(10):
        fresh = sort_rows(key_value_rows({many[(batch * 5 + n) % 40]: b"v%d" % n for n in range(3)}))
        version = advance(version, StoreUpdate(fresh, batch, batch), saver(folder, f"{batch:03d}"))
    assert len(version.files()) > 1
    return folder, store_version(version, folder, "last.manifest").name or ""


def used_files(folder: Folder, manifest: str) -> list[str]:
    return sorted([manifest, *read_manifest(folder, manifest).files()])


def refused(folder: Folder, manifest: str) -> StateError:
    with pytest.raises(StateError) as caught:
        load_version(folder, KEY_VALUE, manifest)
    return caught.value


@pytest.mark.slow
def test_a_damaged_byte_anywhere_is_told(stored: tuple[Folder, str]) -> None:
    folder, manifest = stored
    levels = read_manifest(folder, manifest).levels
    readers = {
        segment.file: partial(read_run, folder, segment) for level in levels for segment in level.segments
    }
    for name, read in {**readers, manifest: partial(read_manifest, folder, manifest)}.items():
        path = folder.path / name
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
            with pytest.raises(StateError, match=re.escape(name)) as caught:
                read()
            assert caught.value.code == "CS-701", (name, place)
        path.write_bytes(whole)
    assert load_version(folder, KEY_VALUE, manifest).rows > 0


@pytest.mark.parametrize("keep", [0, 1, 15, 16, 17, -1])
def test_a_file_that_ends_early_is_told(stored: tuple[Folder, str], keep: int) -> None:
    folder, manifest = stored
    for name in used_files(folder, manifest):
        path = folder.path / name
        whole = path.read_bytes()
        path.write_bytes(whole[:keep])
        error = refused(folder, manifest)
        assert (error.code, name in error.what) == ("CS-701", True), name
        path.write_bytes(whole + b"\n")
        assert refused(folder, manifest).code == "CS-701"
        path.write_bytes(whole)


def test_a_missing_file_is_told(stored: tuple[Folder, str]) -> None:
    folder, manifest = stored
    for name in used_files(folder, manifest):
        path = folder.path / name
        path.rename(folder.path / "aside")
        error = refused(folder, manifest)
        assert (error.code, name in error.what) == ("CS-701", True), name
        (folder.path / "aside").rename(path)


def test_another_kind_of_store_or_format_is_told(stored: tuple[Folder, str], monkeypatch: Any) -> None:
    folder, manifest = stored
    with pytest.raises(StateError, match="key-value store, not of a versioned store") as caught:
        load_version(folder, VERSIONED, manifest)
    assert (caught.value.code, caught.value.next) == (
        "CS-701",
        "restore the state folder from a copy, or start the application on an empty one",
    )
    monkeypatch.setattr("crossstream.storage.manifest.FORMAT", 3)
    assert refused(folder, manifest).code == "CS-704"


def test_collisions_of_all_keys() -> None:
    """With no bits at all every key has one hash; the bytes decide."""
    version, storage = Version(KEY_VALUE), Memory()
    rows: Rows = {}
    for batch in range(30):
        fresh: Rows = {many[(batch * 11 + n) % 40]: None if n == 2 else b"%d" % batch for n in range(4)}
        columns = key_value_rows(fresh)
        columns["h"] = np.zeros(len(fresh), np.uint64)
        version = advance(version, StoreUpdate(sort_rows(columns), batch, batch), saver(storage, str(batch)))
        rows |= fresh
    assert held(version) == {key: value for key, value in rows.items() if value is not None}
    match = version.snapshot().lookup(np.zeros(len(many), np.uint64), binary(many))
    assert match.gather("value").to_pylist() == [rows.get(key) for key in many]
