"""The rows that a batch wrote to stores, as they came now, and as they were committed.

What was committed is known by its bytes. Runs and manifests of a state partition are the same if all but their names
are: then not a row is looked at. Else the rows that the batch wrote, both times, are put side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
from msgspec import structs

from crossstream.planning.plan import StoreDef
from crossstream.query.changes import only_in, rows_at
from crossstream.recompute.again import Place, Rerun
from crossstream.recompute.inputs import object_of
from crossstream.recompute.partings import MOST, Found, Name, Parting, name_of, sides
from crossstream.serdes.primitives import Bytes
from crossstream.storage.manifest import Manifest, SegmentRef, read_manifest
from crossstream.storage.root import state_partition

_IDENTITY = ("h", "s", "key", "key2", "n")
"""Columns that say which row a row is."""


def compare_stores(rerun: Rerun) -> Found:
    """Compares the rows that the batch wrote with those of its commit; without one they are counted only."""
    rows: dict[Name, int] = {}
    different: dict[Name, int] = {}
    partings: list[Parting] = []
    notes: list[str] = []
    for place in places(rerun):
        store = rerun.plan.stores[place[0]]
        name = name_of(store)
        ours = _written(rerun, store, place, rerun.after(place))
        rows[name] = rows.get(name, 0) + ours.height
        if rerun.past.after is None or _is_same_file(rerun, store, place):
            continue
        found, count = _differing(
            store, place[1], _written(rerun, store, place, rerun.committed(place)), ours
        )
        if not count and not _same_times(rerun, store, place):
            found, count = [_of_times(rerun, store, place)], 1
        if count:
            partings += found
            different[name] = different.get(name, 0) + count
        else:
            notes.append(f"{name}: the rows are the same, and its files are cut in another way")
    return Found(rows, different, tuple(partings), tuple(dict.fromkeys(notes)))


def places(rerun: Rerun) -> list[Place]:
    """The state partitions that the batch changed, then or now."""
    commit, before = rerun.past.after, rerun.batch.versions
    then = (
        set()
        if commit is None
        else {
            (store, pid)
            for store, names in commit.versions.items()
            for pid, name in names.items()
            if store in rerun.plan.stores and before.get(store, {}).get(pid) != name
        }
    )
    return sorted(then | set(rerun.written()))


def _manifest(rerun: Rerun, store: StoreDef, place: Place, name: str | None) -> Manifest | None:
    if name is None:
        return None
    with state_partition(rerun.past.root, store.name, place[1]):
        return read_manifest(rerun.stores.storage(store, place[1]), name, store.layout.kind)


def _is_same_file(rerun: Rerun, store: StoreDef, place: Place) -> bool:
    """Whether all that the batch wrote of a state partition is the same, byte for byte."""
    before = _manifest(rerun, store, place, rerun.before(place))
    known = set() if before is None else before.files()
    ours = _manifest(rerun, store, place, rerun.after(place))
    theirs = _manifest(rerun, store, place, rerun.committed(place))
    return bool(_nameless(ours, known) == _nameless(theirs, known))


def _nameless(manifest: Manifest | None, known: set[str]) -> Any:
    """A manifest with numbers for names that an attempt of the batch made up: of its own, and of its new files."""
    if manifest is None:
        return None
    numbers = {one.file: one.file for one in manifest.segments() if one.file in known}
    levels = [
        ([_segment(one, numbers) for one in level.segments], level.job, level.output)
        for level in manifest.levels
    ]
    return levels, manifest.credit, _times(manifest)


def _segment(one: SegmentRef, numbers: dict[str, str]) -> SegmentRef:
    return structs.replace(one, file=numbers.setdefault(one.file, f"new {len(numbers)}"))


def _times(manifest: Manifest | None) -> Any:
    """What a version knows besides its rows."""
    if manifest is None:
        return None
    return (manifest.stream_time, manifest.horizon, manifest.clock, manifest.sources, manifest.marks)


def _same_times(rerun: Rerun, store: StoreDef, place: Place) -> bool:
    ours = _times(_manifest(rerun, store, place, rerun.after(place)))
    theirs = _times(_manifest(rerun, store, place, rerun.committed(place)))
    return bool(ours == theirs)


def _of_times(rerun: Rerun, store: StoreDef, place: Place) -> Parting:
    both = [_manifest(rerun, store, place, name) for name in (rerun.committed(place), rerun.after(place))]
    then, now = ("no rows" if one is None else f"stream time {one.stream_time}" for one in both)
    return Parting(name_of(store), place[1], None, then, now)


def _written(rerun: Rerun, store: StoreDef, place: Place, name: str | None) -> pl.DataFrame:
    """The rows that a version has and the one before the batch had not, all columns of them."""
    earlier = rerun.before(place)
    if name == earlier:
        return _frame(store, [])
    older, newer = (_manifest(rerun, store, place, one) for one in (earlier, name))
    before, after = (rerun.version(store, place[1], one) for one in (earlier, name))
    added = _frame(store, [run.columns for run in rows_at(after, only_in(newer, older))])
    gone = _frame(store, [run.columns for run in rows_at(before, only_in(older, newer))])
    return added.join(gone, on=added.columns, how="anti", nulls_equal=True)


def _frame(store: StoreDef, parts: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows of a store with the columns of its layout."""
    frames = [pl.DataFrame([_series(name, part[name]) for name in store.layout.names]) for part in parts]
    if frames:
        return pl.concat(frames)
    kinds = {"uint64": pl.UInt64, "int64": pl.Int64, "uint8": pl.UInt8, "float64": pl.Float64}
    own = {"h": "uint64", "s": store.layout.sort, "n": "uint64", "gone": "uint8", **dict(store.layout.values)}
    return pl.DataFrame(
        schema={name: kinds.get(own.get(name) or "", pl.Binary) for name in store.layout.names}
    )


def _series(name: str, column: Any) -> pl.Series:
    found = pl.Series(name, column) if not isinstance(column, pa.Array) else pl.from_arrow(column)
    assert isinstance(found, pl.Series)
    return found.alias(name)


def _differing(
    store: StoreDef, partition: int, theirs: pl.DataFrame, ours: pl.DataFrame
) -> tuple[list[Parting], int]:
    """The rows that only one of both sides has, those of one identity side by side; and how many there are."""
    columns = theirs.columns
    only_theirs = theirs.join(ours, on=columns, how="anti", nulls_equal=True)
    only_ours = ours.join(theirs, on=columns, how="anti", nulls_equal=True)
    ids = [name for name in _IDENTITY if name in columns]
    joined = only_theirs.with_columns(_left=True).join(
        only_ours.with_columns(_right=True), on=ids, how="full", coalesce=True, nulls_equal=True, suffix="_r"
    )
    found = [
        Parting(
            name_of(store),
            partition,
            _key(store, row),
            *sides(
                _value(store, row, "") if row["_left"] else None,
                _value(store, row, "_r") if row["_right"] else None,
            ),
        )
        for row in joined.head(MOST).iter_rows(named=True)
    ]
    return found, joined.height


def _key(store: StoreDef, row: Mapping[str, Any]) -> Any:
    key = object_of(store.key, row["key"])
    if "key2" in row:
        return [key, object_of(Bytes(), row["key2"])]
    return [key, row["s"]] if "s" in row and store.layout.expires else key


def _value(store: StoreDef, row: Mapping[str, Any], side: str) -> dict[str, Any]:
    """The value of a row, and its other columns."""
    names = [name for name, _ in store.layout.values]
    found = {name: row[f"{name}{side}"] for name in names}
    if "value" in found:
        found["value"] = object_of(store.value, found["value"])
    return {**found, "deleted": True} if row[f"gone{side}"] else found
