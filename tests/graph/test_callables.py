"""What is known of a function: a hash that follows its code, and nothing else."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossstream.columns.functions import Function
from crossstream.graph.callables import noted_function

RATE = 2


def code(function: Any) -> str:
    return noted_function(function).code


def plus(number: Any) -> Callable[[int], Any]:
    return lambda value: value + number


def made(text: str, **known: Any) -> Any:
    """A function of some source, in a module of its own."""
    space: dict[str, Any] = {"__name__": "made", **known}
    exec(text, space)
    return space["f"]


@given(st.one_of(st.integers(), st.text(), st.floats(allow_nan=False), st.tuples(st.integers(), st.text())))
def test_what_is_closed_over_counts(value: Any) -> None:
    assert code(plus(value)) == code(plus(value))
    assert code(plus(value)) != code(plus((value, "another")))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("def f(v): return v + 1", "\n\ndef f(v):\n    # as before\n    return v + 1", True),
        ("def f(v): return v + 1", "def f(v): return v + 2", False),
        ("def f(v, n=1): return v + n", "def f(v, n=2): return v + n", False),
        ("def f(v, *, n=1): return v + n", "def f(v, *, n=2): return v + n", False),
        ("def f(v): return v.a", "def f(v): return v.b", False),
        ("def f(v): return [x + 1 for x in v]", "def f(v): return [x + 2 for x in v]", False),
        ("def f(v): return v in {1, 2}", "def f(v): return v in {1, 3}", False),
        (
            "def g(v): return v + 1\ndef f(v): return g(v)",
            "def g(v): return v + 2\ndef f(v): return g(v)",
            False,
        ),
        ("N = 1\ndef f(v): return v + N", "N = 2\ndef f(v): return v + N", False),
        ("N = 1\ndef f(v): return v", "N = 2\ndef f(v): return v", True),
        ("def f(v): return f(v - 1)", "def f(v): return f(v - 1)", True),
        ("f = lambda v: v", "def f(v): return v", True),
    ],
)
def test_the_code_counts_and_not_where_it_is(one: str, other: str, same: bool) -> None:
    assert (code(made(one)) == code(made(other))) is same


@dataclass
class Scale:
    factor: int

    def __call__(self, value: int) -> int:
        return value * self.factor

    def scaled(self, value: int) -> int:
        return value * self.factor


def test_objects_count_with_their_fields() -> None:
    assert code(Scale(2)) == code(Scale(2)) != code(Scale(3))
    assert code(Scale(2).scaled) == code(Scale(2).scaled) != code(Scale(3).scaled)
    assert code(functools.partial(Scale.scaled, value=1)) != code(functools.partial(Scale.scaled, value=2))


def test_a_class_counts_with_its_methods() -> None:
    one, other = (made(f"class f:\n    def process(self, v): return v + {n}") for n in (1, 2))
    assert code(one) == code(made("class f:\n    def process(self, v): return v + 1"))
    assert code(one) != code(other)


def test_what_has_no_code_is_known_by_its_name() -> None:
    assert noted_function(str.upper).code == ""
    assert noted_function(str.upper).text == "str.upper"


def test_expressions_are_known_by_all_that_is_in_them() -> None:
    long = [pl.col("a").is_in([*range(50), last]) for last in (1, 2)]
    assert code(long[0]) != code(long[1])
    assert noted_function(pl.col("a")).is_expression
    assert noted_function(Function.of(pl.col("a"))) == noted_function(pl.col("a"))


def test_the_hash_is_the_same_in_another_process() -> None:
    text = (
        "from tests.graph.test_callables import code, plus, Scale\n"
        "print(code(plus(frozenset({'a', 'b', 'c'}))), code(Scale(2)), code(lambda v: v in {'a', 'b', 'c'}))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
