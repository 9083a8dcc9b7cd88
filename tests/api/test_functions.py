"""Functions that do not run when they are called: coroutine and generator functions, and none at all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes
from tests.api.cases import JSON, stream, tables
from tests.refusing import check_refused

WINDOWS = cs.JoinWindows.of(10)


def joiner(left, right):
    return left


def beside(shape: str) -> tuple[cs.KStream, Any]:
    """A stream, and what it may be joined with, of one builder."""
    builder = cs.StreamsBuilder()
    return builder.stream("orders", JSON), getattr(builder, shape)("others", JSON)


def joined(shape: str, *given: Any, **settings: Any) -> object:
    left, right = beside(shape)
    return left.join(right, *given, **settings)


def table_joined(*given: Any, **settings: Any) -> object:
    left, right = tables("orders", "others")
    return left.join(right, *given, **settings)


def table_joined_with_global(*given: Any, **settings: Any) -> object:
    builder = cs.StreamsBuilder()
    return builder.table("orders", JSON).join(builder.global_table("others", JSON), *given, **settings)


def many_joined(function: Any, foreign_key: Any) -> object:
    left, right = tables("orders", "others")
    return left.join_many({"other": (right, foreign_key)}, function)


def table() -> cs.KTable:
    return tables("orders")[0]


FUNCTIONS: Mapping[str, Callable[[Any], object]] = {
    "filter": lambda f: stream().filter(f),
    "filter_not": lambda f: stream().filter_not(f),
    "map": lambda f: stream().map(f),
    "map_values": lambda f: stream().map_values(f),
    "select_key": lambda f: stream().select_key(f),
    "peek": lambda f: stream().peek(f),
    "foreach": lambda f: stream().foreach(f),
    "branch": lambda f: stream().split().branch(f),
    "table filter": lambda f: table().filter(f),
    "table filter_not": lambda f: table().filter_not(f),
    "table map_values": lambda f: table().map_values(f),
    "to_stream": lambda f: table().to_stream(f),
    "stream joiner": lambda f: joined("stream", f, WINDOWS),
    "stream-table joiner": lambda f: joined("table", f),
    "stream-global joiner": lambda f: joined("global_table", f, key_selector=lambda value: value),
    "key_selector": lambda f: joined("global_table", joiner, key_selector=f),
    "table joiner": lambda f: table_joined(f),
    "foreign-key joiner": lambda f: table_joined(f, foreign_key=lambda value: value),
    "foreign_key": lambda f: table_joined(joiner, foreign_key=f),
    "table-global joiner": lambda f: table_joined_with_global(f, foreign_key=lambda value: value),
    "foreign_key of a global table": lambda f: table_joined_with_global(joiner, foreign_key=f),
    "join_many joiner": lambda f: many_joined(f, lambda value: value),
    "join_many foreign key": lambda f: many_joined(joiner, f),
}
"""What takes a function that may want the key first."""

FLAT: Mapping[str, Callable[[Any], object]] = {
    "flat_map": lambda f: stream().flat_map(f),
    "flat_map_values": lambda f: stream().flat_map_values(f),
}
"""What takes a function that gives several values."""

SIGNATURES: Mapping[str, Callable[[Any], object]] = {
    "timestamp_extractor": lambda f: cs.Consumed(timestamp_extractor=f),
    "partitioner of Produced": lambda f: cs.Produced(partitioner=f),
    "partitioner of Repartitioned": lambda f: cs.Repartitioned(partitioner=f),
    "partitioner of TableJoined": lambda f: cs.TableJoined(partitioner=f),
    "other_partitioner": lambda f: cs.TableJoined(other_partitioner=f),
    "to": lambda f: stream().to(f),
    "for_each_batch": lambda f: stream().for_each_batch(f),
}
"""What takes a function of fixed parameters."""


async def asynchronous(*given: Any) -> bool:
    return False


async def asynchronous_several(*given: Any) -> Any:
    yield False


def generating(*given: Any) -> Iterator[bool]:
    yield False


class Asynchronous:
    async def __call__(self, *given: Any) -> bool:
        return False

    async def method(self, *given: Any) -> bool:
        return False

    @staticmethod
    async def static(*given: Any) -> bool:
        return False


class Generating:
    def __call__(self, *given: Any) -> Iterator[bool]:
        yield False


ASYNCHRONOUS = {
    "function": asynchronous,
    "generator": asynchronous_several,
    "partial": functools.partial(functools.partial(asynchronous)),
    "object": Asynchronous(),
    "partial of an object": functools.partial(Asynchronous()),
    "method": Asynchronous().method,
    "method of the class": Asynchronous.static,
}
GENERATORS = {
    "function": generating,
    "partial": functools.partial(generating),
    "object": Generating(),
    "method": Generating().__call__,
}


refused = functools.partial(check_refused, cs.TopologyError, __file__)


@pytest.mark.parametrize("function", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
@pytest.mark.parametrize("name", [*FUNCTIONS, *FLAT, *SIGNATURES])
def test_no_coroutine_function_is_taken(name: str, function: Any) -> None:
    act = {**FUNCTIONS, **FLAT, **SIGNATURES}[name]
    refused("CS-104", lambda: act(function), "async")
    if name not in SIGNATURES:
        refused("CS-104", lambda: act(cs.keyed(function)), "async")


@pytest.mark.parametrize("function", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("name", [*FUNCTIONS, *SIGNATURES])
def test_no_generator_function_is_taken_for_one_value(name: str, function: Any) -> None:
    act = {**FUNCTIONS, **SIGNATURES}[name]
    refused("CS-104", lambda: act(function), "yield")
    if name not in SIGNATURES:
        refused("CS-104", lambda: act(cs.keyed(function)), "yield")


def test_a_generator_function_may_give_several_values() -> None:
    text = serdes.string()
    builder = cs.StreamsBuilder()
    words = builder.stream("lines", cs.Consumed(key=text, value=text))

    def split(value: str) -> Iterator[str]:
        yield from value.split()

    def pairs(key: str, value: str) -> Iterator[tuple[str, str]]:
        yield value, key

    words.flat_map_values(split).flat_map(pairs).to("out", cs.Produced(key=text, value=text))
    with cs.TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("lines", text, text).pipe_input("k", "a b")
        assert driver.create_output_topic("out", text, text).read_key_values() == [("a", "k"), ("b", "k")]


@pytest.mark.parametrize("given", [None, 5, "price", cs.keyed(lambda *values: True), pl.col("price")])
@pytest.mark.parametrize("name", [*FUNCTIONS, *FLAT])
def test_a_key_for_what_is_no_function(name: str, given: Any) -> None:
    act = {**FUNCTIONS, **FLAT}[name]
    refused("CS-104", lambda: act(cs.keyed(given)), "keyed(", "not a function")


def test_a_batch_needs_a_function() -> None:
    for given in (None, 5):
        refused("CS-104", lambda given=given: stream().for_each_batch(given), "is not callable")


class Named:
    """A class may be a function: it makes a value of each."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def __call__(self) -> None:
        """Calling one of its objects is another thing than calling it."""


def test_a_class_is_a_function_that_makes_its_objects() -> None:
    stream().map_values(Named)


def test_advice_for_a_function_without_arguments_reads_well() -> None:
    grouped = cs.StreamsBuilder().stream("in", key=str, value=str).group_by_key()
    with pytest.raises(cs.TopologyError) as refused:
        grouped.aggregate(0, lambda total, value: total)  # type: ignore[arg-type]
    assert refused.value.next == "pass a function without arguments"
    with pytest.raises(cs.TopologyError) as refused:
        grouped.aggregate(lambda key: 0, lambda total, value: total)  # type: ignore[arg-type, misc]
    assert refused.value.next == "write it as lambda: …"
