"""Runs a stream case through the driver in ways that must not matter: batches, partitions, places, collisions, chunks.

check_by_record(case, way)    one record in a batch: the reference's outputs, timestamps, headers and drops, in order
check_in_batches(case, way)   any batches: the very records of the reference, those of each batch in it, and the drops;
                              in one partition those of each input after those of the input before

All records are in one partition of their topics: then stream time is that of all of them (decision 0038).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import crossstream as cs
from tests.conformance.compare import assert_same_by_input, assert_same_records
from tests.conformance.runner import Ran, Serdes, add, is_used, per_batch, read
from tests.laws.engine import Way, as_taken
from tests.laws.strategies import Case
from tests.reference import Output, run
from tests.reference.chain import SIDES


def check_by_record(case: Case, way: Way, chunk: int | None = None) -> Ran:
    ran = run_streams(case, replace(way, every=1, places=(0,)), chunk)
    expected = run(case)
    assert_same_by_input(ran.outputs, expected.outputs, case["inputs"])
    assert ran.dropped == expected.dropped.total(), (ran.reasons, expected.dropped)
    return ran


def check_in_batches(case: Case, way: Way, chunk: int | None = None) -> Ran:
    way = replace(way, places=(0,))
    ran = run_streams(case, way, chunk)
    ends = way.ends(len(case["inputs"]))
    expected = run(as_taken(case, way))
    for got, want in zip(per_batch(ran.outputs, ends), per_batch(expected.outputs, ends), strict=True):
        assert_same_records(got, want)
    if way.partitions == 1:
        assert_same_by_input(by_input(records_of(ran.outputs), expected.outputs), expected.outputs)
    assert ran.dropped == expected.dropped.total(), (ran.reasons, expected.dropped)
    return ran


def by_input(records: Sequence[Output], expected: Sequence[Sequence[Output]]) -> list[Sequence[Output]]:
    """The records of batches cut into as many for each input as there must be."""
    ends = list(accumulate(len(outputs) for outputs in expected))
    return [records[start:end] for start, end in pairwise([0, *ends])]


def run_streams(
    case: Case,
    way: Way,
    chunk: int | None = None,
    between: Callable[[cs.TopologyTestDriver], None] = lambda driver: None,
) -> Ran:
    """The case through the driver. ``chunk``: rows that a join makes at a time. ``between``: done between batches."""
    kinds = Serdes(case)
    builder = cs.StreamsBuilder()
    add(builder, case, way.functions)
    outputs: list[list[Output]] = []
    with way.driver(builder.build(), chunk) as driver:
        topics = {
            side: driver.create_input_topic(side, *kinds.of(side)) for side in SIDES if is_used(case, side)
        }
        results = driver.create_output_topic("results", kinds.result_key, kinds.result_value)
        for _, ended in way.pipe(driver, topics, case["inputs"]):
            if ended:
                between(driver)
            outputs.append(read(results))
        metrics = driver.metrics()
    return Ran(outputs, None, metrics["dropped-records-total"], metrics["dropped"])


def records_of(outputs: Sequence[Sequence[Output]]) -> list[Output]:
    return [output for one in outputs for output in one]
