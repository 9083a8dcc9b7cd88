"""The first half of a foreign-key join: left changes become subscriptions to foreign keys.

`subscribe`, keyed by the primary key, knows the old foreign key of every left row. It turns a left change into a
subscription to the new foreign key and, if the row moved, an unsubscription from the old one. Source: KIP-213.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes
from crossstream.columns.order import by_key, last_per_key, last_per_trigger
from crossstream.columns.values import Values
from crossstream.serdes import Serde
from crossstream.storage.columns import Column, same_rows, take, take_all, valid
from crossstream.storage.snapshot import Snapshot

Kind = Literal["inner", "left"]

PRIMARY, INSTRUCTION = "primary key", "instruction"
"""Extra columns of a subscription: the left row's key, and what it asks of the partition of a foreign key (KIP-213)."""

DELETE_KEY_NO_PROPAGATE = 0
"""Forget the row, emit nothing: its result is decided elsewhere."""
DELETE_KEY_AND_PROPAGATE = 1
"""Forget the row and emit a tombstone: it has no foreign key any more, or is gone."""
PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
"""Remember the row; emit its result, or a tombstone (inner) or the row without partner (left)."""
PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3
"""Remember the row; emit its result if there is a right row."""

REFERS = "refers"
"""Extra column that counts referrers: 1 for a row that begins to refer to the foreign key, −1 for one that stops."""

Emit = Literal["net", "changelog"]
"""The last result of each row in a batch, or every result for readers of the changes within a batch."""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """``subscriptions``: keyed by foreign key. ``answers``: left rows that need no right table, by primary key."""

    subscriptions: Changes
    answers: Changes
    dropped: dict[str, int]


def subscribe(
    kind: Kind,
    view: Snapshot,
    left: Changes,
    references: pa.LargeBinaryArray,
    serde: Serde | None,
    *,
    emit: Emit,
    bits: int,
    counted: bool = False,
) -> Subscribed:
    """What left changes ask for. ``left``: arrival order, keys not null; ``references``: serialised foreign keys.

    ``serde``: that of the foreign key. ``view``: the store of references, which this updates. ``counted``: the
    subscriptions say which rows begin or cease to refer (`REFERS`).
    """
    lacking = int((~valid(references) & ~left.value.missing()).sum())  # semantics 2.5.3, rows 2, 5, 7
    dropped = {"null-foreign-key": lacking} if kind == "inner" else {}
    hashes = left.hashes(bits)
    if emit == "changelog":
        rows, begins = last_per_trigger(left, *by_key(left, hashes))
    else:
        rows = last_per_key(left, hashes)
        begins = np.ones(len(rows), bool)
    net, h, new = left.take(rows), hashes[rows], take(references, rows)
    keys, is_row = net.key.wire(), ~net.value.missing()
    old, was_row = _references_before(view, h, keys, new, is_row, begins)
    has, had = valid(new) & is_row, valid(old) & was_row
    same = has & had
    both = np.flatnonzero(same)
    same[both] = same_rows(new, both, old, both)
    last = np.flatnonzero(np.append(begins[1:], True))
    columns = {"h": h, "key": keys, "reference": new, "ts": net.ts, "gone": (~is_row).astype(np.uint8)}
    view.put(columns if len(last) == len(h) else take_all(columns, last))

    moved = has & had & ~same
    left_behind = had & ~has
    if kind == "inner":
        leaving = np.where(left_behind, DELETE_KEY_AND_PROPAGATE, DELETE_KEY_NO_PROPAGATE)
        joining = np.where(moved, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)
        alone = np.zeros(len(h), bool)
    else:
        leaving = np.full(len(h), DELETE_KEY_NO_PROPAGATE)
        joining = np.full(len(h), PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
        alone = ~has & (is_row | was_row)
    leavers = np.flatnonzero(moved | left_behind)
    joiners = np.flatnonzero(has)
    subscriptions = _subscriptions(net, keys, serde, (leavers, old, leaving), (joiners, new, joining))
    if counted:
        refers = np.concatenate([np.full(len(leavers), -1), (~same)[joiners].astype(np.int64)])
        subscriptions = replace(subscriptions, extra={**subscriptions.extra, REFERS: refers})
    if emit == "changelog":  # a row leaves one foreign key before it joins the next
        subscriptions = subscriptions.take(np.argsort(np.concatenate([leavers, joiners]), kind="stable"))
    return Subscribed(subscriptions, net.take(np.flatnonzero(alone)), dropped)


def _references_before(
    view: Snapshot,
    hashes: np.ndarray,
    keys: Column,
    new: pa.LargeBinaryArray,
    is_row: np.ndarray,
    begins: np.ndarray,
) -> tuple[pa.LargeBinaryArray, np.ndarray]:
    """For rows grouped by key the foreign key before each, and whether there was a row."""
    first = np.flatnonzero(begins)
    whole = len(first) == len(hashes)
    match = view.lookup(hashes[first], keys if whole else take(keys, first))
    old = match.gather("reference")
    if whole:
        return old, match.found
    place = np.where(begins, np.cumsum(begins) - 1, len(first) + np.arange(len(hashes)) - 1)
    return take(pa.concat_arrays([old, new]), place), np.concatenate([match.found, is_row])[place]


def _subscriptions(
    net: Changes,
    keys: Column,
    serde: Serde | None,
    *groups: tuple[np.ndarray, pa.LargeBinaryArray, np.ndarray],
) -> Changes:
    rows = np.concatenate([rows for rows, _, _ in groups])
    references = pa.concat_arrays([take(references, rows) for rows, references, _ in groups])
    instruction = np.concatenate([codes[rows] for rows, _, codes in groups]).astype(np.uint8)
    taken = net.take(rows)
    return replace(
        taken,
        key=Values(serde, wire=references),
        old=None,
        extra={PRIMARY: take(keys, rows), INSTRUCTION: instruction},
    )
