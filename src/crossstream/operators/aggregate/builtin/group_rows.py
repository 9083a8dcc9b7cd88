"""The rows of the groups of a table, for aggregates that cannot be taken back: what each group has at a moment.

A row is known by its key in the table that is grouped. It is kept under the key of its group with the fields that are
aggregated, and the number under which it arrived: a row that changes arrives again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from crossstream.columns.changes import Changes
from crossstream.columns.hashing import hash_keys
from crossstream.columns.order import arrival_numbers
from crossstream.operators.aggregate.builtin.parts import PartRows
from crossstream.operators.aggregate.kernel import ROW_KEY, GroupedRows
from crossstream.serdes import arrays
from crossstream.serdes.json.plain import SchemaJson
from crossstream.storage.columns import Column, concat, take
from crossstream.storage.snapshot import Snapshot, groups_of
from crossstream.storage.sorted_run import begins_of, expand, identities, places_of

CHUNK = 1 << 18
"""Rows of groups that are taken at a time."""

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class RowEvents:
    """The rows that were added or taken away in the batch, by group, row and place.

    ``group``, ``place``: their groups, and their places among the rows of the batch; ``ends``: where the next event of
    the same row is; ``added``: whether the row is there from then on. ``values``: the fields.
    """

    group: np.ndarray
    place: np.ndarray
    keys: Column
    number: np.ndarray
    ends: np.ndarray
    added: np.ndarray
    values: pl.Series
    arrival: np.ndarray


@dataclass(frozen=True, slots=True)
class Alive:
    """The rows that groups have at the wanted moments, in order of arrival; one without any has a row of nulls."""

    items: list[pl.Series]
    rows: PartRows


@dataclass(frozen=True, slots=True)
class GroupRows:
    """``view``: the store; ``groups``: those of the batch; ``batch``: its number."""

    view: Snapshot
    groups: GroupedRows
    serde: SchemaJson
    batch: int
    bits: int

    def events(self, rows: Changes, groups: np.ndarray, mine: PartRows, fields: list[pl.Series]) -> RowEvents:
        """What the batch does. ``rows``: sorted by group, then arrival; ``groups``: their numbers among all."""
        assert mine.signs is not None
        keys = rows.extra[ROW_KEY]
        number = identities([mine.group, keys])
        order = np.lexsort((np.arange(len(number)), number))
        follows = np.append(number[order][1:] == number[order][:-1], False)
        ends = np.full(len(number), _NEVER)
        ends[order[follows]] = order[1:][follows[:-1]]
        arrived = places_of(np.lexsort((np.arange(len(number)), rows.minor, rows.major)), len(number))
        values = arrays.struct_of({str(n): one for n, one in enumerate(fields)}, len(number))
        places = np.arange(len(number))
        arrival = arrival_numbers(arrived, self.batch).astype(np.int64)
        return RowEvents(mine.group, places, keys, number, ends, mine.signs > 0, values, arrival)

    def alive(
        self, events: RowEvents, groups: np.ndarray, wanted: np.ndarray, mine: PartRows
    ) -> Iterator[Alive]:
        """The rows of the ``wanted`` groups after each picked row of theirs, some moments at a time."""
        moments = mine.picked[np.isin(mine.group[mine.picked], wanted)]
        place = np.flatnonzero(np.isin(events.group, wanted))
        of_batch = place[events.added[place]]
        held = self._held(events, groups, wanted, place)
        group = np.concatenate([held[0], events.group[of_batch]])
        starts = np.concatenate([np.full(len(held[0]), -1), events.place[of_batch]])
        ends = np.concatenate([held[1], events.ends[of_batch]])
        arrival = np.concatenate([held[2], events.arrival[of_batch]])
        values = pl.concat([held[3], events.values.gather(of_batch)])
        order = np.lexsort((arrival, group))
        group, starts, ends = group[order], starts[order], ends[order]
        values = pl.concat([values.gather(order), pl.Series([None], dtype=values.dtype)])
        group_of = mine.group[moments]
        first, last = np.searchsorted(group, group_of), np.searchsorted(group, group_of, "right")
        for begin, stop in groups_of(last - first, CHUNK):
            moment, row = expand(first[begin:stop], last[begin:stop])
            now = moments[begin:stop][moment]
            there = (starts[row] <= now) & (now < ends[row])
            yield _by_moment(moment[there], row[there], stop - begin, values)

    def _held(
        self, events: RowEvents, groups: np.ndarray, wanted: np.ndarray, place: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, pl.Series]:
        """The rows of the store: their groups, where the batch ends them, their arrival numbers, their fields."""
        number = groups[wanted]
        parts: list[dict[str, Column]] = []
        owners: list[np.ndarray] = []
        for queries, columns in self.view.scan(
            self.groups.hashes[number], take(self.groups.keys, number), CHUNK
        ):
            owners.append(wanted[queries])
            parts.append({name: columns[name] for name in ("key2", "value", "arrival")})
        if not parts:
            none = np.empty(0, np.int64)
            return none, none, none, pl.Series([], dtype=self.serde.dtype)
        group = np.concatenate(owners)
        found = {name: concat([part[name] for part in parts]) for name in parts[0]}
        first = place[np.unique(events.number[place], return_index=True)[1]]
        same = identities(
            [np.concatenate([group, events.group[first]]), concat([found["key2"], take(events.keys, first)])]
        )
        ends_of = np.full(int(same.max()) + 1, _NEVER)
        ends_of[same[len(group) :]] = events.place[first]
        return group, ends_of[same[: len(group)]], found["arrival"], self.serde.decode_series(found["value"])

    def put(self, events: RowEvents, groups: np.ndarray) -> None:
        """Keeps what the groups have at the end of the batch."""
        last = np.flatnonzero(events.ends == _NEVER)
        group = groups[events.group[last]]
        keys = take(events.keys, last)
        self.view.put(
            {
                "h": self.groups.hashes[group],
                "s": hash_keys(keys, self.bits),
                "key": take(self.groups.keys, group),
                "key2": keys,
                "value": self.serde.encode_series(events.values.gather(last)),
                "arrival": events.arrival[last],
                "gone": (~events.added[last]).astype(np.uint8),
            }
        )


def _by_moment(moment: np.ndarray, row: np.ndarray, moments: int, values: pl.Series) -> Alive:
    """The rows of each moment; the last of the ``values`` is the null row."""
    empty = np.setdiff1d(np.arange(moments), moment)
    moment, row = np.concatenate([moment, empty]), np.concatenate([row, np.full(len(empty), len(values) - 1)])
    order = np.argsort(moment, kind="stable")
    begins = begins_of(moment[order])
    return Alive(values.gather(row[order]).struct.unnest().get_columns(), PartRows.of(begins))
