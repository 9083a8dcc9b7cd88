"""Durations and timestamps as users write them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from threading import TIMEOUT_MAX

import numpy as np
import pytest

from crossstream.durations import to_milliseconds, to_timeout, to_timestamp
from crossstream.errors import ConfigError, TopologyError


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        (0, 0),
        (250, 250),
        (timedelta(seconds=1.5), 1_500),
        ("10 seconds", 10_000),
        ("1 second", 1_000),
        ("500 ms", 500),
        ("500ms", 500),
        ("10s", 10_000),
        ("5 min", 300_000),
        ("2 m", 120_000),
        ("3 hours", 10_800_000),
        ("1 Day", 86_400_000),
        ("1 hour 30 minutes", 5_400_000),
        ("1h30m", 5_400_000),
        ("  7 milliseconds ", 7),
    ],
)
def test_durations(written, milliseconds):
    assert to_milliseconds(written) == milliseconds


@pytest.mark.parametrize(
    "written",
    [
        *("", "  ", "-", "10", "ten seconds", "10 parsecs", "10 seconds and more", "1.5 seconds", "s"),
        *(1.5, True, None, "10 mss", "10 secondss"),
    ],
)
def test_no_durations(written):
    with pytest.raises(ConfigError) as caught:
        to_milliseconds(written, "grace")
    assert caught.value.code == "CS-210"
    assert caught.value.what == f"grace is not a duration: {written!r}"


@pytest.mark.parametrize(
    ("written", "rounded"),
    [
        (timedelta(seconds=1) / 3, 333),
        (timedelta(microseconds=1), 0),
        (-timedelta(seconds=2) / 3, -667),
    ],
)
def test_no_part_of_a_millisecond(written, rounded):
    with pytest.raises(ConfigError) as caught:
        to_milliseconds(written, "grace", minimum=None)
    assert caught.value.code == "CS-210"
    assert caught.value.what == f"grace is finer than one millisecond: {written!r}"
    assert caught.value.next == f"round it: timedelta(milliseconds={rounded})"


def test_negative_durations_only_where_they_are_allowed():
    assert to_milliseconds("-5 seconds", minimum=None) == -5_000
    assert to_milliseconds("- 1 hour 1 minute", minimum=None) == -3_660_000
    assert to_milliseconds(timedelta(seconds=-1), minimum=None) == -1_000
    with pytest.raises(ConfigError, match="at least 0 ms, not -5000"):
        to_milliseconds("-5 seconds")


def test_the_error_is_that_of_the_caller():
    with pytest.raises(TopologyError) as caught:
        to_milliseconds("soon", code="CS-110")
    assert caught.value.code == "CS-110"
    assert caught.value.where["line"].startswith(__file__)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        *((0, 0), (60, 60), (0.25, 0.25), (np.int64(2), 2), (-1.5, 0), (-(10**400), 0)),
        *(("1 minute", 60), ("250 ms", 0.25), ("-1 second", 0)),
        *((timedelta(microseconds=250), 0.00025), (timedelta(days=-1), 0)),
        *((given, TIMEOUT_MAX) for given in (math.inf, 10**400, "1000000000 days", timedelta.max)),
    ],
)
def test_what_a_thread_waits(written, seconds):
    found = to_timeout(written)
    assert (found, type(found)) == (seconds, float)


@pytest.mark.parametrize("written", ["x", "", "10", True, None, math.nan, [1]])
def test_nothing_to_wait_for(written):
    with pytest.raises(ConfigError, match=r"number of seconds, a timedelta, or a string") as caught:
        to_timeout(written)
    assert caught.value.code == "CS-210"
    assert caught.value.what == f"timeout is not a duration: {written!r}"
    assert caught.value.where["line"].startswith(__file__)


def test_timestamps():
    assert to_timestamp(17) == 17
    assert to_timestamp(-17) == -17
    assert type(to_timestamp(np.int64(17))) is int
    assert to_timestamp(datetime(1970, 1, 1, 0, 0, 1, 999)) == 1_000
    assert to_timestamp(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0


@pytest.mark.parametrize("written", ["1970-01-01", 1.0, True, None, 1 << 63, -(1 << 63) - 1])
def test_no_timestamps(written):
    with pytest.raises(ConfigError) as caught:
        to_timestamp(written)
    assert caught.value.code == "CS-201"
