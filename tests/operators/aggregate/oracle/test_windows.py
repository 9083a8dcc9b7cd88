"""Windowed aggregations beside Kafka's own driver: random streams, record by record."""

from __future__ import annotations

from random import Random

import pytest

from tests.operators.aggregate.kafka import assert_as_in_kafka, request, sees_more
from tests.operators.aggregate.windowed import Case, Record, random_case, random_records
from tests.oracle.oracle import Oracle
from tests.reference.windows import Kind

pytestmark = pytest.mark.oracle

CASES, NIGHTLY = 25, 1000
of_each_kind = pytest.mark.parametrize(
    ("kind", "final"), [(kind, final) for kind in ("time", "session", "sliding") for final in (False, True)]
)


@of_each_kind
def test_windows(oracle: Oracle, kind: Kind, final: bool) -> None:
    compare(oracle, kind, final, range(CASES))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@of_each_kind
def test_windows_for_long(oracle: Oracle, kind: Kind, final: bool, fresh: int) -> None:
    compare(oracle, kind, final, range(fresh, fresh + NIGHTLY))


def compare(oracle: Oracle, kind: Kind, final: bool, seeds: range) -> None:
    for seed in seeds:
        random = Random(f"{kind} {final} {seed}")
        case, records = random_case(random, kind, final=final), random_records(random)
        reference = case.reference()
        for record in records:
            reference.process(*record)
        if not reference.twins:
            assert_as_in_kafka(case, records, oracle.run(request(case, records)))


def test_kafka_no_longer_shows_a_sliding_window_that_a_late_record_needs(oracle: Oracle) -> None:
    """Decision 8.27: [41, 45] has c@43, which came in time. Kafka makes no such window."""
    case = Case("sliding", "count", 4)
    records = [Record(key, "1", ts) for key, ts in (("c", 40), ("b", 43), ("b", 44), ("c", 43))]
    assert sees_more(case, records)
    answer = oracle.run(request(case, records))
    assert answer["expected"][-1] == []
    assert_as_in_kafka(case, records, answer)
