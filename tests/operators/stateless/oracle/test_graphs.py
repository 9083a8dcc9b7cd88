"""Graphs of operators that make other keys, nulls, and another number of records: as Kafka's own driver.

Three streams and a global table; every record with a header. Streams are filtered, mapped, re-keyed, merged, also with
what is made of them, and joined with each other, with tables that are made of them, and with the global table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest

from tests.laws.strategies import with_headers
from tests.oracle.cases import EXTRACTOR, JOINERS, JOINS, Case, References, join, records
from tests.oracle.compositions import CHANGING, DERIVED, compare, derive, made
from tests.oracle.oracle import Oracle

pytestmark = pytest.mark.oracle

CASES = 60
NIGHTLY = 1500
KEYS = ("a", "b")
STREAMS = ("left", "right", "third")
ON_STREAMS = sorted({*DERIVED["stream"], *CHANGING["stream"]} - {"to table"})
ROW_WISE = [name for name in ON_STREAMS if name != "repartition"]
SEVERAL = ("twice", "under both keys", "merge")
"""What makes several records of one."""
RE_KEYING = ("re-key", "key of value", "map both", "under both keys")


class Named(References):
    """Values that begin with a key, or with "-" for none."""

    def name(self) -> str:
        return self.rng.choice([*KEYS, *KEYS, "-"])


def test_graphs(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, graph(Random(f"graph {seed}")))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_graphs_for_long(oracle: Oracle, fresh: int) -> None:
    for seed in range(fresh, fresh + NIGHTLY):
        compare(oracle, graph(Random(f"graph {seed}")))


def graph(rng: Random) -> Case:
    """Up to five operators, and the tables they look up; the last one's records are the result.

    At most two repartition topics: which of three is read first is up to a heap. Of two as well, where a record becomes
    several on the way to one of them only. And no stream through two of them, for Kafka makes one topic of both, and
    drops null keys there for both or neither.
    """
    joins: list[dict[str, Any]] = []
    streams = list(STREAMS[: rng.choice([1, 2, 3])])
    sources = {name: Named(rng, KEYS, name[0].upper()) for name in streams}
    for _ in range(rng.randint(1, 5)):
        streams.append(operator(rng, joins, streams))
    moves = moved(joins)
    if len(moves) > 2 or moves.total() > len(moves) or becomes_several(joins, *moves):
        return graph(rng)
    used = {name for one in joins for name in (one["left"], one["right"])}
    if "global" in used:
        sources["global"] = Named(rng, KEYS, "G")
    sides = {name: rows for name, rows in sources.items() if name in used}
    return made(joins, with_headers(records(rng, sides)))


def test_ways_of_rows(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, ways_of_rows(Random(f"ways {seed}")))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_ways_of_rows_for_long(oracle: Oracle, fresh: int) -> None:
    for seed in range(fresh, fresh + NIGHTLY):
        compare(oracle, ways_of_rows(Random(f"ways {seed}")))


def ways_of_rows(rng: Random) -> Case:
    """Row-wise operators and merges of any of their streams, however their ways cross."""
    joins, _ = crossing_ways(rng, ROW_WISE, "left")
    return made(joins, with_headers(records(rng, {"left": Named(rng, KEYS, "L")})))


def crossing_ways(
    rng: Random, operators: Sequence[str], *sources: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Row-wise operators and merges, and all the streams."""
    joins: list[dict[str, Any]] = []
    streams = list(sources)
    for _ in range(rng.randint(3, 7)):
        one, other = rng.choice(streams), rng.choice(streams)
        if one == other:
            streams.append(derive(joins, rng.choice(operators), one))
        else:
            joins.append(join(f"n{len(joins)}", "derived", "merge", one, other))
            streams.append(joins[-1]["id"])
    return joins, streams


def test_ways_of_two_sources(oracle: Oracle) -> None:
    for seed in range(CASES):
        compare(oracle, ways_of_two_sources(Random(f"two sources {seed}")))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_ways_of_two_sources_for_long(oracle: Oracle, fresh: int) -> None:
    for seed in range(fresh, fresh + NIGHTLY):
        compare(oracle, ways_of_two_sources(Random(f"two sources {seed}")))


def ways_of_two_sources(rng: Random) -> Case:
    """Two streams of all records of two sources meet: in a merge, or in a join. Which is first is up to the source."""
    joins, streams = crossing_ways(rng, [name for name in ROW_WISE if name not in RE_KEYING], "left", "right")
    what = rng.choice(["merge", "stream-table", "stream-stream"])
    full = [name for name in streams if {"left", "right"} <= ways_to(joins, name).keys()]
    pairs = [
        (one, other)
        for one, other in permutations(full, 2)
        if in_one_way(joins, one, other, several=what == "merge")
    ]
    if not pairs:
        return ways_of_two_sources(rng)
    one, other = rng.choice(pairs)
    if what == "merge":
        joins.append(join(f"n{len(joins)}", "derived", "merge", one, other))
    else:
        add_join(rng, joins, what, one, other)
    return made(
        joins, with_headers(records(rng, {"left": Named(rng, KEYS, "L"), "right": Named(rng, KEYS, "R")}))
    )


def operator(rng: Random, joins: list[dict[str, Any]], streams: list[str]) -> str:
    """Adds one that Kafka and we take in the same order: what shares a source with another does so in one way."""
    one, other = rng.choice(streams), rng.choice(streams)
    what = rng.choice(["derived", "derived", "merge", "stream-stream", "stream-table", "stream-globaltable"])
    meets = what == "merge" and by_row(joins, one, other)
    if not in_one_way(joins, one, other, several=meets) and (one != other or what == "stream-table"):
        return operator(rng, joins, streams)
    name = f"n{len(joins)}"
    if what == "derived":
        return derive(joins, rng.choice(ON_STREAMS), one)
    if what == "merge":
        if one == other:
            return operator(rng, joins, streams)
        joins.append(join(name, "derived", "merge", one, other))
    else:
        add_join(rng, joins, what, one, other)
    return str(joins[-1]["id"])


def add_join(rng: Random, joins: list[dict[str, Any]], what: str, one: str, other: str) -> None:
    more: dict[str, Any] = {}
    kind = rng.choice(JOINS[what])
    if what == "stream-stream":
        window = {side: rng.choice([3, 10]) for side in ("before_ms", "after_ms")}
        more = {"window": {**window, "grace_ms": rng.choice([0, 5, 20])}, "eager": rng.random() < 0.6}
        kind = kind if more["eager"] else "inner"
    elif what == "stream-table":
        other = derive(joins, "to table", other)
    else:
        other, more = "global", {"key_mapper": EXTRACTOR}
    joins.append(join(f"n{len(joins)}", what, kind, one, other, joiner=JOINERS[0], **more))


def by_row(joins: list[dict[str, Any]], one: str, other: str) -> bool:
    """Whether nothing but row-wise operators is on the ways from where two streams part."""
    made_by = {each["id"]: each for each in joins}
    apart = ways_to(joins, one).keys() ^ ways_to(joins, other).keys()
    made = [made_by[name] for name in apart if name in made_by]
    return all(each["operator"] == "derived" and each["type"] != "repartition" for each in made)


def in_one_way(joins: list[dict[str, Any]], one: str, other: str, *, several: bool) -> bool:
    """Whether each record that is in both streams has come to each in one way.

    And but once to where they part, unless ``several`` may come.
    """
    ways, others = ways_to(joins, one), ways_to(joins, other)
    shared = [name for name in ways if name in others]
    makers = {each["id"] for each in joins if each["type"] in SEVERAL or each["operator"] == "stream-stream"}
    return all(ways[name] == others[name] == 1 and (several or name not in makers) for name in shared)


def becomes_several(joins: list[dict[str, Any]], one: str = "", other: str = "") -> bool:
    """Whether one record becomes several on the way to one of two streams, and not to the other."""
    makers = {each["id"] for each in joins if each["type"] in SEVERAL or each["operator"] == "stream-stream"}
    ways, others = ways_to(joins, one), ways_to(joins, other)
    return bool(one and other and ways.keys() & others.keys() and makers & (ways.keys() ^ others.keys()))


def ways_to(joins: list[dict[str, Any]], stream: str) -> Counter[str]:
    """How many ways there are from each stream to one, itself included. What is looked up only is none of them."""
    found = Counter({stream: 1})
    for one in reversed(joins):
        both = one["type"] == "merge" or one["operator"] == "stream-stream"
        for parent in (one["left"], one["right"]) if both else (one["left"],):
            found[parent] += found[one["id"]]
    return +found


def moved(joins: list[dict[str, Any]]) -> Counter[str]:
    """How often each stream goes through a repartition topic."""
    re_keyed: set[str] = set()
    found: Counter[str] = Counter()
    for one in joins:
        ends = {one["left"], one["right"]} if one["operator"] == "stream-stream" else {one["left"]}
        by_key = one["operator"] in ("stream-stream", "stream-table") or one["type"] == "to table"
        if by_key:
            found.update(ends & re_keyed)
        elif one["type"] == "repartition":
            found[one["id"]] += 1
        elif one["type"] in RE_KEYING or re_keyed & {one["left"], one["right"]}:
            re_keyed.add(one["id"])
    return found
