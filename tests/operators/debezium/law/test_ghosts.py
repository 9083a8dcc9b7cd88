"""Rows that were deleted while the connector was away are gone after its next snapshot, and their effects with them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

import crossstream as cs
from crossstream import serdes
from tests.laws.effort import law
from tests.laws.engine import Way, ways
from tests.operators.debezium.snapshots import (
    BYTES,
    Database,
    Life,
    Note,
    check,
    of_database,
    run,
    some_lives,
)
from tests.runtime.test_slices import sliced

PLAIN = Life([], "only", "envelope", [], {})
SETTINGS: list[dict[str, Any]] = [{}, {"ordered_by": "source.lsn"}, {"unavailable_fields": []}]


@pytest.fixture
def base() -> Database:
    """Rows 1, 2, 3, of which a snapshot showed all; 3 is deleted while the connector is away."""
    made = Database(partitions=2)
    for key in (1, 2, 3):
        made.change(key, key % 3, seen=False)
    made.snapshot(0)
    made.change(3, None, seen=False)
    return made


def notes(base: Database, every: int = 1000, turns: list[int] | None = None, **settings: Any) -> list[int]:
    """The keys of the rows at the end."""
    life = replace(PLAIN, turns=turns or [], settings=settings)
    return sorted(run(life, Way(partitions=2, every=every), base)["notes"])


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("every", [1, 2, 1000])
@pytest.mark.parametrize("turns", [[], [0] * 20, [1] * 20])
def test_a_row_that_the_second_snapshot_does_not_show(base, settings, every, turns):
    base.snapshot(0)
    assert notes(base, every, turns, **settings) == [1, 2]
    assert notes(base, every, turns, **settings, snapshots="partial") == [1, 2, 3]


def test_a_snapshot_of_one_row(base):
    base.change(1, None, seen=False)
    base.snapshot(0)
    assert notes(base) == [2]


def test_a_snapshot_that_breaks_off_deletes_nothing(base):
    base.snapshot(0, until=1)
    assert notes(base) == [1, 2, 3]


def test_an_incremental_snapshot_deletes_nothing(base):
    base.incremental([1, 2])
    assert notes(base) == [1, 2, 3]


def test_a_snapshot_by_a_condition(base):
    """No event says that a blocking snapshot had one: the setting does."""
    base.change(4, 0, seen=True)
    base.snapshot(0, condition=True)
    assert notes(base, snapshots="partial") == [1, 2, 3, 4]


def test_a_connector_that_marks_nothing_but_the_last_row_of_all_tables(base):
    """As versions before 2.0: their marks are true and last."""
    base.snapshot(0)
    base.events = [
        one._replace(value=None if one.value is None else one.value.replace(b'"first"', b'"true"'))
        for one in base.events
    ]
    assert notes(base) == [1, 2]


def test_a_connector_that_does_not_say_where_in_the_log_it_is(base):
    base.snapshot(0)
    base.events = [
        one._replace(value=None if one.value is None else one.value.replace(b'"lsn"', b'"other"'))
        for one in base.events
    ]
    assert notes(base) == [1, 2, 3]


@pytest.mark.parametrize("every", [1, 1000])
def test_a_topic_of_several_tables(base, every):
    """A snapshot of one of them says nothing about the rows of the others."""
    other = Database(partitions=2, table="other", time=base.time + 20)
    for key in (7, 8):
        other.change(key, 1, seen=False)
    other.snapshot(0)
    base.time = other.time + 20
    base.snapshot(0)
    base.events += other.events
    base.events.sort(key=lambda one: one.time)
    assert notes(base, every) == [1, 2, 3, 7, 8]


def test_what_is_passed_over_is_counted(base):
    """An event from before the snapshot, which another partition kept back."""
    late = base.events[-1]._replace(time=base.time - 1)
    base.events = [one for one in base.events if json.loads(one.key) != {"id": 3}]
    base.snapshot(0)
    row = {"id": 3, "grade": 0, "text": "late"}
    event = {"op": "u", "after": row, "source": {"snapshot": "false", "lsn": 5}}
    base.events.append(late._replace(key=b'{"id": 3}', value=json.dumps(event).encode(), partition=1))
    builder = cs.StreamsBuilder()
    builder.table("notes", source=cs.debezium(Note), store="notes")
    with cs.TopologyTestDriver(builder.build(), partitions=2) as driver:
        topic = driver.create_input_topic("notes", BYTES, BYTES)
        for one in base.events:
            topic.pipe_input(one.key, one.value, one.time, partition=one.partition)
        assert sorted(key for key, _ in driver.get_key_value_store("notes").all()) == [1, 2]
        assert driver.metrics()["dropped"] == {"notes: event-before-snapshot": 1}


def test_a_clock_that_goes_back_loses_no_change_of_a_row(base):
    """Another worker of Connect, whose clock is behind, writes the next changes."""
    base.snapshot(0)
    base.time -= 500
    base.change(1, 2, seen=True)
    base.change(2, None, seen=True)
    assert run(PLAIN, Way(partitions=2), base) == of_database(base)


def test_deletes_go_downstream_with_the_end_of_the_snapshot(base):
    base.snapshot(0)
    builder = cs.StreamsBuilder()
    table = builder.table("notes", source=cs.debezium(Note))
    table.to_stream().to("out", cs.Produced(key=serdes.int64()))
    with cs.TopologyTestDriver(builder.build(), partitions=2, commit_every=1000) as driver:
        topic = driver.create_input_topic("notes", BYTES, BYTES)
        out = driver.create_output_topic("out", serdes.int64(), serdes.json())
        for one in base.events:
            topic.pipe_input(one.key, one.value, one.time, partition=one.partition)
        driver.commit()
        deleted = [(one.key, one.timestamp) for one in out.read_records() if one.value is None]
    assert deleted == [(3, base.events[-1].time)]


@law
@given(some_lives, ways())
def test_keys_are_taken_in_slices(life, way):
    with sliced(1):
        check(life, way)
