"""Kafka's own driver and ours agree on random cases of every join, record by record, decisions apart."""

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

pytestmark = pytest.mark.oracle

CASES = 50  # of each kind
NIGHTLY = 2000
EVERY_JOIN = frozenset(range(4))
KINDS = [(operator, join_type, False) for operator, types in JOINS.items() for join_type in types]
KINDS += [("stream-stream", "left", True), ("stream-stream", "outer", True)]
kinds = pytest.mark.parametrize(("operator", "join_type", "eager"), KINDS)


@kinds
def test_driver(oracle: Oracle, operator: str, join_type: str, eager: bool) -> None:
    compare(oracle, operator, join_type, eager, range(CASES))


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@kinds
def test_driver_for_long(oracle: Oracle, operator: str, join_type: str, eager: bool) -> None:
    compare(oracle, operator, join_type, eager, range(CASES, NIGHTLY))


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
