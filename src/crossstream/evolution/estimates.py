"""What a change costs, before it is made: rows to read, time, and room on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crossstream.evolution.decision import Decision
from crossstream.evolution.old_state import manifests_of
from crossstream.storage.commit_log import BatchLog

ROWS_A_SECOND = 100_000
"""What is taken where the log has no batch that is large enough to say it."""
ENOUGH_ROWS = 20_000
"""Rows of a batch from which on its time says something."""
BEGIN_SECONDS = 2.0
"""What a change takes beside the rows."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """``rows``: by old store what it has, and by source what was read of its topics, at most. ``sizes``: bytes of old
    stores. ``unknown``: sources of which nothing was read yet. ``seconds``, ``disk``: of all, the latter in bytes.
    ``measured``: the speed is that of past batches.
    """

    rows: Mapping[str, int]
    sizes: Mapping[str, int]
    unknown: tuple[str, ...]
    seconds: float
    disk: int
    measured: bool

    def of(self, names: Iterable[str]) -> int:
        """The bytes of these old stores."""
        return sum(self.sizes.get(name, 0) for name in names)


def estimate(log: BatchLog, decision: Decision) -> Estimate:
    """What a change costs. Manifests are read, and entries of the log; no rows are."""
    sizes: dict[str, int] = {}
    rows: dict[str, int] = {}
    for name in decision.before.topology.stores:
        held = manifests_of(log.root, name, decision.commit.versions.get(name, {}))
        sizes[name] = sum(one.size for one in held)
        rows[name] = sum(one.rows for one in held)
    taken = {one.store: rows[one.store] for one in decision.rows.values()}
    taken |= {one.before.store: rows[one.before.store] for one in decision.results if one.before is not None}
    read: dict[str, int] = {}
    for name in decision.read_again:
        old = decision.sources.get(name)
        places = {} if old is None else decision.commit.positions.get(old, {})
        if places:
            read[name] = sum(sum(offsets.values()) for offsets in places.values())
    unknown = tuple(name for name in decision.read_again if name not in read)
    speed = _speed(log)
    work = sum(taken.values()) + sum(read.values())
    each = sum(sizes.values()) / max(1, sum(rows.values()))
    is_idle = not (taken or read or unknown)
    return Estimate(
        rows=taken | read,
        sizes=sizes,
        unknown=unknown,
        seconds=0.0 if is_idle else BEGIN_SECONDS + work / (speed or ROWS_A_SECOND),
        disk=0 if is_idle else _room(decision, sizes, work, each),
        measured=speed is not None,
    )


def _room(decision: Decision, sizes: Mapping[str, int], work: int, each: float) -> int:
    """Bytes of what is written: of new stores as of the old ones that they take the place of, or of what is read.

    And, while it runs, the rows of results, new and old.
    """
    replaced = sum(sizes[name] for name in decision.dropped if name in sizes)
    rebuilt = max(replaced, int(work * each)) if decision.rebuilt else 0
    return rebuilt + (int(2 * work * each) if decision.results else 0)


def _speed(log: BatchLog) -> float | None:
    """Rows a second of the largest batch that the log has; None: none is large enough."""
    best: tuple[int, float] = (ENOUGH_ROWS - 1, 0.0)
    done = set(log.commits())
    for number in log.batches():
        if number not in done:
            continue
        entry, commit = log.batch(number), log.commit(number)
        rows = sum(span.end - span.start for span in entry.ranges)
        seconds = commit.time - entry.time
        if rows > best[0] and seconds > 0:
            best = rows, rows / seconds
    return best[1] or None
