"""Records whose value is null: a function that reads fields fails on them, an expression as a callable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes

TEXT, JSON = serdes.string(), serdes.json()
PERSON = serdes.json({"name": pl.String, "age": pl.Int64})
NAME, OLD = pl.struct(name=pl.col("name")), pl.col("age") > 17


def name_of(value: Any) -> Any:
    return {"name": value["name"]}


def is_old(value: Any) -> bool:
    return value["age"] > 17


Build = Callable[[cs.KStream], cs.KStream]
OPERATORS: dict[str, tuple[Build, Build]] = {
    "map_values": (lambda s: s.map_values(NAME), lambda s: s.map_values(name_of)),
    "filter": (lambda s: s.filter(OLD), lambda s: s.filter(is_old)),
    "filter_not": (lambda s: s.filter_not(~OLD), lambda s: s.filter_not(lambda v: not is_old(v))),
    "select_key": (
        lambda s: s.select_key(pl.col("name")).map_values(lambda key, value: key),
        lambda s: s.select_key(lambda value: value["name"]).map_values(lambda key, value: key),
    ),
    "split": (
        lambda s: s.split().branch(OLD, "old").no_default_branch()["old"],
        lambda s: s.split().branch(is_old, "old").no_default_branch()["old"],
    ),
    "flat_map_values": (
        lambda s: s.flat_map_values(pl.concat_list("name", "name")),
        lambda s: s.flat_map_values(lambda value: [value["name"]] * 2),
    ),
}
FUNCTIONS = pytest.mark.parametrize("function", [0, 1], ids=["expression", "callable"])
EVERY = pytest.mark.parametrize("every", [1, 9])


def run(build: Build, every: int, values: list[Any], **settings: Any) -> cs.TopologyTestDriver:
    builder = cs.StreamsBuilder()
    build(builder.stream("in", cs.Consumed(key=TEXT, value=PERSON))).to(
        "out", cs.Produced(key=TEXT, value=JSON)
    )
    driver = cs.TopologyTestDriver(builder.build(), commit_every=every, **settings)
    topic = driver.create_input_topic("in", TEXT, PERSON)
    topic.pipe_records([(f"k{n}", value, n) for n, value in enumerate(values)])
    driver.commit()
    return driver


GIVEN = [{"name": "a", "age": 30}, None, {"name": "b", "age": 40}]


@EVERY
@FUNCTIONS
@pytest.mark.parametrize("operator", OPERATORS)
class TestAFunctionThatReadsFieldsOfANullValue:
    def test_fails_with_the_place_of_the_record(self, operator: str, function: int, every: int) -> None:
        with pytest.raises(cs.ProcessingError) as caught:
            run(OPERATORS[operator][function], every, GIVEN)
        error = caught.value
        assert error.code == "CS-501"
        assert [error.where[name] for name in ("topic", "offset", "key")] == ["in", 1, "k1"]

    def test_is_skipped_and_counted(self, operator: str, function: int, every: int) -> None:
        driver = run(OPERATORS[operator][function], every, GIVEN, processing_errors="skip")
        found = driver.create_output_topic("out", TEXT, JSON).read_values()
        names = [value["name"] if isinstance(value, dict) else value for value in found]
        assert names == (["a", "a", "b", "b"] if operator == "flat_map_values" else ["a", "b"])
        assert list(driver.metrics()["dropped"].values()) == [1]

    def test_goes_to_the_dead_letters(self, operator: str, function: int, every: int) -> None:
        driver = run(OPERATORS[operator][function], every, GIVEN, processing_errors=cs.DeadLetter("bad"))
        (letter,) = driver.create_output_topic("bad", TEXT, TEXT).read_records()
        assert (letter.key, letter.value) == ("k1", None)
        assert dict(letter.headers)["crossstream.offset"] == b"1"


@EVERY
@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.filter(pl.col("value").is_not_null()).map_values(NAME),
        lambda s: s.filter(lambda value: value is not None).map_values(name_of),
        lambda s: s.filter(pl.col("value").is_not_null() & OLD).map_values(NAME),
    ],
    ids=["expression", "callable", "together"],
)
def test_such_records_can_be_dropped_before(build: Build, every: int) -> None:
    driver = run(build, every, GIVEN)
    assert driver.create_output_topic("out", TEXT, JSON).read_values() == [{"name": "a"}, {"name": "b"}]
    assert driver.metrics()["dropped"] == {}


PASSING: dict[str, Build] = {
    "expression": lambda s: s.map_values(pl.when(pl.col("value").is_not_null()).then(NAME)),
    "callable": lambda s: s.map_values(lambda value: value and name_of(value)),
    "value": lambda s: s.map_values(pl.col("value")).map_values(lambda value: value and name_of(value)),
}


@EVERY
@pytest.mark.parametrize("build", PASSING.values(), ids=PASSING)
def test_a_null_that_a_function_passes_on_deletes_the_row(build: Build, every: int) -> None:
    """It was made a row of nulls, and the row of a deleted record stayed."""

    def table(stream: cs.KStream) -> cs.KStream:
        return build(stream).to_table(materialized=cs.Materialized(store="names", value=JSON)).to_stream()

    driver = run(
        lambda s: table(s.select_key(pl.lit("k")).repartition(cs.Repartitioned(key=TEXT))), every, GIVEN[:2]
    )
    assert dict(driver.get_key_value_store("names").all()) == {}
    found = driver.create_output_topic("out", TEXT, JSON).read_values()
    assert found == ([{"name": "a"}, None] if every == 1 else [None])


@EVERY
@FUNCTIONS
def test_a_table_calls_no_function_for_a_deleted_row(function: int, every: int) -> None:
    builder = cs.StreamsBuilder()
    people = builder.table("in", cs.Consumed(key=TEXT, value=PERSON))
    named = people.filter((OLD, is_old)[function]).map_values((NAME, name_of)[function])
    named.to_stream().to("out", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        topic = driver.create_input_topic("in", TEXT, PERSON)
        topic.pipe_records([("a", GIVEN[0], 1), ("b", GIVEN[2], 2)])
        driver.commit()
        topic.pipe_records([("a", None, 3), ("never", None, 4)])
        driver.commit()
        found = driver.create_output_topic("out", TEXT, JSON).read_key_values()
        assert found == [("a", {"name": "a"}), ("b", {"name": "b"}), ("a", None)]
        assert driver.metrics()["dropped"] == {}


@EVERY
def test_a_field_that_is_null_is_a_null(every: int) -> None:
    driver = run(
        lambda s: s.map_values(pl.col("age").fill_null(0)), every, [{"name": "a", "age": None}, GIVEN[0]]
    )
    assert driver.create_output_topic("out", TEXT, JSON).read_values() == [0, 30]


@EVERY
def test_the_side_that_a_joiner_lacks_is_null(every: int) -> None:
    builder = cs.StreamsBuilder()
    people, others = (builder.table(topic, cs.Consumed(key=TEXT, value=PERSON)) for topic in ("in", "others"))
    joiner = pl.struct(
        name=pl.col("left").struct.field("name"),
        other=pl.col("right").struct.field("name"),
        alone=pl.col("right").is_null(),
    )
    people.left_join(others, joiner).to_stream().to("out", cs.Produced(value=JSON))
    with cs.TopologyTestDriver(builder.build(), commit_every=every) as driver:
        driver.create_input_topic("in", TEXT, PERSON).pipe_input("k", GIVEN[0])
        driver.commit()
        values = driver.create_output_topic("out", TEXT, JSON).read_values()
        assert values == [{"name": "a", "other": None, "alone": True}]
