"""What processors and their stores refuse; errors of the user's code; timers on the clock."""

from __future__ import annotations

import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes

TEXT, NUMBER = serdes.string(), serdes.int64()
CONSUMED = cs.Consumed(key=TEXT, value=NUMBER)
PRODUCED = cs.Produced(key=TEXT, value=NUMBER)
SEEN = cs.KeyValueStore("seen", key=TEXT, value=NUMBER)
SCHEMA = pa.schema({"key": pa.string(), "value": pa.int64()})


class Counted:
    """Fails for a value of 0, after it has put and forwarded."""

    def init(self, context):
        self.context, self.seen = context, context.store("seen")

    def process(self, record):
        count = (self.seen.get(record.key) or 0) + 1
        self.seen.put(record.key, count)
        self.context.forward(record.key, count)
        1 // record.value


def driver_of(supplier, *, stores=(SEEN,), fixed=False, every=10, **options):
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", CONSUMED)
    made = (stream.process_values if fixed else stream.process)(supplier, list(stores))
    made.to("out", PRODUCED)
    return cs.TopologyTestDriver(builder.build(), commit_every=every, **options)


def piped(driver, *records):
    with driver:
        driver.create_input_topic("in", TEXT, NUMBER).pipe_records(records)
        driver.commit()
        return driver.create_output_topic("out", TEXT, NUMBER).read_records()


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda s: s.process(), "CS-104"),
        (lambda s: s.process(lambda context: None), "CS-104"),
        (lambda s: s.process(Counted, ["seen"]), "CS-101"),
        (lambda s: s.process(Counted, [SEEN, SEEN]), "CS-120"),
        (lambda s: (s.process(Counted, [SEEN]), s.process(Counted, [SEEN])), "CS-120"),
        (lambda s: s.process(Counted, [SEEN], named="n"), "CS-101"),
        (lambda s: cs.KeyValueStore("seen", key=TEXT), "CS-101"),
        (lambda s: cs.KeyValueStore("seen", key=TEXT, value="int"), "CS-101"),
        (lambda s: cs.KeyValueStore("a/b", key=TEXT, value=NUMBER), "CS-102"),
        (lambda s: cs.WindowStore("w", key=TEXT, value=NUMBER), "CS-101"),
        (lambda s: cs.WindowStore("w", key=TEXT, value=NUMBER, retention=0), "CS-110"),
        (lambda s: cs.VersionedStore("v", key=TEXT, value=NUMBER, history_retention="x"), "CS-110"),
        (lambda s: s.transform_batches(), "CS-104"),
        (lambda s: s.transform_batches(lambda a, b, c: a, SCHEMA), "CS-104"),
        (lambda s: s.transform_batches(lambda batch: batch), "CS-101"),
        (lambda s: s.transform_batches(lambda batch: batch, pa.schema({"key": pa.string()})), "CS-101"),
    ],
)
def test_what_is_refused(make, code):
    with pytest.raises(cs.TopologyError) as error:
        make(cs.StreamsBuilder().stream("in", CONSUMED))
    assert error.value.code == code
    assert error.value.next


def test_a_store_that_was_not_given_is_an_error():
    with pytest.raises(cs.StateError, match="no store named 'seen'") as error:
        piped(driver_of(Counted, stores=()), ("a", 1, 1))
    assert error.value.code == "CS-710"
    assert "KeyValueStore" in error.value.next
    assert error.value.where["operator"] == "in.process"


def test_a_supplier_has_to_make_a_processor():
    with pytest.raises(cs.ProcessingError, match="has no process") as error:
        piped(driver_of(dict), ("a", 1, 1))
    assert error.value.code == "CS-501"


def test_a_record_that_fails_stops_the_application():
    with pytest.raises(cs.ProcessingError, match="ZeroDivisionError") as error:
        piped(driver_of(Counted), ("a", 1, 1), ("b", 0, 2))
    assert error.value.code == "CS-501"
    assert (error.value.where["key"], error.value.where["offset"]) == ("b", 1)


def test_a_record_that_fails_is_skipped_with_all_it_did():
    out = piped(driver_of(Counted, processing_errors="skip"), ("a", 1, 1), ("a", 0, 2), ("a", 1, 3))
    assert [(one.key, one.value, one.timestamp) for one in out] == [("a", 1, 1), ("a", 2, 3)]


def test_a_record_that_fails_goes_to_the_dead_letters():
    driver = driver_of(Counted, processing_errors=cs.DeadLetter("dead"))
    piped(driver, ("a", 0, 1), ("b", 1, 2))
    dead = driver.create_output_topic("dead", TEXT, NUMBER).read_records()
    assert [(one.key, one.value) for one in dead] == [("a", 0)]
    assert driver.metrics()["dropped"] == {"in.process: failed": 1}
    assert driver.get_key_value_store("seen").get("a") is None


class Renamed(Counted):
    def process(self, record):
        self.context.forward("other", record.value)


def test_process_values_keeps_the_key():
    with pytest.raises(cs.ProcessingError, match="forwards the key 'other'") as error:
        piped(driver_of(Renamed, fixed=True), ("a", 1, 1))
    assert error.value.code == "CS-501"
    assert [one.key for one in piped(driver_of(Renamed), ("a", 1, 1))] == ["other"]


class Late(Counted):
    def process(self, record):
        self.context.schedule(10, "stream-time", print)


def test_timers_are_set_in_init():
    with pytest.raises(cs.ProcessingError, match="in init only"):
        piped(driver_of(Late), ("a", 1, 1))


class Clock:
    """Three times, every 100 ms on the clock."""

    def init(self, context):
        self.context, self.seen = context, context.store("seen")
        self.timer = context.schedule("100 ms", "wall-clock", self.tick)

    def tick(self, now):
        count = (self.seen.get("ticks") or 0) + 1
        self.seen.put("ticks", count)
        self.context.forward("ticks", count)
        if count == 3:
            self.timer.cancel()

    def process(self, record):
        pass


def test_timers_on_the_clock_fire_once_in_a_batch_until_they_are_cancelled():
    with driver_of(Clock, every=1) as driver:
        driver.create_input_topic("in", TEXT, NUMBER).pipe_input("a", 1, timestamp=7)
        for duration in (99, 1, 250, 49, 1, 500, 500):
            driver.advance_wall_clock_time(duration)
        out = driver.create_output_topic("out", TEXT, NUMBER).read_records()
    assert [(one.key, one.value, one.timestamp) for one in out] == [
        ("ticks", 1, 100),
        ("ticks", 2, 350),
        ("ticks", 3, 400),
    ]


class Seen:
    def init(self, context):
        self.context = context

    def process(self, record):
        place = (record.topic, record.partition, record.offset)
        assert place == ("in", 0, record.value), place
        assert (self.context.stream_time, self.context.partition) == (9, 0)
        with pytest.raises(AttributeError):
            record.key = "b"
        self.context.forward(record.key, record.value, headers=[*record.headers, ("more", b"2")])


def test_records_have_their_place_and_headers():
    with driver_of(Seen, stores=()) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        topic.pipe_input("a", 0, timestamp=9, headers=[("n", b"1")])
        driver.commit()
        topic.pipe_input("a", 1, timestamp=8)
        driver.commit()
        out = driver.create_output_topic("out", TEXT, NUMBER).read_records()
    assert [one.headers for one in out] == [(("n", b"1"), ("more", b"2")), (("more", b"2"),)]


def test_a_processor_without_init_and_close():
    class Bare:
        def process(self, record):
            assert record.key == "a"

    assert piped(driver_of(Bare, stores=()), ("a", 1, 1)) == []


def test_stores_are_described():
    builder = cs.StreamsBuilder()
    builder.stream("in", CONSUMED).process_values(Counted, [SEEN]).to("out", PRODUCED)
    topology = builder.build()
    assert "Processor: in.process_values (stores: [seen])" in topology.describe()
    assert "store seen (key-value)" in topology.plan(partitions=2)


def test_what_a_function_of_batches_returns_is_checked():
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", CONSUMED)
    stream.transform_batches(lambda batch: batch, SCHEMA).to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        with pytest.raises(cs.ProcessingError, match="expected the columns key, value, got") as error:
            topic.pipe_input("a", 1, timestamp=1)
    assert error.value.code == "CS-501"


def test_rows_of_batches_without_timestamps_have_the_largest():
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", CONSUMED)
    stream.transform_batches(lambda batch: batch.select(["key", "value"]), SCHEMA).to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), commit_every=2) as driver:
        driver.create_input_topic("in", TEXT, NUMBER).pipe_records([("a", 1, 5), ("b", 2, 3)])
        out = driver.create_output_topic("out", TEXT, NUMBER).read_records()
    assert [(one.key, one.timestamp) for one in out] == [("a", 5), ("b", 5)]


@pytest.mark.parametrize("first", [0, 1])
def test_rows_of_batches_are_in_windows_in_the_order_in_which_they_are_returned(first):
    """``first``: of the rows that are kept. The last row is late for its window, which another key has closed."""
    schema = pa.schema({"key": pa.string(), "value": pa.int64(), "timestamp": pa.int64()})
    builder = cs.StreamsBuilder()
    kept = builder.stream("in", CONSUMED).transform_batches(lambda batch: batch.slice(first), schema)
    windows = kept.group_by_key(key=TEXT, value=NUMBER).windowed_by(
        cs.TimeWindows(size="10 ms", grace="0 ms")
    )
    windows.count().to_stream(lambda window, _: window.key).to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), commit_every=3) as driver:
        topic = driver.create_input_topic("in", TEXT, NUMBER)
        topic.pipe_records([("c", 1, 3), ("b", 2, 53), ("a", 3, 38)])
        found = driver.create_output_topic("out", TEXT, NUMBER).read_records()
    assert {one.key for one in found} == ({"b"} if first else {"b", "c"})


class Early(Seen):
    def process(self, record):
        self.context.forward(record.key, record.value, timestamp=-1)


def test_forwarded_timestamps_are_checked():
    with pytest.raises(cs.ProcessingError, match="the timestamp -1") as error:
        piped(driver_of(Early, stores=()), ("a", 1, 1))
    assert error.value.code == "CS-507"


def test_values_of_several_types_are_no_column():
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=serdes.json()))
    stream.transform_batches(lambda batch: None, SCHEMA).to("out", PRODUCED)
    with cs.TopologyTestDriver(builder.build(), commit_every=2) as driver:
        topic = driver.create_input_topic("in", TEXT, serdes.json())
        with pytest.raises(cs.ProcessingError, match="no column of Arrow") as error:
            topic.pipe_records([("a", {"n": 1}, 1), ("b", "text", 2)])
    assert "declare" in error.value.next
