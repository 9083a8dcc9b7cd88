"""What Kafka's own driver gives for aggregations, and that ours gives the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tests.operators.aggregate import groups
from tests.operators.aggregate.groups import Row
from tests.operators.aggregate.windowed import Case, Record, run
from tests.reference.windows import Result, Windowing


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
    made, dropped, rows = ours.batches, ours.dropped, [(*window, value) for window, value in ours.rows]
    if sees_more(case, records):
        assert (made, dropped) == processed(case.reference(), records), (case, records)
        reference = case.reference(as_kafka_shows=True)
        made, dropped = processed(reference, records)
        rows = sorted((*window, value) for window, (value, _) in reference.rows.items())
    limits = list(retired(case, records))
    made = [not_retired(case, *one) for one in zip(made, limits, strict=True)]
    assert made == kafka, (case, records)
    assert dropped == answer["dropped"], (case, records)
    if not case.final:  # what has come out leaves our store, and stays for a while in Kafka's
        if case.kind == "sliding":  # ours shows windows for longer (decision 8.27)
            rows = [row for row in rows if row[1] > limits[-1]]
        assert rows == sorted(map(tuple, answer["rows"])), (case, records)


def processed(reference: Windowing, records: Sequence[Record]) -> tuple[list[list[Result]], int]:
    """What the reference gives after each record, and the number of what it dropped."""
    return [reference.process(*record) for record in records], reference.dropped


def sees_more(case: Case, records: Sequence[Record]) -> bool:
    """Whether a record finds sliding windows that Kafka's store no longer shows (decision 8.27)."""
    ours, kafka = (processed(case.reference(as_kafka_shows=shows), records) for shows in (False, True))
    return ours != kafka


def retired(case: Case, records: Sequence[Record]) -> Iterator[int]:
    """After each record: Kafka's store shows no windows that begin before."""
    reference = case.reference(as_kafka_shows=True)
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
        kafka_rows = sorted(map(tuple, answer["rows"]))
        if case.windowed and case.kind == "sliding":  # ours shows windows for longer (decision 8.27)
            put = [start_of(row[0]) for results in kafka for row in results]
            oldest = max(put, default=0) - 2 * case.size - case.grace + 1
            assert [row for row in ours.rows if start_of(row[0]) >= oldest] == kafka_rows, (case, records)
        else:
            assert ours.rows == kafka_rows, (case, records)


def start_of(window: str) -> int:
    """Of a window as text: ``key@start-end``."""
    return int(window.partition("@")[2].partition("-")[0])


def sees_more_in_groups(case: groups.Case, records: Sequence[groups.Record]) -> bool:
    """As `sees_more`, of a cogroup in sliding windows."""
    if not case.windowed or case.kind != "sliding":
        return False
    taken = []
    for topic, key, value, ts in records:
        group = key if topic == "other" or case.source == "key" else groups.named(value)
        taken.append(Record(group, "x" if value is not None and "x" in value else value, ts))
    return sees_more(Case("sliding", "aggregate", case.size, case.grace), taken)


def last_of_each(results: Sequence[Row]) -> list[Row]:
    """Several changes of a row by one record are one change, to the last of the values (semantics 2.2.2)."""
    return sorted({row[0]: row for row in results}.values())
