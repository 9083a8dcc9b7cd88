"""Where a batch stands is named wherever a batch is named; and Avro says the same as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import crossstream as cs
from crossstream import serdes
from crossstream.serdes.debezium.boundaries import boundaries_of, marks_of, remembered_of
from crossstream.serdes.registry.client import RegistrySettings, connection
from crossstream.storage.log_entries import lsn_text
from tests.operators.debezium.transactions.database import TRANSACTIONS, Account, topic_of
from tests.operators.debezium.transactions.test_rules import Bank, C, S


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path, retain_batches=10)


def lsn_of(bank: Bank) -> int:
    assert bank.stand is not None
    assert bank.stand.lsn is not None
    return bank.stand.lsn


def test_a_store_as_of_a_place_in_the_log(bank: Bank) -> None:
    places = []
    for amount in (1, 2, 3):
        bank.run(bank.database.transaction((C, 1, amount), (S, 1, -amount)))
        places.append(lsn_of(bank))

    def amount_at(as_of: str) -> Any:
        return cs.open_store(bank.state, C, as_of=as_of).get(1)["amount"]

    assert [amount_at(f"lsn:{lsn_text(place)}") for place in places] == [1, 2, 3]
    assert [amount_at(f"lsn:{place - 1}") for place in places[1:]] == [1, 2]
    assert amount_at(f"lsn:{places[0]}@{TRANSACTIONS}") == 1
    with pytest.raises(cs.StateError, match="no batch that is kept stands at") as caught:
        amount_at(f"lsn:{places[0] - 1}")
    assert caught.value.code == "CS-713"
    for wrong in ("lsn:", "lsn:0/XYZ", "lsn:-1"):
        with pytest.raises(cs.StateError, match="is no such place"):
            amount_at(wrong)


def test_progress_names_where_the_batch_stands(bank: Bank) -> None:
    seen = []
    bank.listener = lambda progress: seen.append(progress.to_dict()["stands"])
    bank.run(bank.database.transaction((C, 1, 1), (S, 1, -1)))
    assert bank.stand is not None
    stands = {TRANSACTIONS: {"transaction": "501", "lsn": lsn_text(bank.stand.lsn), "time": bank.stand.time}}
    assert seen == [stands]


def test_the_commit_of_a_delta_table_names_it(tmp_path: Path) -> None:
    bank = Bank(tmp_path)
    builder = cs.StreamsBuilder()
    for table in (C, S):
        source = cs.debezium(Account, unavailable_value=None, transactions=TRANSACTIONS)
        rows = builder.table(topic_of(table), source=source, materialized=cs.Materialized(store=table))
        rows.to_delta(str(tmp_path / table))
    bank.topology = builder.build()
    bank.run(bank.database.transaction((C, 1, 1), (S, 1, -1)))
    noted = DeltaTable(str(tmp_path / C)).history(1)[0]["crossstream.stands"]
    assert bank.stand is not None
    assert json.loads(noted) == {TRANSACTIONS: bank.stand.shown()}


def test_a_started_application_processes_what_is_whole(bank: Bank) -> None:
    first = bank.database.transaction((C, 1, 1), (S, 1, -1))
    second = bank.database.transaction((C, 1, 2), (S, 1, -2))
    bank.topics.deliver([*first, *second[:2]])
    with cs.SparkStreams(bank.topology, bank.config) as app:
        app.start()
        app.process_available()
        assert app.store(C).get(1) == Account(1, 1)
        assert app.progress.waits == (f"waits for the end of transaction 502 in {TRANSACTIONS}",)
        bank.topics.deliver(second[2:])
        app.process_available()
        assert app.store(C).get(1) == Account(1, 2)
        assert app.progress.waits == ()


# -- Avro


@dataclass
class Source:
    connector: str
    name: str
    db: str
    schema: str
    table: str
    snapshot: str
    lsn: int


@dataclass
class Transaction:
    id: str
    total_order: int


@dataclass
class Event:
    after: Account | None
    source: Source
    transaction: Transaction | None
    op: str


@dataclass
class Collection:
    data_collection: str
    event_count: int


@dataclass
class Boundary:
    status: str
    id: str
    event_count: int | None
    data_collections: list[Collection] | None
    ts_ms: int


def avro(url: str, kind: type, rows: list[Any]) -> list[bytes]:
    """Rows as a connector writes them, with the schema that it has registered."""
    serde: Any = serdes.confluent_avro(url, kind).written_to(kind.__name__, False)
    id = connection(RegistrySettings.of(url)).register(f"{kind.__name__}-value", "AVRO", serde.schema)
    return [b"\0" + id.to_bytes(4, "big") + serde.serialize(row)[5:] for row in rows]


def test_events_in_avro() -> None:
    url = "mock://boundaries"
    source = Source("postgresql", "bank", "bank", "public", C, "false", 77)
    event = Event(Account(1, 2), source, Transaction("571:77", 3), "c")
    read = Event(Account(1, 2), Source("postgresql", "bank", "bank", "public", C, "last", 9), None, "r")
    values = [*avro(url, Event, [event, read]), None, b"\0\0\0\0\x63nothing"]
    marks = marks_of(pa.array(values, pa.large_binary()), RegistrySettings.of(url))
    assert marks.ids.to_list() == ["571", None, None, None]
    assert marks.collections.to_list() == ["public.checking", "public.checking", None, None]
    assert marks.orders.tolist() == [3, 0, 0, 0]
    assert marks.snapshots.tolist() == [0, 5, 0, 0]
    assert marks.lsns.tolist() == [77, 9, -1, -1]
    assert marks.origins == ("postgresql bank",)


def test_transactions_in_avro() -> None:
    url = "mock://boundaries"
    counts = [Collection("public.checking", 2), Collection("public.savings", 1)]
    rows = [Boundary("BEGIN", "571:70", None, None, 5), Boundary("END", "571:90", 3, counts, 6)]
    values = pa.array(avro(url, Boundary, rows), pa.large_binary())
    found = boundaries_of(values, RegistrySettings.of(url))
    assert (found.rows.tolist(), found.ids, found.short) == ([1], ["571:90"], ["571"])
    assert (found.names, found.counts.tolist()) == (["public.checking", "public.savings"], [2, 1])
    assert (found.lsns.tolist(), found.times.tolist(), found.open) == ([90], [6], None)
    assert remembered_of(values, RegistrySettings.of(url)).ids == ["571:90"]


@pytest.mark.parametrize("wrap", [False, True])
def test_ids_are_found_in_json_without_decoding_it(wrap: bool) -> None:
    rows = [
        {"status": "BEGIN", "id": "571:70", "event_count": None},
        {"status": "END", "id": "571:90", "event_count": 0, "data_collections": []},
    ]
    texts = [json.dumps({"schema": None, "payload": row} if wrap else row).encode() for row in rows]
    values = pa.array([*texts, None, b"\xff"], pa.large_binary())
    found = remembered_of(values, None)
    assert (found.rows.tolist(), found.ids, found.short) == ([1], ["571:90"], ["571"])
