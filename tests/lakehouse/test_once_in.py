"""`once_in`: batches of `for_each_batch` in a database, each in one transaction with its mark."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.spark import frames
from crossstream.storage.commit_log import BatchLog
from tests.faults.crash_points import Arm, Crash, after, before
from tests.faults.one_process import process
from tests.spark.world import World

TEXT = serdes.string()


class Database:
    """A database file, and an application that appends words to its table."""

    def __init__(self, root: Path) -> None:
        self.file = root / "results.db"
        self.world = World(root)
        self.world.create(words=1)
        self.fails = False
        with self.connect() as connection:
            connection.execute("CREATE TABLE words (word TEXT)")
        connection.close()

    def connect(self, **settings: Any) -> sqlite3.Connection:
        return sqlite3.connect(self.file, **settings)

    def write(self, frame: Any, connection: sqlite3.Connection) -> None:
        connection.executemany("INSERT INTO words VALUES (?)", [(word,) for word in frame])
        if self.fails:
            raise ValueError("no")

    def run(self, function: Callable[..., Any], arm: Arm | None = None) -> None:
        builder = cs.StreamsBuilder()
        words = builder.stream("words", cs.Consumed(key=TEXT, value=TEXT))
        words.for_each_batch(function, cs.Named("database"))
        with pytest.MonkeyPatch.context() as patch:
            # Without Spark a frame is the list of the keys.
            patch.setattr(frames, "_frame", keys_of)
            if arm is not None:
                arm(patch)
                with pytest.raises(Crash):
                    process(builder.build(), self.world.config())
            else:
                process(builder.build(), self.world.config())

    def query(self, text: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            return connection.execute(text).fetchall()
        finally:
            connection.close()

    def words(self) -> list[str]:
        return sorted(word for (word,) in self.query("SELECT word FROM words"))


def keys_of(spark: Any, node: Any, blobs: list[bytes], batch: int) -> list[Any]:
    keys: list[Any] = frames.unpack(blobs, node.key, node.value).key.objects()
    return keys


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path)


def append(database: Database, *words: str) -> None:
    database.world.append("words", [(word, "x", at) for at, word in enumerate(words)])


@pytest.mark.parametrize("crash", [before(BatchLog, "write_commit"), after(BatchLog, "write_commit")])
def test_a_batch_that_is_repeated_is_skipped(database: Database, crash: Arm) -> None:
    function = cs.once_in(database.connect)(database.write)
    append(database, "a", "b")
    database.run(function, crash)
    database.run(function)
    append(database, "a")
    database.run(function)
    assert database.words() == ["a", "a", "b"]
    [(writer, state, batch)] = database.query("SELECT * FROM crossstream_batches")
    assert (writer, batch) == ("app/database", 1)
    assert state


def test_without_it_a_batch_comes_twice(database: Database) -> None:
    """The test before bites."""

    def write(frame: Any, batch_id: int) -> None:
        with database.connect() as connection:
            database.write(frame, connection)
        connection.close()

    append(database, "a")
    database.run(write, before(BatchLog, "write_commit"))
    database.run(write)
    assert database.words() == ["a", "a"]


def test_a_function_that_fails_leaves_nothing(database: Database) -> None:
    function = cs.once_in(database.connect, table="marks")(database.write)
    append(database, "a")
    database.fails = True
    with pytest.raises(cs.ProcessingError) as caught:
        database.run(function)
    assert (caught.value.code, "ValueError: no" in caught.value.what) == ("CS-591", True)
    assert database.words() == []
    database.fails = False
    database.run(function)
    assert database.words() == ["a"]
    assert database.query("SELECT batch FROM marks") == [(0,)]


def test_other_state_begins_again(database: Database) -> None:
    write = cs.once_in(database.connect)(database.write)
    for mark in ("one", "one", "other"):
        write(["a"], 3, cs.BatchMark("app", "sink", mark, 3))
    write(["b"], 2, cs.BatchMark("app", "sink", "other", 2))
    write(["c"], 3, cs.BatchMark("app", "another sink", "other", 3))
    assert database.words() == ["a", "a", "c"]


def test_a_connection_that_commits_by_itself_is_refused(database: Database) -> None:
    write = cs.once_in(lambda: database.connect(isolation_level=None))(database.write)
    with pytest.raises(cs.ProcessingError) as caught:
        write(["a"], 0, cs.BatchMark("app", "sink", "state", 0))
    assert (caught.value.code, database.words()) == ("CS-591", [])


def test_a_function_of_three_arguments_gets_the_mark(database: Database) -> None:
    found: list[cs.BatchMark] = []

    def write(frame: Any, batch_id: int, mark: cs.BatchMark) -> None:
        found.append(mark)

    append(database, "a")
    database.run(write, before(BatchLog, "write_commit"))
    database.run(write)
    assert found[0] == found[1]
    assert (found[0].application, found[0].sink, found[0].batch) == ("app", "database", 0)
    assert found[0].state == BatchLog(database.world.state_dir).application().state_id  # type: ignore[union-attr]


def test_a_function_of_other_arguments_is_refused() -> None:
    words = cs.StreamsBuilder().stream("words", cs.Consumed(key=TEXT, value=TEXT))
    with pytest.raises(cs.TopologyError) as caught:
        words.for_each_batch(lambda frame: None)  # type: ignore[arg-type, misc]
    assert caught.value.code == "CS-104"


@pytest.mark.parametrize(("style", "sign"), [("qmark", "?"), ("pyformat", "%s"), ("format", "%s")])
def test_the_parameters_of_other_databases(style: str, sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As psycopg and others write them."""
    monkeypatch.setattr(sqlite3, "paramstyle", style)
    asked: list[str] = []

    class Cursor(sqlite3.Cursor):
        def execute(self, text: str, *values: Any) -> Any:
            asked.append(text)
            return super().execute(text.replace("%s", "?"), *values)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

    write = cs.once_in(lambda: sqlite3.connect(":memory:", factory=Connection))(
        lambda frame, connection: None
    )
    write([], 0, cs.BatchMark("app", "sink", "state", 0))
    assert asked[-1].count(sign) == 3
