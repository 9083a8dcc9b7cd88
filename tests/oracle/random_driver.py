"""Kafka's own driver and ours, on random cases of a join, record by record, decisions apart.

Each folder of ``tests/operators`` runs those of its own join: ``TestRandomCases = random_cases("table-table")``.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.conformance.runner import Ran, is_table, run_driver
from tests.laws.engine import Way, run_engine
from tests.oracle.cases import JOINS, Agreement, agreement, random_case
from tests.oracle.compare import disagreement
from tests.oracle.oracle import Oracle
from tests.reference.chain import histories

CASES = 50  # of each kind
NIGHTLY = 2000
EVERY_JOIN = frozenset(range(4))


def random_cases(operator: str) -> type:
    """The tests of a join, of all its kinds."""
    kinds = [(kind, False) for kind in JOINS[operator]]
    kinds += [("left", True), ("outer", True)] if operator == "stream-stream" else []
    of_each_kind = pytest.mark.parametrize(("join_type", "eager"), kinds)

    class RandomCases:
        @of_each_kind
        def test_driver(self, oracle: Oracle, join_type: str, eager: bool) -> None:
            compare(oracle, operator, join_type, eager, range(CASES))

        @pytest.mark.nightly
        @pytest.mark.timeout(3600)
        @of_each_kind
        def test_driver_for_long(self, oracle: Oracle, join_type: str, eager: bool, fresh: int) -> None:
            compare(oracle, operator, join_type, eager, range(fresh, fresh + NIGHTLY))

    return RandomCases


def compare(oracle: Oracle, operator: str, join_type: str, eager: bool, seeds: range) -> None:
    compared = 0
    for seed in seeds:
        case = random_case(Random(f"{operator} {join_type} {eager} {seed}"), operator, join_type, eager=eager)
        if agreement(case) is Agreement.NONE:
            continue
        compared += 1
        kafka, ran = oracle.run(case), run_ours(case, seed)
        ours = [[{"key": o.key, "value": o.value, "ts": o.ts} for o in outputs] for outputs in ran.outputs]
        assert disagreement(case, kafka["expected"], ours) is None, case
        assert ran.dropped == kafka["dropped"], (case, ran.reasons)
    assert compared > len(seeds) // 2


def run_ours(case: Any, seed: int) -> Ran:
    """Tables on one to three partitions, global ones too; every join stored or none; sometimes hashes of four bits.

    What a versioned table still accepts depends on the time of a partition, and Kafka's driver has one.
    """
    if case["operator"] == "stream-globaltable":
        return run_engine(case, Way(1 + seed % 3, bits=64 if seed % 5 else 4))
    if not is_table(case):
        return run_driver(case)
    versioned = any(history is not None for history in histories(case).values())
    stored = EVERY_JOIN if seed % 2 else frozenset[int]()
    return run_engine(case, Way(1 if versioned else 1 + seed % 3, bits=64 if seed % 5 else 4, stored=stored))
