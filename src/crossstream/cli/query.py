"""`crossstream query`: reads the stores of a state folder, without a JVM."""

from __future__ import annotations

import csv
import io
import itertools
import sys
from argparse import Namespace
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from crossstream import serdes
from crossstream.cli.console import is_terminal, say, show_table
from crossstream.cli.options import refuse_without, wrong_usage
from crossstream.errors import in_one_line
from crossstream.query.files import application_of, open_store, store_names
from crossstream.query.store import StoreReader
from crossstream.query.text import parse_key, rows_of, rows_of_key, to_json, to_plain, whole_number
from crossstream.storage.bucket import is_uri
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.log_entries import Readable
from crossstream.storage.root import StateRoot, root_of

OPERANDS = {"get": (1, 1), "range": (0, 2), "prefix": (1, 1), "all": (0, 0)}
"""The smallest and the largest number of operands of each operation."""
COUNTED = 10_000
"""The number of rows is exact up to here; above, an upper bound is shown."""


def main(arguments: Namespace) -> int:
    """Lists the stores, or prints rows of one."""
    folder = state_root(arguments.state_dir)
    if arguments.store is None:
        return _list(folder, arguments)
    operation, operands = _operation(arguments.operation)
    store = open_store(folder, arguments.store, arguments.as_of, registry=arguments.registry)
    if operation == "get":
        return _get(store, operands[0], arguments)
    refuse_without("get", "name a key: get KEY", arguments, "as_of_time")
    rows = itertools.islice(rows_of(store, operation, operands), arguments.max)
    if show_rows(rows, arguments.format) == 0 and arguments.format == "table":
        say(f"no rows in {arguments.store}")
    return 0


def state_root(text: str) -> StateRoot:
    """The state at a path, which may begin with ``~``, or at a URI."""
    return root_of(text if is_uri(text) else Path(text).expanduser())


def _operation(words: list[str]) -> tuple[str, list[str]]:
    operation, *operands = words or ["all"]
    fewest, most = OPERANDS.get(operation, (0, -1))
    if not fewest <= len(operands) <= most:
        raise wrong_usage(
            f"{' '.join(words)!r} is not a query", "ask for: get KEY, range [FROM [TO]], prefix P, or all"
        )
    return operation, operands


def _get(store: StoreReader, text: str, arguments: Namespace) -> int:
    """Prints the row of a key; 1 if there is none."""
    key = parse_key(store.key, text)
    time = None if arguments.as_of_time is None else parse_time(arguments.as_of_time)
    if store.by_time is not None:
        drop = f"drop it: this store keeps {store.by_time.content} by time"
        refuse_without("versioned stores", drop, arguments, "as_of_time")
    rows = rows_of_key(store, key, time)
    if not rows:
        say(f"no row {text!r} in {store.name}")
        return 1
    show_rows(rows[: arguments.max], arguments.format)
    return 0


def _list(folder: StateRoot, arguments: Namespace) -> int:
    """Prints the stores, the serdes of their keys and values, and how many rows they have."""
    next = "name a store of the state, or drop it"
    refuse_without("a store", next, arguments, "max", "as_of", "as_of_time")
    if arguments.format == "csv":
        raise wrong_usage("--format csv works with a store only", "use table or json")
    names = store_names(folder)
    application = application_of(folder)
    commit = BatchLog(folder).newest()
    stores = [_described(folder, name, application.readers[name]) for name in names]
    if arguments.format == "json":
        for store in stores:
            print(to_json(store))
        return 0
    say(headline(application.application_id, commit.partitions, commit.id, commit.time))
    if not stores:
        say("no queryable stores: name them with Materialized(store=…)")
        return 0
    rows = [tuple(map(as_text, store.values())) for store in stores]
    show_table(("store", "kind", "key", "value", "rows"), rows, (False, False, False, False, True), spare=())
    return 0


def _described(folder: StateRoot, name: str, readable: Readable) -> dict[str, Any]:
    """A store; counting reads its rows as bytes, so any serdes will do."""
    store = open_store(folder, name, serdes={"key": serdes.bytes(), "value": serdes.bytes()})
    return {
        "store": name,
        "kind": store.kind,
        "key": readable.key.name,
        "value": readable.value.name,
        "rows": _count(store),
    }


def _count(store: StoreReader) -> int | str:
    most = store.approximate_count()
    return store.count() if most <= COUNTED else f"at most {most}"


def headline(application_id: str, partitions: int, batch: int, time: float) -> str:
    """The application of a state folder, its partitions, and when it last changed."""
    done = "no batch yet" if batch < 0 else f"batch {batch}, {clock(time)}"
    return f"application {application_id}, partitions: {partitions}, {done}"


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


Row = tuple[Any, Any]


def show_rows(rows: Iterable[Row], form: str) -> int:
    """Prints keys and values; returns how many."""
    plain = [(to_plain(key), to_plain(value)) for key, value in rows]
    if form == "json":
        for key, value in plain:
            print(to_json({"key": key, "value": value}))
        return len(plain)
    columns = in_columns(plain)
    cells = [list(map(as_text, row)) for row in zip(*columns.values(), strict=True)]
    if form == "csv":
        if is_terminal(sys.stdout):
            cells = [list(map(in_one_line, row)) for row in cells]
        for row in [list(columns), *cells]:
            print(_csv_line(row))
    elif plain:
        show_table(list(columns), cells, [_is_numeric(column) for column in columns.values()])
    return len(plain)


def _csv_line(row: Sequence[str]) -> str:
    """A row, with quotes around what would end one; also a lone carriage return, which Python's writer lets through."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(row)
    return line.getvalue().removesuffix("\r\n")


def in_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The keys and each field of the values; the whole values if one of them has no fields."""
    keys = {"key": [key for key, _ in rows]}
    if not all(isinstance(value, dict) for _, value in rows):
        return {**keys, "value": [value for _, value in rows]}
    fields = dict.fromkeys(name for _, value in rows for name in value)
    titles = {name: name for name in fields} | {"key": _other_than(fields, "key")}
    return keys | {titles[name]: [value.get(name, "") for _, value in rows] for name in fields}


def _other_than(fields: Collection[str], name: str) -> str:
    """A title for a field whose own name is taken: ``value.key``, unless another field has that name."""
    title = f"value.{name}"
    return _other_than(fields, title) if title in fields else title


def _is_numeric(column: Sequence[Any]) -> bool:
    return all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in column)


def as_text(value: Any) -> str:
    """A cell: text unchanged, everything else as JSON."""
    return value if isinstance(value, str) else to_json(value)


def parse_time(text: str) -> int | datetime:
    """Milliseconds since the epoch, or an ISO time (UTC without a zone); `ConfigError` CS-281 for anything else."""
    if (number := whole_number(text)) is not None:
        return number
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + ("+00:00" if text.endswith("Z") else ""))
    except ValueError as error:
        next = "give milliseconds since the epoch, or a time such as 2026-01-31T12:00:00"
        raise wrong_usage(f"{text!r} is not a time", next) from error
