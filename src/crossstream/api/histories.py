"""`history` and `offsets`: the earlier records of a topic are the rows of a table in a lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from os import PathLike
from typing import Any

import polars as pl
import pyarrow as pa

from crossstream.api.asked_history import LakeHistory, Offsets
from crossstream.api.lake_sources import Names, check_installed, is_version, place_of
from crossstream.durations import to_timestamp
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.graph.history import History, past_of
from crossstream.graph.lake import LakeFormat, LakeTable
from crossstream.lakehouse.opening import open_versions
from crossstream.serdes.contract import EngineSerde
from crossstream.serdes.debezium.settings import Debezium
from crossstream.serdes.json.plain import UntypedJson
from crossstream.serdes.plain_columns import missing_column, plain_rows
from crossstream.signatures import refuse_calls, settings_error

_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


@refuse_calls(settings_error("CS-101", "offsets"))
def offsets(partition: str = "partition", offset: str = "offset") -> Offsets:
    """The columns of a lake table that carry the partition and the offset that each row had in Kafka.

    Both are whole numbers without nulls. Raises `TopologyError` CS-101 for other arguments.

    >>> import crossstream as cs
    >>> cs.offsets("kafka_partition", "kafka_offset")
    Offsets(partition='kafka_partition', offset='kafka_offset')
    """
    for name in (partition, offset):
        if not _is_name(name):
            raise _wrong(
                f"offsets: {name!r} is not the name of a column", 'write offsets("partition", "offset")'
            )
    return Offsets(partition, offset)


@refuse_calls(settings_error("CS-101", "history"))
def history(
    *,
    delta: str | PathLike[str] | None = None,
    iceberg: str | None = None,
    catalog: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    until: Offsets | datetime,
    key: Names | None = None,
    value: str | None = None,
    timestamp: str | None = None,
    deleted: str | None = None,
    version: int | None = None,
) -> LakeHistory:
    """The earlier records of a topic, in a Delta or Iceberg table: ``history=`` of `StreamsBuilder.table` and `stream`.

    ``delta``: the path or URI of the table, with ``storage_options``; ``iceberg``: its namespace and name, with
    ``catalog``, the properties of a PyIceberg catalog. ``version``: the one to read, by default the newest at the first
    start; it is noted in the state, and no later one is read.

    ``until`` says where the topic continues. `offsets` names the columns of Kafka's own partition and offset: the topic
    is read from the offset after the last row of each partition, and the result is the one that the whole topic would
    give. A `datetime` (in UTC if it has no zone) is for a table of current rows, written at that time or later: all of
    it is read before any other record, and the topic from its first record of that time on. Streams need offsets.

    ``key``: the columns of the key; by default the fields of a key that is a struct, or the column ``key``; ``()``: the
    records have none. Values are the columns with the names of the value's fields; ``value`` names one column that has
    the bytes, or the text, of each record's value instead. ``timestamp``: the column of the records' times, a
    timestamp or ms, by default ``timestamp``; rows as of a time need none, and are older than it. ``deleted``: a
    column that is true where the record deletes its key.

    Raises `TopologyError` CS-101 for settings that do not fit together.

    >>> import crossstream as cs
    >>> cs.history(delta="lake/orders", until=cs.offsets("partition", "offset"), key="id")
    LakeHistory(form='delta', table='lake/orders', until=Offsets(partition='partition', offset='offset'), ...)
    """
    if (delta is None) == (iceberg is None):
        raise _wrong("history needs one table", 'write delta="lake/orders", or iceberg="shop.orders"')
    if not _is_seam(until):
        what = f"history: until={until!r} does not say where the topic continues"
        raise _wrong(what, 'write until=cs.offsets("partition", "offset"), or a datetime')
    if (iceberg is None) == (catalog is not None) or (delta is None and storage_options is not None):
        what = "history: catalog= is of an Iceberg table, storage_options= of a Delta table"
        raise _wrong(what, 'write iceberg="shop.orders", catalog={"type": "rest", "uri": "https://…"}')
    names = (key,) if isinstance(key, str) else None if key is None else tuple(key)
    for role, name in [("value", value), ("timestamp", timestamp), ("deleted", deleted)]:
        if name is not None and not _is_name(name):
            raise _wrong(f"history: {role}={name!r} is not the name of a column", f'write {role}="{role}"')
    if names is not None and not all(map(_is_name, names)):
        raise _wrong(f"history: key={key!r} does not name columns", 'write key="id", or key=["shop", "id"]')
    if version is not None and not is_version(version):
        raise _wrong(f"history: version={version!r} is not a version", "pass the number of one, from 0 on")
    form: LakeFormat = "iceberg" if delta is None else "delta"
    options = dict(catalog or storage_options or {})
    table = iceberg if delta is None else delta
    if isinstance(until, datetime):
        zoned = until if until.tzinfo is not None else until.replace(tzinfo=timezone.utc)
        until = zoned.astimezone(timezone.utc)
    return LakeHistory(form, table, until, options, names, value, timestamp, deleted, version)


def with_history(
    operator: str,
    asked: object,
    topics: Sequence[str],
    offset_reset: object,
    serdes: tuple[EngineSerde, EngineSerde],
    unwrap: Debezium | None,
) -> dict[str, Any]:
    """What a source has of its history, checked against the newest version of its table.

    Raises `TopologyError` CS-101 and CS-150 for columns that are no records of these serdes (of keys and of values).
    """
    if asked is None:
        return {}
    where = caller_location(operator)
    if not isinstance(asked, LakeHistory):
        what, step = f"history={asked!r} is no history", "pass history=cs.history(delta=…, until=…)"
    elif len(topics) != 1:
        what, step = (
            "a history is of one topic",
            "read each topic with its own history, and merge the streams",
        )
    elif operator != "table" and isinstance(asked.until, datetime):
        what = "a time does not say which records of a stream the table has"
        step = 'name the columns of offsets: until=cs.offsets("partition", "offset"); or read a table'
    elif offset_reset != "earliest":
        what, step = "a history says where the topic begins", "leave offset_reset out"
    elif unwrap is not None and unwrap.transactions is not None:
        what = "the rows of a history do not say of which transactions they are"
        step = "leave history= out, or transactions= of cs.debezium"
    else:
        past = _opened(operator, asked, serdes, unwrap, where)
        if past.positions:
            return {"past": past}
        return {"past": past, "topics": (*topics, past_of(topics[0])), "offset_reset": asked.until}
    raise refuse("CS-101", f"{operator}: {what}", step, **where)


def _opened(
    operator: str,
    asked: LakeHistory,
    serdes: tuple[EngineSerde, EngineSerde],
    unwrap: Debezium | None,
    where: Mapping[str, Any],
) -> History:
    check_installed(asked.form, operator, where)
    bare = LakeTable(
        asked.form, place_of(asked.form, operator, asked.table, where), pa.schema([]), (), (), asked.options
    )
    versions = open_versions(bare)
    try:
        newest = versions.newest()
        schema = versions.schema(asked.version)
    except CrossStreamError as error:
        raise error.at(**where) from error.__cause__
    finally:
        versions.close()
    return _Columns(asked, schema, *serdes, where).history(bare, newest, events=unwrap is not None)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which columns of a table are what."""

    asked: LakeHistory
    schema: pa.Schema
    key: EngineSerde
    value: EngineSerde
    where: Mapping[str, Any]

    def history(self, bare: LakeTable, newest: int, *, events: bool) -> History:
        asked = self.asked
        keys, columns = self._keys(), self._values()
        positions, timestamp = self._positions, self._timestamp
        marks = [] if asked.deleted is None else [asked.deleted]
        for role, name in zip(("partition", "offset"), positions, strict=False):
            self._check(role, name, pa.types.is_signed_integer, "no whole number")
        if timestamp is not None:
            self._check("timestamp", timestamp, _is_time, "no time")
        for name in marks:
            self._check("deleted", name, pa.types.is_boolean, "neither true nor false")
        rows = plain_rows(self.schema, keys, columns, self.where)
        read = dict.fromkeys([*rows.read, *([] if timestamp is None else [timestamp]), *positions, *marks])
        table = replace(
            bare,
            schema=pa.schema([_large(self.schema.field(name)) for name in read]),
            keys=rows.keys,
            columns=rows.columns,
            described=newest,
            version=asked.version,
            appends=bool(positions),
            timestamp=timestamp,
        )
        key_bytes = len(keys) == 1 and self._in_bytes(keys[0], self.key)
        value_bytes = asked.value is not None and self._in_bytes(columns[0], self.value)
        if events and value_bytes != key_bytes:
            what = "of change events the table has keys and values in bytes, or neither"
            step = 'name the columns of both: key="key", value="value"; or those of the rows'
            raise refuse("CS-150", f"history: {what}", step, **self.where)
        until = 0 if isinstance(asked.until, Offsets) else to_timestamp(asked.until)
        return History(table, positions, until, asked.deleted, key_bytes, value_bytes)

    @property
    def _positions(self) -> tuple[str, ...]:
        until = self.asked.until
        return (until.partition, until.offset) if isinstance(until, Offsets) else ()

    @property
    def _timestamp(self) -> str | None:
        """The column of the times; None: rows as of a time have none."""
        name = self.asked.timestamp or "timestamp"
        return (
            None
            if self.asked.timestamp is None and not self._positions and name not in self.schema.names
            else name
        )

    def _keys(self) -> tuple[str, ...]:
        if self.asked.key is not None:
            return self.asked.key
        if isinstance(self.key.dtype, pl.Struct):
            return tuple(one.name for one in self.key.dtype.fields)
        if "key" in self.schema.names:
            return ("key",)
        what = f"history: which column has the keys? The columns are {', '.join(self.schema.names)}"
        raise refuse("CS-150", what, 'name it: key="id"; key=() if the records have no keys', **self.where)

    def _values(self) -> tuple[str, ...]:
        dtype = self.value.dtype
        if self.asked.value is not None:
            return (self.asked.value,)
        if isinstance(dtype, pl.Struct):
            return tuple(one.name for one in dtype.fields)
        if isinstance(self.value, UntypedJson):
            asked = self.asked
            others = {*self._positions, self._timestamp, asked.deleted, *self._keys()}
            return tuple(name for name in self.schema.names if name not in others)
        if dtype is None:
            what = f"history: the values ({self.value.name}) have no columns"
            step = 'name the column that has the bytes of the values: value="value"'
            raise refuse("CS-150", what, step, **self.where)
        return ("value",)

    def _in_bytes(self, name: str, serde: EngineSerde) -> bool:
        """Whether a column holds the bytes of a serde, or its text."""
        kind = self.schema.field(name).type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return True
        return serde.is_text and serde.dtype != pl.String and _is_text(kind)

    def _check(self, role: str, name: str, fits: Any, what: str) -> None:
        if name not in self.schema.names:
            raise missing_column(name, role, self.schema.names, self.where)
        kind = self.schema.field(name).type
        if not fits(kind):
            raise refuse(
                "CS-150",
                f"history: the column {name} is of type {kind}, which is {what}",
                f"name another column as {role}",
                **self.where,
            )


def _is_name(given: object) -> bool:
    return isinstance(given, str) and given != ""


def _is_seam(given: object) -> bool:
    return isinstance(given, Offsets | datetime)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_signed_integer(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _large(field: pa.Field) -> pa.Field:
    """Of texts, so that many rows of them are one column."""
    return field.with_type(_LARGE.get(field.type, field.type))


def _wrong(what: str, step: str) -> CrossStreamError:
    return refuse("CS-101", what, step, **caller_location("history"))
