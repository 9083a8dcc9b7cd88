"""Stream time without input: it stands still, or goes on with the clock after a while."""

from __future__ import annotations

from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes

TEXT = serdes.string()
CONSUMED, PRODUCED = cs.Consumed(key=TEXT, value=TEXT), cs.Produced(key=TEXT, value=TEXT)


def both(left: str | None, right: str | None) -> str:
    return f"{left},{right}"


def seen(windows: cs.JoinWindows, kind: str = "outer_join") -> cs.Topology:
    builder = cs.StreamsBuilder()
    views, clicks = (builder.stream(topic, CONSUMED) for topic in ("views", "clicks"))
    getattr(views, kind)(clicks, both, windows).to("out", PRODUCED)
    return builder.build()


class Run:
    def __init__(self, windows: cs.JoinWindows, **options: Any) -> None:
        self.driver = cs.TopologyTestDriver(seen(windows), **options)
        self.views, self.clicks = (
            self.driver.create_input_topic(topic, TEXT, TEXT) for topic in ("views", "clicks")
        )
        self.out = self.driver.create_output_topic("out", TEXT, TEXT)

    def after(self, seconds: float) -> list[tuple[Any, Any, int]]:
        self.driver.advance_wall_clock_time(int(seconds * 1000))
        return [(r.key, r.value, r.timestamp) for r in self.out.read_records()]


TEN = cs.JoinWindows.of("10 seconds")


def test_stream_time_stands_still() -> None:
    run = Run(TEN)
    run.views.pipe_input("k", "v", 1_000)
    assert run.after(3600) == []


def test_stream_time_goes_on_with_the_clock() -> None:
    """The window of a record at 1 s closes after 11 s: ten seconds of the clock after the first 60 of silence."""
    run = Run(TEN, idle_after="1 minute")
    run.views.pipe_input("k", "v", 1_000)
    assert run.after(60) == []
    assert run.after(10) == []
    assert run.after(0.001) == [("k", "v,None", 1_000)]
    assert run.after(60) == []


def test_grace_counts_too() -> None:
    run = Run(cs.JoinWindows.of(1_000, grace=5_000), idle_after=500)
    run.clicks.pipe_input("k", "c", 1_000)
    assert run.after(6.5) == []
    assert run.after(0.001) == [("k", "None,c", 1_000)]


def test_a_record_ends_the_silence() -> None:
    run = Run(TEN, idle_after="1 minute")
    run.views.pipe_input("k", "v", 1_000)
    run.after(65)
    run.clicks.pipe_input("x", "c", 2_000)
    assert run.after(65) == []  # twice five seconds more than a minute: 11 s
    assert run.after(0.001) == [("k", "v,None", 1_000)]


def test_a_partner_after_the_silence_is_one_while_the_window_is_open() -> None:
    run = Run(TEN, idle_after="1 minute")
    run.views.pipe_input("k", "v", 1_000)
    run.after(65)
    run.clicks.pipe_input("k", "c", 9_000)
    assert run.after(0) == [("k", "v,c", 9_000)]
    assert run.after(600) == []


def test_a_partner_that_comes_after_the_row_is_out_is_late() -> None:
    run = Run(TEN, idle_after="1 minute")
    run.views.pipe_input("k", "v", 1_000)
    assert run.after(90) == [("k", "v,None", 1_000)]
    run.clicks.pipe_input("k", "c", 9_000)
    assert run.after(90) == [("k", "None,c", 9_000)]


@pytest.mark.parametrize("size", [1, 2])
def test_time_stands_still_where_all_have_found_partners(size: int) -> None:
    """Whether they waited for one between two batches or not; so those that come next are not late."""
    run = Run(TEN, idle_after="1 minute", commit_every=size)
    run.views.pipe_input("k", "v1", 1_000)
    run.clicks.pipe_input("k", "c1", 1_000)
    assert run.after(3600) == [("k", "v1,c1", 1_000)]
    run.views.pipe_input("k", "v2", 30_000)
    run.clicks.pipe_input("k", "c2", 31_000)
    assert run.after(0) == [("k", "v2,c2", 31_000)]


def test_records_of_one_key_keep_all_state_partitions_awake() -> None:
    """It makes no difference in how many state partitions the keys are."""
    run = Run(TEN, idle_after="1 minute", partitions=8)
    run.views.pipe_input("a", "v", 1_000)
    for second in range(10):
        run.clicks.pipe_input("b", "c", 2_000 + second)
        assert run.after(10) == [], second
    assert run.after(45) == []
    assert ("a", "v,None", 1_000) in run.after(30)


def test_only_silence_since_the_last_record_counts_in_any_batches() -> None:
    run = Run(TEN, idle_after="1 minute", commit_every=100)
    run.views.pipe_input("k", "v", 1_000)
    assert run.after(30) == []
    assert run.after(40.001) == [("k", "v,None", 1_000)]


class Lookup(Run):
    """A stream that waits ten seconds for a versioned table."""

    def __init__(self, **options: Any) -> None:
        builder = cs.StreamsBuilder()
        clicks = builder.table("clicks", CONSUMED, cs.Materialized(history_retention="1 hour"))
        views = builder.stream("views", CONSUMED)
        views.left_join(clicks, both, cs.Joined(grace="10 seconds")).to("out", PRODUCED)
        self.driver = cs.TopologyTestDriver(builder.build(), **options)
        self.views, self.clicks = (
            self.driver.create_input_topic(topic, TEXT, TEXT) for topic in ("views", "clicks")
        )
        self.out = self.driver.create_output_topic("out", TEXT, TEXT)


@pytest.mark.parametrize("size", [1, 100])
def test_records_that_wait_for_a_table_leave_in_silence(size: int) -> None:
    """They see what the table has by then; records of the table do not end the silence."""
    assert Lookup(commit_every=size).after(3600) == []
    run = Lookup(idle_after="1 minute", commit_every=size)
    run.views.pipe_input("b", "v1", 1_000)
    run.views.pipe_input("a", "v2", 1_000)
    run.views.pipe_input("a", "v3", 5_000)
    assert run.after(65) == []
    run.clicks.pipe_input("a", "c", 900)
    assert run.after(0.999) == []
    assert run.after(0.001) == [("a", "v2,c", 1_000), ("b", "v1,None", 1_000)]
    assert run.after(3.999) == []
    run.clicks.pipe_input("a", "d", 4_999)
    assert run.after(0.001) == [("a", "v3,d", 5_000)]
    assert run.after(3600) == []


def test_a_record_that_comes_after_others_left_in_silence_does_not_wait_if_it_is_late() -> None:
    run = Lookup(idle_after="1 minute")
    run.views.pipe_input("a", "v", 20_000)
    assert run.after(60 + 25) == [("a", "v,None", 20_000)]
    run.views.pipe_input("a", "late", 34_999)  # time is 45 s
    assert run.after(0) == [("a", "late,None", 34_999)]
    run.views.pipe_input("a", "waits", 35_001)
    assert run.after(60) == []
    assert run.after(0.001) == [("a", "waits,None", 35_001)]


def test_drops_and_rows_do_not_count_moments() -> None:
    run = Run(TEN, idle_after=1)
    run.views.pipe_input("k", "v", 1_000)
    run.after(100)
    metrics = run.driver.metrics()
    assert metrics["dropped-records-total"] == 0
    assert metrics["rows_in"]["views.outer_join(clicks)"] == 1


@pytest.mark.parametrize("wrong", [0, -1, "soon"])
def test_what_idle_after_must_be(wrong: Any) -> None:
    with pytest.raises(cs.ConfigError) as caught:
        cs.StreamsConfig(application_id="a", idle_after=wrong)
    assert caught.value.code == "CS-210"
    assert cs.StreamsConfig(application_id="a", idle_after="1 minute").idle_after_ms == 60_000


@pytest.mark.parametrize(
    ("idle_after", "place"),
    [(None, {"topic": b"clicks", "partition": b"0", "offset": b"0"}), ("1 minute", {})],
)
def test_a_dead_letter_of_a_record_that_waited_tells_which_record_let_it_go(
    idle_after: str | None, place: dict[str, bytes]
) -> None:
    """And nothing of the kind where the clock did; the rest is of the record itself."""
    builder = cs.StreamsBuilder()
    views, clicks = (builder.stream(topic, CONSUMED) for topic in ("views", "clicks"))
    views.left_join(clicks, lambda left, right: 1 / 0, TEN).to("out", PRODUCED)
    with cs.TopologyTestDriver(
        builder.build(), idle_after=idle_after, processing_errors=cs.DeadLetter("bad")
    ) as driver:
        driver.create_input_topic("views", TEXT, TEXT).pipe_input("k", "v", 1_000, [("own", b"h")])
        if idle_after is None:
            driver.create_input_topic("clicks", TEXT, TEXT).pipe_input("x", "c", 60_000)
        else:
            driver.advance_wall_clock_time(600_000)
        (letter,) = driver.create_output_topic("bad", TEXT, TEXT).read_records()
    assert (letter.key, letter.value, letter.timestamp) == ("k", "v", 1_000)
    ours = {name: said for name, said in letter.headers if not name.startswith("__streams.errors.")}
    kafkas = {name[17:]: said for name, said in letter.headers if name.startswith("__streams.errors.")}
    assert kafkas.pop("exception") == b"ZeroDivisionError: division by zero"
    assert kafkas.pop("message") == b"division by zero"
    assert kafkas.pop("stacktrace", b"").startswith(b"Traceback")
    assert kafkas == {name: said for name, said in place.items() if name != "operator"}
    assert ours == {
        "own": b"h",
        "crossstream.reason": b"ZeroDivisionError: division by zero",
        "crossstream.operator": b"views.left_join(clicks)",
        **{f"crossstream.{name}": value for name, value in place.items()},
    }
