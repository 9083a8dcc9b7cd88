"""Serdes of the user: what they raise is a matter of the record, what they give is checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from tests.pairs import Pair, bent, raises

TEXT = serdes.string()


PAIR = Pair()
FIRST = pl.col("value").list.first()


def first_words(function: Any = FIRST, serde: Any = PAIR, kind: str = "stream") -> cs.Topology:
    builder = cs.StreamsBuilder()
    read = getattr(builder, kind)("in", cs.Consumed(key=TEXT, value=serde))
    words = read.map_values(function)
    (words.to_stream() if kind == "table" else words).to("out", cs.Produced(value=TEXT))
    return builder.build()


def run(
    topology: cs.Topology, values: Sequence[str], size: int = 9, **settings: Any
) -> cs.TopologyTestDriver:
    with cs.TopologyTestDriver(topology, commit_every=size, **settings) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_records([(f"k{n}", v) for n, v in enumerate(values)])
    return driver


@pytest.mark.parametrize("size", [1, 200])
@pytest.mark.parametrize("kind", ["stream", "table"])
@pytest.mark.parametrize("function", [lambda value: value[0], FIRST], ids=["callable", "expression"])
def test_what_it_raises_while_reading_is_a_matter_of_the_record(function: Any, kind: str, size: int) -> None:
    values = ["a,b", *["c,d"] * 100, "one", "e,f"]
    topology = first_words(function, kind=kind)
    with pytest.raises(cs.SerdeError, match="ValueError: not enough values to unpack") as caught:
        run(topology, values, size)
    error = caught.value
    assert (error.code, type(error.__cause__)) == ("CS-402", ValueError)
    assert [error.where[name] for name in ("operator", "topic", "partition", "offset", "key", "serde")] == [
        "in", "in", 0, 101, "k101", "pair",
    ]  # fmt: skip
    driver = run(topology, values, size, deserialization_errors="skip")
    assert driver.metrics()["dropped"] == {"in: undecodable": 1}
    assert sorted(driver.create_output_topic("out", TEXT, TEXT).read_values()) == ["a", *["c"] * 100, "e"]
    driver = run(topology, values, size, deserialization_errors=cs.DeadLetter("bad"))
    assert driver.create_output_topic("bad", TEXT, TEXT).read_values() == ["one"]


@pytest.mark.parametrize(
    "error", [KeyError("k"), StopIteration(), cs.SerdeError("told"), cs.ConfigError("told"), RecursionError()]
)
def test_any_error_of_python_will_do(error: Exception) -> None:
    topology = first_words(serde=bent(decode_series=raises(error), decode_objects=raises(error)))
    with pytest.raises(cs.SerdeError) as caught:
        run(topology, ["a,b"])
    assert caught.value.code == "CS-402"
    assert caught.value.__cause__ is error


def test_memory_that_runs_out_is_no_matter_of_the_record() -> None:
    topology = first_words(lambda value: value[0], bent(decode_objects=raises(MemoryError())))
    with pytest.raises(MemoryError):
        run(topology, ["a,b"], deserialization_errors="skip")


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("expression", [True, False])
def test_what_it_raises_while_writing_names_the_row(expression: bool, size: int) -> None:
    builder = cs.StreamsBuilder()
    read = builder.stream("in", cs.Consumed(key=TEXT, value=TEXT))
    words: Any = pl.col("value").str.split(",") if expression else (lambda value: value.split(","))
    read.map_values(words).to("out", cs.Produced(value=Pair()))
    with pytest.raises(cs.SerdeError, match="ValueError: not enough values to unpack") as caught:
        run(builder.build(), ["a,b", "one"], size)
    error = caught.value
    assert (error.code, type(error.__cause__)) == ("CS-403", ValueError)
    assert [error.where[name] for name in ("topic", "offset", "key", "serde", "part")] == [
        "in", 1, "k1", "pair", "value",
    ]  # fmt: skip


GENERATOR: Callable[[Any], Any] = lambda rows: (row for row in rows)  # noqa: E731
READING: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "generator": ("decode_objects", GENERATOR, "gave a generator, not a list"),
    "short": ("decode_objects", lambda rows: rows[:-1], "gave 1 rows for 2"),
    "long": ("decode_objects", lambda rows: [*rows, 1], "gave 3 rows for 2"),
    "list": ("decode_series", lambda rows: rows.to_list(), "gave a list, not a polars.Series"),
    "short series": ("decode_series", lambda rows: rows[:-1], "gave 1 rows for 2"),
}
WRITING: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "list": ("encode_objects", lambda rows: rows.to_pylist(), "gave a list, not a pyarrow.LargeBinaryArray"),
    "binary": ("encode_objects", lambda rows: rows.cast(pa.binary()), "gave a BinaryArray, not a"),
    "short": ("encode_objects", lambda rows: rows[:-1], "gave 1 rows for 2"),
    "series": ("encode_series", lambda rows: rows.to_pylist(), "gave a list, not a pyarrow.LargeBinaryArray"),
}


def check_told(caught: pytest.ExceptionInfo[cs.SerdeError], method: str, operator: str) -> None:
    error = caught.value
    assert error.code == "CS-412"
    assert [error.where[name] for name in ("serde", "method", "operator")] == ["pair", method, operator]
    assert error.next is not None
    assert method in error.next


@pytest.mark.parametrize("errors", ["fail", "skip"])
@pytest.mark.parametrize("case", READING)
def test_what_it_gives_for_bytes_is_checked(case: str, errors: str) -> None:
    method, bend, words = READING[case]
    topology = first_words(
        FIRST if method == "decode_series" else (lambda value: value[0]), bent(**{method: bend})
    )
    with pytest.raises(cs.SerdeError, match=words) as caught:
        run(topology, ["a,b", "c,d"], deserialization_errors=errors)
    check_told(caught, method, "in")


@pytest.mark.parametrize("case", WRITING)
def test_what_it_gives_for_values_is_checked(case: str) -> None:
    method, bend, words = WRITING[case]
    builder = cs.StreamsBuilder()
    read = builder.stream("in", cs.Consumed(key=TEXT, value=TEXT))
    words_of: Any = (
        pl.col("value").str.split(",") if method == "encode_series" else (lambda value: value.split(","))
    )
    read.map_values(words_of).to("out", cs.Produced(value=bent(**{method: bend}), name="sink"))
    with pytest.raises(cs.SerdeError, match=words) as caught:
        run(builder.build(), ["a,b", "c,d"])
    check_told(caught, method, "sink")


def test_test_topics_tell_the_same() -> None:
    with cs.TopologyTestDriver(first_words()) as driver:
        piped = driver.create_input_topic("in", TEXT, Pair())
        with pytest.raises(cs.SerdeError, match=r"CS-403.*ValueError"):
            piped.pipe_input("k", ["one"])
        with pytest.raises(cs.SerdeError, match=r"CS-403.*ValueError"):
            piped.pipe_records([("k", ["a", "b"]), ("l", ["one"])])
        piped.pipe_input("k", ["a", "b"])
        with pytest.raises(cs.SerdeError, match=r"CS-402.*ValueError"):
            driver.create_output_topic("out", TEXT, Pair()).read_values()
        wrong = driver.create_input_topic("in", TEXT, bent(serialize=lambda data: 5))
        with pytest.raises(cs.SerdeError, match="serialize of serde pair gave a int, not bytes or None"):
            wrong.pipe_input("k", ["a", "b"])


def test_keys_of_both_tables_tell_the_same() -> None:
    """`left_or_right` calls the serde, and is no more careful than it."""
    both = serdes.left_or_right(Pair(), TEXT)
    builder = cs.StreamsBuilder()
    builder.stream("in", cs.Consumed(key=both, value=TEXT)).to("out", cs.Produced(key=both))
    with cs.TopologyTestDriver(builder.build(), commit_every=9, deserialization_errors="skip") as driver:
        driver.create_input_topic("in", serdes.bytes(), TEXT).pipe_records(
            [(b"\x00one", "x"), (b"\x00a,b", "y")]
        )
        driver.commit()
        assert driver.create_output_topic("out", both, TEXT).read_values() == ["y"]
    assert driver.metrics()["dropped"] == {"in: undecodable": 1}
