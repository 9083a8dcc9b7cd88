"""Tables that load first and are cut by their transactions: the load ends with a state that the database had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream import serdes
from tests.faults.one_process import application, process
from tests.filetopics.topics import write
from tests.laws.crashes import Crash, crashing
from tests.laws.effort import cases
from tests.operators.debezium.transactions.database import (
    TABLES,
    TRANSACTIONS,
    Account,
    Database,
    Record,
    topic_of,
)
from tests.spark.world import World

TEXT, NUMBER = serdes.string(), serdes.int64()


def topology(load: Any = "first") -> cs.Topology:
    """Each question is answered with the sum of an account's two balances. Only one table says that it loads first."""
    builder = cs.StreamsBuilder()
    tables = [
        builder.table(
            topic_of(table),
            cs.Consumed(load=load if number == 0 else None),
            cs.Materialized(store=table),
            source=cs.debezium(Account, unavailable_value=None, transactions=TRANSACTIONS),
        )
        for number, table in enumerate(TABLES)
    ]
    sums = tables[0].outer_join(tables[1], lambda one, other: _amount(one) + _amount(other))
    questions = builder.stream("questions", cs.Consumed(key=NUMBER, value=TEXT))
    questions.left_join(sums, lambda question, total: f"{question}: {total}").to(
        "answers", cs.Produced(key=NUMBER, value=TEXT)
    )
    return builder.build()


def _amount(account: Account | None) -> int:
    return 0 if account is None else account.amount


def made(root: Path) -> World:
    world = World(root)
    world.create(questions=1, answers=1)
    log = world.topics.log()
    for topic in (*map(topic_of, TABLES), TRANSACTIONS):
        log.create_topic(topic, 1)
    return world


def deliver(world: World, records: Iterable[Record]) -> None:
    for one in records:
        write(world.topics, [(one.key, one.value, one.time, None)], one.topic, one.partition)


def ask(world: World, *ids: int) -> None:
    world.append("questions", [(id_, "?", 0) for id_ in ids], NUMBER, TEXT)


def answers(world: World) -> list[tuple[int, str]]:
    return [(record.key, record.value) for record in world.read("answers", NUMBER, TEXT)]


def total(database: Database, id_: int) -> str:
    held = [database.rows[table, id_] for table in TABLES if (table, id_) in database.rows]
    return f"?: {sum(held) if held else None}"


some_changes = st.lists(
    st.tuples(st.sampled_from(TABLES), st.integers(1, 3), st.integers(0, 9) | st.none()), max_size=3
)


@cases(0.6)
@given(
    st.lists(some_changes, max_size=5),
    st.integers(0, 30),
    st.sampled_from([None, 1, 3]),
    st.lists(st.integers(0, 30), max_size=2),
)
def test_the_load_ends_behind_the_last_transaction_that_is_whole(
    transactions: list[Any], there: int, most: int | None, crashes: Sequence[int]
) -> None:
    """The rest of the records comes when the application has begun."""
    database = Database()
    sent = database.snapshot(("checking", 1, 100), ("savings", 1, 200))
    expected = [(id_, total(database, id_)) for id_ in (1, 2, 3)]
    there += len(sent)
    for changes in transactions:
        sent += database.transaction(*changes)
        if len(sent) <= there:
            expected = [(id_, total(database, id_)) for id_ in (1, 2, 3)]
    with TemporaryDirectory() as folder:
        world = made(Path(folder))
        config = world.config(max_records_per_batch=most or 1_000)
        deliver(world, sent[:there])
        ask(world, 1, 2, 3)
        with application(topology(), config):
            pass
        deliver(world, sent[there:])
        for last in crashes:
            with suppress(Crash), crashing(last):
                process(topology(), config)
        process(topology(), config)
        assert sorted(answers(world)) == expected
        held = {(table, id_): row["amount"] for table in TABLES for id_, row in rows(world, table).items()}
        assert held == database.rows


def rows(world: World, table: str) -> dict[int, Any]:
    return dict(cs.open_store(world.state_dir, table).all())


def test_a_snapshot_that_has_begun_is_waited_for(tmp_path: Path) -> None:
    world, database = made(tmp_path), Database()
    sent = database.snapshot(("checking", 1, 100), ("checking", 2, 100), ("savings", 1, 200))
    deliver(world, sent[:1])
    ask(world, 1)
    with application(topology(), world.config()) as running:
        assert not running.run_next()
        assert running.sources.transactions.waits == (
            f"waits for the snapshot of {topic_of('checking')}",
            f"waits for the snapshot of {topic_of('savings')}",
        )
        deliver(world, sent[1:])
        while running.run_next():
            pass
    assert answers(world) == [(1, "?: 300")]


def test_without_the_setting_questions_come_first(tmp_path: Path) -> None:
    world, database = made(tmp_path), Database()
    deliver(world, database.snapshot(("checking", 1, 100), ("savings", 1, 200)))
    ask(world, 1)
    process(topology(None), world.config())
    assert answers(world) == [(1, "?: None")]
