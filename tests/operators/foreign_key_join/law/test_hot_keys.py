"""A foreign-key join whose keys become hot all the time is the same join, record by record (decision 0053)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from tests.conformance.driver import table_vectors
from tests.conformance.runner import Ran, per_batch
from tests.laws.effort import cases, law
from tests.laws.engine import Way, check_by_record, check_in_batches, run_engine, ways
from tests.laws.hot_keys import hot_from, hot_keys
from tests.laws.rescaling import rescaling
from tests.laws.strategies import EXTRACTOR, JOINER, Case, chain_cases, foreign_key_cases
from tests.reference.records import key_bytes

PLAIN = {"left_versioned_ms": None, "right_versioned_ms": None}
KINDS = ("inner", "left", "right", "outer")
rows = st.integers(1, 4)
numbers = st.lists(st.integers(1, 9), min_size=1, max_size=4)


class TestVectors(table_vectors("table-table-fk")):
    """Kafka's recorded cases, and the tables of the rules."""

    @pytest.fixture(autouse=True)
    def _hot(self):
        with hot_from(1):
            yield


def by_key(case: Case, way: Way, ran: Ran) -> list[dict[object, list[object]]]:
    """What came of each batch, in order for each key."""
    found = []
    for outputs in per_batch(ran.outputs, way.ends(len(case["inputs"]))):
        of_keys: dict[object, list[object]] = {}
        for output in sorted(outputs, key=lambda one: key_bytes(one.key)):
            of_keys.setdefault(output.key, []).append(output)
        found.append(of_keys)
    return found


def assert_same(case: Case, way: Way, least: int, between: Callable[[cs.TopologyTestDriver], None]) -> int:
    """All of it: what comes of each batch, in order, with times and headers; the store; what is dropped.

    Returns how many keys were hot at the end.
    """
    hot = 0

    def after(driver: cs.TopologyTestDriver) -> None:
        nonlocal hot
        between(driver)
        hot = hot_keys(driver)

    cold = run_engine(case, way)
    with hot_from(least):
        spread = run_engine(case, way, after)
    assert by_key(case, way, spread) == by_key(case, way, cold)
    assert spread.store == cold.store
    assert spread.reasons == cold.reasons
    return hot


@law
@given(foreign_key_cases(KINDS, versioned=False), ways(), rows)
def test_results_are_the_same(case: Case, way: Way, least: int) -> None:
    assert_same(case, way, least, lambda driver: None)


@law
@given(foreign_key_cases(KINDS, versioned=False), ways(), rows, numbers)
def test_results_are_the_same_where_state_is_cut_between(
    case: Case, way: Way, least: int, numbers: Sequence[int]
) -> None:
    assert_same(case, way, least, rescaling(numbers))


@law
@given(foreign_key_cases(KINDS, versioned=False), ways(by_record=True), rows)
def test_record_by_record(case: Case, way: Way, least: int) -> None:
    with hot_from(least):
        check_by_record(case, way)


@law
@given(foreign_key_cases(KINDS), ways(), rows)
def test_in_batches(case: Case, way: Way, least: int) -> None:
    with hot_from(least):
        check_in_batches(case, way)


@cases(0.5)
@given(chain_cases(), ways(), rows, numbers)
def test_chains(case: Case, way: Way, least: int, numbers: Sequence[int]) -> None:
    assert_same(case, way, least, rescaling(numbers))


def test_a_hot_key_is_spread_over_the_state_partitions() -> None:
    """What the laws above would not notice: nothing of it stays in the partition of its hash but what belongs there."""
    orders = [
        {"side": "left", "key": f"k{number}", "value": f"1;{number}", "ts": number} for number in range(60)
    ]
    right = [{"side": "right", "key": "1", "value": value, "ts": 100} for value in ("r", "s")]
    case = {
        "operator": "table-table-fk",
        "type": "inner",
        "params": {**PLAIN, "joiner": JOINER, "fk_extractor": EXTRACTOR},
        "inputs": [right[0], *orders, right[1], *orders[:5]],
    }
    rows: dict[int, int] = {}

    def look(driver: cs.TopologyTestDriver) -> None:
        stores = {
            pid: version.snapshot().live()
            for (name, pid), version in driver._stores.versions.items()
            if name.endswith(".subscriptions")
        }
        rows.update({pid: run.rows for pid, run in stores.items()})

    with hot_from(50):
        ran = run_engine(case, Way(4, every=61), look)
    assert [len(outputs) for outputs in ran.outputs if outputs] == [60, 60]
    assert sum(rows.values()) == 60
    assert min(rows[pid] for pid in range(4)) > 5
