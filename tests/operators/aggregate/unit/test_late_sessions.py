"""Sessions and late records: what splits is counted, and `grace` is asked for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

TEXT, NUMBER = serdes.string(), serdes.int64()
OTHER, LATE = ("b", 16), ("a", 12)


def counted(windows: Any, *records: tuple[str, int], emit: Any = "update", every: int = 1) -> Any:
    builder = cs.StreamsBuilder()
    grouped = builder.stream("in", cs.Consumed(key=TEXT, value=NUMBER)).group_by_key()
    grouped.windowed_by(windows, emit=emit).count().to_stream().to("out")
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        for key, ts in records:
            topic.pipe_input(key, 1, timestamp=ts)
        driver.commit()
        out = driver.create_output_topic("out", serdes.session_windowed(TEXT), NUMBER)
        metrics = driver.metrics()
        rows = {tuple(record.key): record.value for record in out.read_records()}
        return rows, metrics["dropped"], metrics["dropped-records-total"]


@pytest.mark.parametrize("every", [1, 2, 100])
@pytest.mark.parametrize("emit", ["update", "close"])
def test_a_late_record_that_begins_a_session_beside_its_closed_one_is_counted(every: int, emit: str) -> None:
    windows = cs.SessionWindows(gap=10, grace=0)
    rows, dropped, total = counted(windows, ("a", 5), OTHER, LATE, ("b", 100), emit=emit, every=every)
    assert (rows["a", 5, 5], rows["a", 12, 12]) == (1, 1)
    assert list(dropped.values()) == [1]
    assert next(iter(dropped)).endswith(": closed-session")
    assert total == 0


def test_with_grace_the_session_stays_whole() -> None:
    rows, dropped, _ = counted(cs.SessionWindows(gap=10, grace=10), ("a", 5), OTHER, LATE)
    assert rows["a", 5, 12] == 2
    assert dropped == {}


def test_a_record_that_is_too_late_for_a_session_of_its_own_is_dropped() -> None:
    rows, dropped, total = counted(cs.SessionWindows(gap=10, grace=0), ("a", 5), ("b", 30), LATE)
    assert ("a", 12, 12) not in rows
    assert next(iter(dropped)).endswith(": late")
    assert total == 1


def test_windows_without_grace_ask_for_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "crossstream"):
        counted(cs.SessionWindows(gap="10 ms"), ("a", 5))
    (record,) = caplog.records
    text = record.getMessage()
    assert "has no grace" in text
    assert 'grace="1 minute"' in text
    assert "grace=0" in text
    assert "test_late_sessions.py" in text


def test_windows_with_grace_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "crossstream"):
        counted(cs.SessionWindows(gap="10 ms", grace=0), ("a", 5))
    assert not caplog.records
