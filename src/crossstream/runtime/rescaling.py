"""Another number of state partitions, between two batches.

All stores of the last commit are sliced again, into files beside the old ones, and one commit, which reads no records,
names them (decision 0011). Until it is there nothing has happened; older commits keep the partitions they had. Where
their number stays, and a partitioner is another one, only the stores that partitioners place are cut.

    law    whatever the numbers of partitions before and after, each row is in the partition of its key, and of
           the rows with one identity the newest is found first; of rows that have expired none is left

A partition holds a range of key hashes, and runs are sorted by hash: its rows lie side by side in every old run. Slots
keep their order; those of several old partitions, whose hashes are disjoint, are put together from the oldest on.
Rows that are placed otherwise, such as by a partitioner of the user, are picked one by one, and sorted.

Merges that were under way are forgotten: between two steps their inputs and their output are runs like any other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from msgspec import structs

from crossstream.columns.hashing import partition_bounds, partition_of
from crossstream.columns.stream_time import merged_sources
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.planning.layouts import layout_of
from crossstream.planning.plan import Partitioner, Plan, StoreDef
from crossstream.planning.steps import MaterializeStep, ResolveStep, Step, SubscribeStep
from crossstream.runtime.spreading import all_spread, by_hot_keys
from crossstream.storage.columns import concat_all, take_all
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.compaction import NO_HORIZON, Part, Segment, unexpired
from crossstream.storage.files import file_names, in_threads, partition_folder
from crossstream.storage.log_entries import SENT, Application, Commit
from crossstream.storage.manifest import read_manifest, read_run
from crossstream.storage.root import StateRoot, state_partition
from crossstream.storage.sorted_run import Run, sort_rows
from crossstream.storage.store import SEGMENT_ROWS, Version, load_version, saver, store_version, unique_name
from crossstream.task.shuffle_codec import chosen_partitions

Placement = Callable[[Run], np.ndarray]
"""The partition of each row of a run."""
Save = Callable[[Run], Segment]

_Levels = list[list[Run]]
"""Rows of one old partition: its levels, newest first, each in segments."""

SAMPLED = 256
"""Rows of a state partition, at least if there are so many, whose place a partitioner is asked for at the start."""

Versions = dict[int, Version]
"""The versions of a store, by state partition; a partition that nothing is known of has none."""


@dataclass(frozen=True, slots=True)
class Rescaled:
    """``commit``: the state in its new partitions. ``retired``: files that only older commits need, by place.

    ``rows``, ``size``: rows and bytes in the new partitions.
    """

    commit: Commit
    retired: dict[str, list[str]]
    rows: int
    size: int


def rescale(log: BatchLog, partitions: int, placements: Mapping[str, Placement]) -> Rescaled:
    """Cuts the state of the last commit into ``partitions``; the caller holds the lock of the log.

    Into as many as there are: the stores that a partitioner places. ``placements``: where their rows go. Raises
    `StateError`: CS-730 if one of them is missing, or a batch was begun and not committed, CS-731 for rows that a
    processor put elsewhere; and as opening a damaged store does.
    """
    application, before = log.application(), log.newest()
    assert application is not None
    _check_placed(log, application, placements)
    _check_finished(log, before)
    batch = before.id + 1 if before.id >= 0 else before.id
    is_same = partitions == before.partitions
    there = {store: one for store, one in before.versions.items() if not store.startswith(SENT)}
    stays = {store: one for store, one in there.items() if is_same and store not in placements}
    held = {store: _open(log.root, before, store) for store in there if store not in stays}
    _check_where_they_belong(log, application, before, held)
    spread = {store: by_hot_keys(partitions, hashes) for store, hashes in before.hot.items()}
    ways = {**dict.fromkeys(application.by_key2, by_second_key(partitions)), **spread, **placements}
    made = {
        store: _cut(log.root, store, versions, before.partitions, partitions, batch, ways.get(store))
        for store, versions in held.items()
        if store not in application.derived
    }
    names = {store: {pid: _name(one) for pid, one in versions.items()} for store, versions in made.items()}
    versions = {**stays, **names}
    hot = all_spread(before.hot, made)
    commit = structs.replace(
        before, id=batch, partitions=partitions, versions=versions, time=time.time(), hot=hot
    )
    log.settle(file_names(_files(made)))
    if batch >= 0:
        log.write_commit(commit)
    log.write_application(structs.replace(application, partitions=partitions, committed=batch >= 0))
    new = [version for versions in made.values() for version in versions.values()]
    return Rescaled(commit, _files(held), sum(one.rows for one in new), sum(one.size for one in new))


def misplaced(log: BatchLog, placements: Mapping[str, Placement]) -> list[str]:
    """The stores with rows that their partitioner puts elsewhere now: it is not the one that placed them.

    ``placements``: in the partitions that there are. Some rows of each partition are looked at, of the newest files.
    Raises what a partitioner does, and `StateError` CS-750 if a batch was begun, which would be repeated otherwise.
    """
    commit = log.newest()
    moved = [
        store
        for store in sorted(placements.keys() & commit.versions.keys())
        if any(
            (placements[store](run) != pid).any()
            for pid, name in commit.versions[store].items()
            for run in _sample(log.root, store, pid, name)
        )
    ]
    begun = log.begun(commit) if moved else None
    if begun is not None:
        raise refuse(
            "CS-750",
            f"another partitioner places the rows of {', '.join(moved)}, and batch {begun.id} was begun and not "
            "committed, and has to be repeated as it was",
            "start the application with the partitioner it had: it finishes the batch; then with the new one",
            folder=str(log.root),
        )
    return moved


def _sample(root: StateRoot, store: str, partition: int, name: str) -> Iterator[Run]:
    """Rows of a state partition, from the newest segment on, so many that they are `SAMPLED`."""
    wanted = SAMPLED
    with state_partition(root, store, partition) as folder:
        manifest = read_manifest(folder, name)
        for segment in manifest.segments():
            if wanted <= 0:
                return
            run = read_run(folder, segment).slice(segment.start, segment.stop)
            rows = np.linspace(0, run.rows - 1, min(run.rows, wanted), dtype=np.int64)
            wanted -= len(rows)
            yield Run(take_all(run.columns, rows))


def _check_placed(log: BatchLog, application: Application, placements: Mapping[str, Placement]) -> None:
    unknown = sorted(set(application.placed) - placements.keys())
    if unknown:
        what = f"the rows of {', '.join(unknown)} are placed by a partitioner, which only the application has"
        raise refuse("CS-730", what, folder=str(log.root))


def _check_where_they_belong(
    log: BatchLog, application: Application, before: Commit, held: Mapping[str, Versions]
) -> None:
    """Rows that a processor put under another key than its record's would move away from the processor."""
    bounds = partition_bounds(before.partitions)
    for store in sorted(held.keys() & set(application.anywhere)):
        for pid, version in held[store].items():
            runs = [segment.run["h"] for part in version.parts for segment in part.segments if segment.rows]
            if any(int(h[0]) < bounds[pid] or int(h[-1]) >= bounds[pid + 1] for h in runs):
                what = f"a processor has put rows into {store} under keys of other state partitions than its records'"
                raise refuse("CS-731", what, folder=str(log.root), store=store, partition=pid)


def _check_finished(log: BatchLog, before: Commit) -> None:
    begun = log.begun(before)
    if begun is not None:
        what = f"batch {begun.id} was begun and not committed, and has to be repeated as it was"
        raise refuse("CS-730", what, folder=str(log.root))


def _open(root: StateRoot, commit: Commit, store: str) -> Versions:
    names = commit.versions[store]
    found = in_threads(lambda pid: _open_one(root, store, pid, names[pid]), names, os.cpu_count())
    return dict(zip(names, found, strict=True))


def _open_one(root: StateRoot, store: str, partition: int, name: str) -> Version:
    with state_partition(root, store, partition) as folder:
        manifest = read_manifest(folder, name)
        layout = layout_of(manifest.kind)
        if layout is None:
            what = f"the store is of a kind that this version does not read: {manifest.kind!r}"
            raise refuse("CS-704", what, "run the version of crossstream that wrote it", store=store)
        return load_version(folder, layout, name)


def _cut(
    root: StateRoot,
    store: str,
    held: Versions,
    before: int,
    partitions: int,
    batch: int,
    placement: Placement | None,
) -> Versions:
    """The versions of a store in its new partitions, their files written."""
    make = cutter(held, before, partitions, batch, placement)

    def one(pid: int) -> Version | None:
        folder = root.storage(partition_folder(store, pid))
        prefix = unique_name(batch)
        version = make(pid, saver(folder, prefix))
        return None if version is None else store_version(version, folder, f"{prefix}.manifest")

    found = in_threads(one, range(partitions), os.cpu_count())
    return {pid: version for pid, version in enumerate(found) if version is not None}


def cutter(
    held: Versions, before: int, partitions: int, batch: int, placement: Placement | None = None
) -> Callable[[int, Save], Version | None]:
    """What cuts a store, held in ``before`` partitions, into ``partitions``; ``placement``: None for by hash.

    It makes the version of a new partition, its runs saved; None if there is nothing to know of it.
    """
    old, new = partition_bounds(before), partition_bounds(partitions)
    ordered = sorted(held.items())

    def sliced(pid: int, save: Save) -> Version | None:
        low, high = new[pid], new[pid + 1]
        sources = [version for p, version in ordered if old[p] < high and low < old[p + 1]]
        taken = [
            [_between(part, low, high, source.hides_before) for part in source.parts] for source in sources
        ]
        return _assembled(sources, taken, batch, lambda runs: map(save, _joined(runs)))

    if placement is None:
        return sliced
    all_parts = [(version.hides_before, version.parts) for _, version in ordered]
    places = [[[placement(one.run) for one in part.segments] for part in parts] for _, parts in all_parts]

    def placed(pid: int, save: Save) -> Version | None:
        """Any old partition may have rows of any new one."""
        taken = [
            [_picked(part, of_part, pid, horizon) for part, of_part in zip(parts, of_parts, strict=True)]
            for (horizon, parts), of_parts in zip(all_parts, places, strict=True)
        ]
        sources = [version for _, version in ordered]
        return _assembled(sources, taken, batch, lambda runs: [save(sort_rows(_together(runs).columns))])

    return placed


def _files(held: Mapping[str, Versions]) -> dict[str, list[str]]:
    return {
        f"{store}/{pid}": sorted({_name(version), *version.files()})
        for store, versions in held.items()
        for pid, version in versions.items()
    }


def _name(version: Version) -> str:
    assert version.name is not None
    return version.name


def by_partitioner(store: StoreDef, partitioner: Partitioner, partitions: int, run: Run) -> np.ndarray:
    """The partition of each row: the partitioner is asked once for each key, as the serde reads it.

    Raises `SerdeError`, `ProcessingError` CS-505.
    """
    encoded = run["key"].dictionary_encode()
    keys = Values(store.key, wire=encoded.dictionary)
    try:
        places = chosen_partitions(partitioner, keys, partitions, lambda row: {"key": keys.objects()[row]})
    except CrossStreamError as error:
        raise error.at(store=store.name) from error.__cause__
    return np.asarray(places[encoded.indices.to_numpy(zero_copy_only=False)])


def by_second_key(partitions: int) -> Placement:
    """Places rows by the hash of their second key, which is their ``s``."""
    return lambda run: partition_of(run["s"], partitions)


def partitioners(plan: Plan) -> dict[str, Partitioner]:
    """The partitioner of each store that has one; the rows of all others are placed by hash."""
    found = {}
    arriving = {exchange.arrives: exchange.partitioner for exchange in plan.exchanges}
    for step in plan.steps:
        partitioner = arriving.get(step.inputs[0]) if step.inputs else None
        if partitioner is not None:
            found.update(dict.fromkeys(_stores_filled_by(step), partitioner))
    return found


def placements(plan: Plan, partitions: int) -> dict[str, Placement]:
    """How the rows of these stores are placed in ``partitions`` partitions."""
    return {
        name: partial(by_partitioner, plan.stores[name], partitioner, partitions)
        for name, partitioner in partitioners(plan).items()
    }


def _stores_filled_by(step: Step) -> list[str]:
    """The stores that keep what the first input of a step brings."""
    if isinstance(step, MaterializeStep | SubscribeStep):
        return [step.store]
    if isinstance(step, ResolveStep):
        return [step.subscriptions] if step.referrers is None else [step.subscriptions, step.referrers]
    return []


def _assembled(
    sources: Sequence[Version],
    taken: Sequence[_Levels],
    batch: int,
    save: Callable[[list[Run]], Iterable[Segment]],
) -> Version | None:
    """Merging work that was saved up goes along with the rows; stream time never goes back for any of them."""
    stream_time = max((source.stream_time for source in sources), default=-1)
    taken = [[runs for runs in levels if runs] for levels in taken]
    marks = {number: mark for source in sources for number, mark in source.marks.items()}
    if stream_time < 0 and not any(taken) and not marks:
        return None
    return replace(
        sources[0],
        parts=tuple(Part(tuple(save(runs))) for runs in _aligned(taken)),
        batch=batch,
        stream_time=stream_time,
        horizon=min(source.horizon for source in sources),
        clock=max(source.clock for source in sources),
        sources=merged_sources(source.sources for source in sources),
        marks=marks,
        credit=sum(
            source.credit * _count(levels) // source.rows
            for source, levels in zip(sources, taken, strict=True)
            if source.rows
        ),
        name=None,
    )


def _aligned(taken: Sequence[_Levels]) -> _Levels:
    """One list of levels out of several: their oldest ones meet, for these are the large ones."""
    depth = max(len(levels) for levels in taken)
    return [
        [run for levels in taken if len(levels) >= age for run in levels[-age]] for age in range(depth, 0, -1)
    ]


def _between(part: Part, low: int, high: int, horizon: int) -> list[Run]:
    found = []
    for segment in part.segments:
        h = segment.run["h"]
        start = int(np.searchsorted(h, np.uint64(low), "left"))
        stop = segment.rows if high >= 1 << 64 else int(np.searchsorted(h, np.uint64(high), "left"))
        rows = segment.run.slice(start, stop) if start < stop else None
        if rows is not None and horizon > NO_HORIZON:
            rows = unexpired(rows, horizon)
        if rows is not None and rows.rows:
            found.append(rows)
    return found


def _picked(part: Part, places: Sequence[np.ndarray], partition: int, horizon: int) -> list[Run]:
    found = []
    for segment, of_piece in zip(part.segments, places, strict=True):
        wanted = of_piece == partition
        if horizon > NO_HORIZON:
            wanted &= segment.run["s"] >= horizon
        rows = np.flatnonzero(wanted)
        if len(rows):
            found.append(Run(take_all(segment.run.columns, rows)))
    return found


def _joined(runs: Iterable[Run]) -> Iterator[Run]:
    """The same rows in fewer runs: small ones together until they are worth a file."""
    held: list[Run] = []
    for run in runs:
        held.append(run)
        if _count([held]) >= SEGMENT_ROWS:
            yield _together(held)
            held = []
    if held:
        yield _together(held)


def _together(runs: list[Run]) -> Run:
    return runs[0] if len(runs) == 1 else Run(concat_all([run.columns for run in runs]))


def _count(levels: _Levels) -> int:
    return sum(run.rows for runs in levels for run in runs)
