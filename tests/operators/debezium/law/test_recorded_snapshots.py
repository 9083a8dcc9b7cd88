"""Snapshots that a real connector took: what it would have left out is deleted, and nothing else."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

import crossstream as cs
from crossstream.serdes.debezium import avro
from tests.operators.debezium.law.test_recordings import BYTES, Account, known_ids, of_sql, records

GHOST = 999
"""An account of which the topic has a create before the second snapshot, and the database no row."""


@pytest.mark.parametrize("snapshots", ["full", "partial"])
@pytest.mark.parametrize("ordered", [None, "source.lsn"])
@pytest.mark.parametrize("every", [7, 1000])
def test_a_row_that_is_gone_when_the_second_snapshot_is_taken(every, ordered, snapshots):
    events = records("blocking", "json", "accounts")
    first = next(one for one in events if one.partition == 0)
    created = json.loads(first.value or b"")
    created["after"] = {"id": GHOST, "balance": 1, "version": 1}
    created |= {"op": "c", "source": {**created["source"], "snapshot": "false"}}
    builder = cs.StreamsBuilder()
    source = cs.debezium(Account, ordered_by=ordered, snapshots=snapshots)
    builder.table("it", source=source, store="rows")
    with cs.TopologyTestDriver(builder.build(), partitions=2, commit_every=every) as driver:
        topic = driver.create_input_topic("it", BYTES, BYTES)
        for number, one in enumerate(sorted(events, key=lambda one: one.timestamp)):
            topic.pipe_input(one.key, one.value, one.timestamp, partition=one.partition)
            if number == 40:  # of the 58 before the second snapshot
                key, value = json.dumps({"id": GHOST}).encode(), json.dumps(created).encode()
                topic.pipe_input(key, value, one.timestamp, partition=1)
        driver.commit()
        found = {key for key, _ in driver.get_key_value_store("rows").all()}
    there = {row["id"] for row in of_sql("blocking", "accounts")}
    assert found == (there if snapshots == "full" else there | {GHOST})


@pytest.mark.parametrize("form", ["json", "avro"])
def test_the_second_snapshot_deletes_nothing_that_is_there(form, monkeypatch):
    monkeypatch.setattr(avro, "check_ids", partial(known_ids, "blocking"))
    more: dict[str, Any] = {"registry": "mock://it"} if form == "avro" else {}
    builder = cs.StreamsBuilder()
    table = builder.table("it", source=cs.debezium(Account, **more), store="rows")
    table.to_stream().to("out", cs.Produced(key=cs.serdes.int64(), value=cs.serdes.json()))
    with cs.TopologyTestDriver(builder.build(), partitions=2) as driver:
        topic = driver.create_input_topic("it", BYTES, BYTES)
        out = driver.create_output_topic("out", cs.serdes.int64(), BYTES)
        events = sorted(records("blocking", form, "accounts"), key=lambda one: one.timestamp)
        for one in events:
            topic.pipe_input(one.key, one.value, one.timestamp, partition=one.partition)
        driver.commit()
        deleted = sum(record.value is None for record in out.read_records())
        found = {key for key, _ in driver.get_key_value_store("rows").all()}
    deletes = sum(one.value is None for one in events)
    assert found == {row["id"] for row in of_sql("blocking", "accounts")}
    assert deleted == deletes
