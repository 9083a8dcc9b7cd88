"""Finds the records that may have made the rows of some keys: backwards through the graph, from results to sources.

An operator that keeps keys needs the records of the same keys. For a foreign-key join the left rows are computed first:
they say which right rows they need. Where keys change, the records of the row-wise operators before are run once, with
their places as timestamps. What cannot be followed so needs every record of its sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.api.topology import Topology
from crossstream.catalog.planners import plan_topology
from crossstream.columns.evaluate import evaluate
from crossstream.columns.functions import Function
from crossstream.columns.values import Values
from crossstream.errors import CrossStreamError
from crossstream.graph import nodes as graph
from crossstream.graph.nodes import Graph, Node, lineage
from crossstream.recompute.loads import Loads
from crossstream.recompute.pool import Picked, Pool, Wanted, collect, row_keys
from crossstream.recompute.replay import FromMemory, Replay, Written
from crossstream.recompute.taps import TAP, Key, as_stream, run_with_taps
from crossstream.runtime.in_process import Span
from crossstream.serdes import calls
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.keys import LeftOrRight
from crossstream.serdes.primitives import Bytes
from crossstream.serdes.windowed import Windowed
from crossstream.storage.log_entries import BatchEntry
from crossstream.task.batch import Settings
from crossstream.topics import RangeReader


@dataclass(frozen=True, slots=True)
class Followed:
    """Keys of an operator's rows, in a serde. ``window``: the only one that was asked for."""

    serde: EngineSerde
    keys: frozenset[bytes]
    window: Windowed | None = None

    def has(self, key: Any) -> bool:
        """Whether a row has one of the keys; of a window, the key inside counts."""
        if isinstance(key, Windowed) and not self.serde.has_windows:
            if self.window is not None:
                return key == self.window
            key = key.key
        try:
            return calls.serialize(self.serde, key) in self.keys
        except CrossStreamError:  # a key that the application passed over
            return False


@dataclass(slots=True)
class Tracer:
    """``wanted``: the records found so far, by source. ``asked``: the keys that a join asked each other side for.

    ``followed``: the keys whose rows matter, by operator, None for all; where keys change it is not known above.
    ``stopped``: operators that cannot be traced. ``known``: what was read of the topics. ``loads``: what came first.
    """

    topology: Graph
    spans: Sequence[Span]
    entries: Sequence[BatchEntry]
    reader: RangeReader
    partitions: int
    settings: Settings
    wanted: dict[str, Wanted] = field(default_factory=dict)
    asked: dict[tuple[str, int], list[Any]] = field(default_factory=dict)
    followed: dict[str, Followed | None] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    known: dict[Any, Picked] = field(default_factory=dict)
    loads: Loads = field(default_factory=Loads)

    def pool(self) -> Pool:
        return collect(
            self.topology, self.spans, self.wanted, self.entries, self.reader, self.known, self.loads
        )

    def follow(self, name: str, keys: frozenset[bytes] | None, serde: EngineSerde) -> None:
        """Adds the records that may have made the rows of these keys of an operator; None: of all keys."""
        node = self.topology[name]
        before = self.followed.get(name, Followed(serde, frozenset()))
        self.followed[name] = None if keys is None or before is None else Followed(serde, before.keys | keys)
        if node.stops_tracing is not None:
            if name not in self.stopped:
                self.stopped.append(name)
        elif node.reads_input:
            wanted = Wanted(every=True) if keys is None else Wanted(keys=set(keys))
            self.wanted.setdefault(name, Wanted()).add(wanted)
        elif node.keys_of_either and keys is not None:
            self._of_either(node, keys, serde)
        elif node.references:
            self._referring(node, keys, serde)
        elif isinstance(node, graph.Aggregate) and node.windows is not None:
            self._parents(node, _without_windows(keys, serde, node.group_key), node.group_key)
        elif node.changes_key and keys is not None:
            self._changed(node, keys, serde)
        else:
            self._parents(node, keys, serde)

    def _referring(self, node: Node, keys: frozenset[bytes] | None, serde: EngineSerde) -> None:
        """Follows the rows on the left, and those that they refer to."""
        self.follow(node.parents[0], keys, serde)
        for number, function in node.references:
            self._other_side(node, number, function, keys, serde)

    def _parents(self, node: Node, keys: frozenset[bytes] | None, serde: EngineSerde) -> None:
        for parent in dict.fromkeys(node.parents):
            self.follow(parent, keys, serde)

    def everything(self, name: str) -> None:
        """Every record of the sources above an operator."""
        for node in lineage(self.topology.nodes, [name]):
            if node.reads_topics:
                self.wanted.setdefault(node.name, Wanted()).every = True

    def _of_either(self, node: Node, keys: frozenset[bytes], serde: EngineSerde) -> None:
        """Follows keys of a right or outer foreign-key join, each of which is of the left or of the right row."""
        (left, right), ((number, foreign_key),) = node.parents, node.references
        lefts, rights = _serde_of(self.topology[left]), _serde_of(self.topology[right])
        found = [calls.deserialize(serde, key) for key in keys]
        pairs = [one for one in found if isinstance(one, LeftOrRight)]
        if lefts is None or rights is None or len(pairs) < len(found):
            self.everything(node.name)
            return
        own = _encoded(lefts, [one.left for one in pairs if one.left is not None])
        self.follow(left, own, lefts)
        self._other_side(node, number, foreign_key, own, lefts)
        theirs = _encoded(rights, [one.right for one in pairs if one.right is not None])
        if theirs:
            self.follow(right, theirs, rights)
            self.everything(left)  # whether any row refers to them

    def _other_side(
        self, node: Node, number: int, function: Function, keys: frozenset[bytes] | None, serde: EngineSerde
    ) -> None:
        """Computes the rows of the left side, and follows the keys that they refer to."""
        right = node.parents[number]
        theirs = _serde_of(self.topology[right])
        if keys is None or theirs is None:
            self.everything(right)
            return
        if not keys:
            return
        pairs = self.rows(node.parents[0], keys, serde)
        if pairs is None:
            self.everything(right)
            return
        found = _applied(function, self.topology[node.parents[0]], pairs)
        self.asked.setdefault((node.name, number), []).extend(found)
        try:
            named = _encoded(theirs, [one for one in found if one is not None])
        except CrossStreamError:
            self.everything(right)
            return
        self.follow(right, named, theirs)

    def rows(self, name: str, keys: frozenset[bytes] | None, serde: EngineSerde) -> list[Key] | None:
        """The rows of an operator, each version of them, computed from the records of these keys; None: unknown."""
        inner = replace(self, wanted={}, asked={}, followed={}, stopped=[])
        inner.follow(name, keys, serde)
        if inner.stopped or self.topology[name].shape == "global":
            return None
        taps = run_with_taps(
            self.topology, [name], inner.pool(), self.partitions, self.settings, only=frozenset({name})
        )
        return taps.rows.get(name, [])

    # -- where keys change ---------------------------------------------------------------------------------------

    def _changed(self, node: Node, keys: frozenset[bytes], serde: EngineSerde) -> None:
        above = list(lineage(self.topology.nodes, [node.name]))
        is_kept = any(one.upserts_stream for one in above)  # and older records are rows no more
        if not is_kept and all(isinstance(one, ROW_WISE) for one in above):
            self._by_place(node, above, keys, serde)
            return
        (parent,) = node.parents
        theirs = _serde_of(self.topology[parent])
        if theirs is None or node.stops_tracing is not None:
            self._parents(node, None, serde)
            return
        pairs = self.rows(parent, None, theirs)
        if pairs is None:
            self._parents(node, None, serde)
            return
        wanted = leading(self.topology, node, pairs, Followed(serde, keys))
        self.follow(parent, _encoded(theirs, [key for key, _ in wanted]), theirs)

    def _by_place(
        self, node: Node, above: Sequence[Node], keys: frozenset[bytes], serde: EngineSerde
    ) -> None:
        """Runs all records through the row-wise operators above, with their numbers as timestamps."""
        inner = replace(self, wanted={}, asked={}, followed={}, stopped=[])
        inner.everything(node.name)
        pool = inner.pool()
        found = with_places(row_wise(self.topology, node, above, keys, serde), pool, self.settings)
        places = [np.asarray(part.column("timestamp")) for part in found]
        rows = np.unique(np.concatenate([np.empty(0, np.int64), *places]))
        for number in np.unique(pool.part[rows]).tolist():
            source, topic, partition, *_ = pool.spans[number]
            records, own = pool.parts[number], pool.row[rows[pool.part[rows] == number]]
            if self.topology[source].shape == "table":
                named, numbers, _ = row_keys(self.topology[source], records)
                about = named.filter(pa.array(np.isin(numbers, own)))
                wanted = Wanted(keys={key for key in about.to_pylist() if key is not None})
            else:
                offsets = records.column("offset").take(pa.array(own))
                wanted = Wanted(places={(topic, partition): set(offsets.to_pylist())})
            self.wanted.setdefault(source, Wanted()).add(wanted)
        for one in above:
            if one.reads_topics:
                self.wanted.setdefault(one.name, Wanted())


ROW_WISE = (graph.Source, graph.RowWise, graph.Repartition, graph.ToStream, graph.ToTable, graph.GroupTable)


def row_wise(
    topology: Graph,
    node: Node,
    above: Sequence[Node],
    keys: frozenset[bytes],
    serde: EngineSerde,
    value: EngineSerde | None = None,
) -> Topology:
    """The operators above ``node`` on streams, and after them a sink of what has one of the keys.

    ``value``: the serde of the values; None: the sink gets no values.
    """
    names = {one.name for one in above}
    made: dict[str, Node] = {}
    for one in topology:
        if one.name not in names:
            continue
        plain: Node = replace(one, store=None)
        if isinstance(one, graph.Source):
            plain = _plainly_read(one)
            if one.shape == "table":
                made[TAP + one.name] = replace(plain, name=TAP + one.name)
                plain = _rows_there(one, (TAP + one.name,))
        elif isinstance(one, graph.GroupTable):
            kind: Any = graph.SelectKey if one.selects else graph.Map
            plain = kind(name=one.name, parents=one.parents, mapper=one.mapper, **as_stream(one))
        elif isinstance(one, graph.ToTable):
            plain = _rows_there(one, one.parents)
        elif isinstance(one, graph.Repartition):
            plain = graph.Peek(
                name=one.name, parents=one.parents, action=Function(lambda value: None), **as_stream(one)
            )
        elif one.shape == "table":
            plain = replace(plain, shape="stream")
        made[one.name] = plain
    wire = Bytes()

    def wanted(key: Any, value: Any) -> bool:
        return key is not None and calls.serialize(serde, key) in keys

    def without_key(key: Any, found: Any) -> tuple[bytes, bytes | None]:
        return b"", b"" if value is None else calls.serialize(value, found)

    sieve, empty = f"{TAP}keys", f"{TAP}empty"
    made[sieve] = graph.Filter(name=sieve, parents=(node.name,), predicate=Function(wanted, with_key=True))
    made[empty] = graph.Map(
        name=empty, parents=(sieve,), mapper=Function(without_key, with_key=True), key=wire, value=wire
    )
    made["sink"] = graph.Sink(
        name="sink", parents=(empty,), shape="none", key=wire, value=wire, topic="found"
    )
    return Topology(made, topology.frames)


def _plainly_read(source: graph.Source) -> graph.Source:
    """A source as a stream: each change event gives its row by itself, without what the row had before."""
    unwrap = source.unwrap
    if unwrap is not None:
        unwrap = replace(unwrap.without_snapshots, unavailable=(), ordered_by=None, truncate="ignore")
    return replace(source, store=None, shape="stream", timestamp_extractor=None, unwrap=unwrap)


def _rows_there(table: Node, parents: tuple[str, ...]) -> Node:
    """The records that are rows of a table, and no deletes."""
    there = Function(lambda value: value is not None)
    return graph.Filter(name=table.name, parents=parents, predicate=there, **as_stream(table))


def with_places(topology: Topology, pool: Pool, settings: Settings) -> list[pa.RecordBatch]:
    """What comes out of `row_wise`, with the places of the records in the pool as timestamps."""
    parts = []
    for number, part in enumerate(pool.parts):
        rows = np.flatnonzero(pool.part == number)
        places = np.empty(part.num_rows, np.int64)
        places[pool.row[rows]] = rows
        parts.append(part.set_column(2, part.schema.field(2), pa.array(places)))
    renamed = {span[0]: TAP + span[0] if TAP + span[0] in topology.nodes else span[0] for span in pool.spans}
    replay = Replay(plan_topology(topology), 1, settings, Written(wanted=frozenset({"found"})))
    spans = [(renamed[span[0]], *span[1:3], 0, 1 << 62) for span in pool.spans]
    records = {
        (span[1], span[2]): part for span, part in zip(pool.spans, parts, strict=True) if part.num_rows
    }
    replay.run([span for span in spans if span[1:3] in records], FromMemory(records))
    return replay.output.topics.get("found", [])


def _serde_of(node: Node) -> EngineSerde | None:
    return node.key or node.key_type


def _encoded(serde: EngineSerde, keys: Iterable[Any]) -> frozenset[bytes]:
    made = [calls.serialize(serde, key) for key in keys if key is not None]
    return frozenset(one for one in made if one is not None)


def _without_windows(
    keys: frozenset[bytes] | None, serde: EngineSerde, inner: EngineSerde
) -> frozenset[bytes] | None:
    """The keys of windows without their times."""
    if keys is None or serde is inner:
        return keys
    found = [calls.deserialize(serde, key) for key in keys]
    return _encoded(inner, [one.key if isinstance(one, Windowed) else one for one in found])


def _applied(function: Function, node: Node, pairs: Sequence[Key], *, rows: bool = False) -> list[Any]:
    """What a function gives for rows; nothing for those without a value, or None in their place (``rows``)."""
    there = [number for number, (_, value) in enumerate(pairs) if value is not None]
    keys = [pairs[number][0] for number in there]
    values = [pairs[number][1] for number in there]
    outcome = evaluate(
        function,
        Values(_serde_of(node), objects=keys),
        value=Values(node.value or node.value_type, objects=values),
    )
    found = outcome.values.objects() if there else []
    if not rows:
        failed = {failure.row for failure in outcome.failures}
        return [one for number, one in enumerate(found) if number not in failed]
    made: list[Any] = [None] * len(pairs)
    for number, one in zip(there, found, strict=True):
        made[number] = one
    return made


def leading(topology: Graph, node: Node, pairs: Sequence[Key], wanted: Followed) -> list[Key]:
    """The rows to which an operator that changes keys gives one of those that are wanted."""
    mapper: Function = node.mapper  # type: ignore[attr-defined]
    found = _applied(mapper, topology[node.parents[0]], pairs, rows=True)
    return [
        pair for pair, made in zip(pairs, found, strict=True) if any(map(wanted.has, _keys_of(node, made)))
    ]


def _keys_of(node: Node, made: Any) -> list[Any]:
    """The keys in what the function of an operator gave."""
    if made is None:
        return []
    if node.gives_key_alone:
        return [made]
    return [key for key, _ in made] if node.multiplies else [made[0]]
