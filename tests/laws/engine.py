"""Runs a case through the driver in ways that must not matter: batches, partitions, places, collisions.

check_by_record(case, way)    one record in a batch: the reference's outputs, timestamps and drops, exactly
check_in_batches(case, way)   any batches: after each of them the reference's table, each row changed once
check_records(case, way)      stream joins, any batches: the reference's records, all of them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pytest
import xxhash
from hypothesis import strategies as st

import crossstream as cs
from crossstream.api.topology import Topology
from crossstream.task import shuffle_codec as parcels
from tests.conformance.compare import assert_same_by_input, assert_same_table, by_key
from tests.conformance.functions import Style
from tests.conformance.runner import Ran, Serdes, batches, is_table, is_used, joined, per_batch, read, source
from tests.laws.strategies import Case, Inputs, with_headers
from tests.reference import Output, Result, fold, run
from tests.reference.chain import SIDES, headers_of, histories, joins_of, sides_in_turn
from tests.reference.records import key_bytes


@dataclass(frozen=True, slots=True)
class Way:
    """How a case is run; none of it may change a table.

    ``every``, ``commits``: records in a batch, and input counts after which one ends early. ``places``: the
    partition of its topic that each input goes to, over and over. ``bits``: of the key hashes. ``stored``:
    the joins of the case (by number) that are materialised. ``packed``: rows go from round to round as they do between
    processes.
    """

    partitions: int = 1
    every: int = 1
    commits: frozenset[int] = frozenset()
    places: tuple[int, ...] = (0,)
    bits: int = 64
    stored: frozenset[int] = frozenset()
    functions: Style = "callables"
    packed: bool = False

    def ends(self, count: int) -> list[int]:
        """Input counts after which a batch ends, the last one included."""
        ended, pending = [], 0
        for number in range(1, count + 1):
            pending += 1
            if pending == self.every or number in self.commits or number == count:
                ended.append(number)
                pending = 0
        return ended

    def place(self, number: int) -> int:
        return self.places[number % len(self.places)] % self.partitions

    def driver(self, topology: Topology, chunk: int | None = None, **settings: Any) -> cs.TopologyTestDriver:
        """A driver that runs the topology so; `pipe` ends its batches. ``chunk``: rows that a join makes at a time."""
        driver = cs.TopologyTestDriver(
            topology, partitions=self.partitions, commit_every=self.every, hash_bits=self.bits, **settings
        )
        if chunk is not None:
            driver._settings = replace(driver._settings, chunk_rows=chunk)
        return driver

    def pipe(
        self, driver: cs.TopologyTestDriver, topics: Mapping[str, Any], inputs: Inputs
    ) -> Iterator[tuple[int, bool]]:
        """Pipes each input into the topic of its side, if there is one, and commits where a batch ends.

        Gives after each how many there were, and whether a batch ended.
        """
        ends = self.ends(len(inputs))
        for number, item in enumerate(inputs):
            with pytest.MonkeyPatch.context() as patch:
                if self.packed:
                    patch.setattr(parcels, "HANDED", -1)
                if item["side"] in topics:
                    topics[item["side"]].pipe_input(
                        item["key"], item["value"], item["ts"], headers_of(item), self.place(number)
                    )
                if number + 1 in ends:
                    driver.commit()
            yield number + 1, number + 1 in ends

    def partition_of(self, key: Any) -> int:
        """The state partition of a key."""
        if key is None:
            return 0
        cut = 64 - self.bits
        digest = xxhash.xxh64_intdigest(key_bytes(key), seed=42) >> cut << cut
        return (digest >> 32) * self.partitions >> 32


@st.composite
def ways(draw: st.DrawFn, by_record: bool = False, functions: Sequence[Style] = ("callables",)) -> Way:
    """Any way to run a case of up to three joins. ``by_record``: one record in a batch."""
    partitions = draw(st.integers(1, 5))
    every = 1 if by_record else draw(st.sampled_from([1000, 2, 3, 5, 8]))
    return Way(
        partitions,
        every,
        frozenset() if by_record else frozenset(draw(st.sets(st.integers(1, 16), max_size=4))),
        tuple(draw(st.lists(st.integers(0, partitions - 1), min_size=1, max_size=5))),
        draw(st.sampled_from([64, 4, 1])),
        frozenset(draw(st.sets(st.integers(0, 2)))),
        draw(st.sampled_from(functions)),
        draw(st.booleans()),
    )


def with_one_time(case: Case, way: Way) -> Way:
    """All records in one partition of their topics where a table has versions: then stream time is theirs (0038)."""
    kept = case.get("histories") or histories(case)
    timed = any(history is not None for history in kept.values())
    return replace(way, places=(0,)) if timed else way


def check_by_record(case: Case, way: Way) -> Ran:
    """C: what each record gives, with its timestamp and the headers of the record; the drops; the store."""
    case = {**case, "inputs": with_headers(case["inputs"])}
    ran = run_engine(case, replace(with_one_time(case, way), every=1))
    assert_same_tables_by_record(case["inputs"], ran, run(case))
    return ran


def assert_same_tables_by_record(inputs: Inputs, ran: Ran, expected: Result) -> None:
    assert_same_by_input(ran.outputs, with_headers_of(inputs, expected), inputs)
    assert ran.dropped == expected.dropped.total(), (ran.reasons, expected.dropped)
    check_store(ran, expected)


def with_headers_of(inputs: Inputs, expected: Result) -> list[list[Output]]:
    """The outputs of each input, with its headers; with those of the record that waited for it, if one did."""
    return [
        [replace(output, headers=output.headers or headers_of(item)) for output in found]
        for item, found in zip(inputs, expected.outputs, strict=True)
    ]


def check_in_batches(case: Case, way: Way) -> Ran:
    """T after every batch; at most one change for each row in a batch."""
    way = with_one_time(case, way)
    ran = run_engine(case, way)
    assert_same_tables(way.ends(len(case["inputs"])), ran, run(as_taken(case, way)))
    return ran


def assert_same_tables(ends: Sequence[int], ran: Ran, expected: Result) -> None:
    """After every batch; at most one change for each row in a batch."""
    emitted: list[Output] = []
    reference: list[Output] = []
    for got, want in zip(per_batch(ran.outputs, ends), per_batch(expected.outputs, ends), strict=True):
        emitted += got
        reference += want
        assert_same_table(emitted, {key: value for key, (value, _) in fold(reference).items()})
        assert all(len(changes) == 1 for changes in by_key(got).values()), f"a row changed twice: {got}"
    check_store(ran, expected)


def check_records(case: Case, way: Way) -> Ran:
    """M, in order per key, after every batch, with headers and drops: the records of one at a time. For streams."""
    case, way = {**case, "inputs": with_headers(case["inputs"])}, with_one_time(case, way)
    ran = run_engine(case, way)
    ends = way.ends(len(case["inputs"]))
    expected = run(as_taken(case, way))
    assert_same_by_input(per_batch(ran.outputs, ends), per_batch(expected.outputs, ends))
    assert ran.dropped == expected.dropped.total(), (ran.reasons, expected.dropped)
    return ran


def rows_of(ran: Ran) -> dict[Any, Any]:
    """The table that the outputs fold to."""
    return {key: value for key, (value, _) in fold(output for one in ran.outputs for output in one).items()}


def check_store(ran: Ran, expected: Result) -> None:
    if ran.store is not None:
        assert ran.store == expected.rows
        assert list(ran.store) == sorted(ran.store, key=key_bytes)


def as_taken(case: Case, way: Way, sides: Sequence[str] = ()) -> Case:
    """The case with the inputs of each batch in the order in which the engine takes them.

    Each source partition stays first-in-first-out; partitions merge by the running maximum of their
    timestamps since the batch began, then by source (in the order of ``sides``: tables before streams, if it is not
    given), then by partition.
    """
    sides = sides or sides_in_turn(case)
    numbered = list(enumerate(case["inputs"]))
    taken: list[Any] = []
    for batch in batches(numbered, way.ends(len(numbered))):
        queues: dict[tuple[int, int], list[Any]] = {}
        for number, item in batch:
            queues.setdefault((sides.index(item["side"]), way.place(number)), []).append(item)
        placed = [
            (newest, place, at, item)
            for place, items in queues.items()
            for at, (newest, item) in enumerate(
                zip(accumulate((i["ts"] for i in items), max), items, strict=True)
            )
        ]
        taken += [item for *_, item in sorted(placed, key=lambda p: p[:3])]
    return {**case, "inputs": taken}


def run_engine(
    case: Case, way: Way, after_batch: Callable[[cs.TopologyTestDriver], None] = lambda driver: None
) -> Ran:
    """The case through the driver, by nothing but the public API."""
    kinds = Serdes(case)
    outputs: list[list[Output]] = []
    with way.driver(build(case, way)) as driver:
        topics = {
            side: driver.create_input_topic(side, *kinds.of(side)) for side in SIDES if is_used(case, side)
        }
        results = driver.create_output_topic("results", kinds.result_key, kinds.result_value)
        for _, ended in way.pipe(driver, topics, case["inputs"]):
            if ended:
                after_batch(driver)
            outputs.append(read(results))
        joins = joins_of(case)
        store = None
        if len(joins) - 1 in way.stored and is_table(joins[-1]):
            store = dict(driver.get_key_value_store(joins[-1]["id"]).all())
        metrics = driver.metrics()
    return Ran(outputs, store, metrics["dropped-records-total"], metrics["dropped"])


def build(case: Case, way: Way) -> Topology:
    kinds = Serdes(case)
    builder = cs.StreamsBuilder()
    ends = {side: source(builder, case, side, kinds) for side in SIDES if is_used(case, side)}
    joins = joins_of(case)
    for number, join in enumerate(joins):
        store = cs.Materialized(store=join["id"], key=kinds.key_of(join["id"]), value=kinds.result_value)
        more = {"materialized": store} if number in way.stored and is_table(join) else {}
        ends[join["id"]] = joined(join, ends[join["left"]], ends[join["right"]], way.functions, kinds, more)
    result = ends[joins[-1]["id"]]
    stream = result.to_stream() if is_table(joins[-1]) else result
    stream.to("results", cs.Produced(key=kinds.result_key, value=kinds.result_value))
    return builder.build()
