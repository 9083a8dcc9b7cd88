"""The stream–stream join, through the driver, against the plain reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.effort import law
from tests.laws.engine import Way, ways
from tests.laws.rescaling import rescaling
from tests.laws.strategies import Case, flipped, stream_cases
from tests.laws.stream_runs import check_in_batches, records_of, run_streams
from tests.laws.worn_runs import small_runs_count
from tests.reference import Output, pairs_and_unmatched

any_case = (
    stream_cases()
    | stream_cases(eager=True)
    | stream_cases(self_join=True)
    | stream_cases(self_join=True, eager=True)
)
waiting_case = stream_cases(kinds=("left", "outer")) | stream_cases(kinds=("left", "outer"), self_join=True)
small_chunks = st.sampled_from([None, 1, 2, 5])


def test_what_is_written_anew_because_it_has_mostly_expired_changes_no_records() -> None:
    """Few partitions and small batches: then runs have rows enough, and partly expire."""

    @law
    @given(stream_cases(busy=True), ways(), st.integers(1, 2), st.integers(3, 6), small_chunks)
    def check(case: Case, way: Way, partitions: int, size: int, chunk: int | None) -> None:
        check_in_batches(case, replace(way, partitions=partitions, every=size), chunk)

    with small_runs_count() as rewritten:
        check()
    assert len(rewritten) > law.max_examples // 3


@law
@given(waiting_case.filter(lambda case: not case["params"].get("self_join")), ways())
def test_a_record_has_a_pair_or_one_unmatched_row(case: Case, way: Way) -> None:
    """Also late ones. Values are all different, so a result names its records.

    In one partition of the topics: in another one time may never come to the end.
    """
    check_pair_or_row(case, records_of(run_streams(with_the_end(case), replace(way, places=(0,))).outputs))


def check_pair_or_row(case: Case, out: list[Output]) -> None:
    sides = {"left": ["left"], "outer": ["left", "right"]}[case["type"]]
    sides_of = [output.value.split(",") for output in out]
    for item in case["inputs"]:
        if item["side"] in sides and item["key"] is not None and item["value"] is not None:
            place = ("left", "right").index(item["side"])
            partners = [pair[1 - place] for pair in sides_of if pair[place] == item["value"]]
            assert partners == ["∅"] or (partners and "∅" not in partners), item


@law
@given(stream_cases(on_time=True), ways(by_record=True))
def test_in_time_records_give_the_relational_join(case: Case, way: Way) -> None:
    """Of what is never later than the grace period; in one partition, whose time is that of all keys."""
    ended = with_the_end(case)
    out = Counter(records_of(run_streams(ended, replace(way, partitions=1, places=(0,))).outputs))
    pairs, alone = pairs_and_unmatched(ended)
    assert out == pairs + alone


@law
@given(stream_cases(on_time=True), ways(), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_no_number_of_partitions_changes_what_is_in_time(case: Case, way: Way, numbers: list[int]) -> None:
    """Also when it changes after every batch; whoever waits then waits on."""
    ended = with_the_end(case)
    places = replace(way, partitions=1, places=(0,), commits=frozenset(range(1, len(ended["inputs"]))))
    out = Counter(records_of(run_streams(ended, places, between=rescaling(numbers)).outputs))
    pairs, alone = pairs_and_unmatched(ended)
    assert out == pairs + alone


@law
@given(waiting_case.filter(lambda case: not case["params"].get("self_join")), ways(), st.integers(2, 9))
def test_a_record_has_a_pair_or_one_row_with_other_partitions_too(case: Case, way: Way, number: int) -> None:
    ended = with_the_end(case)
    every_batch = replace(way, partitions=1, places=(0,))
    out = records_of(run_streams(ended, every_batch, between=rescaling([number, 1])).outputs)
    check_pair_or_row(case, out)


@law
@given(stream_cases(kinds=("inner", "outer")) | stream_cases(kinds=("inner", "outer"), eager=True), ways())
def test_a_flipped_join_is_the_join_of_flipped_streams(case: Case, way: Way) -> None:
    """A batch of one record: with more, sources of one time are taken in another order when they change sides."""
    way = replace(way, every=1)
    assert Counter(run_all(case, way)) == Counter(run_all(flipped(case), way))


@law
@given(stream_cases(kinds=("left",)) | stream_cases(kinds=("left",), eager=True), ways())
def test_left_is_inner_and_left_records_without_partner(case: Case, way: Way) -> None:
    """Every pair of the left join is one of the inner join; eager mode has them all."""
    left, inner = Counter(run_all(case, way)), Counter(run_all({**case, "type": "inner"}, way))
    more = left - inner
    assert all(output.value.endswith(",∅") for output in more)
    if case["params"]["eager"]:
        assert left >= inner


@law
@given(stream_cases(kinds=("outer",), eager=True), ways())
def test_outer_is_left_and_right_records_without_partner(case: Case, way: Way) -> None:
    outer, left = Counter(run_all(case, way)), Counter(run_all({**case, "type": "left"}, way))
    assert left <= outer
    assert all(output.value.startswith("∅,") for output in outer - left)


def run_all(case: Case, way: Way) -> list[Output]:
    return records_of(run_streams(case, way).outputs)


def with_the_end(case: Case) -> Case:
    """The case, and records without value that close every window: they give nothing themselves.

    One for each state partition that there may be; a null key belongs to the first.
    """
    far = 10_000
    ends: list[dict[str, Any]] = [
        {"side": "left", "key": key, "value": None, "ts": far} for key in (None, "a", "b", "c")
    ]
    return {**case, "inputs": [*case["inputs"], *ends]}
