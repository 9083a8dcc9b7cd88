"""Taking what arrives in slices of the key space changes nothing, down to the order of a key's records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given

import crossstream as cs
from crossstream import serdes
from crossstream.runtime import round as task
from crossstream.task import shuffle_codec
from tests.conformance.compare import by_key
from tests.laws.effort import law
from tests.laws.engine import Way, check_in_batches, run_engine, ways, with_one_time
from tests.laws.strategies import EXTRACTOR, Case, chain_cases, foreign_key_cases, table_cases
from tests.laws.strategies import case as made
from tests.laws.wide import wide_cases

TEXT = serdes.string()


@contextmanager
def sliced(size: int) -> Iterator[list[int]]:
    """Tasks take about ``size`` bytes at a time; gives the number of slices of each task."""
    counts: list[int] = []
    take = shuffle_codec.in_slices

    def counted(*arguments: Any) -> Iterator[Any]:
        counts.append(0)
        for slice_ in take(*arguments):
            counts[-1] += 1
            yield slice_

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shuffle_codec, "WHOLE_BYTES", size)
        patch.setattr(shuffle_codec, "SLICE_BYTES", size)
        patch.setattr(task, "in_slices", counted)
        yield counts


@law
@given(table_cases() | foreign_key_cases() | chain_cases(), ways())
def test_every_key_by_itself(case: Case, way: Way) -> None:
    whole = run_engine(case, with_one_time(case, way))
    with sliced(1):
        ran = check_in_batches(case, way)
    assert [by_key(outputs) for outputs in ran.outputs] == [by_key(outputs) for outputs in whole.outputs]
    assert (ran.store, ran.dropped) == (whole.store, whole.dropped)


@law
@given(wide_cases(), ways())
def test_many_keys_in_a_slice(case: Case, way: Way) -> None:
    with sliced(1500):
        check_in_batches(case, way)


def test_there_are_slices() -> None:
    inputs = [{"side": "right", "key": "1", "value": "r", "ts": 0}]
    inputs += [{"side": "left", "key": f"k{n}", "value": "1;x", "ts": n} for n in range(40)]
    case = made("table-table-fk", "inner", inputs, fk_extractor=EXTRACTOR)
    with sliced(1) as counts:
        ran = check_in_batches(case, Way(every=1000, stored=frozenset({0})))
    assert ran.store is not None
    assert len(ran.store) == 40
    assert max(counts) == 40, "of references and of results, each key is a slice"


def test_streams_are_not_cut() -> None:
    """Their records are in order of arrival, whatever their keys."""
    builder = cs.StreamsBuilder()
    stream = builder.stream("in", cs.Consumed(key=TEXT, value=TEXT))
    stream.repartition(cs.Repartitioned(key=TEXT, value=TEXT)).to("out", cs.Produced(key=TEXT, value=TEXT))
    with sliced(1), cs.TopologyTestDriver(builder.build(), commit_every=1000) as driver:
        records = [cs.TestRecord(f"k{number * 7 % 40}", str(number), 0) for number in range(40)]
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(records)
        driver.commit()
        assert driver.create_output_topic("out", TEXT, TEXT).read_records() == records
