"""Records that cannot be read or processed: the error says which one, or the record is let go and counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.errors import CrossStreamError

TEXT, JSON, INT = serdes.string(), serdes.json(), serdes.int64()
NUMBER = serdes.json({"n": pl.Int64})
Build = Callable[[cs.StreamsBuilder], None]
Records = list[tuple[Any, Any]]


def source(builder: cs.StreamsBuilder, topic: str = "in", value: Any = TEXT, kind: str = "stream") -> Any:
    return getattr(builder, kind)(topic, cs.Consumed(key=TEXT, value=value))


def sink(stream: Any, value: Any = TEXT, **options: Any) -> None:
    stream.to("out", cs.Produced(key=TEXT, value=value, **options))


def table(builder: cs.StreamsBuilder, topic: str = "in") -> Any:
    return source(builder, topic, TEXT, "table")


def reciprocal(value: str) -> str:
    return str(1 // int(value))


def run(build: Build, records: list[tuple[Any, ...]], **settings: Any) -> cs.TopologyTestDriver:
    """The driver after the records (topic, key, value); a fourth is the serde of the value."""
    builder = cs.StreamsBuilder()
    build(builder)
    driver = cs.TopologyTestDriver(builder.build(), partitions=2, **settings)
    for number, (topic, key, value, *serde) in enumerate(records):
        pipe = driver.create_input_topic(topic, TEXT, *serde or [TEXT])
        pipe.pipe_input(key, value, number, [("n", b"%d" % number)], partition=1)
    driver.commit()
    return driver


def out(driver: cs.TopologyTestDriver, topic: str = "out", value: Any = TEXT) -> Records:
    return driver.create_output_topic(topic, TEXT, value).read_key_values()


def map_values(builder: cs.StreamsBuilder) -> None:
    sink(source(builder).map_values(reciprocal))


def filtered(builder: cs.StreamsBuilder) -> None:
    sink(source(builder).filter(lambda value: int(reciprocal(value)) < 2))


def not_filtered(builder: cs.StreamsBuilder) -> None:
    sink(source(builder).filter_not(lambda value: int(reciprocal(value)) > 2))


def flat_mapped(builder: cs.StreamsBuilder) -> None:
    sink(source(builder).flat_map_values(lambda value: [reciprocal(value)]))


def flat_mapped_late(builder: cs.StreamsBuilder) -> None:
    def items(value: str) -> Any:
        yield "first"
        yield reciprocal(value)

    sink(source(builder).flat_map_values(items))


def peeked(builder: cs.StreamsBuilder) -> None:
    sink(source(builder).peek(lambda key, value: reciprocal(value)))


def re_keyed(builder: cs.StreamsBuilder) -> None:
    sink(source(builder).select_key(lambda value: reciprocal(value)))


def mapped(builder: cs.StreamsBuilder) -> None:
    sink(source(builder).map(lambda key, value: (key, reciprocal(value))))


def split(builder: cs.StreamsBuilder) -> None:
    branches = source(builder).split().branch(lambda value: int(reciprocal(value)) > 1).default_branch("rest")
    sink(branches["rest"])


def expressed(builder: cs.StreamsBuilder) -> None:
    sink(source(builder).map_values(pl.lit(1).floordiv(pl.col("value").cast(pl.Int64)).cast(pl.String)))


def by_topic(builder: cs.StreamsBuilder) -> None:
    source(builder).to(lambda key, value: "out" if reciprocal(value) else "none", produced())


def by_partitioner(builder: cs.StreamsBuilder) -> None:
    sink(source(builder), partitioner=lambda topic, key, value, count: int(reciprocal(value)) - 1)


def by_time(builder: cs.StreamsBuilder) -> None:
    stamps = cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=lambda k, v, t: int(reciprocal(v)))
    sink(builder.stream("in", stamps))


def by_time_expression(builder: cs.StreamsBuilder) -> None:
    number = pl.col("value").cast(pl.Int64)
    consumed = cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=pl.when(number > 0).then(number))
    sink(builder.stream("in", consumed))


def table_filtered(builder: cs.StreamsBuilder) -> None:
    sink(table(builder).filter(lambda value: int(reciprocal(value)) < 2).to_stream())


def table_mapped(builder: cs.StreamsBuilder) -> None:
    sink(table(builder).map_values(reciprocal).to_stream())


def produced() -> cs.Produced:
    return cs.Produced(key=TEXT, value=TEXT)


RAISING = [
    map_values, filtered, not_filtered, flat_mapped, flat_mapped_late, peeked, re_keyed, mapped, split, by_topic,
    by_partitioner, by_time, by_time_expression, table_filtered, table_mapped,
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("build", RAISING, ids=lambda build: build.__name__)
class TestFunctionThatRaises:
    """The record "b" is at fault, in partition 1 of its topic, at offset 1."""

    records: ClassVar = [("in", "a", "1"), ("in", "b", "0"), ("in", "c", "1")]

    def test_stops_with_the_place_of_the_record(self, build: Build, size: int) -> None:
        with pytest.raises(cs.ProcessingError) as caught:
            run(build, self.records, commit_every=size)
        assert caught.value.code == "CS-501"
        assert {
            name: caught.value.where[name] for name in ("topic", "partition", "offset", "key")
        } == {"topic": "in", "partition": 1, "offset": 1, "key": "b"}  # fmt: skip
        assert caught.value.where["operator"]
        assert "driver/test_errors.py:" in str(caught.value.where["line"])

    def test_is_let_go_and_counted(self, build: Build, size: int) -> None:
        driver = run(build, self.records, commit_every=size, processing_errors="skip")
        found = out(driver)
        if build is table_mapped:  # which deletes the row, without a look at whether it was there
            found.remove(("b", None))
        assert [key for key, _ in found] in (["a", "c"], ["1", "1"], ["a", "a", "c", "c"])
        assert driver.metrics()["dropped-records-total"] == 1
        assert list(driver.metrics()["dropped"].values()) == [1]

    def test_goes_to_the_dead_letters(self, build: Build, size: int) -> None:
        driver = run(build, self.records, commit_every=size, processing_errors=cs.DeadLetter("bad"))
        (letter,) = driver.create_output_topic("bad", TEXT, TEXT).read_records()
        told = dict(letter.headers)
        assert (letter.key, letter.value, letter.timestamp) == ("b", "0", 1)
        assert told["n"] == b"1"
        assert told["crossstream.topic"] == b"in"
        assert told["crossstream.partition"] == told["crossstream.offset"] == b"1"
        assert b"Error" in (told["crossstream.reason"] or b"")
        assert driver.metrics()["dropped-records-total"] == 1
        assert len(out(driver)) - (build is table_mapped) in (2, 4)


@pytest.mark.parametrize("one", ["text", b"bytes", bytearray(b"bytes"), {"a": 1}], ids=repr)
@pytest.mark.parametrize("method", ["flat_map", "flat_map_values"])
def test_one_value_is_not_taken_for_several(method: str, one: Any) -> None:
    def build(builder: cs.StreamsBuilder) -> None:
        given = (lambda key, value: one) if method == "flat_map" else (lambda value: one)
        sink(getattr(source(builder), method)(given))

    with pytest.raises(cs.ProcessingError, match=f"one {type(one).__name__}") as caught:
        run(build, [("in", "a", "1")])
    assert (caught.value.code, caught.value.where["key"]) == ("CS-501", "a")
    skipped = run(build, [("in", "a", "1")], processing_errors="skip")
    assert out(skipped) == []
    assert skipped.metrics()["dropped-records-total"] == 1


@pytest.mark.parametrize("several", [["x", "y"], ("x", "y"), iter(["x", "y"]), {"x": 1, "y": 2}.keys()])
def test_any_other_iterable_gives_its_items(several: Any) -> None:
    driver = run(
        lambda builder: sink(source(builder).flat_map_values(lambda value: several)), [("in", "a", "1")]
    )
    assert out(driver) == [("a", "x"), ("a", "y")]


def test_an_expression_that_fails_on_a_row_lets_the_others_through() -> None:
    driver = run(expressed, [("in", "a", "1"), ("in", "b", "x")], commit_every=9, processing_errors="skip")
    assert out(driver) == [("a", "1")]


def test_a_function_is_called_once_for_each_record() -> None:
    seen: list[str] = []

    def build(builder: cs.StreamsBuilder) -> None:
        sink(source(builder).peek(lambda key, value: seen.append(value) or reciprocal(value)))

    run(
        build,
        [("in", "a", "1"), ("in", "b", "0"), ("in", "c", "1")],
        commit_every=3,
        processing_errors="skip",
    )
    assert seen == ["1", "0", "1"]


# Joins


def join(builder: cs.StreamsBuilder) -> None:
    sink(
        table(builder, "left")
        .join(table(builder, "right"), lambda left, right: left + reciprocal(right))
        .to_stream()
    )


def reference_join(builder: cs.StreamsBuilder) -> None:
    joined = table(builder, "left").join(
        table(builder, "right"), lambda left, right: left + reciprocal(right), foreign_key=lambda value: value
    )
    sink(joined.to_stream())


@pytest.mark.parametrize(("build", "key"), [(join, "x"), (reference_join, "a")], ids=["primary", "foreign"])
def test_a_joiner_that_raises_names_the_record_that_triggered_it(build: Build, key: str) -> None:
    records = [("right", "x", "0"), ("left", key, "x")]
    for trigger in (records, records[::-1]):
        with pytest.raises(cs.ProcessingError) as caught:
            run(build, trigger)
        where = caught.value.where
        assert (caught.value.code, where["topic"], where["offset"], where["key"]) == (
            "CS-501",
            trigger[1][0],
            0,
            key,
        )
        assert where["operator"] == "left.join(right)"


@pytest.mark.parametrize("build", [join, reference_join], ids=["primary", "foreign"])
def test_a_result_that_cannot_be_made_is_gone_or_stays_as_it_was(build: Build) -> None:
    """It stays where the join has what it was: a join by foreign key, or one with a store."""
    key = "x" if build is join else "a"
    records = [("right", "x", "1"), ("left", key, "x"), ("right", "x", "0"), ("right", "x", "-1")]
    driver = run(build, records, processing_errors="skip")
    gone = [(key, None)] if build is join else []
    assert out(driver) == [(key, "x1"), *gone, (key, "x-1")]
    assert driver.metrics()["dropped"] == {"left.join(right): failed": 1}


def extractor(value: str) -> Any:
    return {"bad": 1, "none": None}[value[:4]] if value[:4] in ("none", "bad") else reciprocal(value)


def raising_extractor(builder: cs.StreamsBuilder) -> None:
    left, right = table(builder, "left"), table(builder, "right")
    left.to_stream().to("lefts", produced())
    joined = left.left_join(right, lambda row, other: f"{row},{other}", foreign_key=extractor)
    sink(joined.to_stream())


def raising_extractor_of_many(builder: cs.StreamsBuilder) -> None:
    left, right = table(builder, "left"), table(builder, "right")
    left.to_stream().to("lefts", produced())
    joined = left.left_join_many({"one": (right, extractor)}, lambda row, others: f"{row},{others['one']}")
    sink(joined.to_stream())


DROPPED_BY = {
    raising_extractor: "left.left_join(right)",
    raising_extractor_of_many: "left.left_join_many(one)",
}

extracting = pytest.mark.parametrize(
    "build", [raising_extractor, raising_extractor_of_many], ids=["one", "many"]
)


@pytest.mark.parametrize(
    ("value", "kind", "code"), [("0", cs.ProcessingError, "CS-501"), ("bad", cs.SerdeError, "CS-401")]
)
@pytest.mark.parametrize("changed_again", [False, True])
@pytest.mark.parametrize("size", [1, 9])
@extracting
def test_a_foreign_key_that_cannot_be_had(
    build: Build, size: int, changed_again: bool, value: str, kind: type[CrossStreamError], code: str
) -> None:
    records = [("left", "a", "1"), ("left", "b", value), *([("left", "b", "1")] if changed_again else [])]
    with pytest.raises(kind) as caught:
        run(build, records, commit_every=size)
    where = caught.value.where
    assert (caught.value.code, where["topic"], where["partition"], where["offset"], where["key"]) == (
        code, "left", 1, 1, "b",
    )  # fmt: skip


@pytest.mark.parametrize("size", [1, 9])
@extracting
def test_a_row_without_a_foreign_key_stays_in_its_table_and_the_result_as_it_was(
    build: Build, size: int
) -> None:
    records = [("right", "1", "R"), ("left", "a", "1"), ("left", "a", "0"), ("left", "b", "bad")]
    driver = run(build, records, commit_every=size, processing_errors="skip")
    assert out(driver) == [("a", "1,R")]
    assert out(driver, "lefts") == [("a", "1"), ("a", "0"), ("b", "bad")]
    assert driver.metrics()["dropped"] == {f"{DROPPED_BY[build]}: failed": 2}
    driver.create_input_topic("right", TEXT, TEXT).pipe_input("1", "S", 9)
    driver.create_input_topic("left", TEXT, TEXT).pipe_input("a", "none", 9)
    driver.commit()
    assert dict(out(driver)) == {"a": "none,None"}


def test_rows_after_one_that_failed_are_right_again() -> None:
    """A filter also asks what a row was: if the function failed on that, it was not there."""

    def build(builder: cs.StreamsBuilder) -> None:
        joined = table(builder, "left").join(table(builder, "right"), lambda left, _: reciprocal(left))
        sink(joined.filter(lambda value: value == "1").to_stream())

    lefts = ["1", "0", "1", "0", "5", "0", None]
    records = [("right", "x", "R"), *(("left", "x", value) for value in lefts)]
    driver = run(build, records, processing_errors="skip")
    assert out(driver) == [("x", "1"), ("x", None), ("x", "1"), ("x", None)]
    assert driver.metrics()["dropped-records-total"] == 3


# Undecodable records, and values that fit no serde


@pytest.mark.parametrize("reader", ["callable", "expression", "nobody"])
@pytest.mark.parametrize("kind", ["stream", "table"])
@pytest.mark.parametrize("size", [1, 9])
def test_an_undecodable_value(size: int, kind: str, reader: str) -> None:
    def build(builder: cs.StreamsBuilder) -> None:
        read = source(builder, "in", NUMBER if reader == "expression" else JSON, kind)
        if reader != "nobody":
            read = read.filter((lambda value: value["n"] > 0) if reader == "callable" else pl.col("n") > 0)
        sink(read.to_stream() if kind == "table" else read, JSON)

    records = [("in", "a", '{"n":1}'), ("in", "b", '{"n":'), ("in", "c", '{"n":2}')]
    with pytest.raises(cs.SerdeError) as caught:
        run(build, records, commit_every=size)
    assert caught.value.code == "CS-402"
    assert [caught.value.where[name] for name in ("operator", "topic", "partition", "offset", "key")] == [
        "in", "in", 1, 1, "b",
    ]  # fmt: skip
    driver = run(build, records, commit_every=size, deserialization_errors="skip")
    assert out(driver, value=JSON) == [("a", {"n": 1}), ("c", {"n": 2})]
    assert driver.metrics()["dropped"] == {"in: undecodable": 1}
    driver = run(build, records, commit_every=size, deserialization_errors=cs.DeadLetter("bad"))
    (letter,) = driver.create_output_topic("bad", TEXT, TEXT).read_records()
    assert (letter.key, letter.value, dict(letter.headers)["n"]) == ("b", '{"n":', b"1")


def joined_by_key(builder: cs.StreamsBuilder, joiner: Any, serde: Any) -> None:
    left, right = (source(builder, topic, serde, "table") for topic in ("left", "right"))
    sink(left.join(right, joiner).to_stream(), JSON)


def looked_up(builder: cs.StreamsBuilder, joiner: Any, serde: Any) -> None:
    sink(source(builder, "left", serde).join(source(builder, "right", serde, "table"), joiner), JSON)


def in_windows(builder: cs.StreamsBuilder, joiner: Any, serde: Any) -> None:
    left, right = (source(builder, topic, serde) for topic in ("left", "right"))
    sink(left.join(right, joiner, cs.JoinWindows.of("1 minute")), JSON)


def joined_by_foreign_key(builder: cs.StreamsBuilder, joiner: Any, serde: Any) -> None:
    left, right = (source(builder, topic, serde, "table") for topic in ("left", "right"))
    foreign_key = (lambda value: "b") if callable(joiner) else pl.lit("b")
    sink(left.join(right, joiner, foreign_key=foreign_key).to_stream(), JSON)


def joined_by_many(builder: cs.StreamsBuilder, joiner: Any, serde: Any) -> None:
    left, right = (source(builder, topic, serde, "table") for topic in ("left", "right"))
    one = {"one": (right, (lambda value: "b") if callable(joiner) else pl.lit("b"))}
    summed = pl.struct(sum=pl.col("left").struct.field("n") + pl.col("one").struct.field("n"))
    many = (lambda left, rights: joiner(left, rights["one"])) if callable(joiner) else summed
    sink(left.join_many(one, many).to_stream(), JSON)


SUM = pl.struct(sum=pl.col("left").struct.field("n") + pl.col("right").struct.field("n"))


def summed(left: Any, right: Any) -> Any:
    return {"sum": left["n"] + right["n"]}


@pytest.mark.parametrize(
    ("joiner", "serde"),
    [(summed, JSON), (summed, serdes.json(dict[str, int])), (SUM, NUMBER)],
    ids=["callable-untyped", "callable-typed", "expression"],
)
@pytest.mark.parametrize("topic", ["left", "right"])
@pytest.mark.parametrize(
    "join", [joined_by_key, looked_up, in_windows, joined_by_foreign_key, joined_by_many]
)
def test_an_undecodable_value_of_a_join(join: Any, topic: str, joiner: Any, serde: Any) -> None:
    """It may be decoded where it is joined only: the error tells the same, and policies do the same."""
    records = [
        ("right", "b", '{"n":1}'),
        (topic, "bad", '{"n":'),
        ("left", "b", '{"n":2}'),
    ]
    build = partial(join, joiner=joiner, serde=serde)
    with pytest.raises(cs.SerdeError) as caught:
        run(build, records, commit_every=9)
    assert caught.value.code == "CS-402"
    offset = 1 if topic == "right" else 0
    assert [caught.value.where[name] for name in ("operator", "topic", "partition", "offset", "key")] == [
        topic, topic, 1, offset, "bad",
    ]  # fmt: skip
    driver = run(build, records, commit_every=9, deserialization_errors="skip")
    assert out(driver, value=JSON) == [("b", {"sum": 3})]
    assert driver.metrics()["dropped"] == {f"{topic}: undecodable": 1}


@pytest.mark.parametrize("topic", ["left", "right"])
@pytest.mark.parametrize(
    "join", [joined_by_key, looked_up, in_windows, joined_by_foreign_key, joined_by_many]
)
def test_a_field_that_no_joiner_reads_is_checked(join: Any, topic: str) -> None:
    serde = serdes.json(pa.schema({"n": pa.int64(), "other": pa.int64()}))
    records = [("right", "b", '{"n":1}'), (topic, "bad", '{"n":1,"other":"x"}'), ("left", "b", '{"n":2}')]
    with pytest.raises(cs.SerdeError) as caught:
        run(partial(join, joiner=SUM, serde=serde), records, commit_every=9)
    assert caught.value.code == "CS-402"
    assert [caught.value.where[name] for name in ("operator", "key")] == [topic, "bad"]


@pytest.mark.parametrize("bad", ['{"n":', '{"n":1,"other":"x"}'])
@pytest.mark.parametrize("join", [joined_by_key, joined_by_foreign_key, joined_by_many])
def test_an_undecodable_value_is_told_though_the_row_has_changed_again(join: Any, bad: str) -> None:
    serde = serdes.json(pa.schema({"n": pa.int64(), "other": pa.int64()}))
    records = [("right", "b", '{"n":1}'), ("left", "b", bad), ("left", "b", '{"n":2}')]
    with pytest.raises(cs.SerdeError) as caught:
        run(partial(join, joiner=SUM, serde=serde), records, commit_every=9)
    assert caught.value.code == "CS-402"
    assert [caught.value.where[name] for name in ("topic", "offset", "key")] == ["left", 0, "b"]


def test_an_undecodable_key_harms_no_other() -> None:
    """Its neighbours are multiplied, so that their column is longer than the one that was read."""
    builder = cs.StreamsBuilder()
    numbers = builder.stream("in", cs.Consumed(key=INT, value=TEXT)).flat_map_values(list)
    numbers.filter(lambda key, value: key > 0).to("out", cs.Produced(key=INT, value=TEXT))
    topology = builder.build()
    with cs.TopologyTestDriver(topology, commit_every=9, deserialization_errors="skip") as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("bad", "x")
        driver.create_input_topic("in", INT, TEXT).pipe_input(7, "abc")
        driver.commit()
        read = driver.create_output_topic("out", INT, TEXT).read_key_values()
        assert read == [(7, "a"), (7, "b"), (7, "c")]
    with pytest.raises(cs.SerdeError, match="CS-402"), cs.TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("bad", "x")


@pytest.mark.parametrize(("serde", "bad"), [(INT, b"1"), (TEXT, b"\xff")], ids=["int64", "string"])
def test_the_reason_of_an_undecodable_key_is_that_of_the_key_alone(serde: Any, bad: bytes) -> None:
    """Many keys are decoded as a column."""
    builder, reasons = cs.StreamsBuilder(), set()
    builder.stream("in", cs.Consumed(key=serde, value=TEXT)).to("out")
    topology, dead = builder.build(), cs.DeadLetter("dead")
    for every in (1, 100):
        with cs.TopologyTestDriver(topology, commit_every=every, deserialization_errors=dead) as driver:
            driver.create_input_topic("in", serdes.bytes(), TEXT).pipe_input(bad, "x")
            for _ in range(99):
                driver.create_input_topic("in", serdes.bytes(), TEXT).pipe_input(b"12345678", "x")
            (letter,) = driver.create_output_topic("dead", serdes.bytes(), TEXT).read_records()
            reasons.add(dict(letter.headers)["crossstream.reason"])
    assert len(reasons) == 1


@pytest.mark.parametrize("serde", [JSON, serdes.json(dict[str, int]), NUMBER], ids=lambda serde: serde.name)
@pytest.mark.parametrize("reader", ["callable", "expression", "nobody"])
def test_the_text_null_deletes_a_row(reader: str, serde: Any) -> None:
    def build(builder: cs.StreamsBuilder) -> None:
        rows = builder.table("in", cs.Consumed(key=TEXT, value=serde), cs.Materialized(store="rows"))
        if reader == "expression" and serde is NUMBER:
            rows = rows.filter(pl.col("n") > 0)
        elif reader != "nobody":
            rows = rows.filter(lambda value: value["n"] > 0)
        sink(rows.to_stream(), serde)

    driver = run(build, [("in", "a", '{"n":1}'), ("in", "a", "null")])
    assert out(driver) == [("a", '{"n":1}'), ("a", None)]
    assert list(driver.get_key_value_store("rows").all()) == []

    records = [("in", "a", '{"n":1}'), ("in", "a", "null"), ("in", "b", "{")]
    driver = run(build, records, commit_every=9, deserialization_errors="skip")
    assert list(driver.get_key_value_store("rows").all()) == []


def test_the_text_null_is_no_value_of_a_stream_record_beside_an_undecodable_one() -> None:
    records = [("right", "a", '{"n":1}'), ("left", "a", "null"), ("left", "b", "{")]
    build = partial(looked_up, joiner=lambda left, right: {"sum": 0}, serde=JSON)
    driver = run(build, records, commit_every=9, deserialization_errors="skip")
    assert out(driver, value=JSON) == []


def test_a_key_is_found_however_it_is_spelled_beside_an_undecodable_one() -> None:
    builder = cs.StreamsBuilder()
    builder.table("in", cs.Consumed(key=JSON, value=TEXT), cs.Materialized(store="rows"))
    with cs.TopologyTestDriver(
        builder.build(), partitions=2, commit_every=9, deserialization_errors="skip"
    ) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, value in [('{"id": 1}', "old"), ('{"id":1}', "new"), ("{", "bad")]:
            topic.pipe_input(key, value, partition=1)
        driver.commit()
        assert list(driver.get_key_value_store("rows").all()) == [({"id": 1}, "new")]
        assert driver.get_key_value_store("rows").get({"id": 1}) == "new"


def by_branches(numbers: Any) -> None:
    sink(numbers.split().branch(lambda value: True, "all").no_default_branch()["all"], JSON)


def by_the_topic(numbers: Any) -> None:
    numbers.to(lambda key, value: "out", cs.Produced(key=TEXT, value=JSON))


def behind_a_shuffle(numbers: Any) -> None:
    sink(numbers.filter(pl.col("n") > 0).repartition().map_values(lambda value: value), JSON)


def by_a_joiner(numbers: Any) -> None:
    sink(numbers.join(numbers.to_table(), lambda one, other: one), JSON)


def by_an_expression_behind_a_shuffle(numbers: Any) -> None:
    sink(numbers.filter(pl.col("n") > 0).repartition().filter(pl.col("x").is_null()), JSON)


def by_the_expression_of_a_joiner(numbers: Any) -> None:
    sink(numbers.join(numbers.to_table(), pl.col("left")), JSON)


def by_the_expression_of_a_foreign_key_join(numbers: Any) -> None:
    rows = numbers.to_table()
    x, name = pl.col("left").struct.field("x"), pl.col("n").cast(pl.String)
    joiner = pl.when(x.is_null()).then(pl.struct(n=pl.col("left").struct.field("n")))
    sink(rows.left_join(rows, joiner, foreign_key=name).to_stream(), JSON)


@pytest.mark.parametrize("every", [1, 9])
@pytest.mark.parametrize("bad", [b'{"n":1,"x":"\xff"}', b'{"n":1,"x":1e999}', b'{"n":1,"x":{}}'])
@pytest.mark.parametrize(
    "reader",
    [
        by_branches,
        by_the_topic,
        behind_a_shuffle,
        by_a_joiner,
        by_an_expression_behind_a_shuffle,
        by_the_expression_of_a_joiner,
        by_the_expression_of_a_foreign_key_join,
    ],
)
def test_a_value_that_only_a_later_reader_cannot_read_is_let_go(reader: Any, bad: bytes, every: int) -> None:
    """An expression comes first and reads another field."""

    def build(builder: cs.StreamsBuilder) -> None:
        numbers = source(builder, value=serdes.json({"n": pl.Int64, "x": pl.Float64}))
        numbers.filter(pl.col("n") > 1).to("many", cs.Produced(key=TEXT, value=JSON))
        reader(numbers)

    records = [("in", "a", b'{"n":1}', serdes.bytes()), ("in", "b", bad, serdes.bytes())]
    driver = run(build, records, commit_every=every, deserialization_errors="skip")
    assert [key for key, _ in out(driver)] == ["a"]
    assert driver.metrics()["dropped"] == {"in: undecodable": 1}


@pytest.mark.parametrize("beside", ["3", None])
@pytest.mark.parametrize("every", [1, 9])
def test_the_reason_of_a_failure_is_that_of_the_row_alone(every: int, beside: str | None) -> None:
    def build(builder: cs.StreamsBuilder) -> None:
        rows = source(builder, value=serdes.json({"n": pl.String}))
        rows.split().branch(pl.col("n").cast(pl.Int64) > 1, "some").no_default_branch()

    records = [("in", key, f'{{"n":"{n}"}}') for key, n in (("a", "1"), ("b", "x"))]
    records += [("in", "c", f'{{"n":"{beside}"}}')] if beside else []
    driver = run(build, records, commit_every=every, processing_errors=cs.DeadLetter("dead"))
    (letter,) = driver.create_output_topic("dead", TEXT, TEXT).read_records()
    reason = dict(letter.headers)["crossstream.reason"] or b""
    assert reason.startswith(b"InvalidOperationError")
    assert b"for 1 out of 1 values" in reason


@dataclass
class Offer:
    shop: str
    price: int


@pytest.mark.parametrize("price", ["5", None, 2.0])
def test_an_instance_that_could_not_be_read_again(price: Any) -> None:
    """It is refused before it is in a store, from which nothing could be read any more."""

    def offers(builder: cs.StreamsBuilder) -> None:
        prices, shops = source(builder, "prices", JSON, "table"), table(builder, "shops")
        stored = cs.Materialized(store="offers", value=serdes.json(Offer))
        prices.join(
            shops,
            lambda row, shop: Offer(shop, row["price"]),
            foreign_key=lambda row: row["shop"],
            materialized=stored,
        )

    sound = [("shops", "s1", "Kiosk"), ("prices", "a", {"price": 5, "shop": "s1"}, JSON)]
    assert list(run(offers, sound).get_key_value_store("offers").all()) == [("a", Offer("Kiosk", 5))]
    with pytest.raises(cs.SerdeError, match=r"CS-401(.|\n)*\$\.price") as caught:
        run(offers, [*sound, ("prices", "b", {"price": price, "shop": "s1"}, JSON)])
    where = caught.value.where
    assert (where["operator"], where["topic"], where["offset"], where["key"], where["part"]) == (
        "prices.join(shops)", "prices", 1, "b", "value",
    )  # fmt: skip
    assert where["line"].startswith(__file__)


def test_dead_letters_of_what_a_function_made_are_json() -> None:
    def build(builder: cs.StreamsBuilder) -> None:
        sink(
            source(builder).map_values(lambda value: {"n": int(value)}).map_values(lambda row: 1 // row["n"]),
            INT,
        )

    driver = run(build, [("in", "a", "0")], processing_errors=cs.DeadLetter("bad"))
    assert out(driver, "bad", JSON) == [("a", {"n": 0})]


def no_result(*values: Any) -> Any:
    raise ValueError("no result")


def by_number(value: str) -> str:
    return value[0]


WINDOWS = cs.JoinWindows.of(0)


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize(
    ("build", "letters"),
    [
        (lambda b: source(b, "l").join(table(b, "r"), no_result), []),
        (lambda b: source(b, "l").left_join(table(b, "r"), no_result), [("k", "1")]),
        (lambda b: source(b, "l").left_join(source(b, "r"), no_result, WINDOWS), [("k", "1")]),
        (
            lambda b: source(b, "l").outer_join(source(b, "r"), no_result, WINDOWS),
            [("k", "1"), ("1", "one")],
        ),
        (
            lambda b: source(b, "l").join(source(b, "r"), no_result, cs.JoinWindows.of(5)),
            [("k", "two")],
        ),
        (
            lambda b: source(b, "l").left_join(
                b.global_table("r", cs.Consumed(key=TEXT, value=TEXT)), no_result, key_selector=by_number
            ),
            [("k", "1")],
        ),
        (lambda b: table(b, "l").left_join(table(b, "r"), no_result), [("k", "1"), ("k", "1")]),
        (
            lambda b: table(b, "l").outer_join(table(b, "r"), no_result),
            [("k", "1"), ("1", "one"), ("k", "1")],
        ),
        (
            lambda b: table(b, "l").left_join(table(b, "r"), no_result, foreign_key=by_number),
            [("k", "1"), ("k", "1")],
        ),
        (
            lambda b: table(b, "l").outer_join(
                table(b, "r"), no_result, foreign_key=by_number, keyed_by=cs.LeftOrRight
            ),
            [("\0k", "1"), ("\0k", "1"), ("\1k", "two")],
        ),
        (
            lambda b: table(b, "l").left_join(
                b.global_table("r", cs.Consumed(key=TEXT, value=TEXT)), no_result, foreign_key=by_number
            ),
            [("k", "1"), ("k", "1")],
        ),
        (
            lambda b: table(b, "l").left_join_many({"r": (table(b, "r"), by_number)}, no_result),
            [("k", "1"), ("k", "1")],
        ),
    ],
)
def test_dead_letters_of_joiners_have_the_value_of_the_record(
    build: Build, letters: Records, size: int
) -> None:
    """Of a table's result, the left row, or the right one where that is alone. A batch tells the last of each row."""
    driver = run(
        build,
        [("l", "k", "1"), ("r", "1", "one"), ("r", "k", "two")],
        processing_errors=cs.DeadLetter("bad"),
        commit_every=size,
    )
    found = out(driver, "bad")
    assert sorted(set(found)) == sorted(set(letters))
    assert size > 1 or sorted(found) == sorted(letters)


def test_dead_letters_of_joiners_are_in_the_serdes_of_their_sides() -> None:
    """A pair is a result of the record that came second."""

    def build(builder: cs.StreamsBuilder) -> None:
        source(builder, "l").map_values(int).join(source(builder, "r", INT), no_result, cs.JoinWindows.of(9))

    records = [("l", "a", "7"), ("r", "a", 8, INT), ("l", "a", "9")]
    driver = run(build, records, processing_errors=cs.DeadLetter("bad"))
    assert out(driver, "bad", serdes.bytes()) == [("a", INT.serialize(8)), ("a", b"9")]


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("topic", ["out", "bad"])
def test_bytes_beside_what_a_function_made_stay_as_they_were(topic: str, size: int) -> None:
    def build(builder: cs.StreamsBuilder) -> None:
        rows = source(builder, value=JSON, kind="table")
        stored = cs.Materialized(key=TEXT, value=JSON)
        made = rows.filter(lambda row: row["n"] == 2).map_values(dict, materialized=stored)
        both = rows.filter(lambda row: row["n"] == 1).to_stream().merge(made.to_stream())
        sink(both, JSON)
        both.foreach(no_result)

    pieces = [("in", "a", '{"n": 1}'), ("in", "b", '{"n": 2}')]
    driver = run(build, pieces, processing_errors=cs.DeadLetter("bad"), commit_every=size)
    assert sorted(out(driver, topic)) == [("a", '{"n": 1}'), ("b", '{"n":2}')]


def test_next_of_nothing_loses_no_record() -> None:
    """StopIteration ends what a function is mapped over."""

    def build(builder: cs.StreamsBuilder) -> None:
        first = source(builder).flat_map_values(lambda value: [next(c for c in value if c.isdigit())])
        first.to(lambda key, value: next(name for name in ("odd",) if int(value) % 2), produced())

    pieces = [("in", "a", "x1"), ("in", "b", "y"), ("in", "c", "z2"), ("in", "d", "3")]
    driver = run(build, pieces, processing_errors=cs.DeadLetter("bad"), commit_every=4)
    assert out(driver, "odd", TEXT) == [("a", "1"), ("d", "3")]
    assert len(out(driver, "bad", TEXT)) == 2
    with pytest.raises(cs.ProcessingError, match=r"CS-501.*StopIteration.*next\(…, None\)") as caught:
        run(build, pieces, commit_every=4)
    assert (caught.value.where["key"], caught.value.where["offset"]) == ("b", 1)


# What functions must give


@pytest.mark.parametrize(
    "stamp", [1.5, "7", True, 1 << 63, timedelta(seconds=5)], ids=lambda stamp: type(stamp).__name__
)
@pytest.mark.parametrize("function", ["callable", "expression"])
def test_what_is_no_timestamp_is_told(function: str, stamp: Any) -> None:
    """Nothing is rounded or converted to one, whatever gave it."""
    extractor = pl.lit(stamp) if function == "expression" else lambda key, value, timestamp: stamp

    def build(builder: cs.StreamsBuilder) -> None:
        sink(builder.stream("in", cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=extractor)))

    with pytest.raises(CrossStreamError) as caught:
        run(build, [("in", "a", "1"), ("in", "b", "2")], commit_every=2)
    assert (caught.value.code, caught.value.where["key"], caught.value.where["offset"]) == ("CS-501", "a", 0)
    assert out(run(build, [("in", "a", "1")], processing_errors="skip")) == []


def test_a_negative_timestamp() -> None:
    with pytest.raises(cs.ProcessingError) as caught, cs.TopologyTestDriver(_plain()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "1", -1)
    assert (caught.value.code, caught.value.where["offset"]) == ("CS-507", 0)


def _plain() -> cs.Topology:
    builder = cs.StreamsBuilder()
    sink(source(builder))
    return builder.build()


@pytest.mark.parametrize("extract", [lambda k, v, t: int(v), pl.col("value").cast(pl.Int64)])
def test_a_negative_time_from_an_extractor_drops_the_record(extract: Any) -> None:
    def build(builder: cs.StreamsBuilder) -> None:
        sink(builder.stream("in", cs.Consumed(key=TEXT, value=TEXT, timestamp_extractor=extract)))

    driver = run(build, [("in", "a", "7"), ("in", "b", "-1"), ("in", "c", "8")], commit_every=3)
    read = driver.create_output_topic("out", TEXT, TEXT).read_records()
    assert [(record.key, record.timestamp) for record in read] == [("a", 7), ("c", 8)]
    assert driver.metrics()["dropped"] == {"in: negative-timestamp": 1}


@dataclass
class Measured:
    size: float | None
    name: str | None


@pytest.mark.parametrize("every", [1, 9])
def test_nulls_alone_in_their_batch_fit_any_declared_field(every: int) -> None:
    def build(builder: cs.StreamsBuilder) -> None:
        turned = pl.struct("name", size=-pl.col("size"))
        stored = cs.Materialized(key=TEXT, value=serdes.json(Measured))
        serde = serdes.json({"size": pl.Float64, "name": pl.String})
        rows = builder.table("in", cs.Consumed(key=TEXT, value=serde))
        sink(rows.map_values(turned, materialized=stored).to_stream(), serdes.json(Measured))

    records = [("in", "a", '{"size":null,"name":null}'), ("in", "b", '{"size":1.5,"name":"x"}')]
    found = dict(out(run(build, records, commit_every=every)))
    assert found == {"a": '{"size":null,"name":null}', "b": '{"size":-1.5,"name":"x"}'}
