"""`once_in`: batches of `for_each_batch` in a database, each in one transaction with its mark."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import crossstream as cs
from crossstream import serdes
from crossstream.application.local import LocalRounds
from crossstream.once import BatchMark
from crossstream.operators.sink.frame_files import rows_of
from crossstream.runtime.round import Sent
from crossstream.spark import batch_frames
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import StagedRows
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
        self.fails = self.parallel = False
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
        words.for_each_batch(function, cs.Named("database"), parallel=self.parallel)
        with pytest.MonkeyPatch.context() as patch:
            # Without Spark a frame is the list of the keys.
            patch.setattr(batch_frames, "_frame", keys_of)
            patch.setattr(batch_frames, "_staged", keys_in)
            if arm is not None:
                arm(patch)
                with pytest.raises(Crash):
                    process(builder.build(), self.world.config(), Delivering(builder.build()))
            else:
                process(builder.build(), self.world.config(), Delivering(builder.build()))

    def query(self, text: str) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            return connection.execute(text).fetchall()
        finally:
            connection.close()

    def words(self) -> list[str]:
        return sorted(word for (word,) in self.query("SELECT word FROM words"))


class Delivering(LocalRounds):
    """Calls the functions for each batch, as rounds on Spark do."""

    def __init__(self, topology: cs.Topology) -> None:
        super().__init__()
        self._topology = topology

    def deliver(self, sent: Sent, files: Sequence[StagedRows], mark: BatchMark) -> None:
        staged = batch_frames.StagedFrames(self.state.job.state_dir, files, "")
        batch_frames.deliver(None, self._topology, sent, mark, staged)  # type: ignore[arg-type]  # there is no session


def keys_of(spark: Any, node: Any, blobs: list[bytes], batch: int) -> list[Any]:
    keys: list[Any] = batch_frames.unpack(blobs, node.key, node.value).key.objects()
    return keys


def keys_in(
    spark: Any, node: Any, names: Sequence[str], staged: batch_frames.StagedFrames, batch: int
) -> list[Any]:
    files = [Path(staged.address, "staged", name).read_bytes() for name in names]
    return [key for data in files for rows in rows_of(pa.py_buffer(data)) for key in rows["key"].to_pylist()]


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path)


def append(database: Database, *words: str) -> None:
    database.world.append("words", [(word, "x", at) for at, word in enumerate(words)])


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("crash", [before(BatchLog, "write_commit"), after(BatchLog, "write_commit")])
def test_a_batch_that_is_repeated_is_skipped(database: Database, crash: Arm, parallel: bool) -> None:
    database.parallel = parallel
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


class Other:
    """A connection that has what the standard asks for (PEP 249), and no more: cursors execute."""

    __module__ = "sqlite3"  # whose parameters it takes

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.cursor, self.commit, self.rollback = inner.cursor, inner.commit, inner.rollback
        self.close = inner.close


@pytest.mark.parametrize(("style", "sign"), [("qmark", "?"), ("pyformat", "%s"), ("format", "%s")])
def test_the_parameters_of_other_databases(style: str, sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As psycopg and others write them."""
    monkeypatch.setattr(sqlite3, "paramstyle", style)
    asked: list[str] = []

    class Cursor(sqlite3.Cursor):
        def execute(self, text: str, *values: Any) -> Any:
            asked.append(text)
            return super().execute(text.replace("%s", "?"), *values)

    class Connection(Other):
        def __init__(self, inner: Any) -> None:
            super().__init__(inner)
            self.cursor = lambda: inner.cursor(Cursor)

    write = cs.once_in(lambda: Connection(sqlite3.connect(":memory:")))(lambda frame, connection: None)
    write([], 0, cs.BatchMark("app", "sink", "state", 0))
    assert asked[-1].count(sign) == 3


MARK = cs.BatchMark("app", "sink", "state", 0)


class OwnCommits(Other):
    """Of a database without transactions, as some warehouses are: commit does nothing, rollback is not supported."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        inner.isolation_level = None

        def rollback() -> None:
            raise NotImplementedError("no transactions")

        self.commit, self.rollback = lambda: None, rollback


def connections(kind: str, root: Path) -> Callable[[], Any]:
    """Opens connections to one database with a table of words."""
    connect: Callable[[], Any]
    if kind == "duckdb":
        connect = lambda: duckdb.connect(str(root / "results.duckdb"))  # noqa: E731
    else:
        connect = lambda: sqlite3.connect(root / "results.db")  # noqa: E731
    with connect() as connection:
        connection.execute("CREATE TABLE words (word VARCHAR)")
    connection.close()
    if kind == "cursors only":
        return lambda: Other(connect())
    if kind == "already in a transaction":

        def begun() -> Any:
            connection = connect()
            connection.execute("BEGIN")
            return connection

        return begun
    return connect


KINDS = ("sqlite", "duckdb", "cursors only", "already in a transaction")


def insert(connection: Any, word: str) -> None:
    on = connection if hasattr(connection, "execute") else connection.cursor()
    on.execute("INSERT INTO words VALUES (?)", (word,))


def words_in(connect: Callable[[], Any]) -> list[str]:
    connection = connect()
    on = connection if hasattr(connection, "execute") else connection.cursor()
    found = on.execute("SELECT word FROM words ORDER BY word").fetchall()
    connection.close()
    return [word for (word,) in found]


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_that_raises_midway_writes_all_when_the_batch_is_repeated(
    kind: str, tmp_path: Path
) -> None:
    """DuckDB commits each statement unless a transaction was begun."""
    connect, failing = connections(kind, tmp_path), [True, False]

    @cs.once_in(connect)
    def write(frame: Any, connection: Any) -> None:
        insert(connection, "a")
        if failing.pop(0):
            raise ValueError("midway")
        insert(connection, "b")

    with pytest.raises(ValueError, match="midway"):
        write([], 0, MARK)
    assert words_in(connect) == []
    for _ in range(2):
        write([], 0, MARK)
    assert words_in(connect) == ["a", "b"]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_one_after_the_other(kind: str, tmp_path: Path) -> None:
    connect = connections(kind, tmp_path)
    write = cs.once_in(connect)(lambda frame, connection: insert(connection, frame))
    for batch in (0, 1, 1, 2, 0, 5):
        write(str(batch), batch, cs.BatchMark("app", "sink", "state", batch))
    write("other", 1, cs.BatchMark("app", "sink", "other state", 1))
    assert words_in(connect) == ["0", "1", "2", "5", "other"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_no_row_is_lost_where_a_function_ends_the_transaction(kind: str, ends: str, tmp_path: Path) -> None:
    connect, at = connections(kind, tmp_path), ["first", "repeated"]

    @cs.once_in(connect)
    def write(frame: Any, connection: Any) -> None:
        insert(connection, "a")
        if at.pop(0) == "first":
            getattr(connection, ends)()
            raise ValueError("midway")
        insert(connection, "b")

    with pytest.raises(ValueError, match="midway"):
        write([], 0, MARK)
    write([], 0, MARK)
    assert set(words_in(connect)) == {"a", "b"}


REFUSED = [(kind, ends) for kind in KINDS for ends in ("commit", "rollback")]
REFUSED.remove(("duckdb", "commit"))  # it has no savepoints to see this by


@pytest.mark.parametrize(("kind", "ends"), REFUSED)
def test_a_function_that_ends_the_transaction_is_refused(kind: str, ends: str, tmp_path: Path) -> None:
    """Else the rows after a commit, or those before a rollback, and the mark are two things."""
    connect = connections(kind, tmp_path)

    @cs.once_in(connect)
    def write(frame: Any, connection: Any) -> None:
        insert(connection, "a")
        getattr(connection, ends)()
        insert(connection, "b")

    for _ in range(2):  # and is not marked
        with pytest.raises(cs.ProcessingError) as caught:
            write([], 0, MARK)
        assert (caught.value.code, "ended the transaction" in caught.value.what) == ("CS-591", True)


def test_the_error_of_a_function_is_not_hidden(tmp_path: Path) -> None:
    """A rollback that fails, and a connection that cannot be closed, come after it."""

    class Broken(Other):
        def __init__(self, inner: Any) -> None:
            super().__init__(inner)
            self.inner = inner
            self.close = self.fail

        def fail(self) -> None:
            raise RuntimeError("cannot rollback")

    def write(frame: Any, connection: Broken) -> None:
        connection.rollback = connection.fail
        raise ValueError("mine")

    connect = connections("sqlite", tmp_path)
    with pytest.raises(ValueError, match="mine"):
        cs.once_in(lambda: Broken(connect()))(write)([], 0, MARK)


def test_a_database_without_transactions_is_refused(tmp_path: Path) -> None:
    """And nothing is marked: the repeat with a right connection writes the batch."""
    connect = connections("sqlite", tmp_path)
    with pytest.raises(cs.ProcessingError) as caught:
        cs.once_in(lambda: OwnCommits(connect()))(lambda frame, connection: insert(connection, "a"))(
            [], 0, MARK
        )
    assert (caught.value.code, words_in(connect)) == ("CS-591", [])
    cs.once_in(connect)(lambda frame, connection: insert(connection, "a"))([], 0, MARK)
    assert words_in(connect) == ["a"]
    connection = connect()
    assert [writer for (writer,) in connection.execute("SELECT writer FROM crossstream_batches")] == [
        "app/sink"
    ]
    connection.close()
