"""Groups of small streams and tables of texts, by the engine; the functions and shapes are those of `Grouping.java`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import crossstream as cs
from crossstream import serdes

TEXT, NUMBER = serdes.string(), serdes.int64()
IN, GROUPED = cs.Consumed(key=TEXT, value=TEXT), cs.Grouped(key=TEXT, value=TEXT)
KEPT = cs.Materialized(key=TEXT, value=TEXT)

STREAMS = ("key", "value", "re-keyed")
TABLES = (
    "table",
    "to_table",
    "re-keyed to_table",
    "filter",
    "map",
    "inner",
    "left",
    "outer",
    "versions",
    "filter of versions",
    "map of versions",
)
SHAPES = {
    "stream": STREAMS,
    "cogroup": STREAMS,
    "windowed cogroup": STREAMS,
    "table": TABLES,
    "counts": STREAMS,
    "restream": STREAMS,
    "table restream": TABLES,
    "windows": ("key",),
    "closed": ("key",),
}
"""What is aggregated, and where it may come from; see `table_of`."""


class Record(NamedTuple):
    topic: str
    key: str | None
    value: str | None
    ts: int


@dataclass(frozen=True, slots=True)
class Case:
    """``operator``: count, reduce or aggregate. ``none``: the initializer gives None. Durations of windows: ms.

    ``zero``: of counts that are grouped, 0 has a group, too.
    """

    shape: str
    source: str
    operator: str
    none: bool = False
    kind: str = "time"
    size: int = 10
    grace: int = 0
    advance: int = 10
    zero: bool = False

    @property
    def windows(self) -> Any:
        if self.kind == "time":
            return cs.TimeWindows(size=self.size, advance=self.advance, grace=self.grace)
        if self.kind == "session":
            return cs.SessionWindows(gap=self.size, grace=self.grace)
        return cs.SlidingWindows(difference=self.size, grace=self.grace)

    @property
    def topics(self) -> tuple[str, ...]:
        two = self.source in ("inner", "left", "outer") or "cogroup" in self.shape
        return ("in", "other") if two else ("in",)

    @property
    def windowed(self) -> bool:
        return self.shape in ("windowed cogroup", "closed")


def shown(aggregate: str | None) -> str:
    return "null" if aggregate is None else aggregate


def add(key: str, made: str | None, value: str | None) -> str | None:
    return None if value is not None and "x" in value else shown(made) + key + shown(value)


def add_other(made: str | None, value: str | None) -> str | None:
    return None if value is not None and "x" in value else f"{shown(made)}/{shown(value)}"


def subtract(made: str, value: str) -> str | None:
    return None if "y" in value else made + "~" + value


def plus(made: str, value: str) -> str | None:
    return None if "x" in value else made + "+" + value


def minus(made: str, value: str) -> str | None:
    return None if "y" in value else made + "-" + value


def merge(left: str | None, right: str | None) -> str:
    return f"({shown(left)}|{shown(right)})"


def both(left: str | None, right: str | None) -> str:
    return (left or "") + (right or "")


def named(value: str | None) -> str | None:
    return None if value is None or value.startswith("-") else value[0]


def group_and_item(key: str, value: str) -> tuple[str | None, str | None]:
    return None if value[0] == "-" else value[0], None if value[1:2] == "-" else value[1:]


def parity(case: Case, count: int) -> str | None:
    """The group of a count. Kafka takes a 0 away that was never there: it has none, but with ``zero`` (8.24)."""
    if count == 0 and not case.zero:
        return None
    return "odd" if count % 2 else "even"


def of_key(key: cs.Windowed, count: int) -> str | None:
    """The group of a count in a window; none for a 0, as in `parity`."""
    return key.key if count else None


def last_letter(value: str | None) -> str | None:
    return "z" if value is None else value[-1] if len(value) % 4 else None


def text(key: Any) -> str:
    return f"{key.key}@{key.start}-{key.end}" if isinstance(key, cs.Windowed) else key


def topology(case: Case) -> cs.Topology:
    builder = cs.StreamsBuilder()
    made = table_of(case, builder)
    texts = made.to_stream().map(lambda key, value: (text(key), None if value is None else str(value)))
    texts.to("out", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


def table_of(case: Case, builder: cs.StreamsBuilder) -> Any:
    first = (lambda: None) if case.none else (lambda: "")
    kept = cs.Materialized(store="made", key=TEXT, value=TEXT)

    def made(grouped: Any) -> Any:
        of_table = isinstance(grouped, cs.GroupedKTable)
        if case.operator == "count":
            return grouped.count(materialized=cs.Materialized(store="made", key=TEXT, value=NUMBER))
        if case.operator == "reduce":
            return grouped.reduce(plus, *([minus] if of_table else []), materialized=kept)
        return grouped.aggregate(first, add, *([subtract] if of_table else []), materialized=kept)

    def grouped() -> Any:
        stream = builder.stream("in", IN)
        if case.source == "key":
            return stream.group_by_key(GROUPED)
        if case.source == "value":
            return stream.group_by(named, GROUPED)
        return stream.select_key(named).group_by_key(GROUPED)

    def renamed(table: Any) -> Any:
        return table.to_stream().select_key(last_letter).group_by_key(GROUPED)

    if case.shape == "stream":
        return made(grouped())
    if case.shape == "counts":
        counts = grouped().count()
        return made(counts.group_by(lambda key, count: (parity(case, count), f"{key}{count}"), GROUPED))
    if case.shape == "restream":
        return made(renamed(grouped().aggregate(first, add, materialized=KEPT)))
    if case.shape == "windows":
        counts = grouped().windowed_by(case.windows).count()
        return made(counts.group_by(lambda key, count: (of_key(key, count), f"{key.start}:{count}"), GROUPED))
    merger = merge if case.kind == "session" else None
    if case.shape == "closed":
        windowed = grouped().windowed_by(case.windows, emit="close")
        return windowed.aggregate(first, add, merger, materialized=kept)
    if case.shape in ("table", "table restream"):
        groups = source(case.source, builder).group_by(group_and_item, GROUPED)
        if case.shape == "table":
            return made(groups)
        return made(renamed(groups.aggregate(first, add, subtract, materialized=KEPT)))
    others = builder.stream("other", IN).group_by_key(GROUPED)
    cogrouped = grouped().cogroup(add).cogroup(others, add_other)
    if not case.windowed:
        return cogrouped.aggregate(first, materialized=kept)
    return cogrouped.windowed_by(case.windows).aggregate(first, merger, materialized=kept)


def source(name: str, builder: cs.StreamsBuilder) -> Any:
    """A table of texts whose first letter is the group."""
    if name == "to_table":
        return builder.stream("in", IN).to_table(materialized=KEPT)
    if name == "re-keyed to_table":
        keyed = builder.stream("in", IN).map(lambda key, value: (key if value is None else value[-1], value))
        return keyed.to_table(materialized=KEPT)
    name, _, versions = name.partition(" of ")
    kept = cs.Materialized(store="versions", history_retention=10)
    table = builder.table("in", IN, kept if "versions" in (name, versions) else None)
    if name == "filter":
        return table.filter(lambda value: "3" not in value)
    if name == "map":
        return table.map_values(lambda value: None if "2" in value else value + "'")
    if name in ("table", "versions"):
        return table
    join = {"inner": table.join, "left": table.left_join, "outer": table.outer_join}[name]
    return join(builder.table("other", IN), both)


Row = tuple[Any, ...]
"""Of results: key, value, timestamp, then the headers. Of a store: key, value, and without windows the timestamp."""


class Ran(NamedTuple):
    """``results``: those of each record. ``rows``: the store at the end, by key. ``dropped``: as Kafka counts."""

    results: list[list[Row]]
    rows: list[Row]
    dropped: int


def run(case: Case, records: Sequence[Record]) -> Ran:
    """What the driver gives, record by record; the header of each record is its number."""
    with cs.TopologyTestDriver(topology(case)) as driver:
        topics = {name: driver.create_input_topic(name, TEXT, TEXT) for name in case.topics}
        output = driver.create_output_topic("out", TEXT, TEXT)
        results = []
        for number, record in enumerate(records):
            headers = (("n", str(number).encode()),)
            topics[record.topic].pipe_input(record.key, record.value, timestamp=record.ts, headers=headers)
            results.append([made_row(row) for row in output.read_records()])
        if not case.windowed:
            columns = driver.get_key_value_store("made").to_arrow().to_pydict()
            rows = list(zip(columns["key"], map(str, columns["value"]), columns["timestamp"], strict=True))
        else:
            of = driver.get_session_store if case.kind == "session" else driver.get_window_store
            rows = [(text(key), value) for key, value in of("made").all()]
        return Ran(results, sorted(rows), dropped_in(driver.metrics()))


def dropped_in(metrics: dict[str, Any]) -> int:
    """How many were dropped, without versions behind a newer one: where rows are grouped, Kafka only logs them."""
    behind = [count for name, count in metrics["dropped"].items() if name.endswith("out-of-order-version")]
    return int(metrics["dropped-records-total"]) - sum(behind)


def made_row(record: cs.TestRecord) -> Row:
    return record.key, record.value, record.timestamp, *(value.decode() for _, value in record.headers)


def random_case(random: Random, shape: str) -> Case:
    size = random.randrange(1, 12)
    return Case(
        shape,
        random.choice(SHAPES[shape]),
        "aggregate" if "cogroup" in shape else random.choice(("count", "reduce", "aggregate")),
        random.random() < 0.2,
        random.choice(("time", "session") if shape == "windows" else ("time", "session", "sliding")),
        size,
        random.choice((0, 0, random.randrange(12))),
        random.randrange(1, size + 1),
    )


def random_records(random: Random, case: Case, count: int = 16) -> list[Record]:
    """Few keys and groups; times out of order; null keys and values; values that delete, or have no group or item."""
    keys, groups = ("a", "b", "c")[: random.randrange(1, 4)], ("a", "b", "c")[: random.randrange(1, 4)]
    step, late = random.choice((0, 1, 3, 6)), random.choice((0, 4, 15))
    now, records = 0, []
    for _ in range(random.randrange(2, count + 1)):
        now += random.randrange(step + 1)
        key = None if random.random() < 0.05 else random.choice(keys)
        group = "-" if random.random() < 0.08 else random.choice(groups)
        value = None if random.random() < 0.15 else group + random.choice("123456789xy-")
        records.append(
            Record(random.choice(case.topics), key, value, max(0, now - random.randrange(late + 1)))
        )
    if case.windowed:
        return without_lag(case, records)
    return without_twins(records) if case.shape == "windows" and case.kind == "session" else records


def without_twins(records: Sequence[Record]) -> list[Record]:
    """One record of each key and time: Kafka does not take away the session that another would change (8.25)."""
    return list({(record.key, record.ts): record for record in reversed(records)}.values())[::-1]


def without_lag(case: Case, records: Sequence[Record]) -> list[Record]:
    """Without those that are late for the stream time of all streams, and perhaps not for their own one's (8.22)."""
    newest, kept = dict.fromkeys(case.topics, -1), []
    for record in records:
        key = record.key if record.topic == "other" or case.source == "key" else named(record.value)
        if key is not None and (record.value is not None or case.kind != "sliding"):
            own, stream_time = newest[record.topic], max(*newest.values(), record.ts)
            if max(own, record.ts) < stream_time and record.ts < stream_time - case.grace:
                continue
            newest[record.topic] = max(own, record.ts)
        kept.append(record)
    return kept
