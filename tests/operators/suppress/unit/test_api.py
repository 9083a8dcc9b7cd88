"""What `suppress` refuses, where it is written; what a full buffer does; what the clock does."""

from __future__ import annotations

import pytest

import crossstream as cs
from crossstream import serdes

TEXT, NUMBER = serdes.string(), serdes.int64()
CONSUMED = cs.Consumed(key=TEXT, value=NUMBER)


def counts(builder: cs.StreamsBuilder, **options: object) -> cs.KTable:
    windows = cs.TimeWindows(size=10, grace=2)
    return builder.stream("in", CONSUMED).group_by_key().windowed_by(windows).count(**options)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: cs.Suppressed.until_window_closes(on_full="emit"), "CS-101"),
        (lambda: cs.Suppressed.until_window_closes(max_records=-1), "CS-101"),
        (lambda: cs.Suppressed.until_time_limit(10, max_bytes="1 MB"), "CS-101"),
        (lambda: cs.Suppressed.until_time_limit("soon"), "CS-110"),
        (lambda: cs.Suppressed.until_time_limit(), "CS-101"),
        (lambda: cs.Suppressed.until_time_limit(10, limit=5), "CS-101"),
        (lambda: cs.Suppressed(until="time-limit"), "CS-101"),
        (lambda: cs.Suppressed(until="window-closes", duration=5), "CS-101"),
        (lambda: cs.StreamsBuilder().table("in", CONSUMED).suppress(), "CS-101"),
        (lambda: cs.StreamsBuilder().table("in", CONSUMED).suppress("10 seconds"), "CS-101"),
        (
            lambda: cs.StreamsBuilder().table("in", CONSUMED).suppress(cs.Suppressed.until_window_closes()),
            "CS-136",
        ),
        (
            lambda: (
                cs.StreamsBuilder()
                .table("in", CONSUMED, cs.Materialized(store="t", history_retention=10))
                .suppress(cs.Suppressed.until_time_limit(5))
            ),
            "CS-136",
        ),
    ],
)
def test_what_is_refused(make, code):
    with pytest.raises(cs.TopologyError) as error:
        make()
    assert error.value.code == code
    assert error.value.next
    assert "test_api.py" in str(error.value.where["line"])


def test_a_full_buffer_stops_the_application():
    builder = cs.StreamsBuilder()
    counts(builder).suppress(cs.Suppressed.until_window_closes(max_records=2)).to_stream().to("out")
    with cs.TopologyTestDriver(builder.build(), commit_every=3) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        topic.pipe_input("a", 1, timestamp=0)
        topic.pipe_input("b", 1, timestamp=1)
        with pytest.raises(cs.ProcessingError) as error:
            topic.pipe_input("c", 1, timestamp=2)
    assert error.value.code == "CS-509"
    assert error.value.where["store"] == "in.count.suppress.buffer"
    assert "max_records=2" in str(error.value)


def test_the_grace_period_is_found_through_row_wise_operators_and_joins():
    builder = cs.StreamsBuilder()
    table = counts(builder).filter(lambda count: count > 0).map_values(lambda count: count)
    table.suppress(cs.Suppressed.until_window_closes()).to_stream().to(
        "out", cs.Produced(key=serdes.windowed(TEXT, 10), value=NUMBER)
    )
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        out = driver.create_output_topic("out", serdes.windowed(TEXT, 10), NUMBER)
        topic.pipe_input("a", 1, timestamp=0)
        topic.pipe_input("b", 1, timestamp=11)
        assert out.is_empty
        topic.pipe_input("b", 1, timestamp=12)
        assert out.read_key_values() == [(("a", 0, 10), 1)]


def test_stream_time_moves_with_the_clock_where_that_is_asked_for():
    builder = cs.StreamsBuilder()
    counts(builder).suppress(cs.Suppressed.until_window_closes()).to_stream().to("out")
    with cs.TopologyTestDriver(builder.build(), idle_after=100) as driver:
        driver.create_input_topic("in", TEXT, NUMBER).pipe_input("a", 1, timestamp=3)
        out = driver.create_output_topic("out", serdes.windowed(TEXT, 10), NUMBER)
        driver.advance_wall_clock_time(108)
        assert out.is_empty
        driver.advance_wall_clock_time(10)
        assert out.read_records() == [cs.TestRecord(cs.Windowed("a", 0, 10), 1, 3)]


def test_headers_of_the_last_change_come_out():
    builder = cs.StreamsBuilder()
    table = builder.table("in", CONSUMED)
    table.suppress(cs.Suppressed.until_time_limit(5), cs.Named("slower")).to_stream().to("out")
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        topic.pipe_input("a", 1, timestamp=0, headers=[("n", b"1")])
        topic.pipe_input("a", 2, timestamp=1, headers=[("n", b"2")])
        topic.pipe_input("b", 3, timestamp=5)
        out = driver.create_output_topic("out", TEXT, NUMBER).read_records()
    assert out == [cs.TestRecord("a", 2, 1, (("n", b"2"),))]


def test_a_suppression_is_described_with_its_buffer():
    builder = cs.StreamsBuilder()
    counts(builder).suppress(cs.Suppressed.until_window_closes()).to_stream().to("out")
    text = builder.build().describe()
    assert "Processor: in.count.suppress (stores: [in.count.suppress.buffer])" in text


def test_what_has_left_is_no_row_of_the_buffer():
    builder = cs.StreamsBuilder()
    counts(builder).suppress(cs.Suppressed.until_window_closes()).to_stream().to("out")
    with cs.TopologyTestDriver(builder.build(), commit_every=50) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        topic.pipe_records([(f"k{n % 7}", 1, n) for n in range(6_000)])
        driver.commit()
        rows = driver._stores.versions["in.count.suppress.buffer", 0].rows
    assert rows < 500
