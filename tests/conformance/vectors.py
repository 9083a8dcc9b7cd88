"""The recorded cases of Kafka's own join tests, with what crossstream must give for them.

``expected`` is what Kafka emitted, but for the decisions in `ADJUSTMENTS`: a short, explicit list. Cases with
caching pin only how they end; nothing is cached between batches of one record, so that is what is compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.reference import Output

FOLDER = Path(__file__).parent / "vectors"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """Inputs (counted from 1) after which crossstream differs from Kafka, and how.

    ``once``: Kafka emits the same record twice, crossstream once. ``instead``: what comes out instead.
    """

    case: str
    reason: str
    once: tuple[int, ...] = ()
    instead: Mapping[int, list[Output]] = field(default_factory=dict)

    def apply(self, expected: list[list[Output]]) -> list[list[Output]]:
        changed = list(expected)
        for number in self.once:
            first, second = expected[number - 1]
            assert first == second, f"{self.case}, input {number}: not the same record twice"
            changed[number - 1] = [first]
        for number, outputs in self.instead.items():
            changed[number - 1] = outputs
        return changed


ONE_CHANGE = "8.8: a table that reaches the result by two ways changes it once per record"
CHAINS = "TableTableJoinIntegrationTest."

ADJUSTMENTS = (
    Adjustment(
        CHAINS + "testInnerInner",
        ONE_CHANGE + ", and a delete retracts (KAFKA-6443: Kafka emits nothing at input 11)",
        once=(4, 6, 10),
        instead={11: [Output(0, None, 11)]},
    ),
    Adjustment(CHAINS + "testInnerLeft", ONE_CHANGE, once=(4, 6, 10)),
    Adjustment(CHAINS + "testInnerOuter", ONE_CHANGE, once=(4, 6, 10, 11)),
    Adjustment(CHAINS + "testLeftInner", ONE_CHANGE, once=(4, 6, 10)),
    Adjustment(CHAINS + "testLeftLeft", ONE_CHANGE, once=(4, 6, 10, 11)),
    Adjustment(CHAINS + "testOuterLeft", ONE_CHANGE, once=(4, 6, 10, 11, 14)),
)


@dataclass(frozen=True, slots=True)
class Vector:
    """One recorded case. None or empty where the Kafka test pins nothing of the kind.

    ``olds``: for each output the row before it. ``last``: the last output. ``table``: the result table at the
    end. ``records``: key and value of all outputs, in any order. ``tables``: (inputs, rows after so many).
    """

    id: str
    case: dict[str, Any]
    expected: list[list[Output]] | None
    olds: list[list[Any]] | None
    last: Output | None
    table: dict[Any, tuple[Any, int]] | None
    records: set[tuple[Any, Any]] | None
    tables: list[tuple[int, dict[Any, Any]]]

    @property
    def operator(self) -> str:
        return str(self.case["operator"])

    def __str__(self) -> str:
        return self.id


@cache
def load() -> tuple[Vector, ...]:
    """Every case of every file."""
    files = sorted(FOLDER.glob("*.json"))
    return tuple(vector(case) for file in files for case in json.loads(file.read_text("utf-8"))["cases"])


def vector(case: dict[str, Any]) -> Vector:
    final = case.get("final", {})
    olds = case["expected"] is not None and case["params"].get("send_old_values")
    return Vector(
        id=case["id"],
        case=case,
        expected=expected_of(case),
        olds=[[row["old"] for row in rows] for rows in case["expected"]] if olds else None,
        last=output(final["last"]) if "last" in final else None,
        table={row["key"]: (row["value"], row["ts"]) for row in final["table"]} if "table" in final else None,
        records={(row["key"], row["value"]) for row in final["set"]} if "set" in final else None,
        tables=[
            (entry["after"], {row["key"]: row["value"] for row in entry["table"]})
            for entry in case.get("table_after", [])
        ],
    )


def expected_of(case: dict[str, Any]) -> list[list[Output]] | None:
    if case["expected"] is None:
        return None
    expected = [[output(row) for row in rows] for rows in case["expected"]]
    for adjustment in ADJUSTMENTS:
        if adjustment.case == case["id"]:
            expected = adjustment.apply(expected)
    return expected


def output(row: dict[str, Any]) -> Output:
    headers = tuple((name, bytes.fromhex(value)) for name, value in row.get("headers", {}).items())
    return Output(row["key"], row["value"], row["ts"], headers)
