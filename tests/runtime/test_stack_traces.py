"""A stack trace from a task shows the stations of a record in order."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

import crossstream as cs
from crossstream.task.runner import Runner
from crossstream.testing import TopologyTestDriver

TEXT, NUMBER = cs.serdes.string(), cs.serdes.int64()


def stations(error: BaseException) -> list[str]:
    """The functions of a stack trace, with the operators that are at work in them."""
    found = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        runner = frame.f_locals.get("self")
        name = frame.f_code.co_name
        found.append(f"{name} {runner.step.node}" if isinstance(runner, Runner) else name)
    return found


def in_order(found: list[str], *wanted: str) -> bool:
    """Whether these are among the stations found, in this order."""
    rest = iter(found)
    return all(any(station == one for station in rest) for one in wanted)


def failure(builder: cs.StreamsBuilder, **records: list[tuple[str, int]]) -> cs.CrossStreamError:
    def piped(driver: TopologyTestDriver) -> None:
        for topic, given in records.items():
            driver.create_input_topic(topic, TEXT, NUMBER).pipe_records(given)

    with TopologyTestDriver(builder.build()) as driver, pytest.raises(cs.CrossStreamError) as caught:
        piped(driver)
    return caught.value


def fails(*given: Any) -> Any:
    raise ZeroDivisionError("on purpose")


def test_a_mapper_after_others() -> None:
    builder = cs.StreamsBuilder()
    numbers = builder.stream("numbers", cs.Consumed(key=TEXT, value=NUMBER))
    kept = numbers.filter(lambda key, value: True, named=cs.Named("kept"))
    kept.map_values(lambda value: value, named=cs.Named("same")).map_values(
        fails, named=cs.Named("failing")
    ).to("out", cs.Produced(key=TEXT, value=NUMBER))
    error = failure(builder, numbers=[("a", 1)])
    found = stations(error)
    assert in_order(found, "read", "accept kept", "emit kept", "accept same", "emit same", "accept failing")
    assert error.where["operator"] == "failing"
    assert [frame.name for frame in traceback.extract_tb(error.__cause__.__traceback__)][-1] == "fails"


def test_a_joiner_and_what_follows_it() -> None:
    """A join collects its input first: its results begin a new chain."""

    def made(joiner: Any, mapper: Any) -> cs.StreamsBuilder:
        builder = cs.StreamsBuilder()
        left, right = (
            builder.table(topic, cs.Consumed(key=TEXT, value=NUMBER)) for topic in ("left", "right")
        )
        joined = left.join(right, joiner, named=cs.Named("join"))
        joined.to_stream(named=cs.Named("results")).map_values(mapper, named=cs.Named("after")).to(
            "out", cs.Produced(key=TEXT, value=NUMBER)
        )
        return builder

    records = {"left": [("a", 1)], "right": [("a", 2)]}
    in_joiner = stations(failure(made(fails, lambda value: value), **records))
    assert in_order(in_joiner, "run", "_finish", "finish join", "failed")
    behind = failure(made(lambda one, other: one, fails), **records)
    assert in_order(
        stations(behind), "run", "_finish", "_push", "accept results", "emit results", "accept after"
    )
    assert behind.where["operator"] == "after"


def test_a_sink_that_cannot_write() -> None:
    builder = cs.StreamsBuilder()
    numbers = builder.stream("numbers", cs.Consumed(key=TEXT, value=NUMBER))
    numbers.map_values(lambda value: "no number", named=cs.Named("text")).to(
        "out", cs.Produced(key=TEXT, value=NUMBER)
    )
    error = failure(builder, numbers=[("a", 1)])
    sink = error.where["operator"]
    assert "out" in str(sink)
    assert in_order(stations(error), "read", "accept text", "emit text", f"accept {sink}")
