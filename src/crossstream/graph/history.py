"""The history of a topic in a table of a lake: which rows come before the records of the topic. Plain data.

Rows that carry Kafka's own partitions and offsets take the place of the records that the topic has there: to the engine
there is one topic, which is longer. Rows of a table as it was at a time are a topic of their own, which is read whole
before any other record (decision 0047).
"""

from __future__ import annotations

from dataclasses import dataclass

from crossstream.graph.lake import SHARES, LakeTable

PREFIX = "past:"
"""Of the topics that are the rows of a table as it was at a time. No topic of Kafka has such a name."""
WHOLE = 1
"""Where such a topic ends: all rows are at its one offset."""


@dataclass(frozen=True, slots=True)
class History:
    """A table of a lake before a topic.

    ``table``: its columns are those of the keys, of the values and of the times, and those below. ``positions``: the
    columns of Kafka's own partition and offset; none where the rows are as of ``until``, a time in ms from which on the
    topic is read. ``deleted``: the column that is true in records without a value. ``key_in_bytes``,
    ``value_in_bytes``: the column of it holds the bytes of the records.
    """

    table: LakeTable
    positions: tuple[str, ...] = ()
    until: int = 0
    deleted: str | None = None
    key_in_bytes: bool = False
    value_in_bytes: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read beside the positions."""
        marks = () if self.deleted is None else (self.deleted,)
        return tuple(dict.fromkeys((*self.table.needed, *marks)))

    @property
    def partition(self) -> str:
        return self.positions[0]

    @property
    def offset(self) -> str:
        return self.positions[1]


def past_of(topic: str) -> str:
    """The topic that is the rows of a table before another one."""
    return f"{PREFIX}{topic}"


def is_past(topic: str) -> bool:
    return topic.startswith(PREFIX)


def all_rows() -> dict[int, int]:
    """Where each share of such a topic ends."""
    return dict.fromkeys(range(SHARES), WHOLE)
