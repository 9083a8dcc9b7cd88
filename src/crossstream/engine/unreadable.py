"""Which row of the state cannot be read: asked for once reading has failed, for the message.

Records are checked where they are read, so what cannot be decoded later was kept by an earlier run, mostly by one whose
type for it was another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossstream.errors import SerdeError
from crossstream.serdes import Serde, calls
from crossstream.serdes.serde import find_invalid
from crossstream.state.columns import Column, cut, cut_all, take
from crossstream.state.run import Run
from crossstream.state.view import View
from crossstream.topology.plan import StoreDef

_CHUNK = 16_384
"""Rows decoded at once."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row whose value the serde of its store refuses. ``key``: its bytes, where they are no key of the store."""

    store: StoreDef
    key: Any
    reason: str


def unreadable_row(stores: Iterable[tuple[StoreDef, View]], serde: object) -> Unreadable | None:
    """The first row that is in the way; None if there is none. ``serde``: the name of the one that refused bytes."""
    for store, view in stores:
        if serde in (None, store.value.name) and "value" in store.layout.names:
            for run in view.pieces():
                for row, reason in _refused(store.value, run):
                    if _is_live(view, run, row):
                        return Unreadable(store, _key(store, run, row), reason)
    return None


def _refused(serde: Serde, run: Run) -> Iterator[tuple[int, str]]:
    for start in range(0, run.rows, _CHUNK):
        values = cut(run["value"], start, min(start + _CHUNK, run.rows))
        try:
            found = find_invalid(serde, values, None, None)
        except SerdeError:  # not a matter of single rows
            return
        yield from ((start + row, reason) for row, reason in found)


def _is_live(view: View, run: Run, row: int) -> bool:
    """Whether no newer run replaces the row; of those with several rows under a key each is taken for live."""
    if view.layout.sort is not None:
        return True
    one = cut_all(run.columns, row, row + 1)
    match = view.lookup(one["h"], one["key"])
    return bool(match.found[0]) and match.pieces[int(match.piece[0])] is run


def _key(store: StoreDef, run: Run, row: int) -> Any:
    name = "key2" if store.layout.second_key else "key"
    data: Column = take(run[name], np.array([row]))
    try:
        return data[0].as_py() if name == "key2" else calls.decode_objects(store.key, data)[0]
    except SerdeError:
        return data[0].as_py()
