"""Rules of source transactions that need no application: what a batch takes, seen by its planner (semantics 3.18)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import crossstream as cs
from crossstream.errors import SourceError
from crossstream.topics import TopicPartition
from tests.operators.debezium.transactions.database import (
    TRANSACTIONS,
    Account,
    Database,
    Record,
    topic_of,
    topology,
)
from tests.operators.debezium.transactions.memory import Memory, Reader

C, S = "checking", "savings"
GRAPH = topology()


def reader(partitions: int = 1, **settings: Any) -> Reader:
    return Reader(Memory(), GRAPH, partitions, **settings)


def batches(made: Reader) -> list[str]:
    """The transactions behind which the batches end that there are now."""
    found = []
    while made.batch():
        assert made.stand is not None
        found.append(made.stand.transaction)
    return found


def test_a_batch_takes_all_that_is_whole() -> None:
    database, made = Database(), reader()
    for amount in range(5):
        made.memory.append(database.transaction((C, 1, amount), (S, 1, -amount)))
    assert batches(made) == ["505"]


@pytest.mark.parametrize(
    ("most", "ends"), [(1, ["501", "502", "503"]), (4, ["502", "503"]), (5, ["502", "503"])]
)
def test_the_limit_of_a_batch_chooses_a_transaction_and_at_least_one(most: int, ends: list[str]) -> None:
    database, made = Database(), reader(most=most)
    for amount in range(3):
        made.memory.append(database.transaction((C, 1, amount), (S, 1, -amount)))
    assert batches(made) == ends


def test_events_without_a_transaction_are_limited_too() -> None:
    database, made = Database(), reader(most=2)
    for amount in range(6):
        made.memory.append(database.event(C, 1, amount, None))
    made.memory.append([database.boundary("BEGIN", 1), database.boundary("END", 1, {})])
    found = []
    while made.batch():
        found.append(made.positions[GRAPH_C][topic_of(C)][0])
    assert found == [2, 4, 6]


GRAPH_C = next(node.name for node in GRAPH if getattr(node, "topics", ()) == (topic_of(C),))


def test_a_partition_that_shows_a_later_transaction_is_complete() -> None:
    """A filter of the connector left an event out that END counts."""
    database, made = Database(), reader()
    first = database.transaction((C, 1, 1), (C, 2, 2), (S, 1, 1))
    second = database.transaction((C, 1, 3), (S, 1, 3))
    made.memory.append([*first[:2], *first[3:]])
    assert batches(made) == []
    assert made.transactions.waits == ("waits for 1 event of transaction 501 in public.checking",)
    made.memory.append(second)
    assert batches(made) == ["502"]


def test_compaction_leaves_holes_that_stand_for_events() -> None:
    """One partition of three shows that its event is gone, and the others never had one: they are not waited for."""
    database, made = Database(3), reader(3)
    old = database.transaction((C, 0, 1), (C, 1, 1))
    made.memory.append(old)
    database.time += 120_000
    made.memory.append(database.transaction((C, 0, 2)))
    made.memory.records[TopicPartition(topic_of(C), 0)][0] = None
    assert batches(made) == ["502"]
    assert made.rows == {(C, 0): 2, (C, 1): 1}


def test_young_records_are_not_compacted() -> None:
    """A transaction of Kafka leaves holes, too."""
    database, made = Database(3), reader(3)
    made.memory.append(database.transaction((C, 0, 1), (C, 1, 1)))
    made.memory.append(database.transaction((C, 0, 2)))
    made.memory.records[TopicPartition(topic_of(C), 0)][0] = None
    assert batches(made) == []


def test_an_end_that_was_lost_is_passed_over() -> None:
    """The transaction topic keeps its records for a shorter time than the others."""
    database, made = Database(), reader()
    first, second = database.transaction((C, 1, 1), (S, 1, 1)), database.transaction((C, 1, 2), (S, 1, 2))
    made.memory.append([*first[1:3], *second])
    assert batches(made) == ["502"]
    assert made.rows == {(C, 1): 2, (S, 1): 2}


def test_an_application_that_read_the_topics_without_transactions_before() -> None:
    database, made = Database(), reader()
    made.memory.append(database.transaction((C, 1, 1), (S, 1, 1)))
    second = database.transaction((C, 1, 2), (S, 1, 2), (S, 2, 2))
    made.memory.append(second[:3])
    for node in GRAPH:
        for topic in getattr(node, "topics", ()):
            made.positions[node.name][topic][0] = 2 if topic == topic_of(C) else 1
    made.restart()
    assert batches(made) == []
    made.memory.append(second[3:])
    assert batches(made) == ["502"]


def test_several_tables_in_one_topic() -> None:
    """A router gave them one: events say which table they are of."""
    database = Database()

    def routed(records: list[Record]) -> list[Record]:
        return [replace(one, topic=topic_of(C)) if one.topic == topic_of(S) else one for one in records]

    made = reader()
    first = database.transaction((C, 1, 1), (S, 1, 1), (C, 1, 2), (S, 1, 2))
    made.memory.append(routed(first[:-2]))
    made.memory.append(first[-1:])
    assert batches(made) == []
    assert made.transactions.waits == ("waits for 1 event of transaction 501 in public.savings",)
    made.memory.append(routed(first[-2:-1]))
    assert batches(made) == ["501"]


def test_two_databases_in_one_transaction_topic() -> None:
    """Their ids may be the same: the tables tell them apart."""
    one, other = Database(), Database(name="other", xid=500)
    made = reader()
    of_one, of_other = one.transaction((C, 1, 1), (C, 2, 1)), other.transaction((S, 1, 1), (S, 2, 1))
    made.memory.append([*of_one[:3], *of_other, of_one[3]])
    assert batches(made) == ["501"]
    assert made.rows == {(C, 1): 1, (C, 2): 1, (S, 1): 1, (S, 2): 1}
    more, others = one.transaction((C, 1, 2), (C, 2, 2)), other.transaction((S, 1, 2), (S, 2, 2))
    made.memory.append([*more, *others[:2], others[3]])
    assert batches(made) == ["502"]
    assert made.rows == {(C, 1): 2, (C, 2): 2, (S, 1): 1, (S, 2): 1}


def test_two_connectors_in_one_topic_are_refused() -> None:
    made = reader()
    made.memory.append(Database().transaction((C, 1, 1)))
    made.memory.append(Database(name="other").transaction((C, 1, 1)))
    with pytest.raises(SourceError, match="two connectors") as caught:
        made.batch()
    assert caught.value.code == "CS-622"


def test_a_transaction_topic_with_two_partitions_is_refused() -> None:
    with pytest.raises(SourceError, match="2 partitions") as caught:
        reader().transactions.check({TRANSACTIONS: 2})
    assert caught.value.code == "CS-622"


def test_rows_without_envelopes_are_refused() -> None:
    made = reader()
    made.memory.append([Record(topic_of(C), 0, b'{"id": 1}', b'{"id": 1, "amount": 2}', 5)])
    with pytest.raises(SourceError, match="rows without envelopes") as caught:
        made.batch()
    assert caught.value.code == "CS-622"


def test_a_transaction_that_is_too_large_is_split(caplog: pytest.LogCaptureFixture) -> None:
    database, made = Database(), reader(largest=10)
    rows = [(C, number, number) for number in range(25)] + [(S, 1, 1)]
    first = database.transaction(*rows)
    made.memory.append(first[:12])
    assert made.batch()
    assert made.stand is not None
    assert (made.stand.split, made.stand.taken) == ("501", {"public.checking": 10})
    assert made.transactions.waits == ("splits transaction 501",)
    assert "transaction 501 of bank.transaction has more than 10 records" in caplog.text
    assert not made.batch()
    made.restart()
    made.memory.append(first[12:-2])
    assert made.batch()
    assert made.stand.taken == {"public.checking": 20}
    made.memory.append(first[-1:])
    assert not made.batch()
    assert made.transactions.waits == ("waits for 1 event of transaction 501 in public.savings",)
    made.memory.append(first[-2:-1])
    assert made.batch()
    assert (made.stand.transaction, made.stand.split, made.stand.taken) == ("501", "", {})
    assert made.rows == database.rows


def test_what_waits_is_read_once() -> None:
    database, made = Database(), reader()
    first = database.transaction(*[(C, number, number) for number in range(50)])
    made.memory.append(first[:30])
    for _ in range(5):
        assert not made.batch()
    made.memory.append(first[30:])
    before = made.memory.reads
    assert batches(made) == ["501"]
    assert (before, made.memory.reads) == (30, 52)


def test_other_databases_call_their_tables_otherwise() -> None:
    """MySQL: database and table; SQL Server: all three."""
    made = reader()
    for connector, name in (("mysql", "bank.checking"), ("sqlserver", "bank.public.checking")):
        database = Database(connector=connector)
        first = database.transaction((C, 1, 1))
        schema = None if connector == "mysql" else "public"
        event = replace(first[1], value=first[1].value.replace(b'"schema": "public"', _json(schema)))  # type: ignore[union-attr]
        end = replace(first[2], value=first[2].value.replace(b"public.checking", name.encode()))  # type: ignore[union-attr]
        made = reader()
        made.memory.append([first[0], end])
        assert batches(made) == []
        assert made.transactions.waits == ()
        made.memory.append([event])
        assert batches(made) == ["501"]
        assert made.stand is not None
        assert made.stand.collections == {topic_of(C): (name,)}


def _json(value: str | None) -> bytes:
    return b'"schema": null' if value is None else b'"schema": "%s"' % value.encode()


def test_a_global_table_takes_no_transactions() -> None:
    source = cs.debezium(Account, unavailable_value=None, transactions=TRANSACTIONS)
    with pytest.raises(cs.errors.TopologyError, match="not by transactions"):
        cs.StreamsBuilder().global_table(topic_of(C), source=source)


# -- long backlogs, whose last records are read


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backlogs are long from 20 records on, and tails have 6."""
    monkeypatch.setattr("crossstream.runtime.transactions.group.LONG", 20)
    monkeypatch.setattr("crossstream.runtime.transactions.tails.TAIL", 6)


@pytest.mark.usefixtures("short")
def test_of_a_long_backlog_the_last_records_are_read() -> None:
    database, made = Database(), reader()
    for amount in range(100):
        made.memory.append(database.transaction((C, 1, amount), (S, 1, -amount)))
    assert made.batch()
    assert made.stand is not None
    assert made.stand.transaction == "599"
    decoded = made.memory.reads
    assert batches(made) == ["600"]
    assert made.rows == database.rows
    assert decoded < 300  # of 400, half of which are looked through for an id


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("rows", [30, 3])
def test_a_long_snapshot_by_its_last_records(rows: int) -> None:
    database, made = Database(), reader()
    snapshot = database.snapshot(*[(C, number, 1) for number in range(40)], *[(S, n, 1) for n in range(rows)])
    made.memory.append(snapshot[:-1])
    assert batches(made) == []
    assert made.transactions.waits == (f"waits for the snapshot of {topic_of(S)}",)
    made.memory.append(snapshot[-1:])
    assert batches(made) == [""]
    assert made.rows == database.rows


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("most", [None, 7, 30])
def test_a_long_backlog_of_a_connector_that_started_again(most: int | None) -> None:
    """Its tail ends in what comes again: all is read then."""
    database, made = Database(), reader(most=most)
    sent: list[Record] = []
    states = {}
    for amount in range(20):
        sent += database.transaction((C, amount % 3, amount), (S, 1, -amount))
        states[str(database.xid)] = dict(database.rows)
    for stop in range(len(sent) - 30, len(sent), 3):
        made = reader(most=most)
        made.memory.append([*sent, *sent[len(sent) - 40 : stop]])
        while made.batch():
            assert made.stand is not None
            assert made.rows == states[made.stand.transaction]
        assert made.rows == database.rows


@pytest.mark.usefixtures("short")
def test_a_quiet_table_beside_a_long_backlog() -> None:
    """END events that count it are looked for in all of the transaction topic."""
    database, made = Database(), reader()
    late: list[Record] = []
    for amount in range(30):
        found = database.transaction((C, 1, amount), *([(S, 1, 1)] if amount == 10 else []))
        late += [one for one in found if one.topic == topic_of(S)]
        made.memory.append([one for one in found if one.topic != topic_of(S)])
    assert batches(made) == ["510"]
    assert made.transactions.waits == ("waits for 1 event of transaction 511 in public.savings",)
    made.memory.append(late)
    assert batches(made) == ["530"]
    assert made.rows == database.rows
