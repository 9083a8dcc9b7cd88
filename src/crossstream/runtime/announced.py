"""How the tasks that read change events say in all state partitions which snapshots they saw (decision 0045)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from crossstream.operators.debezium.snapshots import NEWS
from crossstream.planning.plan import Plan
from crossstream.task.batch import Batch
from crossstream.task.shuffle_codec import Block


@dataclass(slots=True)
class Announced:
    """What one task says, and what it hears, as `news_of` has it. Blocks of it come after those of exchanges and times.

    ``near``: the others are in this process.
    """

    plan: Plan
    batch: Batch
    near: bool
    _said: dict[str, list[np.ndarray]] = field(default_factory=dict)
    _heard: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The number of the first such block."""
        return len(self.plan.exchanges) + len(self.plan.feeds)

    def note(self, node: str, news: np.ndarray) -> None:
        """What the reader of a source saw."""
        if len(news):
            self._said.setdefault(node, []).append(news)

    def blocks(self, sender: int, sequence: int) -> Iterator[tuple[int, Block]]:
        """For every state partition: what was noted."""
        for number, (node, to_round) in enumerate(self.plan.announced, self.first):
            if node in self._said:
                news = np.concatenate(self._said[node])
                blob = news if self.near else news.tobytes()
                for pid in range(self.batch.partitions):
                    yield pid, (to_round, number, sender, sequence, blob)
                    sequence += 1

    def take(self, blobs: dict[int, list[bytes]]) -> None:
        """Takes out what others noted. ``blobs``: by number of the exchange."""
        for number, (node, _) in enumerate(self.plan.announced, self.first):
            if number in blobs:
                self._heard[node] = np.concatenate([_news(blob) for blob in blobs.pop(number)])

    def of(self, node: str) -> np.ndarray:
        """What was said about a source in this batch."""
        return self._heard.get(node, np.empty((0, NEWS), np.int64))


def _news(blob: bytes | np.ndarray) -> np.ndarray:
    return blob if isinstance(blob, np.ndarray) else np.frombuffer(blob, np.int64).reshape(-1, NEWS)
