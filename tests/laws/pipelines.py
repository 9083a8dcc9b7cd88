"""Random pipelines of row-wise stream operators, as plain Python on single records and as streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes

Key = str | None
Value = dict[str, Any] | None
One = tuple[Key, Value]

TEXT, JSON = serdes.string(), serdes.json()


def number(value: Value) -> int:
    return 0 if value is None else int(value["n"])


def more(value: Value) -> Value:
    return None if value is None else {**value, "n": value["n"] + 1}


def copies(value: Value) -> list[Value]:
    """No, one or two values: the value itself and a null."""
    return [] if value is None else [value, None][: number(value) % 3]


def named(key: Key, value: Value) -> Key:
    """A new key: the name in the value, which may be null."""
    return key if value is None else value["name"]


@dataclass(frozen=True)
class Operator:
    """What one operator does to a record, and how it is written."""

    name: str
    each: Callable[[Key, Value], list[One]]
    build: Callable[[Any], Any]

    def __repr__(self) -> str:
        return self.name


def branches(stream: Any) -> Any:
    """Two branches that go different ways, and come together again; what fits neither is dropped."""
    split = stream.split().branch(lambda value: number(value) > 3, "many").branch(odd, "odd")
    ways = split.no_default_branch()
    return ways["many"].map_values(more).merge(ways["odd"])


def odd(value: Value) -> bool:
    return number(value) % 2 == 1


def branched(key: Key, value: Value) -> list[One]:
    if number(value) > 3:
        return [(key, more(value))]
    return [(key, value)] if odd(value) else []


def seen(key: Key, value: Value) -> None:
    assert key is None or isinstance(key, str)


OPERATORS = [
    Operator(
        "filter", lambda k, v: [(k, v)] if number(v) > 1 else [], lambda s: s.filter(lambda v: number(v) > 1)
    ),
    Operator(
        "filter_not with key",
        lambda k, v: [] if k == "a" else [(k, v)],
        lambda s: s.filter_not(lambda key, value: key == "a"),
    ),
    Operator("map_values", lambda k, v: [(k, more(v))], lambda s: s.map_values(more)),
    Operator(
        "map_values with key",
        lambda k, v: [(k, v and {**v, "name": k})],
        lambda s: s.map_values(lambda key, value: value and {**value, "name": key}),
    ),
    Operator(
        "map", lambda k, v: [(named(k, v), more(v))], lambda s: s.map(lambda k, v: (named(k, v), more(v)))
    ),
    Operator("select_key", lambda k, v: [(named(k, v), v)], lambda s: s.select_key(lambda k, v: named(k, v))),
    Operator(
        "flat_map_values", lambda k, v: [(k, one) for one in copies(v)], lambda s: s.flat_map_values(copies)
    ),
    Operator(
        "flat_map",
        lambda k, v: [(named(k, one), one) for one in copies(v)],
        lambda s: s.flat_map(lambda k, v: [(named(k, one), one) for one in copies(v)]),
    ),
    Operator("peek", lambda k, v: [(k, v)], lambda s: s.peek(seen)),
    # a record goes to the operator that was built first, and all the way down, before it goes to the next one
    Operator("merge with itself", lambda k, v: [(k, more(v)), (k, v)], lambda s: s.merge(s.map_values(more))),
    Operator("split and merge", branched, branches),
    Operator(
        "repartition",
        lambda k, v: [] if k is None else [(k, v)],
        lambda s: s.repartition(cs.Repartitioned(key=TEXT, value=JSON)),
    ),
    Operator(
        "repartition by partitioner",
        lambda k, v: [] if k is None else [(k, v)],
        lambda s: s.repartition(cs.Repartitioned(key=TEXT, partitioner=lambda key, count: len(key) % count)),
    ),
]

pipelines = st.lists(st.sampled_from(OPERATORS), max_size=5)
by_row = st.lists(st.sampled_from([one for one in OPERATORS if "repartition" not in one.name]), max_size=3)
"""Those that leave records in their partitions."""
_SEVERAL = ("flat_map_values", "flat_map", "merge with itself", "repartition", "repartition by partitioner")
one_by_one = st.lists(st.sampled_from([one for one in OPERATORS if one.name not in _SEVERAL]), max_size=3)
"""Likewise, and make one record of one at most."""
MOVE = next(one for one in OPERATORS if one.name == "repartition")


def result_of(pipeline: list[Operator], key: Key, value: Value) -> list[One]:
    """What a record becomes."""
    found = [(key, value)]
    for operator in pipeline:
        found = [made for one in found for made in operator.each(*one)]
    return found


def built(pipeline: list[Operator], stream: Any) -> Any:
    for operator in pipeline:
        stream = operator.build(stream)
    return stream
