"""What change events say of transactions and snapshots, and what a transaction topic holds. Rows are passed over.

A piece of records is decoded in one call and becomes columns. The id of a transaction has the place of each event in
it where Postgres wrote it (``571:53195832``): events, BEGIN and END of one transaction share the part before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import UNSET, UnsetType

from crossstream.errors import SerdeError
from crossstream.serdes.debezium.avro_boundaries import avro_columns, avro_rows
from crossstream.serdes.json.rows import decode_row, decode_rows
from crossstream.serdes.registry.client import RegistrySettings

_NAME = "debezium"
_SHORT = r"^(\d+):(\d+)$"
"""An id of Postgres: of the transaction, and the place in the log (since Debezium 2.1)."""

_END, _ID = r'"status"\s*:\s*"END"', r'"id"\s*:\s*"([^"\\]+)"'

NO_SNAPSHOT, TRUE, INCREMENTAL = 0, 1, 6
FIRSTS, LASTS = (2, 3), (4, 5)
"""Rows of a snapshot with which it, or that of a table, begins and ends."""
LAST = 5
SNAPSHOTS = {
    "true": 1,
    True: 1,
    "first": 2,
    "first_in_data_collection": 3,
    "last_in_data_collection": 4,
    "last": LAST,
    "incremental": INCREMENTAL,
}
"""What ``source.snapshot`` may be, as a number; all else is `NO_SNAPSHOT`."""


class Marks(NamedTuple):
    """Of each record, in order. ``ids``: of transactions, and ``orders``: the places of the events in them;
    null and 0: it has none. ``lsns``: places in the log of the database; -1: none.

    ``collections``: tables, by the name that END events give them. ``origins``: of which connectors the events are.
    ``is_event``: whether the record is an event with a source.
    """

    ids: pl.Series
    collections: pl.Series
    orders: np.ndarray
    snapshots: np.ndarray
    lsns: np.ndarray
    origins: tuple[str, ...]
    is_event: np.ndarray


class Boundaries(NamedTuple):
    """The END events of a transaction topic. ``rows``: which records they are; ``ids``: as they are, ``short``: the
    part that events share.

    ``sizes``: how many collections each counts, whose ``names`` and ``counts`` follow one another. ``open``: the
    transaction that the last record begins; None: it does not. ``times``: in ms; -1: none.
    """

    rows: np.ndarray
    ids: list[str]
    short: list[str]
    lsns: np.ndarray
    times: np.ndarray
    sizes: np.ndarray
    names: list[str]
    counts: np.ndarray
    open: str | None


class Remembered(NamedTuple):
    """END events by their ids alone. ``rows``: which records they are; ``ids``, ``short``: as of `Boundaries`."""

    rows: np.ndarray
    ids: list[str]
    short: list[str]


class _Transaction(msgspec.Struct, gc=False):
    id: str | None = None
    total_order: int | str | None = None


class _Source(msgspec.Struct, gc=False):
    connector: str | None = None
    name: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    collection: str | None = None
    snapshot: str | bool | None = None
    lsn: int | None = None


class _Event(msgspec.Struct, gc=False):
    source: _Source | None = None
    transaction: _Transaction | None = None


class _Record(_Event, gc=False):
    payload: _Event | UnsetType | None = UNSET


class _Count(msgspec.Struct, gc=False):
    data_collection: str
    event_count: int


class _Boundary(msgspec.Struct, gc=False):
    status: str | None = None
    id: str | None = None
    data_collections: list[_Count] | None = None
    ts_ms: int | None = None


class _BoundaryRecord(_Boundary, gc=False):
    payload: _Boundary | UnsetType | None = UNSET


_EVENTS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Record)
_BOUNDARIES: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_BoundaryRecord)
_NOTHING, _NO_SOURCE, _NO_TRANSACTION = _Record(), _Source(), _Transaction()
_OF_SOURCE = ("connector", "name", "db", "schema", "table", "collection", "snapshot", "lsn")
_OF_TRANSACTION = ("id", "total_order")
_TEXTS = (*_OF_SOURCE[:-2], "id")


def marks_of(values: pa.LargeBinaryArray, registry: RegistrySettings | None) -> Marks:
    """What the records of a piece say; of one that is null, or cannot be decoded, nothing."""
    there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    found = values.drop_null()
    if not len(found):
        return _spread(
            pl.DataFrame(schema=dict.fromkeys((*_OF_SOURCE, *_OF_TRANSACTION), pl.String)), there, len(values)
        )
    frame = (
        _json_columns(found)
        if registry is None
        else avro_columns(found, registry, _OF_SOURCE, _OF_TRANSACTION)
    )
    return _spread(frame, there, len(values))


def _spread(frame: pl.DataFrame, there: np.ndarray, rows: int) -> Marks:
    """The columns of the records that are there, for all records."""
    made = frame.select(
        pl.col("id").str.replace(_SHORT, "${1}"),
        _collection().alias("collection"),
        pl.col("total_order").cast(pl.Int64, strict=False).fill_null(0).alias("order"),
        pl.col("snapshot")
        .replace_strict(
            {str(k).lower(): v for k, v in SNAPSHOTS.items()}, default=NO_SNAPSHOT, return_dtype=pl.UInt8
        )
        .alias("snapshot"),
        pl.col("lsn").cast(pl.Int64, strict=False).fill_null(-1),
    )
    origins = frame.select(
        pl.concat_str("connector", "name", separator=" ", ignore_nulls=True).unique()
    ).to_series()
    is_event = np.zeros(rows, np.bool_)
    is_event[there] = made["collection"].is_not_null().to_numpy()
    if len(there) < rows:
        places = pl.Series(np.full(rows, len(there), np.uint32))
        places = places.scatter(
            pl.Series(there.astype(np.uint32)), pl.Series(np.arange(len(there), dtype=np.uint32))
        )
        nothing = pl.DataFrame(
            {"id": [None], "collection": [None], "order": [0], "snapshot": [0], "lsn": [-1]}
        )
        made = pl.concat([made, nothing.cast(dict(made.schema))])[places]  # type: ignore[arg-type]
    return Marks(
        made["id"],
        made["collection"],
        made["order"].to_numpy(),
        made["snapshot"].to_numpy(),
        made["lsn"].to_numpy(),
        tuple(sorted(one for one in origins.to_list() if one)),
        is_event,
    )


def _collection() -> pl.Expr:
    """The name that END events give a table: in Postgres without the database, and MySQL has no schema."""
    table = pl.coalesce("table", "collection")
    parts = [pl.when(pl.col("connector") != "postgresql").then(pl.col("db")), pl.col("schema"), table]
    return pl.when(table.is_not_null()).then(pl.concat_str(parts, separator=".", ignore_nulls=True))


def _json_columns(values: pa.LargeBinaryArray) -> pl.DataFrame:
    events = _payloads(_decoded(values, _EVENTS, _NOTHING), _NOTHING)
    sources = [_NO_SOURCE if one is None else one for one in map(attrgetter("source"), events)]
    transactions = [_NO_TRANSACTION if one is None else one for one in map(attrgetter("transaction"), events)]
    columns = {name: list(map(attrgetter(name), sources)) for name in _OF_SOURCE}
    columns |= {name: list(map(attrgetter(name), transactions)) for name in _OF_TRANSACTION}
    columns["snapshot"] = list(map(_SNAPSHOT_TEXTS.get, columns["snapshot"]))
    if str in set(map(type, columns["total_order"])):
        columns["total_order"] = [None if o is None else str(o) for o in columns["total_order"]]
    types = dict.fromkeys((*_TEXTS, "snapshot"), pl.String)
    return pl.DataFrame({name: pl.Series(name, of, types.get(name)) for name, of in columns.items()})


_SNAPSHOT_TEXTS = {key: str(key).lower() for key in SNAPSHOTS}


def _decoded(values: pa.LargeBinaryArray, decoder: msgspec.json.Decoder[Any], nothing: Any) -> Sequence[Any]:
    """An object for each record; ``nothing`` for one that is of another form: the batch that reads it says so."""
    try:
        return decode_rows(values, decoder, _NAME)
    except SerdeError:
        found = []
        for row in values.to_pylist():
            try:
                found.append(decode_row(row, decoder, _NAME))
            except SerdeError:
                found.append(nothing)
        return found


def _payloads(records: Sequence[Any], nothing: Any) -> Sequence[Any]:
    """The records without the schemas around them."""
    inner = list(map(attrgetter("payload"), records))
    if inner.count(UNSET) == len(inner):
        return records
    return [
        nothing if one is None else record if one is UNSET else one
        for record, one in zip(records, inner, strict=True)
    ]


def boundaries_of(values: pa.LargeBinaryArray, registry: RegistrySettings | None) -> Boundaries:
    """The END events among the records of a piece of a transaction topic, none of which is null."""
    if registry is None:
        records = _payloads(_decoded(values, _BOUNDARIES, _BoundaryRecord()), _BoundaryRecord())
    else:
        rows_ = avro_rows(values, registry, ("status", "id", "data_collections", "ts_ms"))
        records = msgspec.convert(rows_, list[_Boundary])
    status = np.array(list(map(attrgetter("status"), records)), np.object_)
    ids = list(map(attrgetter("id"), records))
    rows = np.flatnonzero((status == "END") & np.array([one is not None for one in ids], np.bool_))
    ends = [records[row] for row in rows.tolist()]
    lists = [one.data_collections or [] for one in ends]
    flat = list(chain.from_iterable(lists))
    own = pl.Series("id", list(map(attrgetter("id"), ends)), pl.String)
    lsns = own.str.extract(_SHORT, 2).cast(pl.Int64, strict=False).fill_null(-1)
    is_open = bool(len(records)) and records[-1].status == "BEGIN"
    return Boundaries(
        rows,
        own.to_list(),
        own.str.replace(_SHORT, "${1}").to_list(),
        lsns.to_numpy(),
        np.array([-1 if one.ts_ms is None else one.ts_ms for one in ends], np.int64),
        np.array(list(map(len, lists)), np.int64),
        list(map(attrgetter("data_collection"), flat)),
        np.array(list(map(attrgetter("event_count"), flat)), np.int64),
        short_id(records[-1].id) if is_open and records[-1].id else None,
    )


def remembered_of(values: pa.LargeBinaryArray, registry: RegistrySettings | None) -> Remembered:
    """The ids of the END events among the records of a transaction topic; of JSON without decoding them."""
    there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    texts = None if registry is not None else _texts(values.drop_null())
    if texts is None:
        found = boundaries_of(values.drop_null(), registry)
        return Remembered(there[found.rows], found.ids, found.short)
    frame = pl.DataFrame({"row": there, "text": texts}).filter(pl.col("text").str.contains(_END))
    frame = frame.select("row", pl.col("text").str.extract(_ID).alias("id")).drop_nulls()
    short = frame["id"].str.replace(_SHORT, "${1}")
    return Remembered(frame["row"].to_numpy(), frame["id"].to_list(), short.to_list())


def _texts(values: pa.LargeBinaryArray) -> pl.Series | None:
    """The values as text; None: one of them is not valid UTF-8."""
    try:
        return pl.Series("text", pl.from_arrow(values), pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:
        return None


def is_plain_row(record: bytes, keys: Sequence[str]) -> bool:
    """Whether a record in JSON is a row without an envelope: it has the columns of the key.

    >>> is_plain_row(b'{"id": 1, "amount": 2}', ["id"]), is_plain_row(b'{"ts_ms": 7}', ["id"])
    (True, False)
    """
    try:
        found = msgspec.json.decode(record)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    found = found.get("payload", found) if isinstance(found, dict) else None
    return isinstance(found, dict) and set(keys) <= found.keys()


def short_id(id: str) -> str:
    """The part of an id that all events of a transaction share.

    >>> short_id("571:53195832"), short_id("24bc7850-2c16-11e6-a073-0242ac110002:11")
    ('571', '24bc7850-2c16-11e6-a073-0242ac110002:11')
    """
    first, _, last = id.partition(":")
    return first if first.isdecimal() and last.isdecimal() else id
