"""The join of many whose left rows are JSON of a declared type, against the same reference.

There foreign keys are taken where left rows are decoded, of superseded changes only where they may be null, and what
the joiner reads travels decoded (decision 0023).
"""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import law
from tests.laws.engine import Way, as_taken, ways, with_one_time
from tests.laws.rescaling import rescaling
from tests.laws.strategies import Case
from tests.operators.star_join.many import (
    ONE,
    TEXT,
    TWO,
    check_in_batches,
    many_cases,
    run_driver,
    run_reference,
)

FIELDS = ("first", "second", "third", "note")
NOBODY = "z"


class Demanding(msgspec.Struct):
    first: str
    second: str
    third: str
    note: str


class Lenient(msgspec.Struct):
    note: str
    first: str | None = None
    second: str | None = None
    third: str | None = None


KINDS: dict[str, Any] = {
    "demanding": Demanding,
    "lenient": Lenient,
    "schema": pl.Schema(dict.fromkeys(FIELDS, pl.String)),
}


class Rows:
    """Left rows of the reference, ``a;b;c;v``, as JSON objects; foreign keys that are none are missing."""

    name = "rows"
    dtype = None

    @staticmethod
    def serialize(row: str | None) -> bytes | None:
        if row is None:
            return None
        parts = zip(FIELDS, row.split(";"), strict=True)
        return msgspec.json.encode({name: part for name, part in parts if name == "note" or part != "-"})


def without_nulls(case: Case) -> Case:
    """The same with a key that no table has instead of no foreign key."""

    def filled(row: str | None) -> str | None:
        if row is None:
            return None
        *keys, note = row.split(";")
        return ";".join([*(NOBODY if key == "-" else key for key in keys), note])

    inputs = [
        {**one, "value": filled(one["value"])} if one["side"] == "left" else one for one in case["inputs"]
    ]
    return {**case, "inputs": inputs}


def build(case: Case, way: Way, kind: Any) -> cs.Topology:
    builder = cs.StreamsBuilder()
    left = builder.table("left", cs.Consumed(key=TEXT, value=serdes.json(kind)))
    tables = {side: builder.table(side, cs.Consumed(key=TEXT, value=TEXT)) for side in ("right", "third")}
    others = {right.name: (tables[right.side], pl.col(FIELDS[right.index])) for right in case["rights"]}
    row = pl.concat_str([pl.col("left").struct.field(name).fill_null("-") for name in FIELDS], separator=";")
    named = [pl.concat_str(pl.lit(f"{name}:"), pl.col(name).fill_null("∅")) for name in sorted(others)]
    joiner = pl.concat_str([row, *named], separator="|")
    stored = cs.Materialized(store="result", value=TEXT) if way.stored else None
    method = left.join_many if case["type"] == "inner" else left.left_join_many
    method(others, joiner, materialized=stored).to_stream().to("results", cs.Produced(value=TEXT))
    return builder.build()


def check(case: Case, way: Way, name: str, **how: Any) -> None:
    case = {**case, "rights": [right for right in case["rights"] if right.side != "left"]}
    if name == "demanding":
        case = without_nulls(case)
    way = with_one_time(case, way)
    ran = run_driver(build(case, way, KINDS[name]), case, way, left=Rows(), **how)
    check_in_batches(case, way, ran)
    expected = run_reference(as_taken(case, way)).dropped
    assert ran.dropped == expected.total(), (ran.reasons, expected)


SUPERSEDED: Case = {
    "type": "inner",
    "rights": [ONE, TWO],
    "histories": dict.fromkeys(("left", "right", "third")),
    "inputs": [
        {"side": "left", "key": "a", "value": "-;b;c;1", "ts": 1},
        {"side": "left", "key": "a", "value": "a;-;c;2", "ts": 2},
        {"side": "left", "key": "a", "value": None, "ts": 3},
        {"side": "left", "key": "a", "value": "a;b;c;3", "ts": 4},
    ],
}


@law
@given(many_cases(versioned=False), ways(), st.sampled_from(sorted(KINDS)))
@example(SUPERSEDED, Way(every=9), "lenient")
@example(SUPERSEDED, Way(every=9), "demanding")
def test_left_rows_of_a_declared_type_give_the_table(case: Case, way: Way, name: str) -> None:
    check(case, way, name)


@law
@given(
    many_cases(versioned=False),
    ways(),
    st.sampled_from(sorted(KINDS)),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
def test_so_do_they_with_other_numbers_of_partitions_between_batches(
    case: Case, way: Way, name: str, numbers: list[int]
) -> None:
    check(case, way, name, between=rescaling(numbers))
