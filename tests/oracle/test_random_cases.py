"""Kafka's own driver and the plain reference agree on random cases of every join, decisions apart."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests import reference
from tests.oracle.cases import JOINS, Agreement, agreement, random_case
from tests.oracle.compare import disagreement
from tests.oracle.oracle import Oracle, OracleError

pytestmark = pytest.mark.oracle

CASES = 40  # of each kind
KINDS = [(operator, join_type, False) for operator, types in JOINS.items() for join_type in types]
KINDS += [("stream-stream", "left", True), ("stream-stream", "outer", True)]


@pytest.mark.parametrize(("operator", "join_type", "eager"), KINDS)
def test_reference(oracle: Oracle, operator: str, join_type: str, eager: bool) -> None:
    compared = 0
    for seed in range(CASES):
        case = random_case(Random(f"{operator} {join_type} {eager} {seed}"), operator, join_type, eager=eager)
        if agreement(case) is Agreement.NONE:
            continue
        compared += 1
        kafka = oracle.run(case)
        result = reference.run(case)
        ours = [[{"key": o.key, "value": o.value, "ts": o.ts} for o in outputs] for outputs in result.outputs]
        assert disagreement(case, kafka["expected"], ours) is None, case
        assert result.dropped.total() == kafka["dropped"], case
    assert compared > CASES // 2


@pytest.mark.parametrize(("operator", "join_type", "eager"), KINDS)
def test_cases_are_worth_running(operator: str, join_type: str, eager: bool) -> None:
    """Most give several results, and the interesting records occur."""
    found = [random_case(Random(seed), operator, join_type, eager=eager) for seed in range(200)]
    inputs = [record for case in found for record in case["inputs"]]
    assert all(2 <= len(case["inputs"]) <= 14 for case in found)
    assert any(record["key"] is None for record in inputs)
    assert any(record["value"] is None for record in inputs)
    assert sum(len(reference.run(case).changelog) > 1 for case in found) > 50


def test_kafka_fails_where_the_agreement_says_none(oracle: Oracle) -> None:
    """A null key in a left stream-table join with grace: a null-pointer exception in Kafka."""
    case: dict[str, Any] = {
        "operator": "stream-table",
        "type": "left",
        "params": {
            "joiner": {"template": "{left}+{right}"},
            "table_versioned_ms": 1000,
            "stream_grace_ms": 5,
        },
        "inputs": [{"side": "left", "key": None, "value": "L", "ts": 1}],
    }
    assert agreement(case) is Agreement.NONE
    with pytest.raises(OracleError, match="NullPointerException"):
        oracle.run(case)


def test_a_row_looked_up_without_a_store_forgets_a_deleted_partner(oracle: Oracle) -> None:
    """The right row's delete at 50 is part of the first join's row only where that is stored."""
    case: dict[str, Any] = {
        "operator": "table-table",
        "type": "inner",
        "params": {"joiner": {"template": "{left}+{right}"}},
        "joins": [
            {"id": "first", "operator": "table-table", "type": "left", "left": "left", "right": "right"},
            {"id": "second", "operator": "table-table", "type": "inner", "left": "first", "right": "third"},
        ],
        "inputs": [
            {"side": "left", "key": "a", "value": "L", "ts": 1},
            {"side": "right", "key": "a", "value": "R", "ts": 2},
            {"side": "right", "key": "a", "value": None, "ts": 50},
            {"side": "third", "key": "a", "value": "T", "ts": 10},
        ],
    }
    assert agreement(case) is Agreement.NONE
    assert oracle.run(case)["expected"][3] == [{"key": "a", "value": "L+null+T", "ts": 10}]
    case["joins"][0]["materialized"] = True
    assert agreement(case) is Agreement.EXACT
    assert oracle.run(case)["expected"][3] == [{"key": "a", "value": "L+null+T", "ts": 50}]


def test_kafka_forgets_a_versioned_delete_at_the_timestamp_of_its_row(oracle: Oracle) -> None:
    case: dict[str, Any] = {
        "operator": "table-table",
        "type": "left",
        "params": {"joiner": {"template": "{left}+{right}"}, "right_versioned_ms": 1000},
        "inputs": [
            {"side": "right", "key": "a", "value": "R1", "ts": 104},
            {"side": "right", "key": "a", "value": None, "ts": 104},
            {"side": "right", "key": "a", "value": "R2", "ts": 95},
            {"side": "left", "key": "a", "value": "L", "ts": 146},
        ],
    }
    assert agreement(case) is Agreement.NONE
    assert oracle.run(case)["expected"][3] == [{"key": "a", "value": "L+R2", "ts": 146}]
    case["inputs"][1]["ts"] = 105
    assert agreement(case) is Agreement.EXACT
    assert oracle.run(case)["expected"][3] == [{"key": "a", "value": "L+null", "ts": 146}]
