"""What a batch changes in a table of aggregates.

Rows are sorted by group, and within a group by arrival. Each group begins with the aggregate that the store has, and a
*fold* applies its rows one after the other. The result time is the largest timestamp of all records in the aggregate;
it begins again when an aggregate is deleted. Source: semantics 3.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.evaluate import Failure
from crossstream.columns.order import by_key, running_maximum_of, same_trigger
from crossstream.columns.values import Values, concat_values
from crossstream.operators.aggregate.folding import Fold
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import Column, concat_all, take, take_all
from crossstream.storage.snapshot import Match, Snapshot, empty_columns
from crossstream.storage.sorted_run import begins_of
from crossstream.tables.rows import TableRows

SIGN = "sign"
"""Extra column of grouped tables: 1 for a row that is added, −1 for one that is taken away."""

ROW_KEY = "row key"
"""Extra column of grouped tables whose groups are kept row by row: the key of the row in the table, serialised."""

SIDE = "side"
"""Extra column: the number of the grouped stream, where several are aggregated together."""

START = "start"
"""Extra column: the start of the window."""

END = "end"
"""Extra column: the end of the window, where windows have several lengths."""


GROUP = "group"
"""Extra column of results: the number of the group."""


@dataclass(frozen=True, slots=True)
class GroupState(TableRows):
    """The aggregates of groups, with the columns that the store has beside the value."""

    state: Mapping[str, Column] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """The rows of a batch sorted by group, then arrival. ``hashes``, ``keys``, ``starts``: of each group."""

    rows: Changes
    begins: np.ndarray
    hashes: np.ndarray
    keys: Column
    starts: np.ndarray | None

    @classmethod
    def of(cls, changes: Changes, bits: int) -> GroupedRows:
        """``changes`` in arrival order; the extra column `START` is part of the group."""
        hashes = changes.hashes(bits)
        order, begins = by_key(changes, hashes)
        starts = changes.extra.get(START)
        if starts is not None:
            code = np.cumsum(begins)
            within = _by_start(code, starts[order])
            order, code = order[within], code[within]
            begins = begins_of(code, starts[order])
        heads = order[begins]
        return cls(
            changes.take(order),
            begins,
            hashes[heads],
            take(changes.key.wire(), heads),
            None if starts is None else starts[heads],
        )

    @property
    def number(self) -> np.ndarray:
        """The number of each row's group."""
        return np.cumsum(self.begins) - 1


def _by_start(code: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The order by group, then start; ``code``: groups, ascending. TableRows that are equal stay in order."""
    if not len(code):
        return np.empty(0, np.int64)
    first, last = int(starts.min()), int(starts.max())
    if int(code[-1] + 1) * (last - first + 1) >= 1 << 63:
        return np.lexsort((starts, code))
    return np.argsort(code * (last - first + 1) + (starts - first), kind="stable")


@dataclass(frozen=True, slots=True)
class Updates:
    """The changes of the table, with `GROUP` and `START`: the last one of each group, and each one if wanted."""

    net: Changes
    every: Changes | None
    failures: list[Failure]


def look_up(view: Snapshot, groups: GroupedRows, serde: EngineSerde) -> GroupState:
    """The aggregate of each group."""
    if groups.starts is None:
        match = view.lookup(groups.hashes, groups.keys)
    else:
        match = find_at(view, groups.hashes, groups.keys, groups.starts)
    state = {name: match.gather(name) for name, _ in view.layout.values if name not in ("value", "ts")}
    values, ts = Values(serde, wire=match.gather("value")), np.asarray(match.gather("ts"))
    return GroupState(match.found, values, ts, state=state)


def rows_within(
    view: Snapshot, hashes: np.ndarray, keys: Column, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, dict[str, Column]]:
    """The live rows of each key with ``low <= s <= high``, by key, then s: the number of their key, and columns."""
    parts, queries, ages = [], [], []
    for age, run in enumerate(view.segments()):
        if run.rows:
            query, rows = run.match_range(hashes, keys, low, high)
            if len(query):
                parts.append(take_all(run.columns, rows))
                queries.append(query)
                ages.append(np.full(len(query), age))
    if not parts:
        return np.empty(0, np.int64), empty_columns(view.layout)
    columns, query = concat_all(parts), np.concatenate(queries)
    order = np.lexsort((np.concatenate(ages), columns["s"], query))
    query = query[order]
    kept = begins_of(query, columns["s"][order]) & (columns["gone"][order] == 0)
    return query[kept], take_all(columns, order[kept])


def find_at(view: Snapshot, hashes: np.ndarray, keys: Column, times: np.ndarray) -> Match:
    """The live row of each key and time; one for each pair."""
    segments = view.segments()
    segment, row = np.full(len(hashes), -1), np.full(len(hashes), -1)
    done = np.zeros(len(hashes), bool)
    for number, run in enumerate(segments):
        if done.all() or not run.rows:
            continue
        queries, rows = run.match_range(hashes, keys, times, times)
        fresh = ~done[queries]
        queries, rows = queries[fresh], rows[fresh]
        done[queries] = True
        live = run["gone"][rows] == 0
        segment[queries[live]], row[queries[live]] = number, rows[live]
    return Match(segments, segment, row)


def update(groups: GroupedRows, before: GroupState, fold: Fold, *, every: bool) -> Updates:
    """Applies the rows of a batch."""
    folded = fold.fold(groups.rows, groups.begins, before, every)
    number = groups.number[folded.rows]
    extra: dict[str, Column] = {GROUP: number}
    if SIGN in groups.rows.extra:
        extra[SIGN] = take(groups.rows.extra[SIGN], folded.rows)
    if groups.starts is not None:
        extra[START] = groups.starts[number]
    made = replace(groups.rows.take(folded.rows), value=folded.values, ts=folded.ts, old=None, extra=extra)
    if not every:
        return Updates(replace(made, extra={**made.extra, **folded.state}), None, folded.failures)
    # Of the rows that one input record made in a group (an old row taken away, a new one added) the last counts.
    follows = (number[1:] == number[:-1]) & same_trigger(
        made.major, made.minor, np.arange(len(number) - 1), np.arange(1, len(number))
    )
    last = np.append(~follows, True)[: len(number)]
    made, number = made.where(last), number[last]
    ends = np.flatnonzero(np.append(number[1:] != number[:-1], True)[: len(number)])
    net = made.take(ends)
    return Updates(replace(net, extra={**net.extra, **folded.state}), made, folded.failures)


def with_old(made: Changes, before: GroupState) -> Changes:
    """Results sorted by group, each with the one before it. ``made``: with values in the form of the store."""
    number = np.asarray(made.extra[GROUP])
    first = before.values.take(np.where(before.present[number], number, -1))
    begins = begins_of(number)
    if begins.all():
        return replace(made, old=first)
    rows = np.arange(made.rows)
    both = concat_values([first, made.value])
    return replace(made, old=both.take(np.where(begins, rows, made.rows + rows - 1)))


def in_order(made: Changes) -> Changes:
    """Results of a grouped table, in order of arrival if rows move: one leaves its old group first (semantics 3.16)."""
    if SIGN not in made.extra or not (made.extra[SIGN] < 0).any():
        return made
    return made.take(np.lexsort((made.extra[SIGN], made.minor, made.major)))


def put(view: Snapshot, net: Changes, hashes: np.ndarray) -> None:
    """Keeps aggregates; a null one deletes its row. ``net``: one row for each group, in the form of the store."""
    columns: dict[str, Column] = {
        "h": hashes,
        "key": net.key.wire(),
        "value": net.value.wire(),
        "ts": net.ts,
        "gone": net.value.missing().astype(np.uint8),
    }
    if START in net.extra:
        columns["s"] = net.extra[START]
    columns.update({name: net.extra[name] for name, _ in view.layout.values if name not in columns})
    view.put(columns)


def times_after(ts: np.ndarray, begins: np.ndarray, before: TableRows, every: bool) -> np.ndarray:
    """The largest timestamp of each group so far, with that of the aggregate before. ``every``: after each row."""
    values = ts.copy()
    starts = np.flatnonzero(begins)
    values[starts] = np.where(before.present, np.maximum(values[starts], before.ts), values[starts])
    if len(starts) == len(values):
        return values
    return running_maximum_of(values, starts) if every else np.maximum.reduceat(values, starts)


def last_rows(begins: np.ndarray) -> np.ndarray:
    """The last row of each group."""
    return np.append(np.flatnonzero(begins)[1:], len(begins)) - 1
