"""`debezium`: a topic of a database's change events as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from crossstream import serdes
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.serdes import Serde
from crossstream.serdes.debezium.settings import Binary, Debezium, layout_of
from crossstream.serdes.json.plain import SchemaJson
from crossstream.serdes.json.shapes import Field, NoColumn, column
from crossstream.serdes.json.typed import TypedJson, scaled
from crossstream.serdes.json.types import is_scale
from crossstream.serdes.primitives import String, Uuid
from crossstream.serdes.registry.client import RegistrySettings
from crossstream.topics import is_legal_name

UNAVAILABLE = "__debezium_unavailable_value"
"""What a connector writes for a value that it did not get; ``unavailable.value.placeholder`` changes it."""

_MOST = 62
"""Fields that may be unavailable: a bit for each."""

Unit = Literal["millis", "micros", "nanos"]


def debezium(
    row: Any,
    key: str | Sequence[str] = "id",
    *,
    registry: Any = None,
    ordered_by: str | None = None,
    unavailable_value: str | None = UNAVAILABLE,
    unavailable_fields: Sequence[str] | None = None,
    units: Unit | Mapping[str, Unit] | None = None,
    scales: Mapping[str, int] | None = None,
    decimals: Literal["precise", "string"] = "precise",
    binary: Binary = "base64",
    truncate: Literal["refuse", "ignore", "delete"] = "refuse",
    tombstones: Literal["ignore", "delete"] | None = None,
    snapshots: Literal["full", "partial"] = "full",
    transactions: str | None = None,
) -> Debezium:
    """Change events that Debezium wrote, for ``source=`` of `StreamsBuilder.table`: the table has the rows.

    ``row`` is the declared type of a row, as `serdes.json` takes it. ``key`` names its column or columns of the primary
    key: of one column the table's key is its value, of several it is JSON with these fields. ``ordered_by`` names a
    place in the log of the database, as ``source.lsn`` or ``source.ts_ms``: an event from before the kept one is passed
    over. ``unavailable_fields`` may have ``unavailable_value`` instead of a value, and keep the value before: by
    default all fields of text, bytes and lists. ``unavailable_value=None``: this connector always writes whole rows,
    and the table needs no store for that.

    Records without a schema do not say what numbers mean. ``units``: what times count, of all fields or of each.
    ``scales``: the digits after the point of decimals in base64; the columns have this scale, too, down to Delta and to
    queries, and without one 18. ``decimals="string"``: decimals are text (``decimal.handling.mode``). ``binary``: how
    bytes are text (``binary.handling.mode``; "base64" for ``bytes``, too). ``truncate``: "refuse" treats a truncate
    event as a bad record, "ignore" counts it, "delete" deletes all rows from before it, by ``ordered_by``.
    ``tombstones``: a null deletes its row, or is counted. With ``ordered_by`` it is counted unless you say "delete": it
    has no place, and the event before it has deleted. Plain rows may have no such event.

    ``snapshots``: "full" says that a snapshot which is not incremental shows all rows of the table. Its end deletes the
    rows that it did not show: they were deleted while the connector was away. "partial": a snapshot may show some rows
    only, by a condition or a SELECT of its own, or the topic has the rows of several tables; it deletes nothing.

    Raises `TopologyError` (CS-101) for settings that do not fit the type.

    >>> from dataclasses import dataclass
    >>> import crossstream as cs
    >>> @dataclass
    ... class Order:
    ...     id: int
    ...     customer_id: int
    ...     note: str | None = None
    >>> cs.StreamsBuilder().table("shop.public.orders", source=cs.debezium(Order))
    <KTable shop.public.orders>
    """
    made = serdes.json(row)
    if not isinstance(made, TypedJson | SchemaJson):
        raise _error("cs.debezium needs the type of a row", "pass a dataclass, or a dict of Polars types")
    for name, scale in (scales or {}).items():
        if not is_scale(scale):
            raise _error(f"the scale of {name!r} is {scale!r}", "give the digits after the point: 0 to 38")
    if scales and isinstance(made, TypedJson):  # a schema has scales of its own
        made = scaled(made, scales)
    layout = layout_of(made) if isinstance(made, SchemaJson) or made.some_columns is not None else None
    if layout is None:
        raise _error(f"{made.name} is not the type of a row", "pass a dataclass, or a dict of Polars types")
    fields = {field.name: field for field in layout.fields}
    for field in layout.fields:
        if isinstance(field.shape, NoColumn):
            raise _error(
                f"field {field.name} of {made.name} is {field.shape.reason}, which no column holds",
                "declare one of the types that docs/debezium.md lists, or leave the field out",
            )
    keys = (key,) if isinstance(key, str) else tuple(key)
    units_ = {"": units} if isinstance(units, str) else dict(units or {})
    able = tuple(name for name, one in fields.items() if name not in keys and _can_be_large(one))
    large = able if unavailable_fields is None else tuple(unavailable_fields)
    _check_names(
        made, fields, key=keys, unavailable_fields=large, scales=scales or (), units=[u for u in units_ if u]
    )
    _check_one_of("units", set(units_.values()), ("millis", "micros", "nanos"))
    _check_one_of("decimals", {decimals}, ("precise", "string"))
    _check_one_of("binary", {binary}, ("base64", "base64-url-safe", "hex"))
    _check_one_of("truncate", {truncate}, ("refuse", "ignore", "delete"))
    tombstones = tombstones or ("delete" if ordered_by is None else "ignore")
    _check_one_of("tombstones", {tombstones}, ("ignore", "delete"))
    _check_one_of("snapshots", {snapshots}, ("full", "partial"))
    if transactions is not None and not is_legal_name(transactions):
        raise _error(
            f"transactions={transactions!r} cannot be the name of a topic", 'pass "shop.transaction"'
        )
    if not keys:
        raise _error("key names no column", 'pass key="id", or key=["order_id", "line"]')
    if truncate == "delete" and ordered_by is None:
        raise _error(
            "truncate='delete' needs the order of events: one partition of a topic has the truncate event",
            'set ordered_by="source.lsn"',
        )
    if unavailable_value is None:
        large = ()
    if len(large) > _MOST:
        raise _error(
            f"{len(large)} fields may be unavailable, and {_MOST} at most can be followed",
            "name those that are large in unavailable_fields",
        )
    for name in set(large) - set(able):
        raise _error(f"field {name} cannot be unavailable", "name fields of text, bytes or lists")
    return Debezium(
        row=made,
        key=_key_serde(made, [fields[name] for name in keys]),
        keys=keys,
        ordered_by=ordered_by,
        unavailable_value=unavailable_value,
        unavailable=large,
        units=tuple(sorted(units_.items())),
        scales=tuple(sorted((scales or {}).items())),
        decimals=decimals,
        binary=binary,
        truncate=truncate,
        tombstones=tombstones,
        registry=None if registry is None else RegistrySettings.of(registry),
        transactions=transactions,
        snapshots=snapshots,
        reads_snapshot=snapshots == "full",
    )


def _can_be_large(field: Field) -> bool:
    shape = column(field)
    if shape.dtype == pl.String:
        return shape.wire is str or getattr(shape.wire, "__origin__", None) is str
    return isinstance(shape.dtype, pl.Binary | pl.List)


def _check_names(row: Serde, fields: Mapping[str, Field], **given: Any) -> None:
    for setting, names in given.items():
        for name in names:
            if name.partition(".")[0] not in fields:
                raise _error(
                    f"{setting} names {name!r}, and {row.name} has the fields {', '.join(fields)}",
                    f"name a field of {row.name}",
                )


def _check_one_of(setting: str, given: set[Any], known: Sequence[str]) -> None:
    for value in given - set(known):
        raise _error(f"{setting}={value!r} is not a valid setting", f"pass one of {', '.join(known)}")


def _key_serde(row: TypedJson | SchemaJson, fields: Sequence[Field]) -> Serde:
    if len(fields) > 1:
        return serdes.json({field.name: column(field).dtype for field in fields})
    field = fields[0]
    shape = column(field)
    if shape.dtype == pl.String:
        return Uuid() if "UUID" in str(shape.wire) else String()
    simple = {
        pl.Int64: serdes.int64,
        pl.Int32: serdes.int32,
        pl.Int16: serdes.int16,
        pl.Binary: serdes.bytes,
        pl.Boolean: serdes.boolean,
    }
    for dtype, make in simple.items():
        if shape.dtype == dtype:
            return make()
    if shape.dtype.is_nested() or shape.dtype.is_float():
        raise _error(
            f"the column {field.name} of {shape.dtype} cannot be a key", "name a column of a single value"
        )
    return serdes.json(shape.wire)


def _error(what: str, step: str) -> CrossStreamError:
    return refuse("CS-101", what, step, **caller_location("debezium"))
