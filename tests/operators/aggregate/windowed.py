"""Windowed aggregations of a small stream, by the engine and by the reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import crossstream as cs
from crossstream import serdes
from tests.reference.windows import AGGREGATE, COUNT, REDUCE, Functions, Kind, Result, Windowing

TEXT, NUMBER = serdes.string(), serdes.int64()
FUNCTIONS = {"count": COUNT, "reduce": REDUCE, "aggregate": AGGREGATE}


class Record(NamedTuple):
    key: str | None
    value: str | None
    ts: int


@dataclass(frozen=True, slots=True)
class Case:
    """An aggregation: ``operator`` is count, reduce or aggregate; ``size``, ``grace``, ``advance``: ms."""

    kind: Kind
    operator: str
    size: int
    grace: int = 0
    advance: int = 0
    final: bool = False

    @property
    def windows(self) -> Any:
        if self.kind == "time":
            return cs.TimeWindows(size=self.size, advance=self.advance or self.size, grace=self.grace)
        if self.kind == "session":
            return cs.SessionWindows(gap=self.size, grace=self.grace)
        return cs.SlidingWindows(difference=self.size, grace=self.grace)

    @property
    def key(self) -> Any:
        return serdes.session_windowed(TEXT) if self.kind == "session" else serdes.windowed(TEXT, self.size)

    @property
    def value(self) -> Any:
        return NUMBER if self.operator == "count" else TEXT

    def reference(self, *, as_kafka_shows: bool = False) -> Windowing:
        functions: Functions = FUNCTIONS[self.operator]
        advance = self.advance or self.size
        return Windowing(self.kind, self.size, functions, self.grace, advance, self.final, as_kafka_shows)


def topology(case: Case, *, sink: bool = True, joined: bool = False) -> cs.Topology:
    """``joined``: what is written are the rows of a left join of the result, which finds nothing, as text."""
    builder = cs.StreamsBuilder()
    grouped = builder.stream("in", cs.Consumed(key=TEXT, value=TEXT)).group_by_key()
    windowed = grouped.windowed_by(case.windows, emit="close" if case.final else "update")
    kept = cs.Materialized(store="made", value=case.value)
    functions = FUNCTIONS[case.operator]
    if case.operator == "count":
        made = windowed.count(materialized=kept)
    elif case.operator == "reduce":
        made = windowed.reduce(lambda text, value: functions.merge(text, value), materialized=kept)
    else:
        merger = functions.merge if case.kind == "session" else None
        made = windowed.aggregate(functions.first, functions.add, merger, materialized=kept)
    if joined:
        texts = made.to_stream().map(lambda key, value: (key.key, f"{key.start}-{key.end}: {value}"))
        other = builder.stream("other", cs.Consumed(key=TEXT, value=TEXT))
        both = cs.StreamJoined(key=TEXT, value=TEXT, other_value=TEXT)
        eager = cs.JoinWindows.of(0, grace=10**6, eager=True)
        rows = texts.left_join(other, lambda left, right: left, eager, both)
        rows.to("out", cs.Produced(key=TEXT, value=TEXT))
    elif sink:
        made.to_stream().to("out", cs.Produced(key=case.key, value=case.value))
    return builder.build()


class Ran(NamedTuple):
    """``batches``: the records of each batch. ``rows``: the store at the end. ``dropped``: windows and records.

    ``apart``: records that began a session beside the closed one that they belong to.
    """

    batches: list[list[Result]]
    rows: list[Any]
    dropped: int
    apart: int


def run(case: Case, batches: Sequence[Sequence[Record]], partitions: int = 1) -> Ran:
    """What the driver gives, a batch after the other, of records in one source partition."""
    with cs.TopologyTestDriver(topology(case), commit_every=1_000_000, partitions=partitions) as driver:
        records = driver.create_input_topic("in", TEXT, TEXT)
        output = driver.create_output_topic("out", case.key, case.value)
        made = []
        for batch in batches:
            for record in batch:
                records.pipe_input(record.key, record.value, timestamp=record.ts, partition=0)
            driver.commit()
            made.append([Result(*(*r.key, r.value, r.timestamp)) for r in output.read_records()])
        reader = (driver.get_session_store if case.kind == "session" else driver.get_window_store)("made")
        counted = driver.metrics()["dropped"]
        apart = sum(n for reason, n in counted.items() if reason.endswith(": closed-session"))
        return Ran(made, list(reader.all()), sum(counted.values()) - apart, apart)


def cut(random: Random, records: Sequence[Record]) -> list[list[Record]]:
    """The records in batches of random lengths."""
    batches: list[list[Record]] = [[]]
    often = random.choice((0.05, 0.3))
    for record in records:
        if batches[-1] and random.random() < often:
            batches.append([])
        batches[-1].append(record)
    return batches


def random_case(random: Random, kind: Kind | None = None, *, final: bool | None = None) -> Case:
    kinds: tuple[Kind, ...] = ("time", "session", "sliding")
    chosen: Kind = random.choice(kinds) if kind is None else kind
    size = random.randrange(1, 12)
    return Case(
        chosen,
        random.choice(("count", "reduce", "aggregate")),
        size,
        random.choice((0, 0, random.randrange(12))),
        random.randrange(1, size + 1) if chosen == "time" else 0,
        random.random() < 0.5 if final is None else final,
    )


def random_records(random: Random, count: int = 14) -> list[Record]:
    """Mostly in order; some keys and values are null, some values delete."""
    keys = ("a", "b", "c")[: random.randrange(1, 4)]
    step, late = random.choice((1, 3, 6)), random.choice((0, 4, 15))
    now, records = 0, []
    for _ in range(random.randrange(1, count + 1)):
        now += random.randrange(step + 1) * (1 + 8 * (random.random() < 0.1))
        ts = max(0, now - random.randrange(late + 1))
        key = None if random.random() < 0.03 else random.choice(keys)
        value = random.choice("12345678x") if random.random() < 0.93 else None
        records.append(Record(key, value, ts))
    return records
