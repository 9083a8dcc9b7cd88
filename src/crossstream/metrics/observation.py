"""An application at one moment, as plain data: what metrics and the page show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from crossstream.task.counts import Counts

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds (s) of the buckets that the time of a batch is counted in."""

RECENT = 60
"""So many batches are kept with their phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Counts):
    """The last batch: rows by operator, dropped rows by operator and reason, milliseconds by phase.

    ``state_rows``, ``state_bytes``: what each store holds on disk, rows that wait to be merged away among them.
    ``matched``, ``unmatched``: by join, rows that found a partner, and that found none. ``fan_out``: by foreign-key
    join, the most left rows that one change of a right row met. ``warnings``: of joins whose
    keys have not met since the start. ``waiting``: by operator, windows and other rows that wait only because a source
    partition is behind the newest one, or has no records.
    ``newest``: the latest timestamp (ms) of the records that each source read, and that each sink wrote.
    ``lag``: records that were there when the batch was planned and are left. Totals: since the start.
    ``stands``: by transaction topic, behind which transaction of the database the batch ends, its place in the log and
    its time in ms. ``waits``: what records wait for now: transactions that are not whole, and tables that load first.
    """

    batch: int = -1
    rows: int = 0
    seconds: float = 0.0
    dropped: dict[str, int] = field(default_factory=dict)
    state_rows: dict[str, int] = field(default_factory=dict)
    state_bytes: dict[str, int] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    lag: int = 0
    total_rows: int = 0
    total_dropped: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    newest: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    stands: dict[str, dict[str, str | int | None]] = field(default_factory=dict)
    waits: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Its fields by name, as plain data.

        >>> Progress(batch=3, rows=10).to_dict()["rows"]
        10
        """
        return {one.name: getattr(self, one.name) for one in fields(self)}


def stand_texts(stands: Mapping[str, Mapping[str, str | int | None]]) -> list[str]:
    """Where an application stands in each transaction topic, in words.

    >>> stand_texts({"shop.transaction": {"transaction": "571", "lsn": "0/32BB438", "time": None}})
    ['ends behind transaction 571 of shop.transaction, at 0/32BB438']
    """
    return [
        f"ends behind transaction {one['transaction']} of {topic}"
        + (f", at {one['lsn']}" if one["lsn"] else "")
        for topic, one in sorted(stands.items())
        if one["transaction"]
    ]


class Done(msgspec.Struct, frozen=True):
    """A batch that was committed. ``time``: of its commit, seconds since the epoch; ``phases``: milliseconds."""

    batch: int
    time: float
    rows: int
    seconds: float
    phases: dict[str, float]


class Running(msgspec.Struct, frozen=True):
    """A batch that runs. ``since``: seconds since the epoch; ``records``: how many it takes from topics."""

    batch: int
    since: float
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(Counts):
    """Counts are since the start of the application. Times are seconds since the epoch, ``newest_…`` milliseconds.

    ``read``, ``written``: records of sources and sinks; ``rows_in``, ``rows_out``: by operator. ``dropped``: by
    operator and reason. ``buckets``: batches by their time, one more than `BOUNDS`. ``lag``: by topic and partition.
    ``newest_read``, ``newest_written``: the latest timestamp of a record, by source and by sink. ``skew``: the rows
    of the largest state partition of a store, as a multiple of the mean. ``fan_out``: by foreign-key join, the most
    left rows that one change of a right row met in a batch. ``waiting``, ``stands``, ``waits``: see `Progress`.
    ``from_folder``: known from the state alone.
    """

    application: str
    time: float
    status: str
    started: float = 0.0
    read: int = 0
    written: int = 0
    dead_letters: int = 0
    batches: int = 0
    batch_seconds: float = 0.0
    buckets: tuple[int, ...] = ()
    dropped: dict[str, dict[str, int]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    lag: dict[str, dict[int, int]] = field(default_factory=dict)
    newest_read: dict[str, int] = field(default_factory=dict)
    newest_written: dict[str, int] = field(default_factory=dict)
    state_rows: dict[str, int] = field(default_factory=dict)
    state_bytes: dict[str, int] = field(default_factory=dict)
    skew: dict[str, float] = field(default_factory=dict)
    running: Running | None = None
    last: Done | None = None
    recent: tuple[Done, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    stands: dict[str, dict[str, str | int | None]] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    from_folder: bool = False

    @property
    def total_lag(self) -> int:
        """Records of all partitions that wait."""
        return sum(sum(partitions.values()) for partitions in self.lag.values())

    @property
    def result_age(self) -> float | None:
        """Seconds since the timestamp of the newest result; None: there is none yet."""
        return None if not self.newest_written else self.time - max(self.newest_written.values()) / 1000


def skew_of(state: dict[str, tuple[int, int]], partitions: int) -> dict[str, float]:
    """By store the rows of its largest state partition, over the mean. ``state``: (rows, bytes) by ``store/partition``.

    >>> skew_of({"shops/0": (30, 100), "shops/1": (10, 100)}, 2)
    {'shops': 1.5}
    """
    rows: dict[str, list[int]] = {}
    for place, (count, _) in state.items():
        rows.setdefault(place.rpartition("/")[0], []).append(count)
    return {
        store: round(max(counts) * partitions / sum(counts), 3)
        for store, counts in rows.items()
        if sum(counts)
    }


def by_store(state: dict[str, tuple[int, int]]) -> tuple[dict[str, int], dict[str, int]]:
    """Rows and bytes of each store; ``state`` as in `skew_of`."""
    rows: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for place, (count, size) in sorted(state.items()):
        store = place.rpartition("/")[0]
        rows[store] = rows.get(store, 0) + count
        sizes[store] = sizes.get(store, 0) + size
    return rows, sizes
