"""`table_from_delta`, `stream_from_delta` and those of Iceberg: tables of a lake as sources, read by their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from crossstream.api.checks import check_name, check_option
from crossstream.api.draft import Draft
from crossstream.api.options import Materialized, materialized_of
from crossstream.api.stream import KStream
from crossstream.api.table import KTable
from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, caller_location
from crossstream.graph.lake import LakeFormat, LakeTable
from crossstream.graph.names import shorten
from crossstream.graph.nodes import Source
from crossstream.lakehouse.opening import open_versions
from crossstream.lakehouse.versions import LakeVersions
from crossstream.serdes.plain_columns import PlainRows, missing_column, plain_rows
from crossstream.serdes.primitives import Bytes
from crossstream.signatures import refuse_calls, settings_error

Names: TypeAlias = str | Sequence[str]
"""A column, or several."""
_LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg"}


class LakeSources:
    """The methods of a builder that read Delta and Iceberg tables."""

    __slots__ = ()
    _draft: Draft

    @refuse_calls(settings_error("CS-101", "table_from_delta"))
    def table_from_delta(
        self,
        uri: str | PathLike[str],
        *,
        key: Names,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        name: str | None = None,
        store: str | None = None,
        materialized: Materialized | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> KTable[Any, Any]:
        """A Delta table as a table: its newest version, and then what each commit changes. No JVM, no jars.

        ``key``: the column of the key, or several, which are a struct. ``columns``: those of the value, by default
        all others; what is not named is not read. The first start reads the version ``version``, or the newest one,
        before any other record; later ones continue after the last commit that was read. A commit is never cut: it is
        in one batch, and its rows have its time (ms). Rows with a null key are dropped and counted.

        ``name``: of the source, by default the last part of ``uri``; ``store``, ``materialized``: as for `table`;
        ``storage_options``: those of ``deltalake``. Needs ``crossstream[delta]``.

        Raises, where it is called, `TopologyError` CS-150 for columns that are not there or have types without a
        place, CS-120, CS-122 as `table`; `ConfigError` CS-201 without ``deltalake``; `SourceError` CS-602 without a
        table, CS-615 for one that needs features which are not known. While it runs: CS-603 for a table that was made
        again, CS-613 for a version that is gone, CS-614 for two rows with one key, CS-617 for a column that was
        dropped or has another type. The rules: docs/lake-sources.md.

        >>> import pyarrow as pa
        >>> from deltalake import write_deltalake
        >>> from crossstream import StreamsBuilder
        >>> write_deltalake("lake/orders", pa.table({"id": [1, 2], "customer": ["c1", "c2"]}))
        >>> StreamsBuilder().table_from_delta("lake/orders", key="id")
        <KTable orders>
        """
        stored = materialized_of("table_from_delta", materialized, store)
        asked = _Asked("table_from_delta", "delta", key, columns, name, version)
        return KTable(self._draft, self._lake(asked, uri, storage_options, stored))

    @refuse_calls(settings_error("CS-101", "stream_from_delta"))
    def stream_from_delta(
        self,
        uri: str | PathLike[str],
        *,
        key: Names | None = None,
        timestamp: str | None = None,
        columns: Sequence[str] | None = None,
        skip_changes: bool = False,
        version: int | None = None,
        name: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> KStream[Any, Any]:
        """The rows of a Delta table that is only appended to, as records: those that are there, then each commit's.

        ``key``: as for `table_from_delta`; without it records have no key. ``timestamp``: the column of their times, a
        timestamp or ms since the epoch; without it they have the time of their commit, those of the first version its
        time. A commit that deletes or rewrites rows is an error (CS-616); ``skip_changes``: it is passed over, also
        what it adds. All else as for `table_from_delta`.

        >>> import pyarrow as pa
        >>> from deltalake import write_deltalake
        >>> from crossstream import StreamsBuilder
        >>> write_deltalake("lake/events", pa.table({"at": [1_000, 2_000], "page": ["/", "/shop"]}))
        >>> StreamsBuilder().stream_from_delta("lake/events", timestamp="at")
        <KStream events>
        """
        asked = _Asked("stream_from_delta", "delta", key, columns, name, version, timestamp, skip_changes)
        return KStream(self._draft, self._lake(asked, uri, storage_options, None))

    @refuse_calls(settings_error("CS-101", "table_from_iceberg"))
    def table_from_iceberg(
        self,
        identifier: str,
        catalog: Mapping[str, str],
        *,
        key: Names,
        columns: Sequence[str] | None = None,
        version: int | None = None,
        name: str | None = None,
        store: str | None = None,
        materialized: Materialized | None = None,
    ) -> KTable[Any, Any]:
        """An Iceberg table as a table: its newest snapshot, and then what each commit changes.

        ``identifier``: namespace and name. ``catalog``: the properties of a PyIceberg catalog, such as ``type`` and
        ``uri``; ``name`` is its name, by default "default". ``version``: the sequence number of a snapshot of the main
        branch; 0 is the table before its first one. Deletes by position and deletion vectors are read, equality
        deletes are not. All else as for `table_from_delta`. Needs ``crossstream[iceberg]``.

        Raises as `table_from_delta`, and `SourceError` CS-618 for a catalog that cannot be opened, CS-615 for a table
        of format version 1. While it runs, CS-603 for a table that was rolled back.

        >>> import pyarrow as pa
        >>> from pyiceberg.catalog import load_catalog
        >>> from crossstream import StreamsBuilder
        >>> properties = {"type": "sql", "uri": "sqlite:///lake.db", "warehouse": "lake"}
        >>> catalog = load_catalog("default", **properties)
        >>> catalog.create_namespace("shop")
        >>> rows = pa.table({"id": [1, 2], "customer": ["c1", "c2"]})
        >>> catalog.create_table("shop.orders", rows.schema).append(rows)
        >>> catalog.close()
        >>> StreamsBuilder().table_from_iceberg("shop.orders", properties, key="id")
        <KTable orders>
        """
        stored = materialized_of("table_from_iceberg", materialized, store)
        asked = _Asked("table_from_iceberg", "iceberg", key, columns, name, version)
        return KTable(self._draft, self._lake(asked, identifier, catalog, stored))

    @refuse_calls(settings_error("CS-101", "stream_from_iceberg"))
    def stream_from_iceberg(
        self,
        identifier: str,
        catalog: Mapping[str, str],
        *,
        key: Names | None = None,
        timestamp: str | None = None,
        columns: Sequence[str] | None = None,
        skip_changes: bool = False,
        version: int | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """The rows of an Iceberg table that is only appended to, as records.

        ``identifier``, ``catalog``: as for `table_from_iceberg`; all else as for `stream_from_delta`. A snapshot of
        another operation than ``append`` and ``replace`` deletes or rewrites rows.

        >>> import pyarrow as pa
        >>> from pyiceberg.catalog import load_catalog
        >>> from crossstream import StreamsBuilder
        >>> properties = {"type": "sql", "uri": "sqlite:///lake.db", "warehouse": "lake"}
        >>> catalog = load_catalog("default", **properties)
        >>> catalog.create_namespace("web")
        >>> rows = pa.table({"at": [1_000, 2_000], "page": ["/", "/shop"]})
        >>> catalog.create_table("web.views", rows.schema).append(rows)
        >>> catalog.close()
        >>> StreamsBuilder().stream_from_iceberg("web.views", properties, timestamp="at")
        <KStream views>
        """
        asked = _Asked("stream_from_iceberg", "iceberg", key, columns, name, version, timestamp, skip_changes)
        return KStream(self._draft, self._lake(asked, identifier, catalog, None))

    def _lake(
        self, asked: _Asked, table: object, options: Mapping[str, str] | None, stored: Materialized | None
    ) -> Source:
        check_installed(asked.form, asked.operator, asked.where)
        check_option(asked.operator, "materialized", stored, Materialized)
        asked.check_options(options)
        found, rows = asked.described(
            place_of(asked.form, asked.operator, table, asked.where), dict(options or {})
        )
        path = asked.path(found.table)
        key = rows.key or Bytes()
        return self._draft.add(
            Source,
            path,
            asked.name,
            shape="stream" if found.appends else "table",
            topics=(found.topic,),
            key=key,
            value=rows.value,
            lake=found,
            store=None if stored is None else stored.spec(key, rows.value, of_records=True),
        )


class _Asked:
    """What a call asks for, checked. ``key``, ``columns``: names of columns."""

    __slots__ = ("columns", "form", "key", "name", "operator", "skip_changes", "timestamp", "version")

    def __init__(
        self,
        operator: str,
        form: LakeFormat,
        key: Names | None,
        columns: Sequence[str] | None,
        name: str | None,
        version: int | None,
        timestamp: str | None = None,
        skip_changes: bool = False,
    ) -> None:
        check_name(operator, "name", name, optional=True)
        self.operator, self.form, self.name = operator, form, name
        self.key = self._names("key", key) if key is not None else ()
        self.columns = None if columns is None else self._names("columns", columns)
        if not self.key and not self.appends:
            raise self._wrong("the rows of a table have a key", 'write key="id", or key=["shop", "id"]')
        if timestamp is not None and not _is_name(timestamp):
            raise self._wrong(f"timestamp={timestamp!r} is not a column", 'write timestamp="at"')
        if not isinstance(skip_changes, bool):
            raise self._wrong(f"skip_changes={skip_changes!r} is neither True nor False", "pass one of them")
        if version is not None and not is_version(version):
            raise self._wrong(f"version={version!r} is not a version", "pass the number of one, from 0 on")
        self.version, self.timestamp, self.skip_changes = version, timestamp, skip_changes

    @property
    def appends(self) -> bool:
        return self.operator.startswith("stream")

    @property
    def where(self) -> dict[str, str | None]:
        return caller_location(self.operator)

    def check_options(self, options: object) -> None:
        """Raises CS-101 for the name of a catalog, and other things that are no properties."""
        if options is not None and not isinstance(options, Mapping):
            setting = "storage_options" if self.form == "delta" else "catalog"
            example = (
                '{"type": "rest", "uri": "https://…"}' if self.form == "iceberg" else '{"AWS_REGION": "…"}'
            )
            raise self._wrong(
                f"{setting}={options!r} is not a mapping of properties", f"pass them: {setting}={example}"
            )

    def path(self, table: str) -> str:
        """The name of the source where none is given: the last part of the table's."""
        last = table.rstrip("/").rpartition("/" if self.form == "delta" else ".")[2]
        return shorten(
            "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "_" for one in last)
        )

    def described(self, place: str, options: Mapping[str, str]) -> tuple[LakeTable, PlainRows]:
        """The table, and the serdes of its rows, from the schema of the newest version."""
        bare = LakeTable(self.form, place, pa.schema([]), (), (), options)
        versions = open_versions(bare)
        try:
            newest = versions.newest()
            self._check_version(versions, newest)
            schema = versions.schema(None)
        except CrossStreamError as error:
            raise error.at(**self.where) from error.__cause__
        finally:
            versions.close()
        rows = plain_rows(schema, self.key, self.columns, self.where)
        if self.timestamp is not None:
            self._check_timestamp(schema, self.timestamp)
        needed = [*rows.read, *([self.timestamp] if self.timestamp else [])]
        read = pa.schema([schema.field(name) for name in dict.fromkeys(needed)])
        found = LakeTable(
            self.form,
            place,
            read,
            rows.keys,
            rows.columns,
            options,
            newest,
            self.version,
            self.appends,
            self.timestamp,
            self.skip_changes,
        )
        return found, rows

    def _check_version(self, versions: LakeVersions, newest: int) -> None:
        if self.version is not None and self.version > newest:
            raise self._wrong(
                f"there is no version {self.version}; the newest one is {newest}", "name an earlier one"
            )
        if self.version is not None:
            versions.schema(self.version)  # it is still there

    def _check_timestamp(self, schema: pa.Schema, name: str) -> None:
        if name not in schema.names:
            raise missing_column(name, "timestamp", schema.names, self.where)
        kind = schema.field(name).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_signed_integer(kind)):
            what = f"timestamp: the column {name} is of type {kind}, which is no time"
            step = "name a column of timestamps, of dates, or of milliseconds since the epoch"
            raise refuse("CS-150", what, step, **self.where)

    def _names(self, setting: str, names: object) -> tuple[str, ...]:
        found = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Sequence) else ()
        if not found or not all(isinstance(name, str) and name for name in found):
            what = f"{setting}={names!r} does not name columns"
            raise self._wrong(
                what, f'write {setting}="id"' if setting == "key" else f'write {setting}=["name"]'
            )
        return found

    def _wrong(self, what: str, step: str) -> CrossStreamError:
        return refuse("CS-101", f"{self.operator}: {what}", step, **self.where)


def _is_name(given: object) -> bool:
    return isinstance(given, str) and given != ""


def is_version(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def check_installed(form: LakeFormat, operator: str, where: Mapping[str, Any]) -> None:
    """Raises `ConfigError` CS-201 without the package for a format."""
    library = _LIBRARIES[form]
    if find_spec(library) is None:
        what = f"{operator} needs the package {library}, which is not installed"
        step = f'install it: pip install "crossstream[{form}]"'
        raise refuse("CS-201", what, step, **where)


def place_of(form: LakeFormat, operator: str, table: object, where: Mapping[str, Any]) -> str:
    """The table as text: a path without a scheme is made absolute. Raises CS-101 for what names no table."""
    if not isinstance(table, str | PathLike) or not fspath(table):
        given = repr(table) if isinstance(table, str | int | None) else f"a {type(table).__name__}"
        wanted = "a path or URI" if form == "delta" else "its namespace and name"
        step = f"name {wanted}; table_from(frame, key=…) reads a streaming DataFrame"
        raise refuse("CS-101", f"{operator}: {given} does not name a table", step, **where)
    text = str(fspath(table))
    if form == "iceberg" and "." not in text.strip("."):
        what = f"{operator}: {text!r} has no namespace"
        raise refuse("CS-101", what, f'name the table with its namespace: "shop.{text}"', **where)
    if form == "iceberg" or "://" in text:
        return text
    return str(Path(text).absolute())
