"""The checks of `to_delta` and `to_iceberg`, and the node that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, TypeAlias

from crossstream.api.checks import known_serdes
from crossstream.api.draft import Draft, child, given_name
from crossstream.api.options import Named
from crossstream.columns.flat import Format, NoSuchColumn, layout_of
from crossstream.errors import ConfigError, SerdeError, TopologyError, caller_location
from crossstream.graph.nodes import Node, TableSink
from crossstream.serdes import Serde

Key: TypeAlias = str | Sequence[str] | None
"""The names of the key's columns."""
SchemaMode: TypeAlias = Literal["merge"] | None

OWN_KEY = "key"
_LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def table_sink(
    draft: Draft,
    parent: Node,
    form: Format,
    table: object,
    *,
    upserts: bool,
    key: object,
    timestamp: object,
    schema_mode: object,
    named: Named | None,
    options: Mapping[str, str] | None,
    partition_by: Sequence[str] | str = (),
) -> None:
    """Adds a sink. Raises `TopologyError` CS-101, CS-113 and CS-140, `SerdeError` CS-404, `ConfigError` CS-201."""
    operator = f"to_{form}"
    name = given_name(operator, named)
    _check_installed(operator, form)
    place = _place(operator, form, table)
    if schema_mode not in (None, "merge"):
        raise _wrong(
            operator,
            f'schema_mode={schema_mode!r} is not "merge"',
            'write schema_mode="merge", or leave it out',
        )
    if timestamp is not None and not (isinstance(timestamp, str) and timestamp):
        raise _wrong(operator, f"timestamp={timestamp!r} is not the name of a column", 'write timestamp="ts"')
    step = "put repartition(Repartitioned({})) before it"
    key_serde, value = known_serdes(operator, parent.key, parent.value, step)
    keys = _key_names(operator, key, key_serde, upserts=upserts)
    _check_declared(operator, value, "values")
    if keys != ():
        _check_declared(operator, key_serde, "keys")
    partitions = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    settings: dict[str, Any] = {
        "form": form,
        "table": place,
        "upserts": upserts,
        "keys": keys,
        "timestamp": timestamp,
        "merges_schema": schema_mode == "merge",
        "partition_by": partitions,
        "options": dict(options or {}),
    }
    _check_columns(operator, settings, key_serde, value)
    child(draft, TableSink, operator, parent, name, key=key_serde, value=value, shape="none", **settings)


def _check_installed(operator: str, form: Format) -> None:
    if find_spec(_LIBRARIES[form]) is None:
        raise ConfigError(
            f"{operator} needs the package {_LIBRARIES[form]}, which is not installed",
            code="CS-201",
            where=caller_location(operator),
            next=f'install it: pip install "crossstream[{form}]"',
        )


def _place(operator: str, form: Format, table: object) -> str:
    """The table as text: a path without a scheme is made absolute."""
    wanted = (
        'a path or URI: to_delta("lake/orders")'
        if form == "delta"
        else 'its name: to_iceberg("shop.orders", …)'
    )
    if not isinstance(table, str | PathLike) or not fspath(table):
        raise _wrong(operator, f"{table!r} does not name a table", f"name {wanted}")
    text = str(fspath(table))
    if form == "iceberg" or "://" in text:
        return text
    return str(Path(text).absolute())


def _key_names(operator: str, key: Any, serde: Serde, *, upserts: bool) -> tuple[str, ...] | None:
    """The names that the columns of the key get; None: those of its fields; empty: the key is left out."""
    if key is None:
        if upserts:
            raise _wrong(
                operator, "a table is written by its key, and key=None leaves it out", 'write key="id"'
            )
        return ()
    names = (key,) if isinstance(key, str) else tuple(key)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise _wrong(
            operator, f"key={key!r} does not name columns", 'write key="id", or key=("customer", "product")'
        )
    is_struct = serde.dtype is not None and serde.dtype.is_nested()
    return None if key == OWN_KEY and is_struct else names


def _check_declared(operator: str, serde: Serde, what: str) -> None:
    if serde.dtype is None:
        raise TopologyError(
            f"{operator} makes columns, and the type of the {what} is not declared: {serde.name}",
            code="CS-113",
            where=caller_location(operator),
            next="declare it before: repartition(cs.Repartitioned(value=serdes.json({…}))), or Materialized(value=…)"
            if what == "values"
            else "use a serde of a declared type for the keys, or in a stream leave them out: key=None",
        )


def _check_columns(operator: str, settings: Mapping[str, Any], key: Serde, value: Serde) -> None:
    assert value.dtype is not None
    try:
        layout = layout_of(settings["form"], key.dtype, value.dtype, settings["keys"], settings["timestamp"])
    except NoSuchColumn as error:
        if "two columns" in str(error) or "names are given" in str(error):
            raise _wrong(operator, str(error), 'name the columns: key="order_id", timestamp="ts"') from None
        raise SerdeError(
            str(error),
            code="CS-404",
            where=caller_location(operator),
            next="change the type before: map_values(…), then repartition(cs.Repartitioned(value=serdes.json({…})))",
        ) from None
    missing = [name for name in settings["partition_by"] if name not in layout.schema.names]
    if missing:
        known = ", ".join(layout.schema.names)
        raise _wrong(operator, f"there is no column {missing[0]!r} to partition by", f"use one of {known}")


def _wrong(operator: str, what: str, step: str) -> TopologyError:
    return TopologyError(what, code="CS-101", where=caller_location(operator), next=step)
