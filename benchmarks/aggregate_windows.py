"""`crossstream bench aggregate windows`: each built-in aggregate in each window, beside the Python functions for it.

Clicks of 50 users in batches of 1,000 in the test driver: some come together, every tenth is late. Core-milliseconds of
the batches, without reading and piping; the least of the rounds. No Kafka, no Spark.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import polars as pl

import crossstream as cs
from crossstream import agg, serdes

TEXT = serdes.string()
CLICK = serdes.json({"page": pl.String, "ms": pl.Int64, "price": pl.Float64})
BATCH, BATCHES, USERS = 1_000, 4, 50
MOST = 2.0
"""No aggregate may cost more, in relation to its functions."""

WINDOWS: dict[str, Any] = {
    "none": None,
    "tumbling": cs.TimeWindows(size=60_000, grace=60_000),
    "hopping": cs.TimeWindows(size=60_000, advance=20_000, grace=60_000),
    "unlimited": cs.UnlimitedWindows(),
    "session": cs.SessionWindows(gap=30_000, grace=60_000),
    "sliding": cs.SlidingWindows(difference=30_000, grace=60_000),
}


class Functions(NamedTuple):
    """What a user would write: an initializer, an aggregator, and for sessions a merger."""

    begin: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]


def _distinct(left: list[Any], right: list[Any]) -> list[Any]:
    return [*left, *(one for one in right if one not in left)]


def _best(found: list[Any]) -> list[Any]:
    return sorted(found, key=lambda one: -one["ms"])[:3]


LISTED = Functions(list, lambda found, click: [*found, click["page"]], lambda left, right: [*left, *right])
DIFFERENT = Functions(list, lambda found, click: _distinct(found, [click["page"]]), _distinct)
AGGREGATES: dict[str, tuple[Any, Functions]] = {
    "count": (
        agg.count(),
        Functions(lambda: 0, lambda count, click: count + 1, lambda left, right: left + right),
    ),
    "sum": (
        agg.sum("ms"),
        Functions(lambda: 0, lambda total, click: total + click["ms"], lambda left, right: left + right),
    ),
    "mean": (
        agg.mean("price"),
        Functions(
            lambda: {"sum": 0.0, "count": 0},
            lambda of, click: {"sum": of["sum"] + click["price"], "count": of["count"] + 1},
            lambda one, other: {name: one[name] + other[name] for name in one},
        ),
    ),
    "min": (agg.min("ms"), Functions(lambda: 10**9, lambda least, click: min(least, click["ms"]), min)),
    "max": (agg.max("page"), Functions(str, lambda most, click: max(most, click["page"]), max)),
    "first": (
        agg.first("page"),
        Functions(str, lambda first, click: first or click["page"], lambda left, right: left or right),
    ),
    "last": (
        agg.last("page"),
        Functions(str, lambda last, click: click["page"], lambda left, right: right or left),
    ),
    "collect": (agg.collect("page"), LISTED),
    "collect_set": (agg.collect_set("page"), DIFFERENT),
    "count_distinct": (agg.count_distinct("page"), DIFFERENT),
    "approx_distinct": (agg.approx_distinct("page"), DIFFERENT),
    "top": (
        agg.top(3, by="ms"),
        Functions(list, lambda top, click: _best([*top, click]), lambda left, right: _best([*left, *right])),
    ),
}


def clicks(batches: int, batch: int) -> Iterator[list[tuple[bytes, bytes, int]]]:
    """Serialised records with their timestamps."""
    random, now = Random(1), 1_700_000_000_000
    for _ in range(batches):
        made = []
        for _ in range(batch):
            now += random.choice((20, 50, 100, 2_000))
            late = random.randrange(20_000) if random.random() < 0.1 else 0
            click = {
                "page": f"/{random.randrange(40)}",
                "ms": random.randrange(10_000),
                "price": random.random(),
            }
            made.append((b"user-%d" % random.randrange(USERS), json.dumps(click).encode(), now - late))
        yield made


def topology(windows: str, name: str, functions: bool) -> cs.Topology:
    builder = cs.StreamsBuilder()
    grouped: Any = builder.stream("clicks", cs.Consumed(key=TEXT, value=CLICK)).group_by_key()
    if WINDOWS[windows] is not None:
        grouped = grouped.windowed_by(WINDOWS[windows])
    built_in, python = AGGREGATES[name]
    if functions:
        merging = {"merger": python.merge} if windows == "session" else {}
        made = grouped.aggregate(python.begin, python.add, value=serdes.json(), **merging)
    else:
        made = grouped.agg(made=built_in)
    made.to_stream().to("made")
    return builder.build()


def seconds(windows: str, name: str, functions: bool, batches: Sequence[Any]) -> float:
    """Core-seconds of the batches."""
    as_is, spent = serdes.bytes(), 0.0
    with cs.TopologyTestDriver(topology(windows, name, functions), commit_every=10**9) as driver:
        topic = driver.create_input_topic("clicks", as_is, as_is)
        gc.collect()
        for batch in batches:
            topic.pipe_records(batch)
            began = time.process_time()
            driver.commit()
            spent += time.process_time() - began
    return spent


def measure(rounds: int, scale: float = 1.0) -> list[dict[str, Any]]:
    """Core-milliseconds for 1,000 clicks of each aggregate in each window, both ways."""
    batches = list(clicks(BATCHES, max(10, int(BATCH * scale))))
    count, found = sum(map(len, batches)), []
    for windows in WINDOWS:
        for name in AGGREGATES:
            least = {True: float("inf"), False: float("inf")}
            for _ in range(rounds):
                for functions in least:
                    least[functions] = min(least[functions], seconds(windows, name, functions, batches))
            python, ours = (round(1e6 * least[functions] / count, 1) for functions in (True, False))
            one = {"windows": windows, "aggregate": name, "functions": python, "agg": ours}
            found.append({**one, "times": round(ours / python, 2)})
            print(json.dumps(found[-1]), flush=True)
    return found


def run(rounds: int, scale: float) -> int:
    """Prints all figures; 1 if an aggregate costs more than `MOST` times its functions."""
    slow = [one for one in measure(rounds, scale) if one["times"] > MOST]
    for one in slow:
        print(f"{one['aggregate']} in windows {one['windows']}: {one['times']} times its functions")
    return 1 if slow else 0
