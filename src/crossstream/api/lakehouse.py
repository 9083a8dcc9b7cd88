"""`to_delta` and `to_iceberg` of streams and tables: their checks, and the node that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from crossstream.api.checks import known_serdes
from crossstream.api.draft import Previewed, child, given_name
from crossstream.api.options import Named
from crossstream.columns.flat import KEY, Format, Layout, NoSuchColumn, layout_of
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.graph.nodes import TableSink, ToStream
from crossstream.serdes import Serde

Key: TypeAlias = str | Sequence[str] | None
"""The names of the key's columns."""
SchemaMode: TypeAlias = Literal["merge"] | None

_NO_PARTITIONS = (pa.types.is_floating, pa.types.is_binary, pa.types.is_nested)
_LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg", "postgres": "psycopg"}


class WrittenToTables(Previewed):
    """The methods that write a stream or a table into Delta and Iceberg tables."""

    __slots__ = ()

    def to_delta(
        self,
        path: str | PathLike[str],
        *,
        key: Key = KEY,
        timestamp: str | None = None,
        schema_mode: SchemaMode = None,
        partition_by: Sequence[str] | str = (),
        storage_options: Mapping[str, str] | None = None,
        named: Named | None = None,
    ) -> None:
        """Writes into a Delta table, each batch once: of a stream it appends every record, of a `KTable` every change
        is an upsert by the key, or a delete.

        ``path``: a folder or a URI; the table is created if it is missing. The fields of a value are columns; a value
        of another type is the column ``value``. ``key``: the name of the key's column; or of each field of a
        key that is a struct, which keep their own names without it; of a stream ``key=None`` leaves the key out. A name
        that is a field of the value, too, is one column: that field is the key.
        ``timestamp``: a name for a column of timestamps. ``schema_mode="merge"`` adds columns that the table does not
        have. ``partition_by``: columns of a table that is created; of one that is there, those of text or decimals.
        ``storage_options``: those of ``deltalake``.

        A batch is one commit of the table, which has its number: a batch that comes again after a crash is skipped.
        A value that the table cannot hold, such as an empty text in a partition, is a bad record (CS-658), for
        ``processing_errors``.

        Needs ``crossstream[delta]``. Raises CS-116 for values without a declared type, CS-101 for names that are not
        valid, and for partitions of floats, bytes, lists or structs, `SerdeError` CS-404 for types that Delta does not
        have, `ConfigError` CS-201 without ``deltalake``. At the start `SinkError`: CS-657 for a table with other
        columns, another key, partitions to name, or rules such as a constraint, CS-665 if it cannot be opened.

        >>> import polars as pl
        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, order = StreamsBuilder(), serdes.json({"customer": pl.String, "amount": pl.Float64})
        >>> orders = builder.table("orders", Consumed(key=serdes.string(), value=order))
        >>> orders.to_delta("lake/orders", key="order_id", timestamp="changed_at")
        """
        check_installed("to_delta", "delta")
        place = _place("to_delta", "delta", path)
        self._to_table("delta", place, storage_options, key, timestamp, schema_mode, named, partition_by)

    def to_iceberg(
        self,
        identifier: str,
        catalog: Mapping[str, str],
        *,
        key: Key = KEY,
        timestamp: str | None = None,
        schema_mode: SchemaMode = None,
        named: Named | None = None,
    ) -> None:
        """Writes into an Iceberg table, each batch once: records of a stream, or changes of a `KTable`, as `to_delta`.

        ``identifier``: namespace and name. ``catalog``: the properties of a PyIceberg catalog, such as ``type`` and
        ``uri``; ``name`` is its name, by default "default". A batch is one snapshot; of a `KTable` it rewrites the data
        files that have rows of its keys. Needs ``crossstream[iceberg]``.

        >>> import polars as pl
        >>> from crossstream import Consumed, StreamsBuilder, serdes
        >>> builder, order = StreamsBuilder(), serdes.json({"customer": pl.String, "amount": pl.Float64})
        >>> orders = builder.table("orders", Consumed(key=serdes.string(), value=order))
        >>> orders.to_iceberg("shop.orders", {"type": "sql", "uri": "sqlite:///lake.db", "warehouse": "lake"})
        """
        check_installed("to_iceberg", "iceberg")
        place = _place("to_iceberg", "iceberg", identifier)
        self._to_table("iceberg", place, catalog, key, timestamp, schema_mode, named)

    def _to_table(
        self,
        form: Format,
        place: str,
        options: Mapping[str, str] | None,
        key: object,
        timestamp: object,
        schema_mode: object,
        named: Named | None,
        partition_by: Sequence[str] | str = (),
    ) -> None:
        parent, upserts = self._node, self._node.shape == "table"
        if upserts:
            parent = child(self._draft, ToStream, "to_stream", parent, shape="stream")
        operator = f"to_{form}"
        name = given_name(operator, named)
        if schema_mode not in (None, "merge"):
            step = 'write schema_mode="merge", or leave it out'
            raise wrong(operator, f'schema_mode={schema_mode!r} is not "merge"', step)
        if timestamp is not None and not (isinstance(timestamp, str) and timestamp):
            what = f"timestamp={timestamp!r} is not the name of a column"
            raise wrong(operator, what, 'write timestamp="ts"')
        step = "put repartition(Repartitioned({})) before it"
        key_serde, value = known_serdes(operator, parent.key, parent.value, step)
        keys = _key_names(operator, key, key_serde, upserts=upserts)
        _check_declared(operator, value, "values")
        if keys != ():
            _check_declared(operator, key_serde, "keys")
        settings: dict[str, Any] = {
            "form": form,
            "table": place,
            "upserts": upserts,
            "keys": keys,
            "timestamp": timestamp,
            "merges_schema": schema_mode == "merge",
            "partition_by": (partition_by,) if isinstance(partition_by, str) else tuple(partition_by),
            "options": dict(options or {}),
        }
        _check_columns(operator, settings, key_serde, value)
        serdes = {"key": key_serde, "value": value}
        child(self._draft, TableSink, operator, parent, name, shape="none", **serdes, **settings)


def check_installed(operator: str, form: Format) -> None:
    """Raises `ConfigError` CS-201 without the package that writes such tables."""
    if find_spec(_LIBRARIES[form]) is None:
        what = f"{operator} needs the package {_LIBRARIES[form]}, which is not installed"
        step = f'install it: pip install "crossstream[{form}]"'
        raise refuse("CS-201", what, step, **caller_location(operator))


def _place(operator: str, form: Format, table: object) -> str:
    """The table as text: a path without a scheme is made absolute."""
    wanted = (
        'a path or URI: to_delta("lake/orders")'
        if form == "delta"
        else 'its name: to_iceberg("shop.orders", …)'
    )
    if not isinstance(table, str | PathLike) or not fspath(table):
        raise wrong(operator, f"{table!r} does not name a table", f"name {wanted}")
    text = str(fspath(table))
    if form == "iceberg" or "://" in text:
        return text
    return str(Path(text).absolute())


def _key_names(operator: str, key: Any, serde: Serde, *, upserts: bool) -> tuple[str, ...] | None:
    """The names that the columns of the key get; None: those of its fields; empty: the key is left out."""
    if key is None:
        if upserts:
            raise wrong(
                operator, "a table is written by its key, and key=None leaves it out", 'write key="id"'
            )
        return ()
    names = (key,) if isinstance(key, str) else tuple(key)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise wrong(
            operator, f"key={key!r} does not name columns", 'write key="id", or key=("customer", "product")'
        )
    is_struct = serde.dtype is not None and serde.dtype.is_nested()
    return None if key == KEY and is_struct else names


def _check_declared(operator: str, serde: Serde, what: str) -> None:
    if serde.dtype is None:
        raise refuse(
            "CS-116",
            f"{operator} makes columns, and the type of the {what} is not declared: {serde.name}",
            (
                "declare it before: repartition(cs.Repartitioned(value=serdes.json({…}))), or Materialized(value=…)"
                if what == "values"
                else "use a serde of a declared type for the keys, or in a stream leave them out: key=None"
            ),
            **caller_location(operator),
        )


def _check_columns(operator: str, settings: Mapping[str, Any], key: Serde, value: Serde) -> None:
    assert value.dtype is not None
    try:
        layout = layout_of(settings["form"], key.dtype, value.dtype, settings["keys"], settings["timestamp"])
        lists = [name for name in layout.keys if pa.types.is_nested(layout.schema.field(name).type)]
        if lists and settings["upserts"]:
            raise NoSuchColumn(
                f"a table is written by its key, and {lists[0]!r} is a list, which is not compared"
            )
    except NoSuchColumn as error:
        if "two columns" in str(error) or "names are given" in str(error):
            step = 'name the columns: key="order_id", timestamp="ts"; a field that is the key has the key\'s type'
            raise wrong(operator, str(error), step) from None
        raise refuse(
            "CS-404",
            str(error),
            "change the type before: map_values(…), then repartition(cs.Repartitioned(value=serdes.json({…})))",
            **caller_location(operator),
        ) from None
    _check_partitions(operator, settings["partition_by"], layout)


def _check_partitions(operator: str, names: Sequence[str], layout: Layout) -> None:
    known = layout.schema.names
    for name in names:
        if name not in known:
            step = f"use one of {', '.join(known)}"
            raise wrong(operator, f"there is no column {name!r} to partition by", step)
        kind = layout.schema.field(name).type
        if any(is_of(kind) for is_of in _NO_PARTITIONS):
            step = "partition by columns of text, whole numbers, decimals, dates, timestamps or booleans"
            raise wrong(operator, f"Delta tables have no partitions of the type of {name!r}: {kind}", step)
    if len(set(names)) < len(names) or len(names) == len(known):
        step = "name each column once, and leave one that is not a partition"
        raise wrong(operator, f"partition_by={tuple(names)!r} has a column twice, or every column", step)


def wrong(operator: str, what: str, step: str) -> CrossStreamError:
    """The error CS-101 of an argument."""
    return refuse("CS-101", what, step, **caller_location(operator))
