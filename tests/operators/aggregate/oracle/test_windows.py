"""Windowed aggregations beside Kafka's own driver: random streams, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.operators.aggregate.windowed import Case, Record, random_case, random_records, run
from tests.oracle.oracle import Oracle
from tests.reference.windows import Kind, Result

CASES, NIGHTLY = 50, 1000
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
        if reference.twins:
            continue
        answer = oracle.run(request(case, records))
        kafka = [[Result(*row) for row in results] for results in answer["expected"]]
        ours = run(case, [[record] for record in records])
        limits = list(retired(case, records))
        assert [not_retired(case, *one) for one in zip(ours.batches, limits, strict=True)] == kafka, (
            case,
            records,
        )
        assert ours.dropped == answer["dropped"], (case, records)
        if not final:  # what has come out leaves our store, and stays for a while in Kafka's
            rows = [(*window, value) for window, value in ours.rows]
            assert rows == sorted(map(tuple, answer["rows"])), (case, records)


def retired(case: Case, records: list[Record]) -> Iterator[int]:
    """After each record: Kafka's store shows no windows that begin before, no sessions that end by then."""
    reference = case.reference()
    sizes = 2 if case.kind == "sliding" else 1
    for record in records:
        reference.process(*record)
        yield reference.newest - sizes * case.size - case.grace


def not_retired(case: Case, results: list[Result], limit: int) -> list[Result]:
    """Without the windows that Kafka loses: those that its store retires before they come out (decision 8.18)."""
    lost = case.final and case.kind != "session"
    return [result for result in results if not lost or result.start >= limit]


def request(case: Case, records: list[Record]) -> dict[str, object]:
    params = {
        "kind": case.kind,
        "operation": case.operator,
        "size": case.size,
        "grace": case.grace,
        "advance": case.advance or case.size,
        "final": case.final,
        "keys": ["a", "b", "c"],
    }
    inputs = [record._asdict() for record in records]
    return {"operator": "windowed", "params": params, "inputs": inputs}
