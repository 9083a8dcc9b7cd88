"""Leaves each record of a group out in turn, many at once: one run of the aggregation alone, with a group for each.

A row may be made of thousands of records, all of them needed, as for a count. To run the topology without the first,
without the second and so on would take seconds. The row-wise operators before the aggregation are run once instead, and
what they give is put into as many groups as there are records, into each without one of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from crossstream.api.topology import Topology
from crossstream.catalog.planners import plan_topology
from crossstream.columns.functions import Function
from crossstream.errors import CrossStreamError
from crossstream.graph import nodes as graph
from crossstream.graph.nodes import Graph, Node, StoreSpec, lineage
from crossstream.planning.plan import Plan
from crossstream.query.store import StoreReader
from crossstream.recompute.pool import Pool, row_keys
from crossstream.recompute.replay import FromMemory, Replay
from crossstream.recompute.trace import ROW_WISE, row_wise, with_places
from crossstream.records import RECORDS
from crossstream.serdes import calls
from crossstream.serdes.primitives import Bytes
from crossstream.serdes.windowed import Windowed, WindowedSerde
from crossstream.task.batch import Settings

ROWS = 1 << 18
"""A run has so many rows at most, or one group."""
GROUPED = "grouped"


@dataclass(frozen=True, slots=True)
class Group:
    """What is aggregated for a key: ``values`` in order of arrival, each made of a ``record`` of the pool.

    ``key``: as it was asked for; ``target``: the row that all of them make; ``counted``: the row of a count.
    """

    plan: Plan
    settings: Settings
    key: Any
    target: Any
    counted: int | None
    record: np.ndarray
    values: pa.Array
    times: np.ndarray

    def records(self) -> np.ndarray:
        """The records that something of it is made of."""
        return np.unique(self.record)

    @property
    def is_count(self) -> bool:
        """Whether the row is the number of the values: then each record is needed."""
        return self.counted == len(self.record)

    def gives(self) -> bool:
        """Whether all of it makes the row."""
        return not self._without(np.arange(len(self.record)), np.array([-1]))[0]

    def changed(self, rows: np.ndarray, deadline: float) -> np.ndarray | None:
        """For each of these records, whether the row changes if it alone is left out; None: the time is over."""
        inside = np.flatnonzero(np.isin(self.record, rows))
        size = max(1, ROWS // max(1, len(inside)))
        parts = [np.zeros(0, bool)]
        for start in range(0, len(rows), size):
            if time.thread_time() > deadline:
                return None
            parts.append(self._without(inside, rows[start : start + size]))
        return np.concatenate(parts)

    def _without(self, inside: np.ndarray, left_out: np.ndarray) -> np.ndarray:
        which, group = np.nonzero(self.record[inside][:, None] != left_out[None, :])
        taken = pa.array(inside[which])
        keys = pa.array(group.astype(">i8").view("S8"), pa.binary(8)).cast(pa.large_binary())
        count = len(which)
        columns = [
            keys,
            self.values.take(taken),
            pa.array(self.times[inside[which]]),
            pa.array(np.arange(count)),
            pa.nulls(count, RECORDS.field(4).type),
        ]
        records = pa.RecordBatch.from_arrays(columns, schema=RECORDS)
        replay = Replay(self.plan, 1, self.settings)
        replay.run([(GROUPED, GROUPED, 0, 0, count)] if count else [], FromMemory({(GROUPED, 0): records}))
        found = self._rows(replay.store(GROUPED))
        return np.array([found.get(one) != self.target for one in range(len(left_out))], bool)

    def _rows(self, store: StoreReader) -> dict[int, Any]:
        """By group its row, in the form that ``target`` has."""
        found: dict[int, Any] = {}
        for key, value in store.all():
            plain = calls.serialize(store.value, value)
            if not isinstance(key, Windowed):
                found[int.from_bytes(key, "big")] = plain
            elif not isinstance(self.key, Windowed):
                found.setdefault(int.from_bytes(key.key, "big"), []).append((key.start, plain))
            elif key[1:] == self.key[1:]:
                found[int.from_bytes(key.key, "big")] = plain
        return found


def group_of(
    topology: Graph, node: Node, pool: Pool, settings: Settings, key: Any, wire: bytes, row: tuple[Any, Any]
) -> Group | None:
    """The group of a key, ``wire`` in bytes; None where the operators before the aggregation are not row-wise alone.

    Windows that move with their records, or come out when they close, depend on what other groups have. Of a table only
    the newest record of each key is in a group: then each of them adds a row, and takes none away. ``row``: that of the
    state, in comparable form and as an object.
    """
    if not isinstance(node, graph.Aggregate) or len(node.parents) > 1 or node.emit_final:
        return None
    if node.windows is not None and (node.windows.move or not node.windows.end):
        return None
    parent = topology[node.parents[0]]
    above = list(lineage(topology.nodes, [parent.name]))
    value = node.group_values[0] or parent.value or parent.value_type
    is_table = isinstance(parent, graph.GroupTable)
    if value is None or not all(_is_plain(one, is_table) for one in above):
        return None
    try:
        found = with_places(
            row_wise(topology, parent, above, frozenset({wire}), node.group_key, value), pool, settings
        )
        plan = _alone(node, value, calls.deserialize(node.group_key, wire))
    except CrossStreamError:
        return None  # the search finds out what it is
    if not found:
        return None
    table = pa.Table.from_batches(found)
    places = np.asarray(table["timestamp"])
    order = np.argsort(places, kind="stable")
    if is_table:
        order = order[np.isin(places[order], _newest(topology, pool))]
    record = places[order]
    parts = [np.asarray(part.column("timestamp")) for part in pool.parts]
    times = np.array([parts[pool.part[at]][pool.row[at]] for at in record.tolist()], np.int64)
    values = table["value"].combine_chunks().take(pa.array(order))
    if isinstance(key, Windowed) and node.windows is not None:
        within = np.flatnonzero((times >= key.start) & (times < key.end))
        record, times, values = record[within], times[within], values.take(pa.array(within))
    counted = row[1] if node.operator == "count" and isinstance(row[1], int) else None
    group = Group(plan, settings, key, row[0], counted, record, values, times)
    return group if group.is_count or group.gives() else None


def _is_plain(node: Node, is_table: bool) -> bool:
    if node.timestamp_extractor is not None:
        return False
    if is_table:
        keeps = node.row_wise and not node.changes_key
        return keeps or node.rows_are_records or isinstance(node, graph.GroupTable)
    return isinstance(node, ROW_WISE) and node.shape == "stream"


def _newest(topology: Graph, pool: Pool) -> np.ndarray:
    """The places in the pool of the newest record about each row."""
    parts = []
    for number, records in enumerate(pool.parts):
        mine = np.flatnonzero(pool.part == number)
        place = np.empty(records.num_rows, np.int64)
        place[pool.row[mine]] = mine
        source = pool.spans[number][0]
        keys, rows, _ = row_keys(topology[source], records)
        named = pa.array([source]).take(pa.array(np.zeros(len(rows), np.int64)))
        parts.append(pa.table({"source": named, "key": keys, "place": place[rows]}))
    newest = pa.concat_tables(parts).group_by(["source", "key"]).aggregate([("place", "max")])
    return np.unique(np.asarray(newest["place_max"]))


def _alone(node: graph.Aggregate, value: Any, key: Any) -> Plan:
    """The aggregation of a topic whose keys are numbers of groups. Functions that take the key get ``key``."""
    wire = Bytes()
    windowed = node.key if isinstance(node.key, WindowedSerde) else None

    def known(function: Function) -> Function:
        call = function.call
        if call is None or not function.with_key:
            return function
        return replace(function, call=_with_key(call, key))

    source = graph.Source(
        name=GROUPED,
        parents=(),
        shape="stream",
        key=wire,
        value=value,
        topics=(GROUPED,),
        location=node.location,
    )
    aggregate = replace(
        node,
        parents=(GROUPED,),
        group_key=wire,
        key=wire if windowed is None else replace(windowed, inner=wire),
        key_type=None,
        adders=tuple(map(known, node.adders)),
        subtractor=None,
        store=StoreSpec(name=GROUPED, retention=None if node.store is None else node.store.retention),
    )
    return plan_topology(Topology({GROUPED: source, aggregate.name: aggregate}, {}))


def _with_key(call: Callable[..., Any], key: Any) -> Callable[..., Any]:
    return lambda _, *rest: call(key, *rest)
