"""Shapes of streams: each makes a stream of texts into one of objects, by operators that look at stream time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
IN = cs.Consumed(key=TEXT, value=TEXT)

Shape = Callable[[Any], Any]
"""A stream of texts into a stream of objects."""

WINDOWS: Mapping[str, Any] = {
    "time": cs.TimeWindows(size=10, advance=4, grace=2),
    "sliding": cs.SlidingWindows(difference=6, grace=3),
    "session": cs.SessionWindows(gap=5, grace=2),
}


def grouped(s: Any) -> Any:
    return s.group_by_key(cs.Grouped(key=TEXT, value=TEXT))


def placed(s: Any) -> Any:
    return s.repartition(cs.Repartitioned(key=TEXT, value=TEXT))


def not_two(value: str) -> str:
    """Fails on some records: these do not move the stream time of what comes behind."""
    if value == "2":
        raise ValueError(value)
    return value


def counted(kind: str, emit: Any = "update") -> Shape:
    return lambda s: grouped(s).windowed_by(WINDOWS[kind], emit=emit).count().to_stream()


def until_close(kind: str) -> Shape:
    def shape(s: Any) -> Any:
        counts = grouped(s).windowed_by(WINDOWS[kind]).count()
        return counts.suppress(cs.Suppressed.until_window_closes()).to_stream()

    return shape


def limited(s: Any) -> Any:
    return grouped(s).count().suppress(cs.Suppressed.until_time_limit(7)).to_stream()


def limited_behind_a_filter(s: Any) -> Any:
    counts = grouped(s).count().filter(lambda k, n: n % 2 == 1)
    return counts.suppress(cs.Suppressed.until_time_limit(7)).to_stream()


def joined(how: str) -> Shape:
    def shape(s: Any) -> Any:
        other = s.filter(lambda k, v: v > "3").map(lambda k, v: (v + k, v))
        mine = s.map(lambda k, v: ("5" + k, v))
        both = cs.StreamJoined(key=TEXT, value=TEXT, other_value=TEXT)
        window = cs.JoinWindows.of(4, grace=3)
        return getattr(mine, how)(other, lambda left, right: f"{left},{right}", window, both)

    return shape


def versioned(s: Any) -> Any:
    """Keeps versions for 5 ms."""
    kept = cs.Materialized(key=TEXT, value=TEXT, history_retention=5)
    return placed(s.filter(lambda k, v: v > "2")).to_table(materialized=kept)


def expiring(s: Any) -> Any:
    """Rows expire after 6 ms."""
    kept = cs.Materialized(key=TEXT, value=TEXT, ttl="6 ms")
    return placed(s).to_table(materialized=kept)


def looked_up(table: Callable[[Any], Any], how: str = "left_join", grace: int | None = None) -> Shape:
    def shape(s: Any) -> Any:
        both = cs.Joined(key=TEXT, value=TEXT, other_value=TEXT, grace=grace)
        return getattr(placed(s), how)(table(s), lambda left, right: f"{left},{right}", both)

    return shape


def kept_filter(s: Any) -> Any:
    """Versions of a table that has none."""
    kept = cs.Materialized(key=TEXT, value=TEXT, history_retention=5)
    return placed(s).to_table().filter(lambda k, v: v > "2", materialized=kept)


def kept_values(s: Any) -> Any:
    """Versions of a table that has some, in the same round."""
    kept = cs.Materialized(key=TEXT, value=TEXT, history_retention=3)
    return versioned(s).map_values(lambda v: v + "!", materialized=kept)


def kept_join(s: Any) -> Any:
    kept = cs.Materialized(key=TEXT, value=TEXT, history_retention=5)
    other = placed(s.filter(lambda k, v: v < "4")).to_table()
    return placed(s).to_table().join(other, lambda left, right: f"{left}{right}", materialized=kept)


class Totals:
    """What came of each key, with stream time; every 6 ms all that came, and when stream time was there."""

    def init(self, context: Any) -> None:
        self.context, self.held = context, context.store("held")
        context.schedule(6, "stream-time", self.report)

    def process(self, record: Any) -> None:
        self.held.put(record.key, (self.held.get(record.key) or "") + record.value)
        self.context.forward(record.key, self.context.stream_time)

    def report(self, now: int) -> None:
        for key, value in self.held.all():
            self.context.forward(key, f"{value} at {now} of {self.context.stream_time}")


def processed(s: Any) -> Any:
    return placed(s).process(Totals, stores=[cs.KeyValueStore("held", key=TEXT, value=TEXT)])


def processed_twice(s: Any) -> Any:
    made = placed(s).filter(lambda k, v: v != "3").process_values(Times)
    return made.filter(lambda k, v: v % 2 == 0).process_values(Times)


class Times:
    """Forwards stream time with each record."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.forward(record.key, self.context.stream_time)


def by_batches(s: Any) -> Any:
    def rows(batch: Any) -> Any:
        return batch

    schema = pa.schema({"key": pa.string(), "value": pa.string(), "timestamp": pa.int64()})
    return counted("time", "close")(placed(s).transform_batches(rows, schema))


SHAPES: Mapping[str, Shape] = {
    **{f"{kind}, {emit}": counted(kind, emit) for kind in WINDOWS for emit in ("update", "close")},
    **{f"{kind}, suppressed": until_close(kind) for kind in WINDOWS},
    "time limit": limited,
    "time limit behind a filter": limited_behind_a_filter,
    "deduplicate": lambda s: placed(s).deduplicate(5),
    "deduplicate by value": lambda s: placed(s).deduplicate(5, lambda k, v: v),
    "windows of the first ones": lambda s: counted("time", "close")(placed(s).deduplicate(3)),
    "inner": joined("join"),
    "left": joined("left_join"),
    "outer": joined("outer_join"),
    "windows of a join": lambda s: counted("time", "close")(joined("outer_join")(s)),
    "versions": lambda s: versioned(s).to_stream(),
    "look-up of versions": looked_up(versioned),
    "look-up of versions of a filter": looked_up(kept_filter),
    "look-up of versions of values": looked_up(kept_values),
    "look-up of versions of a join": looked_up(kept_join, "join"),
    "rows that expire": lambda s: expiring(s).to_stream(),
    "look-up of rows that expire": looked_up(expiring),
    "windows of rows that expire": lambda s: counted("time", "close")(expiring(s).to_stream()),
    "rows that expire, of windows": lambda s: (
        counted("time", "close")(s)
        .map(lambda k, n: (k.key, str(n)))
        .to_table(materialized=cs.Materialized(key=TEXT, value=TEXT, ttl="9 ms"))
        .to_stream()
    ),
    "look-up with grace": looked_up(versioned, grace=4),
    "look-up with grace of versions of a filter": looked_up(kept_filter, "join", 3),
    "look-up with grace behind a filter": lambda s: looked_up(versioned, grace=2)(
        placed(s).filter(lambda k, v: v != "5")
    ),
    "windows of a look-up with grace": lambda s: counted("time", "close")(looked_up(versioned, grace=4)(s)),
    "processor": processed,
    "processors": processed_twice,
    "windows behind a processor": lambda s: counted("session", "close")(
        placed(s)
        .process_values(Totals, stores=[cs.KeyValueStore("held", key=TEXT, value=TEXT)])
        .map_values(str)
    ),
    "windows behind a function of batches": by_batches,
    "windows of windows": lambda s: counted("session", "close")(
        counted("time", "close")(s).map(lambda k, n: (str(n), k.key))
    ),
}
REKEYED: Mapping[str, Shape] = {
    "as it comes": lambda s: s,
    "by value": lambda s: s.select_key(lambda k, v: v),
    "filtered and repartitioned": lambda s: placed(s.filter(lambda k, v: v != "2")),
    "filtered behind": lambda s: placed(s).filter(lambda k, v: v != "2"),
    "refused behind": lambda s: placed(s).map_values(not_two),
}
