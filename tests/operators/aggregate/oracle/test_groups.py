"""Groups of streams and tables beside Kafka's own driver: random records, one after the other."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.operators.aggregate.groups import SHAPES, Case, Record, random_case, random_records, run
from tests.operators.aggregate.kafka import assert_groups_as_in_kafka, grouped_request, sees_more_in_groups
from tests.oracle.oracle import Oracle

pytestmark = pytest.mark.oracle

CASES, NIGHTLY = 25, 1000
of_each_shape = pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "closed"])


@of_each_shape
def test_groups(oracle: Oracle, shape: str) -> None:
    compare(oracle, shape, range(CASES))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@of_each_shape
def test_groups_for_long(oracle: Oracle, shape: str, fresh: int) -> None:
    compare(oracle, shape, range(fresh, fresh + NIGHTLY))


def compare(oracle: Oracle, shape: str, seeds: range) -> None:
    for seed in seeds:
        random = Random(f"{shape} {seed}")
        case = random_case(random, shape)
        records = random_records(random, case)
        if not sees_more_in_groups(case, records):
            assert_groups_as_in_kafka(case, records, oracle.run(grouped_request(case, records)))


@of_each_shape
def test_cases_are_worth_running(shape: str) -> None:
    """Most give results, and the interesting records occur."""
    found = []
    for seed in range(60):
        random = Random(f"{shape} {seed}")
        case = random_case(random, shape)
        found.append((case, random_records(random, case)))
    records = [record for _, records in found for record in records]
    assert {case.source for case, _ in found} == set(SHAPES[shape])
    assert any(record.key is None for record in records)
    assert any(record.value is None for record in records)
    assert sum(len(run(case, records).rows) > 0 for case, records in found) > 40


@pytest.mark.parametrize("kind", ["time", "session", "sliding"])
def test_a_closed_window_has_the_headers_of_the_record_that_closes_it(oracle: Oracle, kind: str) -> None:
    case = Case("closed", "key", "aggregate", kind=kind)
    records = [Record("in", key, f"{key}1", ts) for key, ts in (("a", 10), ("b", 14), ("b", 24), ("a", 38))]
    answer = oracle.run(grouped_request(case, records))
    assert_groups_as_in_kafka(case, records, answer)
    assert {row[3] for results in answer["expected"] for row in results} >= {"3"}


def made(oracle: Oracle, case: Case, records: list[Record]) -> tuple[list[Any], list[Any]]:
    """The last results of Kafka and of ours: keys and values."""
    kafka = oracle.run(grouped_request(case, records))["expected"][-1]
    return [tuple(row[:2]) for row in kafka], [row[:2] for row in run(case, records).results[-1]]


def test_kafka_takes_away_a_first_value_that_was_never_there(oracle: Oracle) -> None:
    """Decision 8.24: the 0 that the count of b begins with leaves the even counts."""
    records = [Record("in", key, "a1", 0) for key in ("a", "a", "b")]
    kafka, ours = made(oracle, Case("counts", "key", "count", zero=True), records)
    assert (kafka, ours) == ([("even", "0"), ("odd", "1")], [("odd", "1")])


def test_kafka_takes_away_what_a_sliding_window_is_copied_from(oracle: Oracle) -> None:
    """Decision 8.24: three windows have one record or two."""
    records = [Record("in", "a", "a1", ts) for ts in (2, 5)]
    kafka, ours = made(oracle, Case("windows", "key", "count", kind="sliding", size=3), records)
    assert (kafka[-1:], ours) == ([("a", "2")], [("a", "3")])


def test_kafka_keeps_the_old_value_of_a_session_with_the_same_bounds(oracle: Oracle) -> None:
    """Decision 8.25: there is one session."""
    records = [Record("in", "a", "a1", 0) for _ in range(2)]
    kafka, ours = made(oracle, Case("windows", "key", "count", kind="session"), records)
    assert (kafka, ours) == ([("a", "2")], [("a", "1")])


def test_a_stream_of_a_cogroup_is_late_for_the_time_of_all(oracle: Oracle) -> None:
    """Decision 8.22."""
    records = [Record("in", "a", "a1", 20), Record("other", "a", "a2", 5)]
    kafka, ours = made(oracle, Case("windowed cogroup", "key", "aggregate"), records)
    assert (kafka, ours) == ([("a@0-10", "/a2")], [])
