"""The Delta and Iceberg tables of an application: checked, created, and written batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import sleep
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from crossstream.columns.flat import DELETED, NoSuchColumn, flat_rows, keys_of, table_type
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.graph.nodes import Graph, TableSink
from crossstream.once import BatchMark
from crossstream.operators.sink.table_rows import layout
from crossstream.storage.files import BufferList
from crossstream.task.shuffle_codec import unpack

T = TypeVar("T")

ATTEMPTS, PAUSE_SECONDS = 8, 0.2
"""How often a commit is tried that other writers of the table are in the way of, and the first pause."""


class Writer(Protocol):
    """One table. `newest`, `schema`, `key` and the others count for the version that was opened last."""

    conflicts: tuple[type[Exception], ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""

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

    def write(self, rows: pa.Table, mark: BatchMark) -> None:
        """Writes rows and mark in one commit."""

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
        for node in self._sinks.values():
            found = self._guarded(node, partial(self._newest, node, newest))
            if found is not None and found > newest:
                if not restarts:
                    raise _ahead(node, found, newest)
                self._guarded(node, partial(self._writers[node.name].reset, self._mark(node.name, newest)))

    def rows(self, blobs: Mapping[str, list[bytes]]) -> dict[str, pa.Table]:
        """What a batch writes: by sink, from records in wire form."""
        return {name: self._rows(self._sinks[name], blobs[name]) for name in self._sinks if blobs.get(name)}

    def write(self, name: str, rows: pa.Table, batch: int, state: str | None = None) -> None:
        """Writes the rows of a batch into a sink's table, unless it has that batch.

        Raises `SinkError` CS-657, CS-658 and CS-665, `StateError` CS-746 where the topology has no such sink.
        """
        self._state = self._state if state is None else state
        node = self._sinks.get(name)
        if node is None:
            raise _no_sink(name, batch)
        self._guarded(node, partial(self._write, node, rows, self._mark(name, batch)))

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _newest(self, node: TableSink, newest: int) -> int | None:
        columns = layout(node)
        writer = self._prepared(node, columns.schema, columns.keys)
        return self._found(node, writer, self._mark(node.name, newest))

    def _write(self, node: TableSink, rows: pa.Table, mark: BatchMark) -> None:
        pause = PAUSE_SECONDS
        for attempt in range(ATTEMPTS):
            writer = self._prepared(
                node, pa.schema([f for f in rows.schema if f.name != DELETED]), keys_of(rows)
            )
            found, version = self._found(node, writer, mark), writer.version
            try:
                if found is None or found < mark.batch:
                    writer.write(rows, mark)
                self.written[node.name] = mark.batch
                return
            except Exception as error:
                if attempt == ATTEMPTS - 1 or not (
                    isinstance(error, writer.conflicts) or _has_moved(writer, version)
                ):
                    raise
                sleep(pause)
                pause *= 2

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
            raise _behind(node, wanted)
        return found

    def _prepared(self, node: TableSink, wanted: pa.Schema, keys: Sequence[str]) -> Writer:
        """The writer of the newest version of the table, which has these columns."""
        if node.name not in self._writers:
            self._writers[node.name] = _writer_of(node)
        writer = self._writers[node.name]
        if not writer.open():
            if node.name in self.written:
                raise _behind(node, self.written[node.name])
            writer.create(wanted, tuple(keys) if node.upserts else ())
        demands = writer.demands
        if demands:
            raise _demanding(node, demands)
        key = writer.key
        if node.upserts and key is not None and set(key) != set(keys):
            raise _other_key(node, keys, key)
        unnamed = [name for name in writer.partitions if name not in node.partition_by]
        if unnamed:
            raise _unnamed_partitions(node, unnamed)
        new = self._compared(node, writer.schema, wanted)
        if new:
            writer.add_columns(new)
        return writer

    def _compared(self, node: TableSink, there: pa.Schema, wanted: pa.Schema) -> list[pa.Field]:
        """The columns to add. Raises `SinkError` CS-657 if the table has others."""
        known = {field.name: field for field in there}
        differ, new = list[str](), []
        never_null = _never_null(node)
        for field in wanted:
            found = known.pop(field.name, None)
            if found is None:
                new.append(field)
            elif not _same(node, found.type, field.type):
                differ.append(f"{field.name} is {found.type} there and {field.type} here")
            elif field.name not in never_null:
                differ += [f"{name} is not null there, and may be null here" for name in _not_null(found)]
        differ += [
            f"{name} is not null there and missing here" for name, f in known.items() if not f.nullable
        ]
        if new and not node.merges_schema:
            differ += [f"{field.name} {field.type} is missing there" for field in new]
        if differ:
            raise _other_columns(node, differ, only_new=bool(new) and len(differ) == len(new))
        return new

    def _guarded(self, node: TableSink, act: Callable[[], T]) -> T:
        try:
            return act()
        except CrossStreamError:
            raise
        except Exception as error:
            what = f"the {node.form.capitalize()} table cannot be written: {type_and_text(error)}"
            step = "check the table and the rights on it, then start again: what the table has is not written twice"
            raise refuse("CS-665", what, step, **node.where, table=node.table) from error


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


def _same(node: TableSink, there: pa.DataType, wanted: pa.DataType) -> bool:
    try:
        return bool(table_type(node.form, there, "") == wanted)
    except NoSuchColumn:
        return False


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


def _never_null(node: TableSink) -> tuple[str, ...]:
    """The columns that surely have values: a table has no null keys, but fields of a key may be null."""
    dtype = None if node.key is None else node.key.dtype
    return layout(node).keys if node.upserts and dtype is not None and not dtype.is_nested() else ()


def _writer_of(node: TableSink) -> Writer:
    if node.form == "delta":
        from crossstream.lakehouse.delta import DeltaSink

        return DeltaSink(node)
    from crossstream.lakehouse.iceberg import IcebergSink

    return IcebergSink(node)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _other_columns(node: TableSink, differ: Sequence[str], *, only_new: bool) -> CrossStreamError:
    what = f"the table has other columns: {'; '.join(differ)}"
    step = (
        'pass schema_mode="merge", which adds columns'
        if only_new
        else "write another table, let its columns be null, or change the types before: map_values(…)"
    )
    return refuse("CS-657", what, step, **node.where, table=node.table)


def _other_key(node: TableSink, keys: Sequence[str], there: Sequence[str]) -> CrossStreamError:
    what = f"the table has another key: {_listed(there)}, and not {_listed(keys)}"
    step = "write another table, or name the columns of its key: key=…"
    return refuse("CS-657", what, step, **node.where, table=node.table)


def _demanding(node: TableSink, demands: Sequence[str]) -> CrossStreamError:
    what = f"the table demands what crossstream does not see to: {'; '.join(demands)}"
    step = (
        "write another table, or take this from the table, then start again; "
        "leave out records before they are written: filter(…)"
    )
    return refuse("CS-657", what, step, **node.where, table=node.table)


def _unnamed_partitions(node: TableSink, names: Sequence[str]) -> CrossStreamError:
    what = f"the table has partitions by {_listed(names)}, which do not hold every text or number"
    step = f"name them, so that records which do not fit are found: partition_by={tuple(names)!r}"
    return refuse("CS-657", what, step, **node.where, table=node.table)


def _ahead(node: TableSink, found: int, newest: int) -> CrossStreamError:
    return refuse(
        "CS-744",
        f"the table has batch {found} of this state, whose last batch is {newest}: the state is an older copy",
        **node.where,
        table=node.table,
    )


def _behind(node: TableSink, wanted: int) -> CrossStreamError:
    return refuse(
        "CS-745",
        f"the table lacks batch {wanted} of this state, which was written: "
        "it is missing, it was replaced, or it is an older version",
        **node.where,
        table=node.table,
    )


def _no_sink(name: str, batch: int) -> CrossStreamError:
    what = f"batch {batch} was being written to the table of {name!r}, and the topology has no such sink"
    return refuse("CS-746", what, operator=name)
