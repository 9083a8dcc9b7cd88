"""Says which input records made a row of a result, step by step; or where a row that is missing has ended.

Nothing is kept for it while the application runs. The records of the keys that matter are read from the topics, run
alone, and left out one after the other: those without which the row changes are the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.catalog.planners import plan_topology
from crossstream.durations import in_words
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.nodes import Graph, Node, lineage
from crossstream.lakehouse.connection import as_begun
from crossstream.planning.plan import Plan
from crossstream.query.files import application_of
from crossstream.query.store import StoreReader, store_named
from crossstream.query.views import view_of_folder
from crossstream.recompute.inputs import Consumed, consumed, kept_batches, object_of
from crossstream.recompute.left_out import group_of
from crossstream.recompute.pool import OLDER, Pool
from crossstream.recompute.reason import InputRecord, Why
from crossstream.recompute.replay import Replay, no_store, reader_after
from crossstream.recompute.taps import Taps, part_of, run_with_taps
from crossstream.recompute.trace import Followed, Tracer
from crossstream.recompute.tree import SHOWN, Tree
from crossstream.serdes import calls
from crossstream.serdes.windowed import Windowed
from crossstream.storage.root import Place, StateRoot, root_of
from crossstream.task.batch import Settings
from crossstream.topics import OffsetRange, RangeReader, ReadsInTurn, TopicConnection

SECONDS, RUNS = 10.0, 4_000
"""How long, in seconds of the processor, and how often, records are left out to see whether the row changes."""


def why(
    state_dir: Place,
    plan: Plan,
    connection: TopicConnection | None,
    store: str,
    key: Any,
    settings: Settings | None = None,
    *,
    as_of: int | None = None,
    seconds: float | None = None,
) -> Why:
    """The input records that made a row of a store, as of a batch.

    ``key``: of a store of windows or sessions a `Windowed`, or the key inside, for all of them. ``seconds``: how long
    the topics may be read. Raises `StateError`: CS-710 if there is no such store, CS-713 if there is no such batch;
    `ConfigError` CS-281 if that time is over; and what reading topics raises.
    """
    if connection is None:
        raise refuse("CS-203", "it is not known where the topics are")
    connection = as_begun(connection, application_of(state_dir).starts.positions)
    with closing(connection.log()) as log, closing(connection.reader()) as reader:
        bounded = reader if seconds is None else _Bounded(reader, seconds, time.monotonic() + seconds)
        found = consumed(root_of(state_dir), plan.topology, log, as_of)
        entries = kept_batches(state_dir, found.commit.id)
        number, chosen = found.commit.partitions, settings or Settings()
        tracer = Tracer(plan.topology, found.spans, entries, bounded, number, chosen, loads=found.loads)
        return _Search(root_of(state_dir), plan, found, store, key, tracer).answer()


@dataclass(slots=True)
class _Bounded(ReadsInTurn):
    """Reads topics until a deadline."""

    reader: RangeReader
    seconds: float
    deadline: float

    def read(self, offsets: OffsetRange, max_rows: int) -> Iterator[pa.RecordBatch]:
        for records in self.reader.read(offsets, max_rows):
            if time.monotonic() > self.deadline:
                what = f"the topics of this row could not be read within {self.seconds:g} s"
                step = "run `crossstream why app.py STATE_DIR STORE KEY`, which takes as long as it needs"
                raise refuse("CS-281", what, step, topic=offsets.topic)
            yield records

    def close(self) -> None:
        self.reader.close()


@dataclass(slots=True)
class _Search:
    """One question. ``operator``: the node that makes the store."""

    root: StateRoot
    plan: Plan
    found: Consumed
    store: str
    key: Any
    tracer: Tracer

    def answer(self) -> Why:
        node = operator_of(self.plan.topology, self.store)
        state, tracer = self._state(), self.tracer
        target, value = _row(state, self.key)
        inner = self.key.key if isinstance(self.key, Windowed) and state.by_time is not None else self.key
        wire = calls.serialize(state.key, inner) or b""
        tracer.follow(node.name, frozenset({wire}), state.key)
        if isinstance(self.key, Windowed):
            tracer.followed[node.name] = Followed(state.key, frozenset({wire}), self.key)
        notes = [str(one) for one in self.found.deleted if one.node in tracer.wanted]
        pool = tracer.pool()
        if tracer.stopped:
            return self._stopped(node, pool, value, notes)
        if target is None:
            return self._missing(node, pool, notes)
        return self._made(node, pool, wire, target, value, notes)

    def _state(self) -> StoreReader:
        store = store_named(self.plan, self.store)
        if store is None:
            view = view_of_folder(self.root, self.plan, self.store)
            if view is None:
                raise no_store(self.plan, self.store)
            return view
        return reader_after(self.found.commit, store, self.root)

    # -- a row that is there ---------------------------------------------------------------------------------

    def _made(self, node: Node, pool: Pool, wire: bytes, target: Any, value: Any, notes: list[str]) -> Why:
        plan = plan_topology(part_of(self.plan.topology, [node.name]))

        def gives(chosen: np.ndarray) -> bool:
            try:
                replay = pool.replayed(plan, self.found.commit.partitions, self.tracer.settings, chosen)
                return bool(_row(replay.store(self.store), self.key)[0] == target)
            except CrossStreamError:  # a function needs a record that was left out
                return False

        rows = np.arange(len(pool))
        if not gives(rows):
            self.tracer.everything(node.name)
            pool = self.tracer.pool()
            rows = np.arange(len(pool))
            if not gives(rows):
                notes.append(_UNLIKE)
                return self._explained(node, pool, rows[:0], value, notes, exact=False)
        settings = self.tracer.settings
        group = group_of(self.plan.topology, node, pool, settings, self.key, wire, (target, value))
        if group is not None:
            fewer = group.records()
            rows, group = (fewer, group) if gives(fewer) else (rows, None)
        if group is not None and group.is_count:
            return self._explained(node, pool, rows, value, notes, exact=True)
        chosen, exact = minimised(rows, gives, None if group is None else group.changed)
        if not exact:
            notes.append(
                "there are many records; not each of them was left out to see whether the row changes"
            )
        return self._explained(node, pool, chosen, value, notes, exact=exact)

    def _explained(
        self, node: Node, pool: Pool, chosen: np.ndarray, value: Any, notes: list[str], *, exact: bool
    ) -> Why:
        if not exact:
            chosen = chosen[self._asked(pool)[chosen]]
        tree = self._tree(self._taps(node, pool, chosen), self._records(pool, chosen))
        return self._why(node, tree, value, notes, exact=exact)

    def _why(
        self,
        node: Node,
        tree: Tree,
        value: Any,
        notes: list[str],
        *,
        exact: bool = False,
        ended: str | None = None,
    ) -> Why:
        records, step = tuple(one for _, one in tree.records), tree.step(node.name)
        return Why(
            self.store, self.key, value, self.found.commit.id, records, step, ended, exact, tuple(notes)
        )

    def _tree(self, taps: Taps, records: Sequence[tuple[str, InputRecord]]) -> Tree:
        return Tree(self.plan.topology, taps, records, self.tracer)

    def _asked(self, pool: Pool) -> np.ndarray:
        """Which of the records were followed; others may have been read because these alone do not give the row."""
        asked = np.zeros(len(pool), bool)
        for number, (source, topic, partition, _, _) in enumerate(pool.spans):
            followed = replace(self.tracer.wanted[source], every=False)
            mine = np.flatnonzero(pool.part == number)
            mask = followed.mask(self.plan.topology[source], (topic, partition), pool.parts[number])
            asked[mine] = mask is not None and mask[pool.row[mine]]
        return asked

    def _taps(self, node: Node, pool: Pool, chosen: np.ndarray | None = None) -> Taps:
        return run_with_taps(
            self.plan.topology, [node.name], pool, self.found.commit.partitions, self.tracer.settings, chosen
        )

    def _records(self, pool: Pool, chosen: np.ndarray) -> list[tuple[str, InputRecord]]:
        """Source and record, in the order of arrival."""
        found = []
        for one in chosen.tolist():
            node, topic, partition, *_ = pool.spans[pool.part[one]]
            key, value, timestamp, offset, _ = (
                column[int(pool.row[one])].as_py() for column in pool.parts[pool.part[one]].columns
            )
            source, batch = self.plan.topology[node], int(pool.batch[one])
            is_event = getattr(source, "unwrap", None) is not None
            record = InputRecord(
                topic,
                partition,
                offset,
                timestamp,
                key if is_event else object_of(source.key, key),
                value if is_event else object_of(source.value, value),
                None if batch <= OLDER else batch,
            )
            found.append((node, record))
        return found

    # -- a row that is not there -----------------------------------------------------------------------------

    def _missing(self, node: Node, pool: Pool, notes: list[str]) -> Why:
        records = self._records(pool, np.flatnonzero(self._asked(pool))[-SHOWN:])
        tree = self._tree(self._taps(node, pool), records)
        return self._why(
            node, tree, None, notes, ended=tree.ended(node.name) or self._expired(node) or _UNLIKE
        )

    def _expired(self, node: Node) -> str | None:
        above = lineage(self.plan.topology.nodes, [node.name])
        found = {one.name: one.ttl for one in above if one.ttl is not None}
        says = [f"rows of {name} are deleted {in_words(ttl)} after their time" for name, ttl in found.items()]
        return ", ".join(says) or None

    def _stopped(self, node: Node, pool: Pool, value: Any, notes: list[str]) -> Why:
        records = self._records(pool, np.flatnonzero(self._asked(pool))[-SHOWN:])
        notes += [self.plan.topology[name].stops_tracing or "" for name in self.tracer.stopped]
        tree = self._tree(Taps({}, Replay(self.plan, 1)), records)
        return self._why(node, tree, value, notes)


_UNLIKE = "the records give another row than the state has: run `crossstream verify`"


def operator_of(topology: Graph, store: str) -> Node:
    """The operator that keeps a store. Raises `StateError` CS-710 if there is none."""
    for node in topology:
        if store in node.queryable_names or (node.is_view and store == node.name):
            return node
    raise no_store(plan_topology(topology), store)


def _row(store: StoreReader, key: Any) -> tuple[Any, Any]:
    """The row of a key in a form that can be compared, None without one; and as objects."""
    if store.by_time is not None and not isinstance(key, Windowed):
        rows = store.fetch(key)
        plain = [(at, calls.serialize(store.value, value)) for at, value in rows]
        return (plain, rows) if rows else (None, None)
    value = store.get(key)
    return (None if value is None else calls.serialize(store.value, value)), value


def minimised(
    rows: np.ndarray,
    gives: Callable[[np.ndarray], bool],
    changed: Callable[[np.ndarray, float], np.ndarray | None] | None = None,
) -> tuple[np.ndarray, bool]:
    """The fewest rows that still give the same, found by leaving out half of them, then quarters, down to single ones.

    The oldest are left out first. And whether each of those that are left is needed. ``changed``: says for each row
    whether it is needed beside all others, or None after the deadline (`time.thread_time`), where that can be computed
    at once.

    >>> minimised(np.arange(9), lambda rows: {3, 7} <= set(rows.tolist()))
    (array([3, 7]), True)
    """
    deadline, runs, vain = time.thread_time() + SECONDS, 0, 0
    size = max(1, len(rows) // 2)
    while True:
        chunks = np.array_split(rows, range(size, len(rows), size))
        if size == 1 and changed is not None:
            needed = changed(rows, deadline)
            if needed is None:
                return rows, False
            chunks = [rows[at : at + 1] for at in np.flatnonzero(~needed)]
            if len(chunks) > 1:
                chunks.insert(0, np.concatenate(chunks))
        left_out = False
        for chunk in chunks:
            if runs >= RUNS or time.thread_time() > deadline:
                return rows, False
            fewer = rows[~np.isin(rows, chunk)]
            if len(fewer) == len(rows):
                continue  # they are left out already
            runs += 1
            if gives(fewer):
                rows, left_out = fewer, True
        if size == 1 and not left_out:
            return rows, True
        vain = 0 if left_out else vain + 1
        if vain < 2:
            size = max(1, size // 2)
        else:  # all of many records may be needed, as for a count
            size = 1 if changed is not None else max(1, size // 32)
