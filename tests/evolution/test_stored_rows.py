"""Rows of stores as topics: every live row once, whatever the runs are and wherever the offsets are cut."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossstream.columns.hashing import hash_keys
from crossstream.errors import CrossStreamError
from crossstream.evolution.stored_rows import StoredRows, open_rows, topic_of
from crossstream.planning.layouts import (
    INDEX,
    KEY_VALUE,
    KEY_VALUE_HEADERS,
    ORDERED_ROWS,
    SESSIONS,
    SUBSCRIPTIONS,
    VERSIONED,
    WINDOWED,
    aggregates,
    many_rows,
)
from crossstream.planning.plan import StoreDef
from crossstream.serdes.primitives import Bytes
from crossstream.serdes.windowed import WindowedSerde
from crossstream.storage.root import LocalRoot
from crossstream.storage.sorted_run import Layout, Run, sort_rows
from crossstream.storage.store import StoreUpdate, Version
from crossstream.task.stores import FolderStores, grow
from crossstream.topics import OffsetRange, TopicPartition

LAYOUTS = (
    KEY_VALUE,
    KEY_VALUE_HEADERS,
    VERSIONED,
    SUBSCRIPTIONS,
    ORDERED_ROWS,
    many_rows(["a"]),
    aggregates([("state0.0", "int64")], KEY_VALUE),
)
Put = tuple[int, int, bool]
"""The number of a key, that of a second key or a time, and whether the row is deleted."""

puts = st.lists(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.booleans()), max_size=8), max_size=12
)


def run_of(layout: Layout, batch: int, rows: list[Put]) -> Run:
    """The rows as a run, the last put of each identity."""
    last = {((key, second) if layout.sort else key): (key, second, gone) for key, second, gone in rows}
    keys = pa.array([b"k%d" % key for key, _, _ in last.values()], pa.large_binary())
    seconds = pa.array([b"s%d" % second for _, second, _ in last.values()], pa.large_binary())
    count = len(last)
    columns: dict[str, Any] = {
        "h": hash_keys(keys),
        "s": hash_keys(seconds)
        if layout.second_key
        else np.array([second for _, second, _ in last.values()], np.int64),
        "key": keys,
        "key2": seconds,
        "gone": np.array([gone for _, _, gone in last.values()], np.uint8),
    }
    for name, kind in layout.values:
        filled = pa.array([f"{name}{batch}".encode()] * count, pa.large_binary())
        columns[name] = filled if kind == "bytes" else np.full(count, batch, kind)
    return sort_rows({name: columns[name] for name in layout.names})


def stored(root: LocalRoot, layout: Layout, batches: list[list[Put]]) -> str | None:
    """The manifest of a store that these batches made."""
    stores = FolderStores(root)
    store = StoreDef(name="rows", layout=layout, round=1, key=Bytes(), value=Bytes())
    version = Version(layout)
    for batch, rows in enumerate(batches):
        version = grow(stores, store, 0, version, StoreUpdate(run_of(layout, batch, rows), 0, batch))
    return version.name


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.kind)
@settings(max_examples=40)
@given(batches=puts, most=st.integers(1, 5), cuts=st.lists(st.integers(0, 100), max_size=4))
def test_every_live_row_comes_once(
    tmp_path_factory: pytest.TempPathFactory,
    layout: Layout,
    batches: list[list[Put]],
    most: int,
    cuts: list[int],
) -> None:
    root = LocalRoot(tmp_path_factory.mktemp("state"))
    manifest = stored(root, layout, batches)
    expected: dict[Any, tuple[bytes, int, bool]] = {}
    for batch, rows in enumerate(batches):
        for key, second, gone in rows:
            name = b"s%d" % second if layout.second_key else b"k%d" % key
            identity = (key, second) if layout.sort else key
            expected[identity] = (name, second if layout == VERSIONED else batch, gone)
    held = open_rows(root, "rows", 0, manifest)
    ends = sorted({0, held.count, *(cut for cut in cuts if cut < held.count)})
    found: list[tuple[bytes, int]] = []
    for start, end in pairwise(ends):
        for records in held.read(start, end, most):
            assert records.num_rows <= most
            offsets = records.column("offset").to_pylist()
            assert offsets == sorted(set(offsets))
            assert start <= offsets[0]
            assert offsets[-1] < end
            found += zip(*(records.column(name).to_pylist() for name in ("key", "timestamp")), strict=True)
    assert sorted(found) == sorted((name, time) for name, time, gone in expected.values() if not gone)
    if layout == VERSIONED:
        assert [time for _, time in found] == sorted(time for _, time in found)


def test_a_store_is_a_topic_whose_offsets_are_rows(tmp_path: Path) -> None:
    root = LocalRoot(tmp_path)
    manifest = stored(root, KEY_VALUE, [[(0, 0, False), (1, 0, False)], [(1, 0, True), (2, 0, False)]])
    assert manifest is not None
    tables: StoredRows = pickle.loads(pickle.dumps(StoredRows(str(tmp_path), {"rows": {0: manifest}}, 2)))
    log, topic = tables.log(), topic_of("rows")
    assert log.topics() == {topic: 2}
    assert log.end_offsets([TopicPartition(topic, 0), TopicPartition(topic, 1)]) == {
        TopicPartition(topic, 0): 4,
        TopicPartition(topic, 1): 0,
    }
    reader = tables.reader()
    spans = [OffsetRange(topic, 0, 0, 4), OffsetRange(topic, 1, 0, 0)]
    keys = [key for _, records in reader.read_many(spans, 10) for key in records.column("key").to_pylist()]
    assert sorted(keys) == [b"k0", b"k2"]


def test_versions_are_found_by_their_times(tmp_path: Path) -> None:
    manifest = stored(LocalRoot(tmp_path), VERSIONED, [[(0, 3, False), (1, 1, False)], [(0, 2, False)]])
    assert manifest is not None
    log = StoredRows(str(tmp_path), {"rows": {0: manifest}}, 4, frozenset({"rows"})).log()
    span = OffsetRange(topic_of("rows"), 0, 0, 3)
    assert log.is_timed(topic_of("rows"))
    assert log.topics() == {topic_of("rows"): 1}
    found = log.offsets_for_times([span], 2, 10)[TopicPartition(topic_of("rows"), 0)]
    assert found == (1, 2)
    assert log.offsets_for_times([span], 4, 10)[TopicPartition(topic_of("rows"), 0)] is None


@pytest.mark.parametrize(("layout", "size"), [(WINDOWED, 10), (SESSIONS, None)])
def test_keys_of_windows_are_made_of_key_and_window(tmp_path: Path, layout: Layout, size: int | None) -> None:
    manifest = stored(LocalRoot(tmp_path), layout, [[(0, 3, False)]])
    rows = open_rows(LocalRoot(tmp_path), "rows", 0, manifest)
    (records,) = rows.read(0, 1, 10)
    serde = WindowedSerde(Bytes(), size)
    start = 3 if size is not None else 0
    assert serde.decode_objects(records.column("key")) == [(b"k0", start, 3 if size is None else 13)]


def test_a_store_without_rows_of_a_table_is_refused(tmp_path: Path) -> None:
    manifest = stored(LocalRoot(tmp_path), INDEX, [[(0, 0, False)]])
    with pytest.raises(CrossStreamError, match="CS-756"):
        open_rows(LocalRoot(tmp_path), "rows", 0, manifest)
