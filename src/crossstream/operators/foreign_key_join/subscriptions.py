"""The first half of a foreign-key join: what changes of left rows ask of the partitions of foreign keys.

`subscribe` is keyed by the primary key. Source: KIP-213, semantics 2.5.2, 2.5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from crossstream.columns.changes import Changes, no_changes
from crossstream.columns.order import by_key, last_per_key, last_per_trigger
from crossstream.columns.values import Values
from crossstream.serdes.contract import EngineSerde
from crossstream.storage.columns import EMPTY_BYTES, Column, same_rows, take, take_all, valid
from crossstream.storage.snapshot import Snapshot
from crossstream.tables.join_spec import JoinSpec, Serdes

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


@dataclass(frozen=True, slots=True)
class Subscribed:
    """``subscriptions``: keyed by foreign key. ``answers``: left rows that need no right table, by primary key."""

    subscriptions: Changes
    answers: Changes
    dropped: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        subscriptions: Changes | None,
        answers: Changes | None,
        foreign: EngineSerde | None,
        serdes: Serdes,
    ) -> Subscribed:
        """What has arrived of both; None: nothing has. ``foreign``: serde of the foreign keys."""
        if subscriptions is None:
            extra: dict[str, Column] = {PRIMARY: EMPTY_BYTES, INSTRUCTION: np.empty(0, np.uint8)}
            if serdes.either is not None:
                extra[REFERS] = np.empty(0, np.int64)
            subscriptions = replace(no_changes(foreign, serdes.left), extra=extra)
        return cls(subscriptions, no_changes(serdes.key, serdes.left) if answers is None else answers)


def subscribe(
    spec: JoinSpec, store: Snapshot, left: Changes, references: Values, *, counted: bool = False
) -> Subscribed:
    """What left changes ask for. ``left``: arrival order, keys not null; ``references``: their foreign keys.

    ``store``: of the foreign key of each left row, which this updates. ``counted``: the subscriptions say which rows
    begin or cease to refer (`REFERS`).
    """
    foreign = references.wire()
    lacking = int((~valid(foreign) & ~left.value.missing()).sum())  # semantics 2.5.3, rows 2, 5, 7
    dropped = {"null-foreign-key": lacking} if spec.kind == "inner" else {}
    hashes = left.hashes(spec.bits)
    if spec.emit == "changelog":
        rows, begins = last_per_trigger(left, *by_key(left, hashes))
    else:
        rows = last_per_key(left, hashes)
        begins = np.ones(len(rows), bool)
    net, h, new = left.take(rows), hashes[rows], take(foreign, rows)
    keys, is_row = net.key.wire(), ~net.value.missing()
    old, was_row = _references_before(store, h, keys, (new, is_row), begins)
    has, had = valid(new) & is_row, valid(old) & was_row
    same = has & had
    both = np.flatnonzero(same)
    same[both] = same_rows(new, both, old, both)
    last = np.flatnonzero(np.append(begins[1:], True))
    columns = {"h": h, "key": keys, "reference": new, "ts": net.ts, "gone": (~is_row).astype(np.uint8)}
    store.put(columns if len(last) == len(h) else take_all(columns, last))

    moved = has & had & ~same
    left_behind = had & ~has
    if spec.kind == "inner":
        # Rows 5 and 8 of semantics 2.5.3. No right row is known here, and by the time the partition of the old foreign
        # key looks, the one that made a result may be gone. So it cannot be known that there is nothing to delete.
        leaving = np.where(left_behind, DELETE_KEY_AND_PROPAGATE, DELETE_KEY_NO_PROPAGATE)
        # Row 4. The partition of the new foreign key cannot know whether the row had a result with the old one. Without
        # a right row it must delete it. In rows 1, 3 and 6 no other foreign key has left one: they may be silent.
        joining = np.where(moved, PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)
        alone = np.zeros(len(h), bool)
    else:
        leaving = np.full(len(h), DELETE_KEY_NO_PROPAGATE)
        joining = np.full(len(h), PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
        alone = ~has & (is_row | was_row)
    leavers = np.flatnonzero(moved | left_behind)
    joiners = np.flatnonzero(has)
    subscriptions = _subscriptions(
        net, keys, references.serde, (leavers, old, leaving), (joiners, new, joining)
    )
    if counted:
        refers = np.concatenate([np.full(len(leavers), -1), (~same)[joiners].astype(np.int64)])
        subscriptions = replace(subscriptions, extra={**subscriptions.extra, REFERS: refers})
    if spec.emit == "changelog":  # a row leaves one foreign key before it joins the next
        subscriptions = subscriptions.take(np.argsort(np.concatenate([leavers, joiners]), kind="stable"))
    return Subscribed(subscriptions, net.take(np.flatnonzero(alone)), dropped)


def _references_before(
    store: Snapshot,
    hashes: np.ndarray,
    keys: Column,
    after: tuple[pa.LargeBinaryArray, np.ndarray],
    begins: np.ndarray,
) -> tuple[pa.LargeBinaryArray, np.ndarray]:
    """The foreign key before each row, rows grouped by key, and whether it was a row; ``after``: the same after it."""
    first = np.flatnonzero(begins)
    whole = len(first) == len(hashes)
    match = store.lookup(hashes[first], keys if whole else take(keys, first))
    old = match.gather("reference")
    if whole:
        return old, match.found
    new, is_row = after
    index = np.where(begins, np.cumsum(begins) - 1, len(first) + np.arange(len(hashes)) - 1)
    return take(pa.concat_arrays([old, new]), index), np.concatenate([match.found, is_row])[index]


def _subscriptions(
    net: Changes,
    keys: Column,
    serde: EngineSerde | None,
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


def without_referring(subscriptions: Changes, mask: np.ndarray) -> tuple[Changes, Changes]:
    """Subscriptions that count no referrers where the mask holds, and what they counted, without their rows."""
    refers = np.asarray(subscriptions.extra[REFERS])
    moves = subscriptions.take(np.flatnonzero(mask & (refers != 0)))
    nothing = subscriptions.value.take(np.full(moves.rows, -1)) if moves.rows else moves.value
    rest = replace(subscriptions, extra={**subscriptions.extra, REFERS: np.where(mask, 0, refers)})
    return rest, replace(moves, value=nothing)
