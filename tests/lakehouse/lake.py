"""Delta and Iceberg tables in a folder of a test, read by the libraries that write them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import crossstream as cs
from crossstream.columns.flat import Format

FORMATS: tuple[Format, ...] = ("delta", "iceberg")


@dataclass(frozen=True, slots=True)
class Lake:
    """Tables of one format."""

    root: Path
    form: Format

    @property
    def catalog(self) -> dict[str, str]:
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.root}/catalog.db",
            "warehouse": f"file://{self.root}/lake",
        }

    def path(self, table: str) -> str:
        return str(self.root / "lake" / table)

    def sink(self, handle: cs.KStream | cs.KTable, table: str, **settings: Any) -> None:
        """Calls `to_delta` or `to_iceberg`."""
        if self.form == "delta":
            handle.to_delta(self.path(table), **settings)
        else:
            handle.to_iceberg(f"shop.{table}", self.catalog, **settings)

    def create(self, table: str, schema: pa.Schema) -> None:
        """A table that somebody else has made."""
        if self.form == "delta":
            DeltaTable.create(self.path(table), schema)
        else:
            catalog = load_catalog("default", **self.catalog)
            catalog.create_namespace_if_not_exists("shop")
            catalog.create_table(f"shop.{table}", schema).catalog.close()

    def rows(self, table: str) -> pl.DataFrame:
        """The table, in order of all its columns."""
        if self.form == "delta":
            found = pl.from_arrow(pa.table(DeltaTable(self.path(table)).to_pyarrow_table()))
        else:
            catalog = load_catalog("default", **self.catalog)
            found = pl.from_arrow(catalog.load_table(f"shop.{table}").scan().to_arrow())
            catalog.close()
        assert isinstance(found, pl.DataFrame)
        return found.sort(found.columns, nulls_last=True)

    def tuples(self, table: str) -> list[tuple[Any, ...]]:
        return self.rows(table).rows()

    def commits(self, table: str) -> int:
        """Versions or snapshots."""
        if self.form == "delta":
            return len(DeltaTable(self.path(table)).history()) - 1  # without its creation
        catalog = load_catalog("default", **self.catalog)
        found = len(catalog.load_table(f"shop.{table}").snapshots())
        catalog.close()
        return found
