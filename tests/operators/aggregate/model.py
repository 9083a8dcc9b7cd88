"""What aggregations must give, one record at a time, in plain Python. Functions are those of a user."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Record = tuple[Any, Any, int]
"""Key, value, timestamp."""


@dataclass
class Streams:
    """Records of a stream by key: `rows` has the aggregate and the timestamp of each group."""

    add: Callable[[Any, Any], Any]
    initial: Callable[[], Any] | None = None
    rows: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    dropped: int = 0

    def take(self, record: Record) -> list[Record]:
        """The results of a record."""
        key, value, ts = record
        if key is None or value is None:
            self.dropped += 1
            return []
        return [self.put(key, value, ts)]

    def put(self, group: Any, value: Any, ts: int) -> Record:
        before, newest = self.rows.get(group, (None, -1))
        if before is None and self.initial is None:
            made = value
        else:
            made = self.add(self.initial() if before is None and self.initial else before, value)
        newest = max(newest, ts)
        self.rows[group] = (made, newest)
        if made is None:
            del self.rows[group]
        return group, made, newest


@dataclass
class Windows:
    """The same in windows of time; the groups are (key, start)."""

    size: int
    advance: int
    grace: int
    of: Streams
    final: bool = False
    stream_time: int = -1
    late: int = 0

    def take(self, record: Record) -> list[Record]:
        key, value, ts = record
        if key is None:
            self.of.dropped += 1
            return []
        before, self.stream_time = self.stream_time, max(self.stream_time, ts)
        results = []
        for start in self.starts(ts):
            if start + self.size > self.stream_time - self.grace:
                results.append(self.of.put((key, start), value, ts))
            else:
                self.late += 1
        return self.closed(before) if self.final else results

    def starts(self, ts: int) -> Iterable[int]:
        first = max(0, ts - self.size + self.advance) // self.advance * self.advance
        return range(first, ts + 1, self.advance)

    def closed(self, before: int) -> list[Record]:
        done = [
            (start, key, value, ts)
            for (key, start), (value, ts) in self.of.rows.items()
            if before - self.grace < start + self.size <= self.stream_time - self.grace
        ]
        return [((key, start), value, ts) for start, key, value, ts in sorted(done, key=lambda row: row[:2])]


@dataclass
class Tables:
    """A table whose rows are grouped: each change takes its old row from a group and adds its new one to a group."""

    group: Callable[[Any, Any], tuple[Any, Any]]
    add: Callable[[Any, Any], Any]
    subtract: Callable[[Any, Any], Any]
    initial: Callable[[], Any] | None = None
    table: dict[Any, Any] = field(default_factory=dict)
    rows: dict[Any, tuple[Any, int]] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        key, value, ts = record
        if key is None:
            return
        old = self.table.pop(key, None)
        if value is not None:
            self.table[key] = value
        kept: dict[Any, int] = {}
        if old is not None:
            group, item = self.group(key, old)
            if group is not None and item is not None and group in self.rows:
                before, newest = self.rows.pop(group)
                made, kept[group] = self.subtract(before, item), max(newest, ts)
                if made is not None:
                    self.rows[group] = (made, kept[group])
        if value is not None:
            group, item = self.group(key, value)
            if group is not None and item is not None:
                before, newest = self.rows.pop(group, (None, kept.get(group, -1)))
                if before is None and self.initial is None:
                    made = item
                else:
                    made = self.add(self.initial() if before is None and self.initial else before, item)
                if made is not None:
                    self.rows[group] = (made, max(newest, ts))
