"""A version of one store partition, and how the next one is made from it.

A version is a value: the runs of the store after a batch. `advance` adds the rows of the next batch as
one new run, does a bounded amount of merging, and gives the next version. Old versions stay readable as
long as their files are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import uuid4

from crossstream.storage.compaction import (
    NO_HORIZON,
    Keep,
    Part,
    Segment,
    advance_job,
    largest_run,
    marked,
    next_job,
    passes,
    remembered,
    rows_left,
    smallest_first,
    unexpired,
    without_expired,
    worn_run,
)
from crossstream.storage.files import Storage
from crossstream.storage.manifest import (
    LevelRef,
    Manifest,
    SegmentRef,
    lost,
    map_run,
    read_run,
    read_version,
    write_manifest,
    write_run,
)
from crossstream.storage.snapshot import Marks, Snapshot
from crossstream.storage.sorted_run import Layout, Run

SEGMENT_ROWS = 32_768
"""Rows that one merging step writes into one segment; also the least work done when work is due."""

MAPPED_BYTES = 1 << 20
"""Runs of at least that size are held in their files only, as soon as they are written."""


@dataclass(frozen=True, slots=True)
class Version:
    """The runs of one store partition after ``batch``, newest first; ``name`` of its manifest, if stored.

    ``horizon``: rows with older timestamps have expired, whether their bytes are still there or not; of a table they
    were deleted. ``clock``: where stream time moves without input, the time of the clock (ms) from which it does so.
    ``sources``: by source partition the time of the rows that came of it, and of the clock when the last one came
    (decision 0038). ``marks``: what a step knows of all rows of the store, the same in every state partition, by
    numbers of its own (decision 0045). ``unsaved``: what a batch begins with, and has no manifest yet.
    """

    layout: Layout
    parts: tuple[Part, ...] = ()
    batch: int = -1
    stream_time: int = -1
    credit: int = 0
    name: str | None = None
    horizon: int = NO_HORIZON
    clock: int = 0
    sources: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)
    unsaved: bool = False

    def snapshot(self) -> Snapshot:
        """What a batch reads, and puts its rows into."""
        return Snapshot(self.layout, tuple([part.level for part in self.parts]))

    @property
    def rows(self) -> int:
        return sum([part.rows for part in self.parts])

    @property
    def hides_before(self) -> int:
        """Rows with older timestamps are not there any more, whether their bytes are or not."""
        return self.horizon if self.layout.expires else NO_HORIZON

    @property
    def size(self) -> int:
        """Bytes of the run files in use."""
        refs = (segment.ref for part in self.parts for segment in part.segments if segment.ref is not None)
        return sum({ref.file: ref.size for ref in refs}.values())

    def files(self) -> set[str]:
        return {p.ref.file for part in self.parts for p in part.segments if p.ref is not None}


@dataclass(frozen=True, slots=True)
class StoreUpdate:
    """What a batch does to a store partition: the rows it puts, and to where it moves the times of a `Version`.

    ``early``: rows of the batch that come before those of ``fresh`` and are stored already. ``sources``, ``marks``:
    None: as before.
    """

    fresh: Run | None
    stream_time: int
    batch: int
    early: Sequence[Segment] = ()
    horizon: int = NO_HORIZON
    clock: int = 0
    sources: Mapping[int, tuple[int, int]] | None = None
    marks: Marks | None = None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The rows, older ones first."""
        if self.fresh is None or not self.fresh.rows:
            return tuple(self.early)
        return (*self.early, Segment(self.fresh, fresh=True))


def advance(
    version: Version,
    update: StoreUpdate,
    save: Callable[[Run], Segment],
    *,
    history: int | None = None,
    remembered: int = 0,
) -> Version:
    """The version after a batch: its fresh rows added, merging work done in proportion.

    Fresh rows that are merged at once are not stored beside what they are merged into. ``save`` stores a run and
    returns it as a segment. ``history``: of a versioned store, how far (ms) before stream time look-ups may ask for it;
    None: any time. ``remembered``: how long (ms) rows stay that have expired. Returns ``version`` itself if nothing
    changed.
    """
    segments, stream_time, horizon = update.segments, update.stream_time, update.horizon
    sources = version.sources if update.sources is None else update.sources
    marks = version.marks if update.marks is None else update.marks
    times = (version.stream_time, version.horizon, version.clock, version.sources, version.marks)
    if not segments and (stream_time, horizon, update.clock, sources, marks) == times:
        return version
    parts, credit = list(version.parts), version.credit
    oldest = horizon - remembered
    expires = oldest > NO_HORIZON and version.layout.expires
    if expires:
        parts = without_expired(parts, oldest)
    if segments:
        parts.insert(0, Part(segments))
        credit += max(4, passes(parts)) * parts[0].rows + SEGMENT_ROWS // 8
    most = largest_run(sum(part.rows for part in parts)) if version.layout.expires else None
    while (job := next_job(parts, most)) is not None:
        parts = job
    if expires and (place := worn_run(parts, oldest)) is not None:
        parts = marked(parts, place, place + 1)
    since = NO_HORIZON if history is None else stream_time - history
    parts, credit = _work(parts, credit, save, _keep(oldest if expires else NO_HORIZON, since))
    parts = [_stored_now(part, save) for part in parts]
    return Version(
        version.layout,
        tuple(parts),
        update.batch,
        stream_time,
        credit,
        horizon=horizon,
        clock=update.clock,
        sources=sources,
        marks=marks,
    )


def _keep(horizon: int, since: int) -> Keep | None:
    """What merges leave out; None: nothing."""
    if horizon > NO_HORIZON:
        return lambda run, parts, job: unexpired(run, horizon)
    return partial(remembered, since=since) if since > NO_HORIZON else None


def _work(
    parts: list[Part],
    credit: int,
    save: Callable[[Run], Segment],
    keep: Keep | None,
) -> tuple[list[Part], int]:
    for job in smallest_first(parts):
        while any(part.job == job for part in parts):
            step = min(rows_left(parts, job), SEGMENT_ROWS)
            if step > credit:
                break
            parts = advance_job(parts, job, step, save, keep)
            credit -= step
    return parts, min(credit, 4 * SEGMENT_ROWS) if not any(part.job for part in parts) else credit


def _stored_now(part: Part, save: Callable[[Run], Segment]) -> Part:
    """The part with its fresh segments stored."""
    if not any(segment.fresh for segment in part.segments):
        return part
    return replace(part, segments=tuple(save(one.run) if one.fresh else one for one in part.segments))


def store_version(version: Version, storage: Storage, name: str) -> Version:
    """Writes the manifest of a version whose segments are all stored."""
    levels = tuple(
        LevelRef(tuple(_stored(segment) for segment in part.segments), part.job, part.output)
        for part in version.parts
    )
    manifest = Manifest(
        name,
        version.layout.kind,
        version.batch,
        levels,
        version.stream_time,
        version.credit,
        horizon=version.horizon,
        clock=version.clock,
        sources=dict(version.sources),
        marks=dict(version.marks),
    )
    write_manifest(storage, manifest)
    return replace(version, name=name)


def load_version(
    storage: Storage, layout: Layout, name: str, opened: dict[str, Run] | None = None
) -> Version:
    """Opens the version that a manifest describes. ``opened``: run files already open, by name; completed here."""
    return version_of(storage, layout, read_version(storage, name, layout.kind), opened)


def version_of(
    storage: Storage, layout: Layout, manifest: Manifest, opened: dict[str, Run] | None = None
) -> Version:
    """As `load_version`, of a manifest that has been read; it may have only some of its segments."""
    runs = {} if opened is None else opened

    def segment(ref: SegmentRef) -> Segment:
        whole = runs.get(ref.file)  # once: another thread may drop it
        if whole is None:
            whole = runs[ref.file] = read_run(storage, ref)
        if not layout.fits(whole.columns) or whole.lacks_keys:
            raise lost(f"the run file {ref.file} has other columns than a {layout.kind} store")
        h = whole["h"]
        if not ref.start < ref.stop <= whole.rows or (h[ref.start], h[ref.stop - 1]) != (ref.low, ref.high):
            raise lost(f"the run file {ref.file} has not the rows {ref.start} to {ref.stop} of the manifest")
        return Segment(whole.slice(ref.start, ref.stop), ref)

    parts = tuple(
        Part(tuple(map(segment, level.segments)), level.job, level.output) for level in manifest.levels
    )
    return Version(
        layout,
        parts,
        manifest.batch,
        manifest.stream_time,
        manifest.credit,
        manifest.name,
        manifest.horizon,
        manifest.clock,
        manifest.sources,
        manifest.marks,
    )


def unique_name(batch: int) -> str:
    """How the names of files begin that one attempt of a batch writes: each attempt has its own (decision 0003)."""
    return f"{batch:012d}-{uuid4().hex[:8]}"


def saver(storage: Storage, prefix: str) -> Callable[[Run], Segment]:
    """A `save` for `advance` that writes runs as ``<prefix>-<number>.arrow``.

    Larger runs are given back as they lie in their files: a process that keeps a version keeps no second copy.
    """
    count = 0

    def save(run: Run) -> Segment:
        nonlocal count
        ref = write_run(storage, f"{prefix}-{count}.arrow", run)
        count += 1
        return Segment(run if ref.size < MAPPED_BYTES else map_run(storage, ref), ref)

    return save


def _stored(segment: Segment) -> SegmentRef:
    assert segment.ref is not None, "a version in memory has no manifest"
    return segment.ref
