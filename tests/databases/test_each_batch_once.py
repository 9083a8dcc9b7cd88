"""Each batch is in Postgres once: an application, its connection or the server is stopped at each step of a batch."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import crossstream as cs
from crossstream.databases.connection import Session
from crossstream.databases.postgres import PostgresSink
from crossstream.dev import cdc
from crossstream.lakehouse import tables as lakehouse
from crossstream.lakehouse.tables import Tables as Written
from tests.databases.tables import PostgresLives, Tables, made, restart
from tests.faults.crash_points import Crash, after
from tests.faults.one_process import streams
from tests.lakehouse.test_each_batch_once import STEPS

STATEMENTS = 10
"""Of a batch, in its transaction: it changes one table, and appends to another one."""
POINTS = [*range(1, STATEMENTS + 1), STATEMENTS + 1]
"""Before each statement, and before the commit."""
DROPPED = "DROP TABLE counts"
EXPECTED = ["a", "a", "a", "b", "c"]


def two_batches(lives: PostgresLives, disturbed: Callable[[], None]) -> None:
    """A batch, then one that is disturbed, and a start after it: all rows are there once."""
    lives.append("a", "b", "a")
    lives.run()
    lives.append("a", "c")
    disturbed()
    lives.run()
    assert lives.events() == EXPECTED
    assert lives.counts() == {word: EXPECTED.count(word) for word in "abc"}
    assert set(lives.lake.marks().values()) == {1}
    assert not list(lives.world.state_dir.glob("staged/*"))


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_a_step_leaves_each_batch_once(lives: PostgresLives, step: str) -> None:
    two_batches(lives, lambda: lives.run(STEPS[step](lives)))


@contextmanager
def at_statement(number: int, act: Callable[[Session], None]) -> Iterator[list[str]]:
    """Acts before a statement of the transactions of this process, or after the last; gives the statements so far."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("run", "fetched", "put"):
            method = getattr(Session, name)

            def acting(self: Session, statement: str, *values: Any, method: Any = method) -> Any:
                if self.connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE:
                    return method(self, statement, *values)
                seen.append(statement)
                if len(seen) == number <= STATEMENTS:
                    act(self)
                found = method(self, statement, *values)
                if len(seen) == STATEMENTS == number - 1:
                    act(self)
                return found

            patch.setattr(Session, name, acting)
        yield seen


def crashed(session: Session) -> None:
    raise Crash


def cut(session: Session) -> None:
    """The server ends the connection, as an administrator or a network does."""
    with psycopg.connect(session.dsn, autocommit=True) as other:
        ended = "SELECT pg_terminate_backend($1, 5000)"
        psycopg.RawCursor(other).execute(ended, (session.connection.info.backend_pid,))


@pytest.mark.parametrize("number", POINTS)
def test_a_crash_at_a_statement(lives: PostgresLives, number: int) -> None:
    """What a process that is killed there leaves behind: the transaction is open, and the server ends it."""

    def disturbed() -> None:
        with at_statement(number, crashed) as seen, pytest.raises(Crash):
            lives.run()
        assert len(seen) == min(number, STATEMENTS)

    two_batches(lives, disturbed)


@pytest.mark.parametrize("number", POINTS)
def test_a_connection_that_is_cut_at_a_statement(
    lives: PostgresLives, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is written again on a new connection, and the application goes on."""
    monkeypatch.setattr(lakehouse, "PAUSE_SECONDS", 0.01)

    def disturbed() -> None:
        with at_statement(number, cut) as seen:
            lives.run()
        assert lives.events() == EXPECTED
        assert len(seen) == STATEMENTS + min(number, STATEMENTS)

    two_batches(lives, disturbed)


def test_a_connection_that_is_cut_at_the_commit(
    lives: PostgresLives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application does not hear that the database has committed; the mark says so."""
    monkeypatch.setattr(lakehouse, "PAUSE_SECONDS", 0.01)
    transaction, cuts = PostgresSink.transaction, [1, 1]

    @contextmanager
    def unheard(self: PostgresSink) -> Iterator[None]:
        with transaction(self):
            yield
        if cuts:
            cuts.pop()
            raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(PostgresSink, "transaction", unheard)
    two_batches(lives, lives.run)
    assert not cuts


def test_without_the_mark_a_batch_comes_twice(lives: PostgresLives, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests before bite."""
    lives.append("a")
    lives.run(after(PostgresSink, "write", 2))
    lives.run(after(Written, "write"))
    monkeypatch.setattr(Written, "_found", lambda *_: None)
    monkeypatch.setattr(PostgresSink, "_locked", lambda *_: None)
    lives.run()
    assert lives.events() == ["a", "a"]


def test_a_server_that_is_killed(tmp_path: Path) -> None:
    """All processes of it, while a batch is written; it starts again, and the application goes on by itself."""
    with cdc.started() as server:

        def killed(session: Session) -> None:
            restart(server)

        for number in range(1, STATEMENTS, 3):
            lives = PostgresLives(tmp_path / str(number), made(server))

            def disturbed(number: int = number, lives: PostgresLives = lives) -> None:
                with at_statement(number, killed):
                    lives.run()

            two_batches(lives, disturbed)


def test_a_process_that_was_thought_dead_writes_nothing(lives: PostgresLives) -> None:
    """It stands still before it writes its batch; another one takes its place, writes that batch and the next one."""
    lives.append("a", "b", "a")
    lives.run()
    lives.append("a", "c")
    write, others = Written.write, [1]

    with pytest.MonkeyPatch.context() as patch:

        def late(self: Written, *arguments: Any) -> None:
            if others.pop() if others else False:
                shutil.copytree(lives.world.state_dir, copy := lives.world.root / "copy")
                lives.run(state_dir=str(copy))
                lives.append("d")
                lives.run(state_dir=str(copy))
            write(self, *arguments)

        patch.setattr(Written, "write", late)
        lives.run()
    assert lives.events() == [*EXPECTED, "d"]
    assert set(lives.lake.marks().values()) == {2}


def test_a_process_that_waits_for_another_one_finds_its_batch(lives: PostgresLives) -> None:
    """Both have seen that the batch is not there; the first one has the lock."""
    lives.append("a")
    lives.run()
    lives.append("a")
    locked, others = PostgresSink._locked, [1]

    with pytest.MonkeyPatch.context() as patch:

        def late(self: PostgresSink, mark: Any) -> int | None:
            if others.pop() if others else False:
                shutil.copytree(lives.world.state_dir, copy := lives.world.root / "copy")
                lives.run(state_dir=str(copy))
            return locked(self, mark)

        patch.setattr(PostgresSink, "_locked", late)
        lives.run()
    assert (lives.events(), lives.counts()) == (["a", "a"], {"a": 2})


def test_new_state_begins_again(lives: PostgresLives) -> None:
    lives.append("a")
    lives.run()
    shutil.rmtree(lives.world.state_dir)
    lives.run()
    assert lives.events() == ["a", "a"]
    assert lives.counts() == {"a": 1}


def test_an_older_copy_of_the_state_is_refused(lives: PostgresLives) -> None:
    lives.append("a")
    lives.run()
    shutil.copytree(lives.world.state_dir, copy := lives.world.root / "copy")
    lives.append("b")
    lives.run()
    shutil.rmtree(lives.world.state_dir)
    shutil.copytree(copy, lives.world.state_dir)
    with pytest.raises(cs.StateError) as caught:
        lives.run()
    assert caught.value.code == "CS-744"
    lives.append("c")
    lives.run(on_lost_state="restart")
    assert lives.events() == ["a", "b", "b", "c"]
    assert lives.counts() == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(
    "change", [DROPPED, f"{DROPPED}; CREATE TABLE counts (key text PRIMARY KEY, value bigint)"]
)
@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
def test_a_table_that_lost_its_rows_is_refused(lives: PostgresLives, change: str, running: bool) -> None:
    """It is not filled from then on, as if its rows had never been there; also one that replaces it."""
    lives.append("a")
    with streams(lives.topology(), lives.world.config()) as app:
        app.process_available()
        if running:
            for statement in change.split(";"):
                lives.lake.execute(statement)
            lives.append("b")
            with pytest.raises(cs.StateError) as caught:
                app.process_available()
    if not running:
        for statement in change.split(";"):
            lives.lake.execute(statement)
        lives.append("b")
        with pytest.raises(cs.StateError) as caught:
            lives.run()
    assert caught.value.code == "CS-745"
    assert "counts" in caught.value.where["table"]
    lives.run(on_lost_state="restart")
    assert lives.counts() == {"b": 1}


def test_a_dump_of_the_database_has_the_marks(lives: PostgresLives, server: cdc.Postgres) -> None:
    """Tables that a dump makes have other numbers; the application goes on with them."""
    lives.append("a")
    lives.run()
    lives.append("b")
    name, dump = f"d{lives.lake.schema}", lives.world.root / "dump.sql"
    with dump.open("wb") as out:
        command = [str(server.binaries / "pg_dump"), f"--schema={lives.lake.schema}", server.dsn()]
        subprocess.run(command, stdout=out, check=True)
    server.execute(f"CREATE DATABASE {name}")
    server.execute("CREATE TABLE first (); DROP TABLE first;" + dump.read_text(encoding="utf-8"), name)
    lives.lake.dsn = server.dsn(name)
    lives.run()
    assert (lives.events(), lives.counts()) == (["a", "b"], {"a": 1, "b": 1})


def test_a_deadlock_is_tried_again(lives: PostgresLives, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakehouse, "PAUSE_SECONDS", 0.01)
    locked, raised = PostgresSink._locked, [1, 1]

    def deadlocked(self: PostgresSink, mark: Any) -> int | None:
        if raised:
            raised.pop()
            raise psycopg.errors.DeadlockDetected
        return locked(self, mark)

    monkeypatch.setattr(PostgresSink, "_locked", deadlocked)
    lives.append("a")
    lives.run()
    assert (lives.events(), raised) == (["a"], [])


def test_a_row_that_a_constraint_refuses_stops_the_application(lives: PostgresLives) -> None:
    """Nothing of the batch is there, in neither table. It is written when the constraint is gone."""
    lives.append("a")
    lives.run()
    lives.lake.execute("ALTER TABLE counts ADD CONSTRAINT small CHECK (value < 2)")
    lives.append("a", "b")
    with streams(lives.topology(), lives.world.config()) as app, pytest.raises(cs.SinkError) as caught:
        app.process_available()
    assert (caught.value.code, "small" in caught.value.what) == ("CS-665", True)
    assert (lives.events(), lives.counts()) == (["a"], {"a": 1})
    lives.lake.execute("ALTER TABLE counts DROP CONSTRAINT small")
    lives.run()
    assert (lives.events(), lives.counts()) == (["a", "a", "b"], {"a": 2, "b": 1})


def test_the_tables_of_a_database_are_written_together(lives: PostgresLives) -> None:
    """Whoever reads both, reads one batch: between the two writes neither has it."""
    lives.append("a")
    lives.run()
    seen = []
    write = PostgresSink.write

    def watched(self: PostgresSink, *arguments: Any) -> None:
        write(self, *arguments)
        seen.append((lives.events(), lives.counts()))

    lives.append("a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresSink, "write", watched)
        lives.run()
    assert seen == [(["a"], {"a": 1})] * 2
    assert (lives.events(), lives.counts()) == (["a", "a"], {"a": 2})


def test_two_applications_of_one_name_have_marks_of_their_own_tables(
    lives: PostgresLives, tmp_path: Path
) -> None:
    """Such as those of a test and of production, in two schemas of one database."""
    other = PostgresLives(tmp_path / "other", Tables(lives.lake.dsn))
    for one in (lives, other, lives, other):
        one.append("a")
        one.run()
    assert [one.counts() for one in (lives, other)] == [{"a": 2}, {"a": 2}]
