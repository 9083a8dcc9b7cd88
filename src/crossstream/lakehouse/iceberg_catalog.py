"""Opens a table of an Iceberg catalog to read it, with errors that keep the secrets of the catalog's properties."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import pydantic
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.table import Table

from crossstream.error_codes import refuse
from crossstream.errors import CrossStreamError, type_and_text
from crossstream.graph.lake import LakeTable
from crossstream.lakehouse.versions import unreadable

_SHOWN = frozenset({"type", "name", "warehouse", "py-catalog-impl", "py-io-impl"})
"""Properties that errors may show. Others may hold secrets: a URI has a password, a header a token."""


class NamesAClass(Exception):
    """A table asks for a Python class to be loaded."""


def catalog_of(options: Mapping[str, str]) -> Catalog:
    """The catalog of these properties. A class that only a table names is not loaded, because a table is data.

    PyIceberg imports what the property ``py-io-impl`` of a table names, so a writer of the table would choose
    what runs here. Opening such a table raises `NamesAClass`, unless the catalog's own properties name the same class.
    """
    properties = dict(options)
    catalog = load_catalog(properties.pop("name", "default"), **properties)
    load, own = catalog._load_file_io, catalog.properties.get(PY_IO_IMPL)

    def load_file_io(
        properties: Mapping[str, Any] = MappingProxyType({}), *rest: Any, **named: Any
    ) -> FileIO:
        asked = properties.get(PY_IO_IMPL)
        if asked is not None and asked != own:
            raise NamesAClass(f"its property {PY_IO_IMPL} names a class to load, {asked!r}")
        return load(dict(properties), *rest, **named)

    catalog._load_file_io = load_file_io  # type: ignore[method-assign]
    return catalog


def open_catalog(table: LakeTable) -> Catalog:
    """The catalog of a table. Raises `SourceError` CS-618."""
    properties = dict(table.options)
    if properties.get("type") == "sql":
        properties.setdefault("init_catalog_tables", "false")  # who reads creates nothing
    try:
        return catalog_of(properties)
    except Exception as error:
        raise _no_catalog(table, error) from None


def open_table(table: LakeTable, catalog: Catalog) -> Table:
    """The table, as its catalog has it now.

    Raises `SourceError` CS-602 if it does not exist, CS-615 if PyIceberg does not read it, CS-618 for the catalog.
    """
    if "." not in table.table:
        raise _no_table(table)
    try:
        found = catalog.load_table(table.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise _no_table(table) from None
    except (ValidationError, pydantic.ValidationError) as error:
        raise unreadable(table, _reasons(error)) from None
    except NamesAClass as error:
        step = f"if you trust that class, give {PY_IO_IMPL} in the properties of the catalog, too"
        raise refuse(
            "CS-615", f"the table {table.table} cannot be read: {error}", step, topic=table.topic
        ) from None
    except FileNotFoundError as error:
        what = f"its metadata are gone: {_hidden(table.options, error)}"
        raise unreadable(table, what) from None
    except Exception as error:
        raise _no_catalog(table, error) from None
    if found.format_version == 1:
        what = "it is of format version 1, whose commits have no numbers"
        step = "upgrade it: ALTER TABLE … SET TBLPROPERTIES ('format-version' = '2'), or upgrade_table_version(2)"
        raise refuse("CS-615", f"the table {table.table} cannot be read: {what}", step, topic=table.topic)
    return found


def _reasons(error: Exception) -> str:
    """What PyIceberg finds in the metadata that it does not know, such as a type of format version 3."""
    faults = error if isinstance(error, pydantic.ValidationError) else error.__cause__
    said = (
        [str(one["msg"]) for one in faults.errors()] if isinstance(faults, pydantic.ValidationError) else []
    )
    found = list(dict.fromkeys(one.removeprefix("Value error, ") for one in said or [str(error)]))
    return f"PyIceberg does not know what its metadata say: {'; '.join(found[:3])}"


def _no_table(table: LakeTable) -> CrossStreamError:
    name = table.options.get("name", "default")
    what = f"there is no Iceberg table {table.table} in the catalog {name!r}"
    step = 'correct the name, with its namespace: "shop.orders"; a catalog of SQL has tables by its name, too'
    return refuse("CS-602", what, step, topic=table.topic)


def _no_catalog(table: LakeTable, error: Exception) -> CrossStreamError:
    what = f"the catalog of the table {table.table} cannot be opened: {_hidden(table.options, error)}"
    return refuse("CS-618", what, topic=table.topic)


def _hidden(options: Mapping[str, str], error: Exception) -> str:
    """The first line of what a library said, without values of properties that may be secret."""
    said = (type_and_text(error).splitlines() or [""])[0]
    secret = {str(value) for name, value in options.items() if name not in _SHOWN}
    secret |= {urlsplit(value).password or "" for value in secret if "://" in value}
    for value in sorted((one for one in secret if len(one) > 2), key=len, reverse=True):
        said = said.replace(value, "…")
    return said
