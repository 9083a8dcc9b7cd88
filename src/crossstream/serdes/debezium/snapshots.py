"""How events say which snapshot of the database shows their row, and how.

`Part.snapshot` has the mark of each event, `Part.generation` a number of the snapshot. The number is of the place in
the log of the database at which the snapshot was taken: two snapshots at one place show the same rows. Its upper half
is of the table (`origin_of`), as a topic may have the events of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xxhash

READ = "r"
"""The operation of a row that a snapshot shows; no other event has a mark of a snapshot."""

NO_SNAPSHOT, SHOWN, FIRST, FIRST_OF_TABLE, LAST_OF_TABLE, LAST, INCREMENTAL = range(7)
"""How a snapshot shows a row (``source.snapshot``): not at all, somewhere in the middle, as its first or its last row,
as the first or last one of a table, or beside other changes."""

FLAT_MARKS = ("__source_snapshot", "__snapshot")
"""The fields of a plain row that may have the mark of a snapshot, by the setting of event flattening."""

NO_GENERATION = 0

_MARKS = {
    "true": SHOWN,
    True: SHOWN,
    "first": FIRST,
    "first_in_data_collection": FIRST_OF_TABLE,
    "last_in_data_collection": LAST_OF_TABLE,
    "last": LAST,
    "incremental": INCREMENTAL,
}

TABLE = ("name", "db", "schema", "table", "collection")
PLACE = ("lsn", "commit_lsn", "scn", "file", "pos", "gtid", "vgtid")
"""The fields of ``source`` that all rows of one table, or of one snapshot, have in common."""

_FLAT = {f"{prefix}{name}": name for prefix in ("__", "__source_") for name in (*TABLE, *PLACE)}
"""The fields of plain rows for them; of two the later counts."""

_HALF = 32
Source = Mapping[str, Any]


def no_marks(rows: int) -> np.ndarray:
    return np.zeros(rows, np.uint8)


def no_generations(rows: int) -> np.ndarray:
    return np.zeros(rows, np.int64)


def snapshot_marks(given: Sequence[Any]) -> np.ndarray:
    """How a snapshot shows each row, of 8 bits; what no connector writes is no mark."""
    kinds = set(given)
    if len(kinds) == 1:
        return np.full(len(given), _MARKS.get(kinds.pop(), NO_SNAPSHOT), np.uint8)
    return np.fromiter((_MARKS.get(one, NO_SNAPSHOT) for one in given), np.uint8, len(given))


def generations(marks: np.ndarray, sources: Callable[[np.ndarray], Sequence[Source]]) -> np.ndarray:
    """The snapshot that shows each row, 0 where none does. ``sources``: of some rows, what their events say of theirs.

    Rows of one snapshot come one after the other, so that mostly a few rows say it for all.
    """
    found = no_generations(len(marks))
    shown = np.flatnonzero((marks != NO_SNAPSHOT) & (marks != INCREMENTAL))
    if not len(shown):
        return found
    borders = np.unique(np.concatenate([shown[[0, -1]], shown[marks[shown] != SHOWN]]))
    known = [_generation(source) for source in sources(borders)]
    if len(set(known)) == 1:
        found[shown] = known[0]
    else:
        found[shown] = [_generation(source) for source in sources(shown)]
    return found


def flat_source(row: Mapping[str, Any]) -> Source:
    """What event flattening left of the source in a plain row."""
    return {name: row[flat] for flat, name in _FLAT.items() if row.get(flat) is not None}


def flat_source_names() -> Iterable[str]:
    """The fields of a plain row that `flat_source` looks at."""
    return _FLAT


def _generation(source: Source) -> int:
    place = [source.get(name) for name in PLACE]
    if all(one is None for one in place):
        return NO_GENERATION
    table = _digest([source.get(name) for name in TABLE]) >> 1  # the number is not negative
    return (table << _HALF) | _digest(place)


def _digest(parts: Sequence[Any]) -> int:
    return xxhash.xxh32_intdigest("\0".join(map(str, parts)).encode())


def origin_of(generation: int) -> int:
    """The table of a snapshot."""
    return generation >> _HALF
