"""Rows of a store for the page: of a key, a range, a prefix, as of a batch, and how a row changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from crossstream.errors import ConfigError
from crossstream.query.store import StoreReader
from crossstream.query.text import parse_key, rows_of, rows_of_key, to_plain
from crossstream.recompute.reason import Why
from crossstream.serdes.windowed import Windowed
from crossstream.storage.commit_log import BatchLog

ROWS = 100
"""The most rows of an answer."""
BATCHES = 50
"""A row is looked up in so many kept batches, the newest ones."""

Open = Callable[[str, int | None], StoreReader]
"""Opens a store by name, as of a batch or of the newest one."""

Explain = Callable[[str, Any, "int | None"], Why]
"""Finds the records that made a row: store, key, and the batch, None for the newest."""


def rows(store: StoreReader, operation: str, first: str, last: str, most: int) -> dict[str, Any]:
    """Rows as plain data, and whether there are more. ``most``: the largest store whose rows are all looked at.

    Raises `ConfigError` CS-281 for a key that is not valid, or a store that is too large to be searched.
    """
    if operation == "get":
        found: Iterable[tuple[Any, Any]] = _of_key(store, first)
    else:
        if (count := store.approximate_count()) > most:
            raise ConfigError(
                f"{store.name} has up to {count:,} rows, too many to be searched here",
                code="CS-281",
                next="ask for a key, or use `crossstream query` or `crossstream ui` on the state folder",
            )
        found = rows_of(store, operation, (first, last))
    shown = list(itertools.islice(found, ROWS + 1))
    return {"rows": [_plain(row) for row in shown[:ROWS]], "more": len(shown) > ROWS}


def changes(open_store: Open, log: BatchLog, name: str, text: str) -> dict[str, Any]:
    """What a key had after each kept batch, without those that changed nothing; oldest first."""
    kept = log.commits()[-BATCHES:]
    steps: list[dict[str, Any]] = []
    before: list[Any] | None = None
    for batch in kept:
        present = [_plain(row) for row in _of_key(open_store(name, batch), text)]
        if present != before:
            steps.append({"batch": batch, "time": log.commit(batch).time, "rows": present})
        before = present
    return {"batches": [kept[0], kept[-1]] if kept else [], "changes": steps}


def reason(store: StoreReader, explain: Explain, text: str, place: str, as_of: int | None) -> dict[str, Any]:
    """The records that made the row of a key, step by step. ``place``: start and end of a window or session."""
    key = parse_key(store.key, text)
    bounds = [int(one) for one in place.split(",") if one.isdecimal()]
    if store.kind in ("window", "session") and len(bounds) == 2:
        key = Windowed(key, *bounds)
    found = explain(store.name, key, as_of)
    made = {name: value for name, value in found.to_dict().items() if name != "records"}
    return {**made, "step": _cut(made["step"]), "records": len(found.records)}


def _cut(step: dict[str, Any]) -> dict[str, Any]:
    """A step with its first records only, and how many there are."""
    records, inputs = step["records"], [_cut(one) for one in step["inputs"]]
    return {**step, "records": records[:ROWS], "count": len(records), "inputs": inputs}


def _of_key(store: StoreReader, text: str) -> list[tuple[Any, Any]]:
    return rows_of_key(store, parse_key(store.key, text))


def _plain(row: tuple[Any, Any]) -> list[Any]:
    return [to_plain(row[0]), to_plain(row[1])]
