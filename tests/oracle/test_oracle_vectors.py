"""Kafka Streams as it is today gives what its own tests recorded: every case, none left out.

The ``*.eager.json`` files and the self-joins are included; so are the chains that show KAFKA-6443, whose
recorded outputs are Kafka's and not ours. Of a case recorded with caches only the end is known, and a driver
without caches ends alike.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.vector_files import all_cases
from tests.oracle.oracle import Oracle, OracleError

pytestmark = pytest.mark.oracle

CASES = {case["id"]: case for case in all_cases()}
Row = dict[str, Any]


@pytest.mark.parametrize("name", CASES)
def test_replays(oracle: Oracle, name: str) -> None:
    case = CASES[name]
    result = oracle.run(case)
    if case["expected"] is not None:
        assert result["expected"] == case["expected"]
    changelog = [row for rows in result["expected"] for row in rows]
    assert_final(case.get("final", {}), changelog, result.get("table"))
    for moment in case.get("table_after", []):
        so_far = [row for rows in result["expected"][: moment["after"]] for row in rows]
        assert {row["key"]: row["value"] for row in fold(so_far)} == {
            row["key"]: row["value"] for row in moment["table"]
        }


def assert_final(final: Row, changelog: list[Row], stored: list[Row] | None) -> None:
    """``stored``: the result table, where the result is one; else the rows that the outputs fold to."""
    if "table" in final:
        assert sorted_rows(fold(changelog) if stored is None else stored) == sorted_rows(final["table"])
    if "last" in final:
        assert changelog[-1] == final["last"]
    if "set" in final:
        assert sorted_rows({"key": row["key"], "value": row["value"]} for row in changelog) == sorted_rows(
            final["set"]
        )
    assert set(final) <= {"table", "last", "set"}


def fold(changelog: list[Row]) -> list[Row]:
    table = {row["key"]: row for row in changelog}
    return [row for row in table.values() if row["value"] is not None]


def sorted_rows(rows: Any) -> list[Row]:
    return sorted(rows, key=repr)


def test_stored_table_is_what_the_outputs_fold_to(oracle: Oracle) -> None:
    for case in CASES.values():
        result = oracle.run(case)
        changelog = [row for rows in result["expected"] for row in rows]
        if "table" in result:
            assert sorted_rows(result["table"]) == sorted_rows(fold(changelog)), case["id"]


def test_a_case_that_cannot_run_is_told_and_the_next_one_runs(oracle: Oracle) -> None:
    case = {**CASES["TableTableJoinIntegrationTest.testInner"], "type": "sideways"}
    with pytest.raises(OracleError, match="no sideways join for table-table"):
        oracle.run(case)
    oracle.run(CASES["TableTableJoinIntegrationTest.testInner"])


def test_dropped_records_are_counted(oracle: Oracle) -> None:
    case = {
        "operator": "table-table-fk",
        "type": "inner",
        "params": {
            "joiner": {"template": "{left},{right}"},
            "fk_extractor": {"kind": "split", "sep": ";", "index": 0, "null_if": "-"},
            "left_versioned_ms": 1000,
        },
        "inputs": [
            {"side": "left", "key": None, "value": "x;1", "ts": 1},  # null key
            {"side": "left", "key": "a", "value": "-;1", "ts": 10},  # null foreign key
            {
                "side": "left",
                "key": "a",
                "value": "x;2",
                "ts": 5,
            },  # behind the newest version
            {"side": "right", "key": None, "value": "X", "ts": 5},  # null key
        ],
    }
    result = oracle.run(case)
    assert result == {"expected": [[], [], [], []], "table": [], "dropped": 4}


def test_a_process_that_ends_is_told(oracle: Oracle) -> None:
    with Oracle() as own:
        own._process.kill()
        with pytest.raises(OracleError, match="ended with status -9"):
            own.run(CASES["TableTableJoinIntegrationTest.testInner"])
