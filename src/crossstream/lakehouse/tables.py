"""The tables that an application writes, of Delta, Iceberg and Postgres: checked, created, written batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from time import sleep
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from crossstream.columns.flat import DELETED, flat_rows, keys_of
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError
from crossstream.graph.nodes import Graph, TableSink
from crossstream.lakehouse.refusals import (
    ahead,
    behind,
    demanding,
    no_sink,
    other_columns,
    other_key,
    unnamed_partitions,
    unwritable,
)
from crossstream.once import BatchMark
from crossstream.operators.sink.table_rows import layout, never_null
from crossstream.storage.files import BufferList
from crossstream.task.shuffle_codec import unpack

T = TypeVar("T")

ATTEMPTS, PAUSE_SECONDS = 8, 0.2
"""How often a commit is tried that other writers of the table are in the way of, and the first pause."""


class Writer(Protocol):
    """One table. `newest`, `schema`, `key` and the others count for the version that was opened last."""

    conflicts: tuple[type[Exception], ...]

    @property
    def together(self) -> str | None:
        """The same for tables that are written in one transaction; None: it is written alone."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""

    def differs(self, field: pa.Field) -> str | None:
        """How the column of this name differs in type, as "price is integer there and text here"; None: it does not."""

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns of the key that the table was created with; None: it says nothing of it."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """The columns of its partitions that do not hold every value of their types."""

    @property
    def demands(self) -> list[str]:
        """What the table asks of rows, or of who writes it, that this writer cannot see to."""

    @property
    def version(self) -> object:
        """Differs for each commit of the table."""

    def open(self) -> bool:
        """Opens the newest version; False: there is no table."""

    def create(self, schema: pa.Schema, keys: tuple[str, ...]) -> None:
        """Creates the table, if there is none, and opens it."""

    def add_columns(self, fields: list[pa.Field]) -> None:
        """Adds columns that may be null."""

    def newest(self, mark: BatchMark) -> int | None:
        """The newest batch of the mark's writer and state that the table has."""

    def transaction(self) -> AbstractContextManager[object]:
        """In which the tables are written that are written together."""

    def write(self, rows: pa.Table, mark: BatchMark) -> None:
        """Writes rows and mark in one commit, or in the transaction around it."""

    def reset(self, mark: BatchMark) -> None:
        """Writes the mark of an earlier batch, and no rows."""

    def close(self) -> None:
        """Closes what it has opened."""


class Tables:
    """The tables that the sinks of a topology write, each opened when it is first needed."""

    def __init__(self, topology: Graph, application: str) -> None:
        self._sinks = {node.name: node for node in topology.each(TableSink)}
        self._application = application
        self._state = ""
        self._writers: dict[str, Writer] = {}
        self._sessions: dict[str, Any] = {}
        self.written: dict[str, int] = {}
        """The last batch that each table got, by sink; a table without it has lost rows."""

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def begin(
        self, state: str, newest: int, written: Mapping[str, int] | None = None, *, restarts: bool = False
    ) -> None:
        """Before the first batch: creates and checks the tables. ``state``: its id; ``newest``: its last batch.

        ``written``: the last batch that each table got. ``restarts``: the state may be an older copy,
        and batches after it are written again.

        Raises `SinkError` CS-657 for a table with other columns, another key or rules of its own, CS-665 if one cannot
        be opened;
        `StateError` CS-744 if a table has later batches of this state, CS-745 if not all that were written.
        """
        self._state, self.written = state, dict(written or {})
        with ExitStack() as failed:
            failed.callback(self.close)
            self._begin(newest, restarts=restarts)
            failed.pop_all()

    def _begin(self, newest: int, *, restarts: bool) -> None:
        for node in self._sinks.values():
            found = self._guarded(node, partial(self._newest, node, newest))
            if found is not None and found > newest:
                if not restarts:
                    raise ahead(node, found, newest)
                self._guarded(node, partial(self._writers[node.name].reset, self._mark(node.name, newest)))

    def rows(self, blobs: Mapping[str, list[bytes]]) -> dict[str, pa.Table]:
        """What a batch writes: by sink, from records in wire form."""
        return {name: self._rows(self._sinks[name], blobs[name]) for name in self._sinks if blobs.get(name)}

    def write(
        self,
        rows: Mapping[str, pa.Table],
        batch: int,
        state: str | None = None,
        stands: Mapping[str, Mapping[str, str | int | None]] | None = None,
    ) -> None:
        """Writes the rows of a batch, by sink, into the tables that do not have it: those of one database together.

        ``stands``: see `BatchMark`.

        Raises `SinkError` CS-657, CS-658 and CS-665, `StateError` CS-746 where the topology has no such sink.
        """
        self._state = self._state if state is None else state
        groups: dict[str, list[_Part]] = {}
        for name, part in rows.items():
            node = self._sinks.get(name)
            if node is None:
                raise no_sink(name, batch)
            group = groups.setdefault(self._writer(node).together or name, [])
            mark = replace(self._mark(name, batch), stands=stands or {})
            group.append(_Part(node, self._writer(node), part, mark))
        for parts in groups.values():
            self._write(parts)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        self._sessions.clear()

    def _newest(self, node: TableSink, newest: int) -> int | None:
        columns = layout(node)
        writer = self._writer(node)
        self._prepare(node, writer, columns.schema, columns.keys)
        return self._found(node, writer, self._mark(node.name, newest))

    def _write(self, parts: Sequence[_Part]) -> None:
        """Writes tables in one transaction, where they have one; again, where another writer is in the way."""
        pause = PAUSE_SECONDS
        for attempt in range(ATTEMPTS):
            with _Attempt(is_last=attempt == ATTEMPTS - 1) as tried:
                self._try(parts, tried)
                self.written.update({part.mark.sink: part.mark.batch for part in parts})
                return
            sleep(pause)
            pause *= 2

    def _try(self, parts: Sequence[_Part], tried: _Attempt) -> None:
        waiting = []
        for part in parts:
            tried.begin(part)
            self._prepare(part.node, part.writer, part.columns, keys_of(part.rows))
            found = self._found(part.node, part.writer, part.mark)
            tried.version = part.writer.version
            if found is None or found < part.mark.batch:
                waiting.append(part)
        with parts[0].writer.transaction():
            for part in waiting:
                tried.begin(part, part.writer.version)
                part.writer.write(part.rows, part.mark)

    def _rows(self, node: TableSink, blobs: list[bytes]) -> pa.Table:
        changes = unpack(blobs, node.key, node.value)
        try:
            return flat_rows(changes, layout(node), node.timestamp, upserts=node.upserts)
        except pa.ArrowException as error:
            what = f"a value does not fit its column of the table: {error}"
            step = "round times to microseconds, or declare another type"
            raise refuse("CS-658", what, step, **node.where, table=node.table) from error
        except CrossStreamError as error:
            raise error.at(**node.where) from error.__cause__

    def _mark(self, name: str, batch: int) -> BatchMark:
        return BatchMark(self._application, name, self._state, batch)

    def _found(self, node: TableSink, writer: Writer, mark: BatchMark) -> int | None:
        """The newest batch that the table has. Raises `StateError` CS-745 if it lacks one that was written."""
        found, wanted = writer.newest(mark), self.written.get(node.name, -1)
        if wanted > (-1 if found is None else found):
            raise behind(node, wanted)
        return found

    def _writer(self, node: TableSink) -> Writer:
        if node.name not in self._writers:
            self._writers[node.name] = _writer_of(node, self._sessions)
        return self._writers[node.name]

    def _prepare(self, node: TableSink, writer: Writer, wanted: pa.Schema, keys: Sequence[str]) -> None:
        """Opens the newest version of the table, which then has these columns."""
        if not writer.open():
            if node.name in self.written:
                raise behind(node, self.written[node.name])
            writer.create(wanted, tuple(keys) if node.upserts else ())
        demands = writer.demands
        if demands:
            raise demanding(node, demands)
        key = writer.key
        if node.upserts and key is not None and set(key) != set(keys):
            raise other_key(node, keys, key)
        unnamed = [name for name in writer.partitions if name not in node.partition_by]
        if unnamed:
            raise unnamed_partitions(node, unnamed)
        new = _new_columns(node, writer, wanted)
        if new:
            writer.add_columns(new)

    def _guarded(self, node: TableSink, act: Callable[[], T]) -> T:
        try:
            return act()
        except CrossStreamError:
            raise
        except Exception as error:
            raise unwritable(node, error) from error


class _Part(NamedTuple):
    """What a batch writes into a table."""

    node: TableSink
    writer: Writer
    rows: pa.Table
    mark: BatchMark

    @property
    def columns(self) -> pa.Schema:
        return pa.schema([field for field in self.rows.schema if field.name != DELETED])


@dataclass(slots=True)
class _Attempt:
    """Takes the errors of a batch that is tried again. ``version``: that of the table, if it is known."""

    is_last: bool
    part: _Part | None = None
    version: object = None

    def begin(self, part: _Part, version: object = None) -> None:
        self.part, self.version = part, version

    def __enter__(self) -> _Attempt:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if self.part is None or not isinstance(error, Exception):
            return False
        if not self.is_last and self._is_in_the_way(self.part.writer, error):
            return True
        if isinstance(error, CrossStreamError):
            return False
        raise unwritable(self.part.node, error) from error

    def _is_in_the_way(self, writer: Writer, error: Exception) -> bool:
        return isinstance(error, writer.conflicts) or (
            self.version is not None and _has_moved(writer, self.version)
        )


def staged_rows(rows: pa.Table) -> BufferList:
    """The rows as a file."""
    out = BufferList()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)
    return out


def unstaged_rows(data: Any) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _has_moved(writer: Writer, version: object) -> bool:
    """Whether others have committed to the table since: files of the older version may be gone, and its log."""
    return writer.open() and writer.version != version


def _new_columns(node: TableSink, writer: Writer, wanted: pa.Schema) -> list[pa.Field]:
    """The columns to add. Raises `SinkError` CS-657 if the table has others."""
    known = {field.name: field for field in writer.schema}
    differ, new = list[str](), []
    sure = never_null(node)
    for field in wanted:
        found = known.pop(field.name, None)
        if found is None:
            new.append(field)
        elif other := writer.differs(field):
            differ.append(other)
        elif field.name not in sure:
            differ += [f"{name} is not null there, and may be null here" for name in _not_null(found)]
    differ += [f"{name} is not null there and missing here" for name, f in known.items() if not f.nullable]
    if new and not node.merges_schema:
        differ += [f"{field.name} {field.type} is missing there" for field in new]
    if differ:
        raise other_columns(node, differ, only_new=bool(new) and len(differ) == len(new))
    return new


def _not_null(field: pa.Field, path: str = "") -> Iterator[str]:
    """The names of a column, and of what is inside it, that the table wants a value of in each row."""
    name, kind = path + field.name, field.type
    if not field.nullable:
        yield name
    if pa.types.is_struct(kind):
        for part in kind:
            yield from _not_null(part, f"{name}.")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _not_null(kind.value_field, f"{name}.")


def _writer_of(node: TableSink, sessions: dict[str, Any]) -> Writer:
    """``sessions``: those that the tables of a database share."""
    if node.form == "delta":
        from crossstream.lakehouse.delta import DeltaSink

        return DeltaSink(node)
    if node.form == "postgres":
        from crossstream.databases.postgres import postgres_sink

        return postgres_sink(node, sessions)
    from crossstream.lakehouse.iceberg import IcebergSink

    return IcebergSink(node)
