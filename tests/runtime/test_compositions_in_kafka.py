"""The law over compositions beside Kafka's own driver: random graphs give what they give there, record by record.

Which graphs: see `tests.laws.compositions.kafka`. A failure is shown small, and becomes one of `FOUND`.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.laws.compositions.functions import row
from tests.laws.compositions.graphs import Case, Item, Step, Windows, kinds_of
from tests.laws.compositions.kafka import compare, kafka_case, request
from tests.laws.compositions.shrinking import shrunk
from tests.oracle.oracle import Oracle

CASES, NIGHTLY = 60, 3000

FOUND = {
    "both streams of a cogroup are re-keyed": Case(
        (
            Step("stream", fn="row"),
            Step("stream", fn="row"),
            Step("transform", (0,)),
            Step("transform", (1,)),
            Step("aggregate", (2, 3), "cogroup"),
        ),
        (Item(0, "a", row(5, "a"), 20), Item(1, "a", row(2, "b"), 21)),
    ),
    "a record leaves the bounds of a session, which is filtered": Case(
        (
            Step("stream", fn="int"),
            Step("aggregate", (0,), "reduce", by="s", windows=Windows("session", grace=5)),
            Step("filter", (1,), "n odd"),
        ),
        (Item(0, "a", 2, 33), Item(0, "a", 8, 30), Item(0, "a", 4, 30)),
    ),
    "a row of a table that is counted moves to another group": Case(
        (Step("table", fn="row"), Step("aggregate", (0,), "aggregate", by="s"), Step("to_stream", (1,))),
        (Item(0, "a", row(2, "a"), 18), Item(0, "c", row(5, "c"), 19), Item(0, "c", row(1, "a"), 28)),
    ),
    "windows come out with the record that closes them, after a leap in time": Case(
        (Step("stream", fn="row"), Step("aggregate", (0,), "count", windows=Windows("time", 4, 2, 30, True))),
        (Item(0, "b", row(6, "c", 2.5), 15), Item(0, "a", row(3, "a", 2.5), 49)),
    ),
}


@pytest.mark.oracle
@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_found(oracle: Oracle, case: Case) -> None:
    compare(case, oracle.run(request(case)))


@pytest.mark.oracle
def test_compositions_in_kafka(oracle: Oracle) -> None:
    hold(oracle, range(CASES))


@pytest.mark.oracle
@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_compositions_in_kafka_for_long(oracle: Oracle, fresh: int) -> None:
    hold(oracle, range(fresh, fresh + NIGHTLY))


def hold(oracle: Oracle, seeds: range) -> None:
    """Raises the failure of a small case that fails as the first one that fails."""

    def check(case: Case) -> None:
        compare(case, oracle.run(request(case)))

    for seed in seeds:
        case = kafka_case(Random(f"kafka {seed}"))
        try:
            check(case)
        except Exception as error:
            raise AssertionError(f"{error}\n{shrunk(case, check)!r}") from error


def test_cases_are_worth_running() -> None:
    """Every kind of step that Kafka has is there, most joins more than once."""
    found: Counter[str] = Counter()
    for seed in range(300):
        graph = kafka_case(Random(f"kafka {seed}")).graph
        kinds = kinds_of(graph)
        for step in graph:
            shapes = "-".join(kinds[parent].shape for parent in step.parents)
            found[f"{step.op} {shapes}".strip()] += 1
            found["fails"] += step.fails
            found["windows"] += step.windows is not None
    wanted = [
        *(
            "join stream-stream",
            "join stream-table",
            "join stream-global",
            "join table-table",
            "fk table-table",
        ),
        *("merge stream-stream", "aggregate stream-stream", "aggregate stream", "aggregate table"),
        *("filter stream", "filter table", "map_values stream", "map_values table", "select_key stream"),
        *("to_table stream", "to_stream table", "suppress table", "process stream", "process_values stream"),
        *("repartition stream", "flat_map stream", "branch stream", "branches stream", "windows", "fails"),
    ]
    assert [name for name in wanted if found[name] < 3] == []
