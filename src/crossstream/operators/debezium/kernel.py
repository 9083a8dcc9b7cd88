"""Completes the rows of change events.

An event may leave out a value that did not change (PostgreSQL does not read a large value again), and events may come
late, as those of a snapshot beside newer changes. Both need the row before, so a store keeps the last row of each key.

    Story: `{id 1, text "long", stars 3}` is kept. The event `{id 1, text unavailable, stars 4}` makes
    `{id 1, text "long", stars 4}`. After a delete the text is gone: another event that leaves it out has no value for
    it. Test: `test_a_value_left_out_is_the_one_before`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.columns.order import by_key, running_maximum_of
from crossstream.columns.values import Values
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.operators.debezium.snapshots import SEEN
from crossstream.serdes import calls
from crossstream.serdes.debezium.events import NO_POSITION
from crossstream.serdes.debezium.settings import Debezium
from crossstream.storage.columns import Column, take, take_or_null
from crossstream.storage.snapshot import Snapshot
from crossstream.storage.sorted_run import begins_of, places_of

UNAVAILABLE, POSITION, TRUNCATE = "unavailable", "position", "truncate"
"""Extra columns: a bit for each field that an event leaves out; the place of the event in the database's log; whether
it deletes all rows from before it."""

_TRIES = 4096
"""Keys among which one for each state partition is searched."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The events that change a row, in order of arrival, with whole rows.

    Deletes of rows that are not there are left out, as the tombstone after a delete event. ``late``: how many events
    came after a newer one. ``failed``: events that leave out a value which nothing knows, by their numbers.
    """

    changes: Changes
    late: int
    failed: list[tuple[int, CrossStreamError]]


def complete(
    view: Snapshot, changes: Changes, settings: Debezium, bits: int, truncated_at: int = -1
) -> Completed:
    """``changes`` in order of arrival. Puts the last row of each key into the store.

    ``truncated_at``: the place of the newest truncate; events from before it are late.
    """
    hashes = changes.hashes(bits)
    order, begins = by_key(changes, hashes)
    h = hashes[order]
    first = np.flatnonzero(begins)
    group = np.cumsum(begins) - 1
    gone = changes.value.missing()[order]
    left_out = _beside(changes, UNAVAILABLE, 0)[order]
    seen = _beside(changes, SEEN, NO_POSITION)[order]
    if settings.ordered_by is None and not left_out.any():
        return _complete_already(view, changes, h, order, first, group, gone, seen)
    events = changes.take(order)
    stored = view.lookup(h[first], take(events.key.wire(), first))
    before = Values(events.value.serde, wire=stored.gather("value"))
    there = stored.found & ~before.missing()
    newest = np.where(stored.found, stored.gather("ts"), NO_POSITION)
    if settings.ordered_by is not None and truncated_at >= 0:
        newest = np.maximum(newest, truncated_at)
    places = seen if settings.ordered_by is None else np.asarray(events.extra[POSITION])
    on_time, highest = _in_order(places, first, group, newest, settings)
    known, stretch = _known(group, begins, gone, on_time, there, left_out != 0)
    fails = on_time & ~gone & ~known
    kept = np.flatnonzero(on_time & ~fails)
    rows = _whole_rows(settings, events.value, before, left_out, kept, stretch, gone, group, there)
    previous = _previous(kept, gone, group, there)
    effective = kept[~gone[kept] | previous]
    made = replace(events, value=rows, extra={})
    _remember(view, events, h, kept, rows, before, highest, seen, first, settings)
    arrived, place = np.sort(order[effective]), places_of(order, changes.rows)
    return Completed(
        made.take(place[arrived]),
        int((~on_time).sum()),
        [(int(order[row]), _unknown(settings, int(left_out[row]))) for row in np.flatnonzero(fails)],
    )


def _beside(changes: Changes, name: str, without: int) -> np.ndarray:
    """An extra column of numbers; ``without``: what all rows have where it is not there."""
    return np.asarray(changes.extra[name]) if name in changes.extra else np.full(changes.rows, without)


def _complete_already(
    view: Snapshot,
    changes: Changes,
    hashes: np.ndarray,
    order: np.ndarray,
    first: np.ndarray,
    group: np.ndarray,
    gone: np.ndarray,
    seen: np.ndarray,
) -> Completed:
    """The same where no event leaves out a value or may be late: only keys that begin with a delete are looked up."""
    there = np.zeros(len(first), bool)
    asked = np.flatnonzero(gone[first])
    if len(asked):
        rows = first[asked]
        found = view.lookup(hashes[rows], take(changes.key.wire(), order[rows]))
        there[asked] = found.found  # of deleted rows none is kept
    effective = ~gone | _previous(np.arange(changes.rows), gone, group, there)
    last = np.append(first[1:], changes.rows) - 1
    columns: dict[str, Column] = {
        "h": hashes[first],
        "key": take(changes.key.wire(), order[first]),
        "ts": seen[last],
        "gone": gone[last].astype(np.uint8),
    }
    if "value" in view.layout.names:
        columns["value"] = take(changes.value.wire(), order[last])
    view.put(columns)
    whole = replace(changes, extra={})
    if not effective.all():
        whole = whole.take(np.sort(order[effective]))
    return Completed(whole, 0, [])


def _in_order(
    positions: np.ndarray, first: np.ndarray, group: np.ndarray, newest: np.ndarray, settings: Debezium
) -> tuple[np.ndarray, np.ndarray]:
    """Which events are not behind one of their key, and the highest place of each key after each of them."""
    if settings.ordered_by is None:
        return np.ones(len(positions), bool), positions
    highest = np.maximum(running_maximum_of(positions, first), newest[group])
    return (positions >= highest) | (positions == NO_POSITION), highest


def _known(
    group: np.ndarray,
    begins: np.ndarray,
    gone: np.ndarray,
    on_time: np.ndarray,
    there: np.ndarray,
    lacking: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Whether an event has a row to complete it from or needs none, and its stretch: events between two deletes.

    A stretch begins at the first event of a key, and after each delete. Where no row was there, it has one from the
    first event on that lacks no field.
    """
    deletes = gone & on_time
    opens = begins | np.append(False, deletes[:-1])
    stretch = np.cumsum(opens) - 1
    start = np.flatnonzero(opens)
    has_row = begins[start] & there[group[start]]
    whole = on_time & ~gone & ~lacking
    seen = np.cumsum(whole)
    before_stretch = (seen - whole)[start]
    return np.asarray((seen - before_stretch[stretch] > 0) | has_row[stretch]), stretch


def _previous(kept: np.ndarray, gone: np.ndarray, group: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Of the kept events, whether their key had a row before them."""
    return np.asarray(np.where(begins_of(group[kept]), there[group[kept]], ~np.roll(gone[kept], 1)))


def _whole_rows(
    settings: Debezium,
    values: Values,
    before: Values,
    left_out: np.ndarray,
    kept: np.ndarray,
    stretch: np.ndarray,
    gone: np.ndarray,
    group: np.ndarray,
    there: np.ndarray,
) -> Values:
    """The rows with the values that events leave out; only such rows, and those they need, are read."""
    lacking = kept[(left_out[kept] != 0) & ~gone[kept]]
    if not len(lacking):
        return values
    sources = {}
    needed = [np.empty(0, np.int64)]
    for bit, name in enumerate(settings.unavailable):
        rows = lacking[(left_out[lacking] >> bit) & 1 == 1]
        if not len(rows):
            continue
        gives = kept[((left_out[kept] >> bit) & 1 == 0) & ~gone[kept]]
        last = np.searchsorted(gives, rows) - 1
        source = np.where(last >= 0, gives[np.maximum(last, 0)] if len(gives) else -1, -1)
        same = (source >= 0) & (stretch[np.maximum(source, 0)] == stretch[rows])
        source = np.where(same, source, -1)
        from_store = ~same & there[group[rows]] & _first_stretch(stretch, group, rows)
        sources[name] = rows, source, from_store
        needed.append(source[source >= 0])
    own = np.unique(np.concatenate([lacking, *needed]))
    stored = np.unique(np.concatenate([group[rows[mask]] for rows, _, mask in sources.values()]))
    serde = values.serde
    assert serde is not None
    columns = pl.concat([_columns(settings, values, own), _columns(settings, before, stored)])
    parts = {part.name: part for part in columns.struct.unnest().get_columns()}
    target = np.searchsorted(own, lacking)
    made = {name: part.gather(target) for name, part in parts.items()}
    for name, (rows, source, from_store) in sources.items():
        index = np.searchsorted(own, rows)
        found = np.where(source >= 0, np.searchsorted(own, np.maximum(source, 0)), index)
        at = len(own) + np.searchsorted(stored, group[rows])
        found = np.where(from_store, at, found)
        pick = target.copy()
        pick[np.searchsorted(lacking, rows)] = found
        made[name] = parts[name].gather(pick)
    struct = pl.DataFrame([part.alias(name) for name, part in made.items()]).to_struct()
    wire = pa.concat_arrays([values.wire(), calls.encode_series(serde, struct)])
    pick = np.arange(values.rows)
    pick[lacking] = values.rows + np.arange(len(lacking))
    return Values(serde, wire=take(wire, pick))


def _first_stretch(stretch: np.ndarray, group: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Whether no delete of their key comes before these events."""
    heads = np.searchsorted(group, group[rows])
    return np.asarray(stretch[heads] == stretch[rows])


def _columns(settings: Debezium, values: Values, rows: np.ndarray) -> pl.Series:
    return calls.decode_series(settings.stored, take_or_null(values.wire(), rows))


def _remember(
    view: Snapshot,
    events: Changes,
    hashes: np.ndarray,
    kept: np.ndarray,
    rows: Values,
    before: Values,
    highest: np.ndarray,
    seen: np.ndarray,
    first: np.ndarray,
    settings: Debezium,
) -> None:
    """Puts the last row of each key, with the highest place seen; after a delete the place alone."""
    ends = np.append(first[1:], events.rows)
    number = np.searchsorted(kept, ends) - 1
    last = np.where(number >= 0, kept[np.maximum(number, 0)] if len(kept) else -1, -1)
    source = np.where(last >= first, last, events.rows + np.arange(len(first)))
    wire = take(pa.concat_arrays([rows.wire(), before.wire()]), source)
    places = highest[ends - 1]
    gone = ~wire.is_valid().to_numpy(zero_copy_only=False)
    if settings.ordered_by is not None:
        gone &= places == NO_POSITION
    columns: dict[str, Column] = {
        "h": hashes[first],
        "key": take(events.key.wire(), first),
        "value": wire,
        "ts": places,
        "seen": seen[ends - 1],
        "gone": gone.astype(np.uint8),
    }
    view.put(columns)


def to_all_partitions(changes: Changes, partitions: int, bits: int) -> Changes:
    """The changes with each truncate once for every state partition, by a key that leads there."""
    marks = np.asarray(changes.extra[TRUNCATE]) == 1
    if not marks.any():
        return changes
    keys = _keys_of_partitions(partitions, bits)
    copies = np.where(marks, len(keys), 1)
    rows = np.repeat(np.arange(changes.rows), copies)
    spread = changes.take(rows)
    truncates = np.flatnonzero(marks[rows])
    wire = pa.concat_arrays([spread.key.wire(), pa.array(keys, pa.large_binary())])
    pick = np.arange(len(rows))
    pick[truncates] = len(rows) + np.tile(np.arange(len(keys)), int(marks.sum()))
    return replace(spread, key=Values(changes.key.serde, wire=take(wire, pick)))


@lru_cache(maxsize=16)
def _keys_of_partitions(partitions: int, bits: int) -> list[bytes]:
    """A key for each state partition that has any."""
    tried = [b"\0truncate %d" % number for number in range(max(_TRIES, 64 * partitions))]
    places = partition_of(hash_keys(pa.array(tried, pa.large_binary()), bits), partitions)
    return [tried[row] for row in np.unique(places, return_index=True)[1].tolist()]


def around_truncates(changes: Changes) -> Iterator[Changes]:
    """The changes up to each truncate, the truncate alone, and so on."""
    begin = 0
    marks = np.flatnonzero(np.asarray(changes.extra[TRUNCATE])) if TRUNCATE in changes.extra else ()
    for row in marks:
        if row > begin:
            yield changes.slice(begin, int(row))
        yield changes.slice(int(row), int(row) + 1)
        begin = int(row) + 1
    if begin < changes.rows:
        yield changes.slice(begin, changes.rows)


def truncated(view: Snapshot, truncate: Changes, place: int) -> Changes:
    """The deletes of all rows from before a truncate, which the store loses."""
    live = view.live()
    gone = np.flatnonzero(np.asarray(live["ts"]) < place)
    keys = take(live["key"], gone)
    values = take(live["value"], gone)
    view.put(
        {
            "h": live["h"][gone],
            "key": keys,
            "value": pa.nulls(len(gone), pa.large_binary()),
            "ts": live["ts"][gone],
            "seen": live.columns.get("seen", live["ts"])[gone],
            "gone": np.ones(len(gone), np.uint8),
        }
    )
    there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    one = truncate.take(np.zeros(len(there), np.int64))
    nothing = Values(truncate.value.serde, wire=pa.nulls(len(there), pa.large_binary()))
    key = Values(truncate.key.serde, wire=take(keys, there))
    return replace(one, key=key, value=nothing, headers=None, extra={})


def _unknown(settings: Debezium, left_out: int) -> CrossStreamError:
    names = [name for bit, name in enumerate(settings.unavailable) if left_out >> bit & 1]
    return refuse(
        "CS-501",
        f"an event leaves out {', '.join(names)}, and no row was read before that has the value",
        "read the topic from its beginning, or take a new snapshot; where keys change, set REPLICA IDENTITY FULL",
    )
