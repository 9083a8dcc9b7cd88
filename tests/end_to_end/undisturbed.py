"""What an application that was killed again and again must have written: what its batches give undisturbed."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import crossstream as cs
from crossstream.application.loop import Loop
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import BatchEntry
from tests.faults.application import PARTITIONS
from tests.faults.one_process import application
from tests.kafka.committed import Wire, ends, read
from tests.spark.world import World

ByKey = dict[tuple[int, bytes | None], list[tuple[bytes | None, int]]]
"""Values and timestamps by partition and key, in their order: what is promised of the order of a topic."""


def by_key(rows: dict[int, list[Wire]]) -> ByKey:
    found: ByKey = defaultdict(list)
    for partition, wires in rows.items():
        for key, value, timestamp in wires:
            found[partition, key].append((value, timestamp))
    return dict(found)


def batches(world: World, ends: dict[str, dict[int, int]]) -> list[BatchEntry]:
    """The batches that were committed, in order: together they hold every record of the topics once."""
    log = BatchLog(world.state_dir)
    entries = [log.batch(number) for number in log.commits()]
    assert [entry.id for entry in entries] == list(range(len(entries)))
    at = {(topic, partition): 0 for topic, of in ends.items() for partition in of}
    for entry in entries:
        for span in entry.ranges:
            assert span.start == at[span.topic, span.partition], f"batch {entry.id}: {span}"
            at[span.topic, span.partition] = span.end
    assert at == {(topic, partition): end for topic, of in ends.items() for partition, end in of.items()}
    return entries


def undisturbed(
    servers: str, world: World, topology: cs.Topology, inputs: dict[str, int], result: str, folder: Path
) -> ByKey:
    """The results of the same batches, in one process that nothing disturbs, from file topics into a file topic."""
    entries = batches(world, {topic: ends(servers, topic) for topic in inputs})
    fresh = World(folder, world.application_id)
    fresh.create(**inputs, **{result: 2})
    for topic in inputs:
        for partition, rows in read(servers, topic).items():
            if rows:
                fresh.append_wire(topic, rows, [partition] * len(rows))
    config = fresh.config(partitions=PARTITIONS, processing_guarantee="at_least_once")
    with application(topology, config) as engine, pytest.MonkeyPatch.context() as patch:
        planned = iter(entries)

        def plan(engine: Loop, *_: Any) -> BatchEntry:
            sinks = engine.inputs.written_ends()
            entry = structs.replace(next(planned), sinks=sinks, publication=None)
            engine.log.write_batch(entry)
            return entry

        patch.setattr(Loop, "_plan_new", plan)
        for _ in entries:
            assert engine._run({})
    return by_key(
        {
            partition: [(key, value, timestamp) for key, value, timestamp, _ in rows]
            for partition, rows in enumerate(fresh.wire(result))
        }
    )


def surplus(found: ByKey, wanted: ByKey) -> int:
    """How many more records there are than there should be."""
    return sum(map(len, found.values())) - sum(map(len, wanted.values()))
