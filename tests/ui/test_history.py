"""The course of the numbers: what is read is what was written in the time of a ring, and the file never grows."""

from __future__ import annotations

import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from crossstream.metrics.observation import Done, Observation
from crossstream.ui.history import FIELDS, RINGS, SIZE, History, Rates

steps = st.lists(st.floats(2, 400), min_size=1, max_size=60)


@given(steps)
@example([3.0, *[2.0] * 6, 187.0, *[400.0] * 4])  # the newest is in the slot of one that is just young enough
def test_a_ring_has_the_samples_of_its_time(given: list[float]) -> None:
    """Samples that are at least a slot apart are all there, in order, as long as they are young enough."""
    times, now = [], 1.7e9
    for step in given:
        now += step
        times.append(now)
    with TemporaryDirectory() as folder:
        history = History(Path(folder) / "ui" / "history.bin")
        for number, time in enumerate(times):
            history.add((time, number, 1.0, 2.0, math.nan, 3.0))
        history.close()
        found = history.read("minutes", now)
        young = [time for time in times if time > now - 1800]
        assert found["time"] == young
        assert found["lag"] == list(range(len(times) - len(young), len(times)))
        assert found["batch"] == [None] * len(young)
        hours = history.read("hours", now)
        assert hours["time"] == sorted({time - time % 60 for time in times if time - time % 60 > now - 86400})
        assert os.path.getsize(Path(folder) / "ui" / "history.bin") == SIZE


def test_a_minute_has_the_largest_lag_and_the_mean_rate(tmp_path: Path) -> None:
    history = History(tmp_path / "h")
    for second, lag, rate in ((0, 5, 10.0), (2, 9, 20.0), (4, 1, 30.0)):
        history.add((60_000.0 + second, lag, rate, rate, math.nan, math.nan))
    found = history.read("hours", 60_010.0)
    assert (found["time"], found["lag"], found["read"], found["batch"]) == ([60_000.0], [9], [20.0], [None])
    history.close()


def test_what_is_no_history_is_empty(tmp_path: Path) -> None:
    assert History(tmp_path / "none").read("minutes", 1.0) == {name: [] for name in FIELDS}
    (tmp_path / "short").write_bytes(b"abc")
    assert History(tmp_path / "short").read("hours", 1.0) == {name: [] for name in FIELDS}
    assert set(RINGS) == {"minutes", "hours"}


def test_rates_are_between_two_observations() -> None:
    rates, done = Rates(), Done(3, 12.0, 10, 0.25, {})
    first = Observation(application="a", time=10.0, status="running", read=100, written=7)
    second = Observation(
        application="a", time=12.0, status="running", read=140, written=7, last=done, lag={"t": {0: 2, 1: 3}}
    )
    assert list(rates.samples(first)) == []
    ((time, lag, read, written, batch, age),) = rates.samples(second)
    assert (time, lag, read, written, batch) == (12.0, 5.0, 20.0, 0.0, 250.0)
    assert math.isnan(age)
    ((*_, batch, _),) = rates.samples(
        Observation(application="a", time=14.0, status="x", read=140, last=done)
    )
    assert math.isnan(batch)
