"""A duration that is a number below 1,000 does not say its unit: it never passes in silence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import crossstream as cs
from crossstream import durations, serdes


def streams() -> tuple[cs.KStream, cs.KStream]:
    builder = cs.StreamsBuilder()
    return builder.stream("views"), builder.stream("clicks")


DURATIONS: dict[str, Callable[[Any], object]] = {
    "windowed_by": lambda given: streams()[0].group_by_key().windowed_by(given),
    "time windows": lambda given: cs.TimeWindows(size=given),
    "advance": lambda given: cs.TimeWindows(size="1 hour", advance=given),
    "grace": lambda given: cs.TimeWindows(size="1 hour", grace=given),
    "sliding windows": lambda given: cs.SlidingWindows(difference=given),
    "sessions": lambda given: cs.SessionWindows(gap=given),
    "join windows": lambda given: cs.JoinWindows.of(given),
    "before and after": lambda given: cs.JoinWindows(before=given, after="1 hour"),
    "within": lambda given: (lambda left, right: left.join(right, within=given))(*streams()),
    "a join's grace": lambda given: (lambda left, right: left.join(right, within="1 hour", grace=given))(
        *streams()
    ),
    "a wait for the table": lambda given: cs.Joined(grace=given),
    "retention": lambda given: cs.Materialized(retention=given),
    "history": lambda given: cs.Materialized(history_retention=given),
    "suppression": lambda given: cs.Suppressed.until_time_limit(given),
    "deduplication": lambda given: streams()[0].deduplicate(given),
    "a window store": lambda given: cs.WindowStore("seen", key=str, value=str, retention=given),
    "a windowed serde": lambda given: serdes.windowed(serdes.string(), given),
}
"""Where durations of stream time are given."""

SETTINGS: dict[str, Callable[[Any], object]] = {
    **{
        name: lambda given, name=name: cs.StreamsConfig(application_id="a", topics_dir="t", **{name: given})
        for name in ("trigger", "idle_after", "max_task_idle", "broker_patience", "health_patience")
    },
    "patience": lambda given: serdes.confluent_json(
        {"url": "http://127.0.0.1:9", "patience": given}, dict[str, int]
    ),
}
"""Where a batch or a client would wait for it."""


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    durations._warn.cache_clear()
    return lambda: [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_of_stream_time_warns_once(name: str, said: Callable[[], list[str]]) -> None:
    for _ in range(2):
        DURATIONS[name](60)
    [text] = said()
    assert text.startswith(f"{__file__}:")
    assert text.endswith(
        'the duration 60 does not say its unit and is taken as 60 ms: write "60 seconds" or "60 ms"'
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_a_time_to_wait_is_refused(name: str, said: Callable[[], list[str]]) -> None:
    with pytest.raises(cs.ConfigError) as caught:
        SETTINGS[name](60)
    assert caught.value.code == "CS-210"
    assert caught.value.what == f"{name}=60 does not say its unit: it would be 60 ms"
    assert caught.value.next == f'write {name}="60 seconds" or {name}="60 ms"'
    assert said() == []


@pytest.mark.parametrize("clear", ["60 ms", timedelta(milliseconds=60), 1_000, "60 seconds"])
@pytest.mark.parametrize("name", [*DURATIONS, *SETTINGS])
def test_what_says_its_unit_is_taken(name: str, clear: Any, said: Callable[[], list[str]]) -> None:
    {**DURATIONS, **SETTINGS}[name](clear)
    assert said() == []


def test_nothing_is_clear_and_a_negative_number_is_not(said: Callable[[], list[str]]) -> None:
    cs.JoinWindows(before=0, after=0, grace=0)
    assert said() == []
    cs.JoinWindows(before=-5, after="1 hour")
    [text] = said()
    assert text.endswith('taken as -5 ms: write "-5 seconds" or "-5 ms"')


def test_each_line_is_named(said: Callable[[], list[str]]) -> None:
    cs.TimeWindows(size=60)
    cs.TimeWindows(size=60)
    assert len(set(said())) == 2


def test_the_clocks_of_a_test_count_in_small_numbers(said: Callable[[], list[str]]) -> None:
    builder = cs.StreamsBuilder()
    builder.stream("in").to("out")
    with cs.TopologyTestDriver(builder.build(), idle_after=5) as driver:
        driver.create_input_topic("in", str, dict, auto_advance=1).advance_time(3)
        driver.advance_wall_clock_time(7)
    assert said() == []
