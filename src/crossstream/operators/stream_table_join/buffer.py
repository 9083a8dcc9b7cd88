"""Records that wait for the table in a stream–table join with a grace period (KIP-923).

A record waits until stream time is ``grace`` past its timestamp, then looks the table up. A record that is late already
looks at once. Those that leave together leave in order of their timestamps, then of their keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossstream.columns.changes import Changes, concat_changes
from crossstream.columns.order import arrival_numbers
from crossstream.columns.values import Values
from crossstream.serdes import Serde
from crossstream.storage.columns import Column, concat_all, take_all
from crossstream.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Buffer:
    """The records that wait when a batch begins: those of the store from ``horizon`` (a timestamp) on.

    ``clock``: the newest timestamp of any that ever waited, −1: none.
    """

    view: Snapshot
    grace: int
    clock: int
    horizon: int
    key: Serde | None
    value: Serde | None

    def horizon_at(self, clock: int) -> int:
        """From which timestamp on records wait when the clock shows ``clock``."""
        return max(self.horizon, clock - self.grace + 1)

    def due(self, clock: int) -> Changes:
        """Those that leave by the time the clock shows ``clock``, in arrival order; they have no place in time yet."""
        parts: list[dict[str, Column]] = []
        for run in self.view.segments():
            rows = np.flatnonzero((run["s"] >= self.horizon) & (run["s"] <= clock - self.grace))
            if len(rows) or not parts:
                parts.append(take_all(run.columns, rows))
        together = concat_all(parts)
        columns = take_all(together, np.argsort(together["n"]))
        nowhere = np.zeros(len(columns["n"]), np.int64)
        return Changes(
            Values(self.key, wire=columns["key"]),
            Values(self.value, wire=columns["value"]),
            columns["s"],
            nowhere,
            nowhere,
            columns["headers"],
        )


@dataclass(frozen=True, slots=True)
class Departure:
    """``leaving``: the records that look now, in order, each placed at the record it leaves with.

    ``staying``: which of the batch's records wait on; ``clock``, ``horizon``: after the batch.
    """

    leaving: Changes
    staying: np.ndarray
    clock: int
    horizon: int


def depart(stream: Changes, buffer: Buffer) -> Departure:
    """Passes a batch of admitted records, in arrival order, through the buffer."""
    grace, keyed = buffer.grace, ~stream.key.missing()
    times = np.maximum.accumulate(np.append(buffer.clock, np.where(keyed, stream.ts, buffer.clock)))
    before, after = times[:-1], times[1:]
    own = np.arange(stream.rows)
    at_once = ~keyed | (stream.ts < before - grace)
    leaves = np.where(at_once, own, np.maximum(own, after.searchsorted(stream.ts + grace)))
    due = buffer.due(int(times[-1]))
    together = concat_changes([due, stream]) if due.rows else stream
    moment = np.concatenate([after.searchsorted(due.ts + grace), leaves])
    going = np.flatnonzero(moment < stream.rows)
    order = going[np.lexsort((going, together.ts[going], moment[going]))]
    order = _by_key_where_tied(together, order, moment)
    placed = moment[order]
    leaving = replace(together.take(order), major=stream.major[placed], minor=stream.minor[placed])
    clock = int(times[-1])
    return Departure(leaving, np.flatnonzero(leaves == stream.rows), clock, buffer.horizon_at(clock))


def depart_while_idle(buffer: Buffer, clock: int, major: int) -> Departure:
    """Those that are due when the clock shows ``clock`` without a new record; ``major``: their place in time."""
    due = buffer.due(clock)
    order = _by_key_where_tied(due, np.argsort(due.ts, kind="stable"), np.zeros(due.rows, np.int64))
    leaving = replace(
        due.take(order), major=np.full(due.rows, major), minor=np.arange(-due.rows, 0, dtype=np.int64)
    )
    return Departure(leaving, np.empty(0, np.int64), clock, buffer.horizon_at(clock))


def _by_key_where_tied(records: Changes, order: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Records that leave at one moment with one timestamp in order of their keys."""
    ts, at = records.ts[order], moment[order]
    tied = (ts[1:] == ts[:-1]) & (at[1:] == at[:-1])
    if not tied.any():
        return order
    places = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
    keys = records.key.take(order[places]).wire()
    rank = np.asarray(pc.rank(keys, tiebreaker="dense"))
    sorted_ = order.copy()
    sorted_[places] = order[places][np.lexsort((np.arange(len(places)), rank, ts[places], at[places]))]
    return sorted_


def waiting_rows(
    records: Changes, places: np.ndarray, batch: int, serde: Serde | None, bits: int
) -> dict[str, Column]:
    """The rows of the store for records that wait on; ``places``: theirs among the records of the batch."""
    headers = pa.nulls(records.rows, pa.large_binary()) if records.headers is None else records.headers
    return {
        "h": records.hashes(bits),
        "s": records.ts,
        "key": records.key.wire(),
        "n": arrival_numbers(places, batch),
        "value": records.value.wire(serde),
        "headers": headers,
        "gone": np.zeros(records.rows, np.uint8),
    }
