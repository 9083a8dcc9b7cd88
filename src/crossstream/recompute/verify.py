"""Compares every queryable store of a state with what the topics give, computed again in one batch.

How the input was cut into batches, and into state partitions, changes no table (semantics 4.2). So the results are
computed with one batch, and with another number of state partitions where no operator depends on that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.hashing import hash_keys
from crossstream.errors import SourceError
from crossstream.graph import nodes as graph
from crossstream.graph.nodes import Node, lineage
from crossstream.lakehouse.connection import as_begun
from crossstream.planning.plan import Plan, StoreDef
from crossstream.query.files import application_of
from crossstream.query.store import StoreReader
from crossstream.recompute.inputs import consumed, kept_batches, last_clock, object_of
from crossstream.recompute.past_batch import check_same_stores
from crossstream.recompute.reason import located
from crossstream.recompute.replay import Replay, Written, reader_after
from crossstream.runtime.in_process import Span
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.windowed import Windowed
from crossstream.storage.log_entries import BatchEntry, SourceRange
from crossstream.storage.root import Place, root_of
from crossstream.task.batch import Input, Settings, TopicInput
from crossstream.topics import TopicConnection

GONE = "CS-613"
"""A version of a lake table that is gone."""
MOST = 1_000
"""Differing rows of a store that are decoded, at most."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not the same on both sides; a side that has no such row is None.

    ``theirs``: what is checked (the state, or the topic of another application); ``ours``: what was computed.
    ``their_time``, ``our_time``: the timestamps, ms; None where they do not count, or there is no row.
    """

    key: Any
    theirs: Any
    ours: Any
    their_time: int | None = None
    our_time: int | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """A store or a topic that was compared. ``rows``: of both sides together; ``different``: how many are not equal.

    ``differences``: the first of them. ``unverifiable``: rows that differ, which may be because records were deleted
    from the topics. ``notes``: why rows may differ without a fault. ``arrival``: whether they depend on the order in
    which records of several partitions came. Then rows that differ are computed again in the batches that are known.
    """

    name: str
    rows: int
    different: int
    differences: tuple[Difference, ...]
    unverifiable: int = 0
    notes: tuple[str, ...] = ()
    arrival: bool = False


@dataclass(frozen=True, slots=True)
class Verified:
    """What `verify_results` found. ``batch``: the commit; ``records``: how many input records were read.

    ``partitions``: of the state, and of the computation. ``notes``: what holds for all stores.
    """

    batch: int
    records: int
    partitions: tuple[int, int]
    stores: tuple[Compared, ...]
    notes: tuple[str, ...] = ()

    @property
    def different(self) -> int:
        """How many rows differ in all stores together."""
        return sum(store.different for store in self.stores)


def verify_results(
    state_dir: Place,
    plan: Plan,
    connection: TopicConnection | None,
    settings: Settings | None = None,
    *,
    sample: float | None = None,
    as_of: int | None = None,
) -> Verified:
    """Computes the queryable stores again from the topics, and compares them with the state row by row.

    ``sample``: the share of keys to take, if the topology allows it. Raises `StateError` CS-713 without state,
    `IncompatibleStateError` CS-750 for the state of another topology, and what reading topics raises.
    """
    root = root_of(state_dir)
    connection = as_begun(connection, application_of(root).starts.positions)
    log = None if connection is None else connection.log()
    try:
        found = consumed(root, plan.topology, log, as_of)
        check_same_stores(plan, found.application, str(root))
        notes = [str(one) for one in found.deleted]
        refusal = None if sample is None else why_not_sampled(plan)
        if refusal is not None:
            notes.append(f"all keys are compared, not a sample: {refusal}")
            sample = None
        stores = [store for store in plan.stores.values() if store.public is not None]
        there = {store.name: reader_after(found.commit, store, root) for store in stores}
        partitions = _partitions(plan, found.commit.partitions)
        counts = {} if log is None else log.topics()
        lost = {one.node for one in found.deleted}
        kept = kept_batches(root, found.commit.id)
        clock = last_clock(kept)
        at_once = found.loads.batches(plan.topology, found.spans)

        def computed(
            number: int, batches: Sequence[Sequence[Span]], connection: TopicConnection | None = connection
        ) -> list[Compared]:
            replay = Replay(
                plan,
                number,
                settings or Settings(),
                Written(counts),
                clock=clock,
                snapshots=found.loads.snapshots,
            )
            if connection is not None:
                with closing(connection.reader()) as reader:
                    source: Input = TopicInput(reader)
                    source = source if sample is None else Sampled(source, sample)
                    for spans in batches:
                        replay.run(spans, source)
            return [_compared(plan, store, there[store.name], replay, lost, sample) for store in stores]

        try:
            compared = computed(partitions, at_once)
        except SourceError as error:
            if error.code != GONE:
                raise
            lost |= {node.name for node in plan.topology if node.lake is not None}
            notes.append(f"the newest versions of lake tables are compared, without times: {error.what}")
            compared = computed(partitions, at_once, as_begun(connection, {}))
        if any(one.different and one.arrival for one in compared):
            as_cut = [batch for part in at_once for batch in batches_of(part, kept)]
            again = computed(found.commit.partitions, as_cut)
            pairs = zip(compared, again, strict=True)
            compared = [second if first.different and first.arrival else first for first, second in pairs]
    finally:
        if log is not None:
            log.close()
    records = sum(end - start for _, _, _, start, end in found.spans)
    return Verified(
        found.commit.id, records, (found.commit.partitions, partitions), tuple(compared), tuple(notes)
    )


def _compared(
    plan: Plan,
    store: StoreDef,
    theirs: StoreReader,
    replay: Replay,
    lost: Collection[str],
    sample: float | None,
) -> Compared:
    """``lost``: sources of which records were deleted, or the first version of a lake table."""
    above, public = _above(plan, store), store.public or ""
    sources = [node for node in above if node.reads_topics]
    times = len(sources) == 1 and not (sources[0].lake is not None and sources[0].name in lost)
    one = compare(public, theirs, replay.reader(store), sample, times=times)
    if any(node.name in lost for node in above):
        one = replace(one, different=0, unverifiable=one.different)
    return replace(one, notes=_notes(above), arrival=_depends_on_arrival(above))


def batches_of(spans: Sequence[Span], entries: Sequence[BatchEntry]) -> list[list[Span]]:
    """The ranges in the batches in which they were read; first, in one batch, those of batches not kept any more."""
    known = [
        (entry.id, part.topic, part.partition, part.start, part.end)
        for entry in entries
        for part in entry.ranges
    ]
    found: dict[int, list[Span]] = {}
    for node, topic, partition, start, end in spans:
        mine = sorted(one for one in known if one[1:3] == (topic, partition))
        first = min([low for *_, low, _ in mine], default=end)
        pieces = [(-1, start, min(first, end)), *((number, low, high) for number, *_, low, high in mine)]
        for number, low, high in pieces:
            low, high = max(low, start), min(high, end)
            if low < high:
                found.setdefault(number, []).append((node, topic, partition, low, high))
    return [found[number] for number in sorted(found)]


def _partitions(plan: Plan, state: int) -> int:
    """Another number than that of the state, unless results depend on it."""
    return state if any(node.runs_processor for node in plan.topology) else state + 1


def _above(plan: Plan, store: StoreDef) -> list[Node]:
    """The nodes that make the rows of a store."""
    nodes = plan.topology.nodes
    owners = [node.name for node in plan.topology if node.queryable_name == store.public]
    for node in plan.topology:
        sides = zip(node.side_stores, node.parents, strict=False)
        owners += [parent for spec, parent in sides if spec.name == store.public]
        if node.runs_processor and store.public in node.queryable_names:
            owners.append(node.name)
    return list(lineage(nodes, owners))


def _notes(above: Sequence[Node]) -> tuple[str, ...]:
    """Why rows may differ without a fault."""
    notes = []
    if any(node.reads_input and not node.reads_topics for node in above):
        notes.append("it is made of the rows of DataFrames, which cannot be read again")
    if _depends_on_arrival(above):
        notes.append(
            "rows may differ where records of one partition came later than those of another; "
            "the log does not say so of batches that are not retained"
        )
    if any(node.runs_processor for node in above):
        notes.append("a processor that reads a clock, or other services, may give other rows")
    if any(node.store is not None and node.store.clock == "wall" for node in above):
        notes.append("rows expire by the clock: what looked them up before may differ, without a fault")
    return tuple(notes)


def _depends_on_arrival(above: Sequence[Node]) -> bool:
    """Whether rows depend on the order in which records of several partitions came: streams are in it."""
    return any(node.shape == "stream" and not isinstance(node, graph.ToStream) for node in above)


# -- samples ---------------------------------------------------------------------------------------------------


def why_not_sampled(plan: Plan) -> str | None:
    """Why not only some keys can be computed; None: they can."""
    for node in plan.topology:
        place = located(node)
        if node.changes_key or node.references:
            return f"{place} needs rows of other keys"
        if node.depends_on_time:
            return f"{place} depends on stream time, which records of all keys move"
        if node.unwrap is not None:
            return f"{place} reads change events, some of which are of all keys"
        if node.reads_topics and (node.key is None or node.key.varied):
            return f"the keys of {place} may be written in several ways"
    return None


@dataclass(slots=True)
class Sampled:
    """The records whose keys are in the sample."""

    input: Input
    share: float

    def read(
        self, spans: Sequence[SourceRange], max_rows: int
    ) -> Iterator[tuple[SourceRange, pa.RecordBatch]]:
        for span, records in self.input.read(spans, max_rows):
            taken = records.filter(pa.array(in_sample(records.column("key"), self.share)))
            if taken.num_rows:
                yield span, taken


def in_sample(keys: Any, share: float) -> np.ndarray:
    """Which keys are in the sample: by their hash, so it is the same ones everywhere."""
    return hash_keys(keys.fill_null(b"")).astype(np.float64) < share * 2.0**64


# -- comparing -------------------------------------------------------------------------------------------------


def compare(
    name: str, theirs: StoreReader, ours: StoreReader, sample: float | None = None, *, times: bool = True
) -> Compared:
    """Compares two stores row by row: keys, values and timestamps.

    ``times``: of a row that is made of several topics the timestamp depends on which record came last (semantics 1.3).
    """
    left, ids = _frame(theirs, sample)
    right, _ = _frame(ours, None)
    return compared(name, left, right, ids, theirs.key, theirs.value, windows="end" in ids, times=times)


def _frame(store: StoreReader, sample: float | None) -> tuple[pl.DataFrame, list[str]]:
    """The rows of a store with their keys, and the columns that say which row is which."""
    columns = store._live()
    frame = pl.DataFrame({name: _series(columns[name]) for name in ("key", "value")})
    numbers = [name for name in ("ts", "start", "end") if name in columns]
    frame = frame.with_columns(pl.Series(name, np.asarray(columns[name]), pl.Int64) for name in numbers)
    if sample is not None:
        frame = frame.filter(pl.Series(in_sample(columns["key"], sample)))
    ids = ["key"]
    if store.by_time is not None:
        ids += ["start", "end"] if "start" in frame.columns else ["ts"]
    if store.kind == "window" and "start" not in frame.columns:
        frame = frame.sort("key", "ts", "value", nulls_last=True)
        frame = frame.with_columns(nth=pl.int_range(pl.len()).over("key", "ts"))
        ids.append("nth")
    return frame, ids


def _series(column: Any) -> pl.Series:
    series = pl.from_arrow(column)
    assert isinstance(series, pl.Series)
    return series


def compared(
    name: str,
    left: pl.DataFrame,
    right: pl.DataFrame,
    ids: Sequence[str],
    key: EngineSerde,
    value: EngineSerde,
    *,
    windows: bool = False,
    times: bool = True,
) -> Compared:
    """Compares the rows of two frames. Values whose bytes differ are equal if they are equal as objects."""
    times = times and "ts" not in ids and "ts" in left.columns
    taken = [*ids, "value", *(["ts"] if times else [])]
    left, right = left.select(taken), right.select(taken)
    if left.equals(right):
        return Compared(name, left.height, 0, ())
    joined = left.with_columns(_left=True).join(
        right.with_columns(_right=True), on=list(ids), how="full", coalesce=True, suffix="_right"
    )
    same = pl.col("value").eq_missing(pl.col("value_right")) & pl.col("_left") & pl.col("_right")
    if times:
        same = same & pl.col("ts").eq_missing(pl.col("ts_right"))
    differing = joined.filter(~same.fill_null(False))
    found = _decoded(differing.head(MOST).sort(ids), ids, key, value, windows=windows, times=times)
    different = differing.height - min(differing.height, MOST) + len(found)
    return Compared(name, joined.height, different, tuple(found))


def _decoded(
    rows: pl.DataFrame,
    ids: Sequence[str],
    key: EngineSerde,
    value: EngineSerde,
    *,
    windows: bool,
    times: bool,
) -> list[Difference]:
    found = []
    for row in rows.iter_rows(named=True):
        name = None if row.get("null") else object_of(key, row["key"])
        if windows:
            name = Windowed(name, row["start"], row["end"])
        elif "ts" in ids:
            name = (name, row["ts"])
        theirs = object_of(value, row["value"]) if row["_left"] else None
        ours = object_of(value, row["value_right"]) if row["_right"] else None
        at = (row["ts"], row["ts_right"]) if times else (None, None)
        if row["_left"] and row["_right"] and at[0] == at[1] and _same(theirs, ours):
            continue
        found.append(Difference(name, theirs, ours, *at))
    return found


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
