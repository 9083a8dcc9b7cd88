"""Rows of a store, printed as a table, JSON lines or CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from crossstream.cli.console import show_table
from crossstream.cli.texts import to_json, to_plain

Row = tuple[Any, Any]


def show_rows(rows: Iterable[Row], form: str) -> int:
    """Prints keys and values; how many."""
    plain = [(to_plain(key), to_plain(value)) for key, value in rows]
    if form == "json":
        for key, value in plain:
            print(to_json({"key": key, "value": value}))
        return len(plain)
    columns = in_columns(plain)
    cells = [list(map(as_text, row)) for row in zip(*columns.values(), strict=True)]
    if form == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows([list(columns), *cells])
    elif plain:
        show_table(list(columns), cells, [is_numeric(column) for column in columns.values()])
    return len(plain)


def in_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The keys, and each field of the values; the values as they are if any has no fields."""
    keys = {"key": [key for key, _ in rows]}
    if not all(isinstance(value, dict) for _, value in rows):
        return {**keys, "value": [value for _, value in rows]}
    fields = dict.fromkeys(name for _, value in rows for name in value)
    titles = {name: name for name in fields} | {"key": _other_than(fields, "key")}
    return keys | {titles[name]: [value.get(name, "") for _, value in rows] for name in fields}


def _other_than(fields: Collection[str], name: str) -> str:
    """What to call a field whose own name is taken: ``value.key``, unless a field is called that."""
    title = f"value.{name}"
    return _other_than(fields, title) if title in fields else title


def is_numeric(column: Sequence[Any]) -> bool:
    """Whether a column holds numbers only."""
    return all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in column)


def as_text(value: Any) -> str:
    """A cell: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else to_json(value)
