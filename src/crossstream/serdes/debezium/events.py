"""What any format of change events gives: the operation of each event, columns of the rows in it, and its place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import UNSET

from crossstream.errors import CrossStreamError
from crossstream.serdes.debezium.convert import Logical, bad
from crossstream.serdes.debezium.snapshots import Source
from crossstream.serdes.json.shapes import Field

UPSERTS = ("c", "r", "u")
DELETE, TRUNCATE, NOT_A_ROW = "d", "t", "m"

NO_POSITION = np.iinfo(np.int64).min
"""The place of an event that has none."""


class Raw(NamedTuple):
    """A column as it was written. ``missing``: the rows whose record does not have the field; None: all have it."""

    series: pl.Series
    logical: Logical
    missing: np.ndarray | None = None


class Image(Protocol):
    """The rows inside some events: those before the changes, or those after them."""

    def there(self) -> np.ndarray:
        """Event by event, whether it has such a row."""

    def column(self, rows: np.ndarray, field: Field) -> Raw:
        """A column of the rows of these events, all of which have one."""


@dataclass(frozen=True, slots=True)
class Events:
    """Change events of one form. ``positions``: places in the log of the database; ``snapshot``: as `snapshot_marks`.

    ``rows``: the rows after the changes as payloads of the table's serde, where they are in the events; then ``after``
    has only the columns that are asked for, and no value is left out.
    """

    ops: Sequence[str]
    before: Image
    after: Image
    positions: np.ndarray
    snapshot: np.ndarray
    rows: pa.LargeBinaryArray | None = None


class Format(Protocol):
    """How the bytes of a topic are read. Both raise `SerdeError` (CS-402) if the records are not all of one form."""

    def events(self, data: pa.LargeBinaryArray) -> Events:
        """The events of records without nulls."""

    def keys(self, data: pa.LargeBinaryArray) -> Image:
        """The keys of records, as rows that have the columns of the primary key."""

    def sources(self, data: pa.LargeBinaryArray) -> Sequence[Source]:
        """What few events of one form say of where they come from."""

    def is_other(self, data: bytes) -> bool:
        """Whether a record that is no event is one that a connector writes beside them, as a heartbeat."""


_ENVELOPE = frozenset(("before", "after", "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction"))


def is_envelope(names: Collection[str], keys: Collection[str]) -> bool:
    """Whether a record with these fields is an event, and no plain row, which has the columns of its key.

    A table may have columns with the names of an event: op, before and after.
    """
    has_row = not {"before", "after", "source"}.isdisjoint(names)
    return "op" in names and has_row and set(keys).difference(_ENVELOPE).isdisjoint(names)


def plain_ops(rows: int, ops: Sequence[Any] | None, deleted: Sequence[Any] | None) -> list[str]:
    """The operations of plain rows, by what event flattening left in the fields ``__op`` and ``__deleted``."""
    found = ["u"] * rows if ops is None else [op if op and isinstance(op, str) else "u" for op in ops]
    if deleted is None:
        return found
    return [DELETE if gone in ("true", True) else op for gone, op in zip(deleted, found, strict=True)]


def no_event(names: Iterable[str]) -> CrossStreamError:
    return bad(
        "the record is neither a change event nor a row: it has none of the fields " + ", ".join(names)
    )


# Places in the log of the database, by which events are ordered


def no_positions(rows: int) -> np.ndarray:
    return np.full(rows, NO_POSITION)


def flat_names(path: str | None) -> tuple[str, ...]:
    """The fields of a plain row that may have the place: the name itself, and the name that event flattening gives."""
    if path is None:
        return ()
    flat = "__" + path.replace(".", "_")
    return (flat,) if "." in path or path == "ts_ms" else (path, flat)


def as_numbers(places: list[Any], path: str) -> np.ndarray:
    kinds = set(map(type, places))
    if kinds == {int}:
        return np.array(places, np.int64)
    try:
        return np.array(
            [NO_POSITION if place is None or place is UNSET else int(place) for place in places], np.int64
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise bad(f"{path} is no whole number of 64 bits ({error}): order by source.ts_ms") from error
