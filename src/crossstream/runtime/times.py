"""How the tasks of a batch report to each other when stream time moves (decision 0038)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from crossstream.columns.changes import Changes
from crossstream.columns.order import OFFSET_BITS
from crossstream.columns.stream_time import Highs, Timeline, counting, holding
from crossstream.planning.plan import Plan
from crossstream.storage.store import Version
from crossstream.task.batch import Batch
from crossstream.task.shuffle_codec import Block


@dataclass(slots=True)
class Times:
    """What one task reports, and what it gets from the others. ``near``: the others are in this process."""

    plan: Plan
    batch: Batch
    near: bool
    _sent: dict[int, list[Highs]] = field(default_factory=dict)
    _came: dict[int, list[Highs]] = field(default_factory=dict)

    def note(self, exchange: str, changes: Changes) -> None:
        """Rows that are sent through an exchange."""
        for number in self.plan.fed_by.get(exchange, ()):
            feed = self.plan.feeds[number]
            rows = counting(changes, feed.counts)
            if rows.rows:
                rows = rows if feed.tick == 1 else _in_steps(rows, feed.tick)
                partition = self.batch.source_partitions(rows.minor)
                self._sent.setdefault(number, []).append(Highs.of(rows, partition))

    def blocks(self, sender: int, sequence: int) -> Iterator[tuple[int, Block]]:
        """For every state partition: how stream time moves with what was sent to some of them."""
        rounds = {exchange.arrives: exchange.to_round for exchange in self.plan.exchanges}
        for feed, parts in sorted(self._sent.items()):
            highs = Highs.together(parts)
            blob = highs if self.near else highs.pack()
            number = len(self.plan.exchanges) + feed
            for pid in range(self.batch.partitions):
                yield pid, (rounds[self.plan.feeds[feed].arrives], number, sender, sequence, blob)
                sequence += 1

    def take(self, blobs: dict[int, list[bytes]]) -> None:
        """Takes out what others reported. ``blobs``: by number of the exchange; those of times come last."""
        first = len(self.plan.exchanges)
        for number in [number for number in blobs if number >= first]:
            self._came[number - first] = list(map(Highs.of_blob, blobs.pop(number)))

    def timeline(self, store: str, version: Version) -> Timeline | None:
        """Stream time of a store in this batch, the same in all state partitions; None: it has none."""
        timed = self.plan.timed.get(store)
        if timed is None:
            return None
        highs = [one for feed in timed.feeds for one in self._came.get(self.plan.feeds.index(feed), ())]
        if not highs:
            return Timeline(version.stream_time, sources=version.sources)
        silence = self.batch.silence
        clock = self.batch.clock if silence is None else silence.clock
        since, after = (0, None) if silence is None else (silence.since, silence.after)
        expected = self.batch.expected_of(timed.sources)
        counted = holding(expected, version.sources, clock, since, after)
        return Timeline.of(Highs.together(highs), version.stream_time, version.sources, counted, clock)


def _in_steps(rows: Changes, tick: int) -> Changes:
    """Rows with times in steps of so many ms; of those of one source partition, in order, only where a step begins."""
    stepped = replace(rows, ts=rows.ts // tick * tick)
    minor, ts = rows.minor, stepped.ts
    if minor[0] >> OFFSET_BITS != minor[-1] >> OFFSET_BITS or not (minor[1:] > minor[:-1]).all():
        return stepped
    return stepped.take(np.append(0, 1 + np.flatnonzero(ts[1:] > ts[:-1])))
