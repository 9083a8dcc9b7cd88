"""The join of a stream and a global table, through the driver, against the plain reference."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.compare import assert_same_records
from tests.conformance.runner import per_batch
from tests.laws.effort import cases, law
from tests.laws.engine import Way, as_taken, check_by_record, check_records, run_engine, ways
from tests.laws.strategies import Case, stream_global_cases
from tests.reference import run


@law
@given(stream_global_cases(), ways(by_record=True))
def test_one_record_at_a_time_is_the_reference(case: Case, way: Way) -> None:
    check_by_record(case, way)


@law
@given(stream_global_cases(), ways())
def test_no_cut_into_batches_changes_a_record(case: Case, way: Way) -> None:
    check_same_records(case, way)


@cases(0.5)
@given(stream_global_cases(busy=True), ways())
def test_many_changes_of_a_row_in_a_batch(case: Case, way: Way) -> None:
    check_same_records(case, way)


@law
@given(stream_global_cases(), ways(functions=["expressions"]))
def test_expressions_give_what_callables_give(case: Case, way: Way) -> None:
    check_same_records(case, way)


@law
@given(stream_global_cases(), ways())
def test_records_of_a_source_partition_stay_in_order(case: Case, way: Way) -> None:
    check_records(case, replace(way, places=(0,)))


@law
@given(stream_global_cases(kinds=("left",)), ways())
def test_left_is_inner_and_the_records_without_row(case: Case, way: Way) -> None:
    left = [output for outputs in run_engine(case, way).outputs for output in outputs]
    inner = [output for outputs in run_engine({**case, "type": "inner"}, way).outputs for output in outputs]
    assert [output for output in left if not output.value.endswith(",∅")] == inner


@law
@given(stream_global_cases(), ways(), st.integers(1, 5))
def test_state_partitions_do_not_matter(case: Case, way: Way, partitions: int) -> None:
    """The table is whole in every one of them, and its keys have nothing to do with those of the stream."""
    one = replace(way, partitions=1, places=(0,))
    assert run_engine(case, one).outputs == run_engine(case, replace(one, partitions=partitions)).outputs


def check_same_records(case: Case, way: Way) -> None:
    """M after every batch, with headers and drops: nothing brings the records of several source partitions together."""
    ran = run_engine(case, way)
    ends = way.ends(len(case["inputs"]))
    expected = run(as_taken(case, way))
    for got, want in zip(per_batch(ran.outputs, ends), per_batch(expected.outputs, ends), strict=True):
        assert_same_records(got, want)
    assert ran.dropped == expected.dropped.total(), (ran.reasons, expected.dropped)
