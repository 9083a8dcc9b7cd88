"""Where batches end, rule by rule (semantics 3.18)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.metrics.observation import Progress
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Stand
from tests.operators.debezium.transactions.database import (
    TRANSACTIONS,
    Database,
    Record,
    Topics,
    topic_of,
    topology,
)

C, S = "checking", "savings"


class Bank:
    """An application that reads the topics of a database; `run` is a start, and what it could take."""

    def __init__(self, folder: Path, partitions: int = 1, **settings: Any) -> None:
        self.topics_dir = folder / "topics"
        self.state = folder / "state"
        self.database = Database(partitions)
        self.topics = Topics(cs.filetopics.FileTopics(self.topics_dir), partitions)
        self.settings = settings
        self.topology = topology()
        self.listener: Callable[[Progress], None] = lambda progress: None
        self.waits: tuple[str, ...] = ()

    @property
    def config(self) -> cs.StreamsConfig:
        places = {"topics_dir": self.topics_dir, "state_dir": self.state}
        return cs.StreamsConfig(application_id="bank", engine="local", **places, **self.settings)

    def run(self, *deliveries: Iterable[Record]) -> dict[str, dict[int, int]]:
        """The rows by table, after each delivery was processed as far as it could be."""
        with cs.SparkStreams(self.topology, self.config) as app:
            app.on_progress(self.listener)
            for delivery in deliveries or ((),):
                self.topics.deliver(delivery)
                app.process_available()
            rows = {table: {key: row.amount for key, row in app.store(table).all()} for table in (C, S)}
            self.waits = app.progress.waits
        return rows

    @property
    def stand(self) -> Stand | None:
        commit = BatchLog(self.state).last_commit()
        return None if commit is None else commit.stands.get(TRANSACTIONS)


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


def test_a_transaction_whose_events_are_not_all_there_waits(bank: Bank) -> None:
    first = bank.database.transaction((C, 1, 100), (S, 1, 0))
    second = bank.database.transaction((C, 1, 70), (S, 1, 30))
    rest = second.pop(2)
    assert bank.run([*first, *second]) == {C: {1: 100}, S: {1: 0}}
    assert bank.stand is not None
    assert bank.stand.transaction == "501"
    assert bank.run([rest]) == {C: {1: 70}, S: {1: 30}}
    assert bank.stand.transaction == "502"


def test_without_transactions_half_of_one_is_seen(bank: Bank) -> None:
    first = bank.database.transaction((C, 1, 100), (S, 1, 0))
    second = bank.database.transaction((C, 1, 70), (S, 1, 30))
    del second[2]
    bank.topology = topology(None)
    assert bank.run([*first, *second]) == {C: {1: 70}, S: {1: 0}}


def test_the_wait_names_the_events_the_transaction_and_the_table(bank: Bank) -> None:
    first = bank.database.transaction((C, 1, 100), (S, 1, 0), (S, 2, 0), (S, 3, 0))
    bank.run(first[:2] + first[5:])
    assert bank.waits == ("waits for 3 events of transaction 501 in public.savings",)
    bank.run(first[2:4])
    assert bank.waits == ("waits for 1 event of transaction 501 in public.savings",)
    bank.run(first[4:5])
    assert bank.waits == ()


def test_a_connector_that_stopped_in_the_middle_and_a_topic_that_is_behind(bank: Bank) -> None:
    """Both look alike: events are there, and the END is not."""
    first = bank.database.transaction((C, 1, 100), (S, 1, 0))
    second = bank.database.transaction((C, 1, 70), (S, 1, 30))
    assert bank.run(first, second[:-1]) == {C: {1: 100}, S: {1: 0}}
    assert bank.waits == (f"waits for the end of transaction 502 in {TRANSACTIONS}",)
    assert bank.run(second[-1:]) == {C: {1: 70}, S: {1: 30}}


def test_events_without_a_transaction_belong_to_what_precedes(bank: Bank) -> None:
    first = bank.database.transaction((C, 1, 100), (S, 1, 0))
    alone = bank.database.event(C, 7, 7, None)
    beat = [bank.database.heartbeat(C)]
    second = bank.database.transaction((C, 1, 70), (S, 1, 30))
    late = bank.database.event(C, 8, 8, None)
    assert bank.run([*first, *alone, *beat, *second[:2], *late]) == {C: {1: 100, 7: 7}, S: {1: 0}}
    assert bank.run(second[2:]) == {C: {1: 70, 7: 7, 8: 8}, S: {1: 30}}


def test_a_delete_and_its_tombstone(bank: Bank) -> None:
    first = bank.database.transaction((C, 1, 100), (S, 1, 0))
    second = bank.database.transaction((C, 1, None), (S, 1, 100))
    assert bank.run([*first, *second[:3]]) == {C: {1: 100}, S: {1: 0}}
    assert bank.run(second[3:]) == {C: {}, S: {1: 100}}


def test_tables_that_are_not_read_are_not_waited_for(bank: Bank) -> None:
    first = bank.database.transaction((C, 1, 100), ("audit", 1, 1), (S, 1, 0))
    there = [one for one in first if "audit" not in one.topic]
    assert bank.run(there) == {C: {1: 100}, S: {1: 0}}


def test_a_topic_without_any_event_is_waited_for_by_its_name(bank: Bank) -> None:
    first = bank.database.transaction((C, 1, 100), (S, 1, 0))
    rest = first.pop(2)
    assert bank.run(first) == {C: {}, S: {}}
    assert bank.waits == ("waits for 1 event of transaction 501 in public.savings",)
    assert bank.run([rest]) == {C: {1: 100}, S: {1: 0}}


@pytest.mark.parametrize("most", [None, 1, 3])
def test_a_snapshot_is_one_transaction(tmp_path: Path, most: int | None) -> None:
    bank = Bank(tmp_path, max_records_per_batch=most)
    rows = bank.database.snapshot((C, 1, 1), (C, 2, 2), (C, 3, 3), (S, 1, 1), (S, 2, 2))
    assert bank.run(rows[:2], rows[2:3], rows[3:4]) == {C: {}, S: {}}
    assert bank.waits == (f"waits for the snapshot of {topic_of(S)}",)
    assert BatchLog(bank.state).commits() == []
    assert bank.run(rows[4:]) == {C: {1: 1, 2: 2, 3: 3}, S: {1: 1, 2: 2}}
    assert BatchLog(bank.state).commits() == [0]
    assert bank.stand is not None
    assert bank.stand.lsn == bank.database.lsn


def test_a_snapshot_that_was_cut_off_begins_again(bank: Bank) -> None:
    rows = [(C, 1, 1), (C, 2, 2), (S, 1, 1), (S, 2, 2)]
    before = bank.database.snapshot(*rows)
    again = bank.database.snapshot(*rows)
    assert bank.run([*before[:3], *again[:1]]) == {C: {}, S: {}}
    assert bank.run(again[1:]) == {C: {1: 1, 2: 2}, S: {1: 1, 2: 2}}


def test_the_only_row_of_the_first_table_is_not_marked_as_its_last(bank: Bank) -> None:
    rows = bank.database.snapshot((C, 1, 1), (S, 1, 1), (S, 2, 2))
    assert bank.run(rows[:2]) == {C: {}, S: {}}
    assert bank.run(rows[2:]) == {C: {1: 1}, S: {1: 1, 2: 2}}


def test_an_empty_table_is_loaded_when_the_snapshot_has_ended(bank: Bank) -> None:
    rows = bank.database.snapshot((C, 1, 1), (C, 2, 2))
    assert bank.run(rows) == {C: {1: 1, 2: 2}, S: {}}


def test_an_empty_table_is_loaded_when_transactions_begin(bank: Bank) -> None:
    """The last row of the snapshot is in a table that is not read."""
    rows = bank.database.snapshot((C, 1, 1), (C, 2, 2), ("audit", 1, 1), tables=(C, "audit"))
    assert bank.run(rows[:2]) == {C: {}, S: {}}
    assert bank.waits == (f"waits for the snapshot of {topic_of(S)}",)
    first = bank.database.transaction((C, 1, 100))
    assert bank.run(first) == {C: {1: 100, 2: 2}, S: {}}


def test_rows_of_an_incremental_snapshot_stand_between_transactions(bank: Bank) -> None:
    first = bank.database.transaction((C, 1, 100), (S, 1, 0))
    read = [bank.database.read(C, 5, 5, "incremental")]
    second = bank.database.transaction((C, 1, 70), (S, 1, 30))
    more = [bank.database.read(C, 6, 6, "incremental")]
    assert bank.run([*first, *read, *second[:2], *more]) == {C: {1: 100, 5: 5}, S: {1: 0}}
    assert bank.run(second[2:]) == {C: {1: 70, 5: 5, 6: 6}, S: {1: 30}}


def test_a_connector_that_starts_again_repeats_transactions(bank: Bank) -> None:
    """No batch ends in what is repeated, where rows go back to earlier states."""
    one = bank.database.transaction((C, 1, 100), (S, 1, 0))
    two = bank.database.transaction((C, 1, 70), (S, 1, 30))
    three = bank.database.transaction((C, 1, 60), (S, 1, 40))
    assert bank.run([*one, *two]) == {C: {1: 70}, S: {1: 30}}
    repeated = [*one, *two, *three]
    for stop in range(1, 9):
        assert bank.run(repeated[stop - 1 : stop]) == {C: {1: 70}, S: {1: 30}}, stop
    assert bank.run(repeated[8:]) == {C: {1: 60}, S: {1: 40}}
    assert bank.waits == ()


def test_a_connector_that_starts_again_in_a_transaction(bank: Bank) -> None:
    """Its events have the places that they had; BEGIN does not come again."""
    one = bank.database.transaction((C, 1, 100), (S, 1, 0))
    two = bank.database.transaction((C, 1, 1), (S, 1, 1), (C, 1, 2), (S, 1, 2), (C, 1, 3), (S, 1, 97))
    assert bank.run([*one, *two[:5], *two[3:5], *two[3:6]]) == {C: {1: 100}, S: {1: 0}}
    assert bank.run(two[6:]) == {C: {1: 3}, S: {1: 97}}


def test_a_repeat_after_the_last_end_waits_for_nothing_that_is_new(bank: Bank) -> None:
    one = bank.database.transaction((C, 1, 100), (S, 1, 0))
    two = bank.database.transaction((C, 1, 70), (S, 1, 30))
    assert bank.run([*one, *two, *one[1:2]]) == {C: {1: 70}, S: {1: 30}}
    assert bank.waits == (f"waits for events of {topic_of(C)} that come again",)
    assert bank.run(two[1:2]) == {C: {1: 70}, S: {1: 30}}
    assert bank.waits == ()


def test_a_transaction_that_is_split_is_taken_before_later_ones(tmp_path: Path) -> None:
    """The transaction topic is behind: of neither transaction the end is there."""
    bank = Bank(tmp_path, max_transaction_records=1)
    first = bank.database.transaction((C, 1, 1), (C, 2, 2), (S, 1, 3))
    second = bank.database.transaction((C, 1, 10), (C, 2, 20))
    assert bank.run(first[:3]) == {C: {1: 1}, S: {}}
    assert bank.run(second[1:3]) == {C: {1: 1, 2: 2}, S: {}}
    assert bank.waits == (f"waits for the end of transaction 501 in {TRANSACTIONS}",)
    assert bank.run([*first[3:], second[0], second[3]]) == {C: {1: 10, 2: 20}, S: {1: 3}}
    assert bank.waits == ()


def test_a_part_of_a_transaction_has_no_event_of_a_later_one_that_has_ended(tmp_path: Path) -> None:
    bank = Bank(tmp_path, max_transaction_records=1)
    first = bank.database.transaction((C, 1, 1), (S, 1, 3))
    second = bank.database.transaction((S, 1, 30), (S, 2, 40))
    assert bank.run([first[0], *first[2:], *second]) == {C: {}, S: {1: 3}}
    assert bank.waits == ("waits for 1 event of transaction 501 in public.checking",)
    assert bank.run(first[1:2]) == {C: {1: 1}, S: {1: 30, 2: 40}}
    assert bank.waits == ()
