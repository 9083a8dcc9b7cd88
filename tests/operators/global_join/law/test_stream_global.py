"""The join of a stream and a global table, through the driver, against the plain reference."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.effort import law
from tests.laws.engine import Way, check_records, run_engine, ways
from tests.laws.strategies import Case, stream_global_cases


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
