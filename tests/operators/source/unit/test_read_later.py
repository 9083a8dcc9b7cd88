"""What a record may hold depends on who reads it, also long after its source: nothing surprises a later reader.

Half of a surrogate pair is refused where a callable, or an expression of that field, comes later; an integer beyond 64
bits where an expression of it does. The record is then undecodable at its source, and no reader stops at it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

import crossstream as cs
from crossstream import serdes

TEXT, JSON, BYTES = serdes.string(), serdes.json(), serdes.bytes()


@dataclasses.dataclass
class Event:
    id: int
    n: int = 1
    note: str = ""


EVENT = serdes.json(Event)
SCHEMA = serdes.json({"id": pl.UInt64, "n": pl.Int64, "note": pl.String})
HALF, HUGE, GOOD = b'{"id":1,"n":1,"note":"\\ud83d"}', b'{"id":9223372036854775808,"n":1}', b'{"id": 2,"n":1}'
FIRST = pl.col("n") > 0
AS_EVENT, AS_JSON = cs.Produced(key=TEXT, value=EVENT), cs.Produced(key=TEXT, value=JSON)


def moved(stream: Any) -> Any:
    return stream.repartition(cs.Repartitioned(key=TEXT, value=EVENT))


def as_table(stream: Any) -> Any:
    return stream.to_table(materialized=cs.Materialized(value=EVENT)).to_stream()


READERS: dict[str, tuple[Callable[[Any], Any], list[bytes]]] = {
    "nobody": (lambda s: s, [HALF, HUGE, GOOD]),
    "nobody after a shuffle": (moved, [HALF, HUGE, GOOD]),
    "nobody after a table": (as_table, [HALF, HUGE, GOOD]),
    "nobody after a merge": (lambda s: s.merge(moved(s)), [HALF, HUGE, GOOD] * 2),
    "a callable": (lambda s: s.filter(lambda one: one.id > 0), [HUGE, GOOD]),
    "a callable after a shuffle": (lambda s: moved(s).filter(lambda one: one.id > 0), [HUGE, GOOD]),
    "an expression": (lambda s: s.filter(FIRST), [HALF, HUGE, GOOD]),
    "an expression, then a callable": (
        lambda s: s.filter(FIRST).filter(lambda one: one.id > 0),
        [HUGE, GOOD],
    ),
    "an expression, then a callable after a shuffle": (
        lambda s: moved(s.filter(FIRST)).peek(lambda one: None),
        [HUGE, GOOD],
    ),
    "an expression, then a callable after a table": (
        lambda s: as_table(s.filter(FIRST)).filter(lambda one: True),
        [HUGE, GOOD],
    ),
    "expressions of all fields": (
        lambda s: moved(s.filter(FIRST)).filter((pl.col("id") > 0) & (pl.col("note") != "x")),
        [GOOD],
    ),
    "an expression of the number later": (
        lambda s: as_table(s.filter(FIRST)).filter(pl.col("id") > 0),
        [HALF, GOOD],
    ),
    "an expression of the text later": (
        lambda s: moved(s.filter(FIRST)).filter(pl.col("note") != "x"),
        [HUGE, GOOD],
    ),
    "an expression of the whole": (lambda s: s.filter(FIRST).filter(pl.col("value").is_not_null()), [GOOD]),
}


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("case", READERS)
def test_records_pass_as_they_were_written_or_are_undecodable(case: str, every: int) -> None:
    make, kept = READERS[case]
    builder = cs.StreamsBuilder()
    make(builder.stream("in", cs.Consumed(key=TEXT, value=EVENT))).to("out", AS_EVENT)
    records, dropped = run(builder, every)
    assert sorted(records) == sorted(kept)
    assert dropped == ({"in: undecodable": 3 - len(set(kept))} if len(set(kept)) < 3 else {})


@pytest.mark.parametrize("every", [1, 3])
def test_a_number_that_a_callable_took_is_the_failure_of_the_expression_after_it(every: int) -> None:
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=EVENT)).filter(lambda one: one.n > 0)
    stream.filter(pl.col("id") > 0, cs.Named("by-id")).to("out", AS_EVENT)
    records, dropped = run(builder, every, processing_errors="skip")
    assert (records, dropped) == ([GOOD], {"in: undecodable": 1, "by-id: failed": 1})


@pytest.mark.parametrize("every", [1, 3])
def test_who_reads_by_another_serde_or_names_a_topic(every: int) -> None:
    for make in (
        lambda stream: stream.to("out", AS_JSON),
        lambda stream: stream.to(lambda key, value: "out", AS_EVENT),
    ):
        builder = cs.StreamsBuilder()
        make(builder.stream("in", cs.Consumed(key=TEXT, value=EVENT)))
        records, dropped = run(builder, every)
        assert HALF not in records
        assert (len(records), dropped) == (2, {"in: undecodable": 1})


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(
    ("joiner", "refusing"),
    [
        (lambda one, other: {"n": one.n + other.n}, ["in", "other"]),
        (pl.struct(n=pl.col("left").struct.field("n") + pl.col("right").struct.field("n")), []),
        (pl.struct(n=pl.col("left").struct.field("n"), note=pl.col("right").struct.field("note")), ["other"]),
    ],
    ids=["callable", "expression", "expression of the text"],
)
def test_joiners(joiner: Any, refusing: list[str], every: int) -> None:
    builder = cs.StreamsBuilder()
    left = builder.table("in", cs.Consumed(key=TEXT, value=EVENT))
    right = builder.table("other", cs.Consumed(key=TEXT, value=EVENT))
    left.join(right, joiner).to_stream().to("out", cs.Produced(key=TEXT, value=JSON))
    records, dropped = run(builder, every, "other", "in")
    assert len(records) == (2 if refusing else 3)
    assert dropped == {f"{topic}: undecodable": 1 for topic in refusing}


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("serde", [JSON, SCHEMA, serdes.json(list[str]), serdes.json(dict[str, str])])
def test_other_types_that_nobody_reads(serde: Any, every: int) -> None:
    builder = cs.StreamsBuilder()
    builder.stream("in", cs.Consumed(key=TEXT, value=serde)).to("out")
    texts = [b'{"note":"\\ud83d"}', b'["\\ud83d"]', b"null", b"{"]
    with cs.TopologyTestDriver(builder.build(), commit_every=every, deserialization_errors="skip") as driver:
        driver.create_input_topic("in", TEXT, BYTES).pipe_records([("k", one) for one in texts])
        driver.commit()
        read = driver.create_output_topic("out", TEXT, BYTES).read_values()
    good = {JSON: texts[:2]}.get(serde, texts[1:2] if serde.name == "json[list[str]]" else texts[:1])
    assert read == [*good, None]


def run(
    builder: cs.StreamsBuilder, every: int, *topics: str, **settings: Any
) -> tuple[list[bytes], dict[str, int]]:
    """The values in topic "out", and what was dropped, where only undecodable records may be."""
    settings |= {"deserialization_errors": "skip"}
    with cs.TopologyTestDriver(builder.build(), commit_every=every, **settings) as driver:
        driver.create_output_topic("out", TEXT, BYTES)
        for name in topics or ("in",):
            driver.create_input_topic(name, TEXT, BYTES).pipe_records([("a", HALF), ("b", HUGE), ("c", GOOD)])
        driver.commit()
        return driver.create_output_topic("out", TEXT, BYTES).read_values(), driver.metrics()["dropped"]
