"""What Kafka's own driver gives for aggregations, and that ours gives the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.operators.aggregate import groups
from tests.operators.aggregate.groups import Row
from tests.operators.aggregate.windowed import Case, Record, run
from tests.reference.windows import Result


def request(case: Case, records: Sequence[Record]) -> dict[str, Any]:
    """A case as the oracle reads it."""
    params = {
        **asdict(case),
        "operation": case.operator,
        "advance": case.advance or case.size,
        "keys": ["a", "b", "c"],
    }
    return {"operator": "windowed", "params": params, "inputs": [record._asdict() for record in records]}


def assert_as_in_kafka(case: Case, records: Sequence[Record], answer: Mapping[str, Any]) -> None:
    """The records after each record, what was dropped, and what the store shows at the end."""
    kafka = [[Result(*row) for row in results] for results in answer["expected"]]
    ours = run(case, [[record] for record in records])
    limits = list(retired(case, records))
    made = [not_retired(case, *one) for one in zip(ours.batches, limits, strict=True)]
    assert made == kafka, (case, records)
    assert ours.dropped == answer["dropped"], (case, records)
    if not case.final:  # what has come out leaves our store, and stays for a while in Kafka's
        rows = [(*window, value) for window, value in ours.rows]
        assert rows == sorted(map(tuple, answer["rows"])), (case, records)


def retired(case: Case, records: Sequence[Record]) -> Iterator[int]:
    """After each record: Kafka's store shows no windows that begin before."""
    reference = case.reference()
    sizes = 2 if case.kind == "sliding" else 1
    for record in records:
        reference.process(*record)
        yield reference.newest - sizes * case.size - case.grace


def not_retired(case: Case, results: list[Result], limit: int) -> list[Result]:
    """Without the windows that Kafka loses: those that its store retires before they come out (decision 8.20)."""
    lost = case.final and case.kind != "session"
    return [result for result in results if not lost or result.start >= limit]


def grouped_request(case: groups.Case, records: Sequence[groups.Record]) -> dict[str, Any]:
    """A case of groups as the oracle reads it."""
    inputs = [record._asdict() for record in records]
    return {"operator": "grouped", "params": asdict(case), "inputs": inputs}


def assert_groups_as_in_kafka(
    case: groups.Case, records: Sequence[groups.Record], answer: Mapping[str, Any]
) -> None:
    """The records after each record with their headers, what was dropped, and what the store has at the end."""
    kafka = [[tuple(row) for row in results] for results in answer["expected"]]
    ours = groups.run(case, records)
    made = ours.results
    if case.kind == "session" and case.shape in ("windowed cogroup", "windows"):
        # Kafka's have no headers (decision 8.26).
        assert all(row[3:] == (str(n),) for n, results in enumerate(made) for row in results), (case, records)
        made = [[row[:3] for row in results] for results in made]
    if case.shape in ("table restream", "windows"):
        made, kafka = list(map(last_of_each, made)), list(map(last_of_each, kafka))
    assert made == kafka, (case, records)
    assert ours.dropped == answer["dropped"], (case, records)
    if case.shape != "closed":  # what has come out leaves our store, and stays for a while in Kafka's
        assert ours.rows == sorted(map(tuple, answer["rows"])), (case, records)


def last_of_each(results: Sequence[Row]) -> list[Row]:
    """Several changes of a row by one record are one change, to the last of the values (semantics 2.2.2)."""
    return sorted({row[0]: row for row in results}.values())
