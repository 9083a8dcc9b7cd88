"""Where rows go whose keys no serde is known of: equal keys to one place, in every process, and others to others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.columns.hashing import hash_keys, partition_of
from crossstream.columns.values import Values
from crossstream.operators.sink.shared_topics import placing_bytes
from crossstream.serdes.kept import kept


def places(*keys: Any) -> list[bytes | None]:
    found: list[bytes | None] = placing_bytes(Values(objects=list(keys)), kept()).to_pylist()
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (["k", 1], ["k", 1.0]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": [1, {"b": True}]}, {"a": [1.0, {"b": 1}]}),
    ],
    ids=str,
)
def test_equal_keys_have_one_place(one: Any, other: Any) -> None:
    assert one == other
    first, second = places(one, other)
    assert first == second


def test_a_tuple_has_the_place_of_the_list_that_it_becomes() -> None:
    assert len(set(places(("k", 1), ["k", 1]))) == 1


LEAVES = st.one_of(
    st.integers(-3, 3),
    st.booleans(),
    st.sampled_from([0.5, -0.0, 1.0, 2.0, "a", "1", "k", None, 2**70]),
)
KEYS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(keys=st.lists(KEYS, min_size=2, max_size=12))
@example(keys=[{"a": 0}, {}, {"a": None}])
def test_whatever_is_equal_is_together(keys: list[Any]) -> None:
    found = places(*keys)
    for one, at in zip(keys, found, strict=True):
        assert all(at == there for other, there in zip(keys, found, strict=True) if one == other)


def test_what_is_not_a_number_has_one_place() -> None:
    numbers = [float("nan"), -float("nan")]
    assert len(set(places(*numbers))) == 1
    assert len(set(places(*[["a", number] for number in numbers]))) == 1


def test_keys_without_a_place_of_their_own() -> None:
    assert places(None, "\ud800", object()) == [None, b"\xed\xa0\x80", b""]


MAKERS: dict[str, Callable[[int], Any]] = {
    "text": lambda n: f"k{n}",
    "integer": lambda n: n,
    "float": lambda n: n / 8,
    "list": lambda n: ["x", n],
    "dict": lambda n: {"n": n + 1, "a": "x"},
}


@pytest.mark.parametrize("kind", MAKERS)
def test_keys_are_spread_over_the_partitions(kind: str) -> None:
    made = [MAKERS[kind](n + 1) for n in range(400)]
    pids = partition_of(hash_keys(placing_bytes(Values(objects=made), kept()), 64), 4)
    assert min(Counter(pids.tolist()).get(pid, 0) for pid in range(4)) > 60


def test_they_have_these_places_in_every_process() -> None:
    code = (
        "from tests.unit.test_key_places import MAKERS, places\n"
        "print(places(*[make(n) for make in MAKERS.values() for n in (1, 2)]))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"{places(*[make(n) for make in MAKERS.values() for n in (1, 2)])}\n"}
