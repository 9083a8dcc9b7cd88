"""The simulated connector writes what the real one wrote, and its topics hold what the tables hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.data.debezium.recordings import recorded
from tests.laws.database.connector import Connector, Record, compacted
from tests.laws.database.shown import Shown
from tests.laws.database.tables import Database, LockedRow, Tables, delete, move, put
from tests.spark.world import World


def of_a_shop(**settings: Any) -> tuple[Database, Connector]:
    """Two tables; rows before the snapshot, and a transaction behind it."""
    shop = Database(("accounts", "entries"))
    shop.commit(put("accounts", id=1, balance=5), put("accounts", id=2, balance=7))
    connector = Connector(shop, **settings)
    connector.snapshot()
    shop.commit(
        put("accounts", id=1, balance=4), put("entries", id=9, amount=-1), put("entries", id=8, amount=1)
    )
    return shop, connector


def values(records: Iterable[Record]) -> list[Any]:
    return [None if one.value is None else json.loads(one.value) for one in records]


def folded(connector: Connector, topics: Mapping[tuple[str, int], Iterable[Record]] | None = None) -> Tables:
    """The tables that the last event of each key leaves."""
    found: Tables = {}
    for table in connector.captured:
        rows = found[table] = {}
        for (topic, _), records in (topics or connector.topics).items():
            if topic == connector.topic(table):
                for one, event in zip(records, values(records), strict=True):
                    id = json.loads(one.key or b"")["id"]
                    rows.pop(id, None)
                    if event is not None and event["after"] is not None:
                        rows[id] = event["after"]
    return found


# -- as the real one -------------------------------------------------------------------------------------


def shape(value: Any, deep: int = 2) -> Any:
    """The names of the fields in their order, and the types of their values; of rows nothing."""
    if not isinstance(value, dict):
        return type(value).__name__
    return [(name, shape(one, deep - 1)) for name, one in value.items() if name not in ("before", "after")]


def shapes(events: Iterable[Any]) -> dict[tuple[Any, ...], Any]:
    """By what kind of record it is."""
    found = {}
    for event in events:
        if event is not None and "source" in event:
            kind = event["op"], event["source"]["snapshot"]
            first = "[null" in event["source"]["sequence"]
            found[(*kind, first)] = shape(event)
        elif event is not None:
            found[event.get("status"),] = shape(event)
    return found


def test_its_records_have_the_fields_of_recorded_ones():
    shop, connector = of_a_shop()
    connector.stream()
    shop.commit(move("accounts", 1, 3), delete("accounts", 2))
    connector.stream()
    connector.heartbeat()
    real = shapes(json.loads(one.value) for one in recorded("transactions", "json") if one.value)
    made = shapes(event for records in connector.topics.values() for event in values(records))
    assert len(made) == 8
    for kind, fields in made.items():
        assert fields == real[kind], kind
    events = (json.loads(one.value) for one in recorded("incremental", "json") if one.value)
    incremental = next(shape(one) for one in events if one["source"]["snapshot"] == "incremental")
    connector.incremental("accounts")
    assert shape(values(connector.topics["shop.public.accounts", 0])[-1]) == incremental


def test_its_transactions_are_counted_as_recorded_ones():
    """A change of the key counts twice, the tombstone of a delete not at all; the places in ids differ."""
    shop = Database(("customers", "orders"))
    connector = Connector(shop)
    connector.snapshot()
    shop.commit(put("customers", id=3), put("orders", id=11))
    connector.stream()
    shop.commit(move("customers", 3, 30))
    shop.commit(put("orders", id=13), put("orders", id=13), put("customers", id=4), delete("orders", 11))
    shop.commit()
    connector.stream()
    boundaries = values(connector.topics["shop.transaction", 0])
    assert [(one["status"], one["event_count"]) for one in boundaries[2:]] == [
        ("BEGIN", None), ("END", 2), ("BEGIN", None), ("END", 4), ("BEGIN", None), ("END", 0),
    ]  # fmt: skip
    assert boundaries[5]["data_collections"] == [
        {"data_collection": "public.orders", "event_count": 3},
        {"data_collection": "public.customers", "event_count": 1},
    ]
    assert boundaries[7]["data_collections"] == []
    ids = [one["id"].split(":") for one in boundaries]
    assert [xid for xid, _ in ids] == ["571", "571", "572", "572", "573", "573", "574", "574"]
    assert all(int(begin[1]) < int(end[1]) for begin, end in zip(ids[2:6:2], ids[3:6:2], strict=True))
    orders = [one["transaction"] for one in values(connector.topics["shop.public.orders", 0]) if one]
    assert [(one["total_order"], one["data_collection_order"]) for one in orders] == [
        (2, 1), (1, 1), (2, 2), (4, 3),
    ]  # fmt: skip
    assert connector.topics["shop.public.orders", 0][-1].value is None


@pytest.mark.parametrize(
    ("rows", "marks"),
    [
        ({}, []),
        ({"b": 1}, ["last"]),
        ({"a": 1, "b": 2}, ["first", "first_in_data_collection", "last"]),
        ({"a": 3}, ["first", "true", "last"]),
        ({"b": 1, "c": 1}, ["last_in_data_collection", "last"]),
        (
            {"a": 2, "b": 3, "c": 1},
            [
                "first",
                "last_in_data_collection",
                "first_in_data_collection",
                "true",
                "last_in_data_collection",
                "last",
            ],
        ),
    ],
)
def test_the_marks_of_a_snapshot(rows, marks):
    shop = Database(("a", "b", "c"))
    shop.commit(*(put(table, id=id) for table, count in rows.items() for id in range(count)))
    connector = Connector(shop, partitions=2)
    connector.snapshot()
    written = sorted((one for part in connector.topics.values() for one in part), key=lambda one: one.number)
    assert [one["source"]["snapshot"] for one in values(written)] == marks
    assert [one.ends_snapshot for one in written] == [mark == "last" for mark in marks]
    assert folded(connector) == shop.tables


def test_recorded_marks():
    """The model of `test_the_marks_of_a_snapshot`: tables with one, two and three rows."""
    events = [
        json.loads(one.value)
        for one in recorded("transactions", "json")
        if one.value and b'"op":"r"' in one.value
    ]
    events.sort(key=lambda one: one["ts_ns"])
    found: dict[str, list[str]] = {}
    for one in events:
        found.setdefault(one["source"]["table"], []).append(one["source"]["snapshot"])
    assert list(found.values()) == [
        ["first", "true", "last_in_data_collection"],
        ["last_in_data_collection"],
        ["first_in_data_collection", "last_in_data_collection"],
        ["first_in_data_collection", "last_in_data_collection"],
        ["first_in_data_collection", "last"],
    ]


# -- transactions ----------------------------------------------------------------------------------------


def test_open_transactions_see_their_own_rows_alone():
    shop = Database(("accounts",))
    one, other = shop.begin(), shop.begin()
    one.put("accounts", id=1, balance=5)
    other.put("accounts", id=2, balance=7)
    assert other.get("accounts", 1) is None
    with pytest.raises(LockedRow):
        other.put("accounts", id=1, balance=6)
    first, second = other.commit(), one.commit()
    assert (first.xid, second.xid) == (572, 571)
    assert second.changes[0].lsn < first.changes[0].lsn < first.lsn < second.lsn
    assert shop.states[1]["accounts"] == {2: {"id": 2, "balance": 7}} == shop.state_of(572)["accounts"]
    assert set(shop.states[2]["accounts"]) == {1, 2}
    gone = shop.begin()
    gone.delete("accounts", 1)
    gone.rollback()
    shop.commit(delete("accounts", 1), delete("accounts", 5))
    assert [set(state["accounts"]) for state in shop.states] == [set(), {2}, {1, 2}, {2}]


# -- what happens to a connector -------------------------------------------------------------------------


@pytest.mark.parametrize("back", range(8))
@pytest.mark.parametrize("lost", [0, 1, 5])
def test_a_connector_that_starts_again_writes_its_last_records_again(back, lost):
    shop, connector = of_a_shop(partitions=2)
    assert connector.stream(4) == 4
    assert connector.states_after == 1
    before = Counter(one.value for part in connector.topics.values() for one in part)
    connector.restart(back, {("shop.public.entries", 0): lost, ("shop.transaction", 0): lost})
    connector.stream()
    assert connector.states_after == 2
    assert folded(connector) == shop.tables
    after = Counter(one.value for part in connector.topics.values() for one in part)
    assert lost or not before - after
    if not lost:
        assert after.total() == before.total() + 1 + min(back, 4)
    rest = [one.place for one in connector.topics["shop.transaction", 0]]
    assert rest[-1] == 4


def test_a_snapshot_that_was_stopped_is_written_from_the_beginning():
    shop, _ = of_a_shop()
    shop.commit(delete("accounts", 2))
    stopped = Connector(shop)
    stopped.snapshot(stop_after=1)
    shop.commit(delete("accounts", 1))
    stopped.snapshot()
    marks = [one["source"]["snapshot"] for part in stopped.topics.values() for one in values(part)]
    assert marks == ["first", "first_in_data_collection", "last"]
    assert stopped.stream() == 0
    assert folded(stopped)["accounts"] == {1: {"id": 1, "balance": 4}}, "a ghost: no event has deleted it"


def test_rows_of_an_incremental_snapshot_are_those_of_their_place():
    _, connector = of_a_shop()
    connector.stream(2)
    connector.incremental("accounts", [1])
    connector.restart(5)
    connector.incremental("accounts", [1])
    found = [
        (one["op"], one["after"]["balance"], one["transaction"] is None)
        for one in values(connector.topics["shop.public.accounts", 0])
    ]
    assert found == [("r", 5, True), ("r", 7, True), ("u", 4, False), ("r", 4, True), ("r", 5, True)]
    assert len(connector.topics["shop.transaction", 0]) == 2, "the transaction that it was in went on first"


def test_events_of_a_connector_without_metadata():
    _, connector = of_a_shop(metadata=False, tombstones=False, route=lambda table: f"routed.{table}")
    connector.stream()
    assert connector.topics["shop.transaction", 0] == []
    assert all(one["transaction"] is None for one in values(connector.topics["routed.entries", 0]))
    assert connector.states_after == 2


@pytest.mark.parametrize("deleted", [False, True])
def test_compaction_leaves_the_last_record_of_each_key(deleted):
    shop, connector = of_a_shop()
    shop.commit(delete("accounts", 2), put("accounts", id=1, balance=0))
    connector.stream()
    records = connector.topics["shop.public.accounts", 0]
    assert [one.number for one in compacted(records, 0)] == [one.number for one in records]
    left = compacted(records, len(records), deleted)
    assert [value and value["after"] for value in values(left)] == [None] * (not deleted) + [
        {"id": 1, "balance": 0}
    ]
    assert compacted(records, 2) == records
    assert folded(connector, {**connector.topics, ("shop.public.accounts", 0): left}) == shop.tables


# -- topics ----------------------------------------------------------------------------------------------


def test_partitions_grow_as_far_as_they_are_shown(tmp_path: Path):
    _, connector = of_a_shop(partitions=2)
    world = World(tmp_path)
    topics = Shown(world, connector)
    assert topics.show("shop.transaction") == 0
    assert topics.show("shop.public.accounts", 1) == 1, "of account 1"
    connector.stream()
    assert topics.show("shop.transaction", count=1) == 1
    assert not topics.is_all
    topics.show_all()
    assert topics.is_all
    for topic in {topic for topic, _ in topics.owners}:
        for partition, rows in enumerate(world.wire(topic)):
            assert [row[:3] for row in rows] == [one.wire[:3] for one in connector.topics[topic, partition]]


@pytest.mark.parametrize("is_behind", [False, True])
def test_the_end_of_a_snapshot_is_shown_behind_its_rows(tmp_path: Path, is_behind: bool):
    shop = Database(("a", "b"))
    shop.commit(put("a", id=1), put("a", id=2), put("b", id=3))
    connector = Connector(shop, partitions=2)
    connector.snapshot()
    shop.commit(put("a", id=1), put("b", id=4))
    connector.stream()
    topics = Shown(World(tmp_path), connector)
    assert topics.show("shop.public.a", 0, 1) == 1
    assert sum(topics.counts.values()) == 1
    owner = ("shop.transaction", 0) if is_behind else ("shop.public.b", 1)
    topics.show(*owner, 1)
    assert sum(topics.counts.values()) == 3 + is_behind
