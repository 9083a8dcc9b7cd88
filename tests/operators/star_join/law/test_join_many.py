"""The join of a table with several others, through the driver, against the plain reference and against a chain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from tests.conformance.compare import assert_same_by_input
from tests.conformance.runner import per_batch
from tests.laws.effort import law
from tests.laws.engine import (
    Way,
    as_taken,
    check_store,
    rows_of,
    ways,
    with_headers_of,
    with_one_time,
)
from tests.laws.rescaling import rescaling
from tests.laws.strategies import Case, with_headers
from tests.operators.star_join.many import (
    TEXT,
    build,
    check_in_batches,
    many_cases,
    run_driver,
    run_reference,
)
from tests.reference import fold
from tests.reference.chain import SIDES


@law
@given(many_cases(max_size=30), ways(), st.sampled_from([None, 1, 3]))
def test_every_change_is_there_in_any_batches_where_a_stream_wants_it(
    case: Case, way: Way, chunk: int | None
) -> None:
    check_every_change(case, way, chunk=chunk)


@law
@given(many_cases(versioned=False), ways(), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_change_is_there_with_other_numbers_of_partitions_between_batches(
    case: Case, way: Way, numbers: list[int]
) -> None:
    check_every_change(case, way, between=rescaling(numbers))


def check_every_change(case: Case, way: Way, **how: Any) -> None:
    case, way = {**case, "inputs": with_headers(case["inputs"])}, with_one_time(case, way)
    ran = run_driver(build(case, way, streamed=True), case, way, **how)
    taken, ends = as_taken(case, way), way.ends(len(case["inputs"]))
    expected = run_reference(taken)
    wanted = with_headers_of(taken["inputs"], expected)
    assert_same_by_input(per_batch(ran.outputs, ends), per_batch(wanted, ends))
    assert ran.dropped == expected.dropped.total(), (ran.reasons, expected.dropped)
    check_store(ran, expected)


@law
@given(many_cases(versioned=False), ways(), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_other_numbers_of_partitions_between_batches_do_not_change_the_table(
    case: Case, way: Way, numbers: list[int]
) -> None:
    """What is derived is made again in the first batch after; the topics keep their partitions."""
    way = with_one_time(case, way)
    check_in_batches(case, way, run_driver(build(case, way), case, way, rescaling(numbers)))


@law
@given(many_cases(versioned=False), ways())
def test_it_is_a_chain_of_foreign_key_joins(case: Case, way: Way) -> None:
    builder = cs.StreamsBuilder()
    tables = {side: builder.table(side, cs.Consumed(key=TEXT, value=TEXT)) for side in SIDES}
    chain = tables["left"]
    for right in sorted(case["rights"], key=lambda right: right.name):
        chain = (chain.join if case["type"] == "inner" else chain.left_join)(
            tables[right.side],
            lambda row, other, name=right.name: f"{row}|{name}:{'∅' if other is None else other}",
            foreign_key=lambda row, of=right.of: of(row.split("|")[0]),
        )
    chain.to_stream().to("results", cs.Produced(value=TEXT))
    way = replace(way, stored=frozenset())
    chained = run_driver(builder.build(), case, way)
    many = run_driver(build(case, way), case, way)
    ends = way.ends(len(case["inputs"]))
    for count in range(1, len(ends) + 1):
        one, other = (
            [output for batch in per_batch(ran.outputs, ends)[:count] for output in batch]
            for ran in (chained, many)
        )
        assert {k: v for k, (v, _) in fold(one).items()} == {k: v for k, (v, _) in fold(other).items()}


@law
@given(many_cases(), ways())
def test_left_is_inner_and_the_rows_that_lack_a_partner(case: Case, way: Way) -> None:
    left, inner = (
        rows_of(run_driver(build(one, way), one, way))
        for one in ({**case, "type": kind} for kind in ("left", "inner"))
    )
    assert inner.items() <= left.items()
    assert all("∅" in value for key, value in left.items() if key not in inner)


def test_rows_that_keep_their_foreign_keys_are_not_remembered_anew() -> None:
    builder = cs.StreamsBuilder()
    orders, rights = (builder.table(name, cs.Consumed(key=TEXT, value=TEXT)) for name in ("orders", "right"))
    one = {"one": (rights, pl.col("value").str.slice(0, 1))}
    orders.join_many(one, pl.col("left"), named=cs.Named("bills"))
    with cs.TopologyTestDriver(builder.build(), partitions=1, commit_every=1_000) as driver:
        topic = driver.create_input_topic("orders", TEXT, TEXT)

        def remembered(rows: dict[str, str | None]) -> int:
            for key, value in rows.items():
                topic.pipe_input(key, value)
            driver.commit()
            return driver._stores.versions["bills.references", 0].batch

        assert remembered({"o1": "a1", "o2": "b1"}) == 0
        assert remembered({"o1": "a2", "o2": "b2", "o3": None}) == 0
        assert remembered({"o1": "a3", "o2": "a3"}) == 2
        assert remembered({"o1": None}) == 3
