"""Functions that wrap others: how they are called is what counts, not how the one inside is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()
TEXTS = cs.Consumed(key=TEXT, value=TEXT)


def joined(joiner: Callable[..., Any]) -> list[Any]:
    """What a stream–table join gives for key k, left L, right R."""
    builder = cs.StreamsBuilder()
    result = builder.stream("left", TEXTS).join(builder.table("right", TEXTS), joiner)
    result.to("out", cs.Produced(key=TEXT, value=JSON))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("right", TEXT, TEXT).pipe_input("k", "R", 1)
        driver.create_input_topic("left", TEXT, TEXT).pipe_input("k", "L", 2)
        return list(driver.create_output_topic("out", TEXT, JSON).read_values())


def three(first: Any, second: Any, third: Any) -> list[Any]:
    return [first, second, third]


def two(left: Any, right: Any) -> list[Any]:
    return [left, right]


def test_a_wrapper_that_gives_more_arguments_than_it_gets() -> None:
    @functools.wraps(three)
    def with_rate(left: Any, right: Any) -> list[Any]:
        return three(2, left, right)

    assert joined(with_rate) == [[2, "L", "R"]]


def test_a_wrapper_with_an_argument_that_need_not_be_given() -> None:
    @functools.wraps(three)
    def plain(left: Any, right: Any, note: Any = None) -> list[Any]:
        return three(left, right, note)

    assert joined(plain) == [["L", "R", None]]


@pytest.mark.parametrize(("inside", "expected"), [(two, ["L", "R"]), (three, ["k", "L", "R"])])
def test_a_wrapper_that_passes_on_what_it_gets(inside: Callable[..., Any], expected: list[Any]) -> None:
    @functools.wraps(inside)
    def passing(*arguments: Any, **named: Any) -> Any:
        return inside(*arguments, **named)

    assert joined(passing) == [expected]
    assert joined(functools.lru_cache(inside)) == [expected]


def test_a_wrapper_that_cannot_be_called_is_refused_where_it_is_passed() -> None:
    @functools.wraps(two)
    def needs_four(a: Any, b: Any, c: Any, d: Any) -> Any:
        return two(a, b)

    with pytest.raises(cs.TopologyError) as caught:
        joined(needs_four)
    assert caught.value.code == "CS-104"
