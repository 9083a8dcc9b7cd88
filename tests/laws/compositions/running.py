"""A case through the driver, and how its results compare with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import crossstream as cs
from tests.laws.compositions import functions as f
from tests.laws.compositions.building import key_serde, topology
from tests.laws.compositions.graphs import SOURCES, Case, Graph, Item, Kind, Way, kinds_of
from tests.laws.compositions.meaning import Meaning, Unknown
from tests.reference.records import Output

Record = tuple[Any, Any, int]
"""Key, value, timestamp (ms)."""


@dataclass
class Results:
    """``batches``: the records that came out of each step, in each batch."""

    batches: list[dict[int, list[Record]]] = field(default_factory=list)


def run(graph: Graph, batches: Sequence[Sequence[Item]], way: Way, plain: bool = False) -> Results:
    """``plain``: every function is a callable, and nothing is stored that need not be."""
    kinds = kinds_of(graph)
    found = Results()
    with cs.TopologyTestDriver(
        topology(graph, plain),
        partitions=way.partitions,
        commit_every=10_000,
        processing_errors="skip" if any(step.fails for step in graph) else "fail",
    ) as driver:
        topics = {
            number: driver.create_input_topic(
                f"in-{number}", f.TEXT, f.DECLARED[kind.value] if kind.typed else f.JSON
            )
            for number, kind in enumerate(kinds)
            if graph[number].op in SOURCES
        }
        outs = {
            number: driver.create_output_topic(f"out-{number}", key_serde(kind), f.JSON)
            for number, kind in enumerate(kinds)
            if number not in topics and kind.shape != "global"
        }
        for batch in batches:
            for item in batch:
                place = item.place % way.partitions
                topics[item.source].pipe_input(item.key, item.value, item.ts, (), place)
            driver.commit()
            found.batches.append({number: _read(out) for number, out in outs.items()})
    return found


def _read(out: Any) -> list[Record]:
    return [(record.key, record.value, record.timestamp) for record in out.read_records()]


def taken(graph: Graph, items: Sequence[Item], way: Way) -> list[list[Item]]:
    """The records of each batch in the order in which the engine takes them (semantics 1.2).

    Each partition of a topic stays first-in-first-out; they merge by the running maximum of their timestamps since the
    batch began, then tables before streams, then by source, then by partition.
    """
    made = []
    for batch in way.batches(len(items)):
        queues: dict[tuple[bool, int, int], list[Item]] = {}
        for number in batch:
            item = items[number]
            place = (graph[item.source].op == "stream", item.source, item.place % way.partitions)
            queues.setdefault(place, []).append(item)
        placed = [
            (newest, place, at, item)
            for place, queue in queues.items()
            for at, (newest, item) in enumerate(
                zip(accumulate((one.ts for one in queue), max), queue, strict=True)
            )
        ]
        made.append([item for *_, item in sorted(placed, key=lambda one: one[:3])])
    return made


def compare(case: Case, kinds: Sequence[Kind], got: Results, want: Results, repeats: bool = True) -> None:
    """After each batch: the same records of streams, for each key in order; the same rows of tables.

    ``repeats``: with one record in a batch, all changes of tables come out in both.
    """
    tables: dict[int, tuple[dict[Any, Any], dict[Any, Any]]] = {}
    for batch, (mine, theirs) in enumerate(zip(got.batches, want.batches, strict=True)):
        for number, kind in enumerate(kinds):
            if number not in theirs or number not in mine:
                continue
            what = f"step {number} ({case.graph[number]!r}), batch {batch}"
            if kind.shape == "stream" and (kind.emitted == "exact" or (repeats and case.way.each)):
                found, right = (by_key(one[number], kind.mixed) for one in (mine, theirs))
                assert found == right, f"{what}: found {found}, right is {right}"
                continue
            rows = tables.setdefault(number, ({}, {}))
            fold(rows[0], mine[number])
            fold(rows[1], theirs[number])
            assert rows[0] == rows[1], f"{what}: found {rows[0]}, right is {rows[1]}"


def by_key(records: Sequence[Record], mixed: bool) -> dict[Any, list[tuple[Any, int]]]:
    """The values and timestamps of each key, in order, but for a stream whose records have no order."""
    found: dict[Any, list[tuple[Any, int]]] = {}
    for key, value, ts in records:
        found.setdefault(key, []).append((value, ts))
    return {key: sorted(rows, key=repr) if mixed else rows for key, rows in found.items()}


def fold(rows: dict[Any, Any], records: Sequence[Record]) -> None:
    for key, value, _ in records:
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value


def batched(results: Results, sizes: Sequence[int]) -> Results:
    """Results of one record in a batch, as those of batches of these sizes."""
    found, start = Results(), 0
    for size in sizes:
        parts: Sequence[Mapping[int, list[Record]]] = results.batches[start : start + size]
        found.batches.append({number: [one for part in parts for one in part[number]] for number in parts[0]})
        start += size
    return found


def check_with_itself(case: Case) -> None:
    """Any cut, any form of functions, any partitions: what callables give for one record at a time."""
    kinds = kinds_of(case.graph)
    batches = taken(case.graph, case.items, case.way)
    got = run(
        case.graph, [[case.items[n] for n in batch] for batch in case.way.batches(len(case.items))], case.way
    )
    one_by_one = [[item] for batch in batches for item in batch]
    want = run(case.graph, one_by_one, Way(), plain=True)
    compare(case, kinds, got, batched(want, [len(batch) for batch in batches]))


def check_with_reference(case: Case) -> bool:
    """Any cut, any form of functions, any partitions: what the reference gives, if it says what is right."""
    try:
        meaning = Meaning(case.graph)
    except Unknown:
        return False
    batches = taken(case.graph, case.items, case.way)
    got = run(
        case.graph, [[case.items[n] for n in batch] for batch in case.way.batches(len(case.items))], case.way
    )
    want = Results()
    for batch in batches:
        made: dict[int, list[Record]] = {number: [] for number in range(len(case.graph))}
        for item in batch:
            for number, events in enumerate(meaning.feed(item)):
                made[number] += [(one.key, one.value, one.ts) for one in map(Output.of, events)]
        want.batches.append(made)
    compare(case, meaning.kinds, got, want, repeats=False)
    return True


def check(case: Case) -> None:
    if not check_with_reference(case):
        check_with_itself(case)
