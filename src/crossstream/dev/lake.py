"""Two tables of a lake, and commits to them: made by deltalake, so without Spark and without a jar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from crossstream.error_codes import refuse

if TYPE_CHECKING:
    from deltalake import DeltaTable

SCHEMAS = {
    "customers": pa.schema({"id": pa.int64(), "name": pa.string(), "city": pa.string()}),
    "orders": pa.schema(
        {"id": pa.int64(), "customer_id": pa.int64(), "item": pa.string(), "price": pa.float64()}
    ),
}


ROWS_A_LINE = 3
"""How many rows SQL has in a line of 80 columns."""
NEXT_LINE = "\n     "


def check_deltalake() -> None:
    """Raises `ConfigError` CS-201 where the package that writes Delta tables is missing."""
    if find_spec("deltalake") is None:
        what = "the demo writes Delta tables with the package deltalake, which is not installed"
        raise refuse("CS-201", what, 'install it: pip install "crossstream[delta]"')


class Statement(Protocol):
    """A commit to one of the tables: how SQL writes it, and what deltalake does."""

    @property
    def table(self) -> str: ...

    @property
    def sql(self) -> str: ...

    def run(self, lake: Path) -> None:
        """Commits it to the table in the folder."""


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows in the order of the table's columns; the first ones make the table."""

    table: str
    rows: tuple[tuple[Any, ...], ...]

    @property
    def sql(self) -> str:
        rows = [f"({', '.join(map(_literal, row))})" for row in self.rows]
        lines = [", ".join(rows[at : at + ROWS_A_LINE]) for at in range(0, len(rows), ROWS_A_LINE)]
        return f"INSERT INTO {self.table} VALUES{' ' if len(rows) == 1 else NEXT_LINE}{f',{NEXT_LINE}'.join(lines)}"

    def run(self, lake: Path) -> None:
        from deltalake import write_deltalake

        schema = SCHEMAS[self.table]
        rows = pa.table(dict(zip(schema.names, zip(*self.rows, strict=True), strict=True)), schema)
        write_deltalake(lake / self.table, rows, mode="append")


@dataclass(frozen=True, slots=True)
class Update:
    """New values of some columns where a condition holds."""

    table: str
    values: Mapping[str, Any]
    where: str

    @property
    def sql(self) -> str:
        values = ", ".join(f"{name} = {_literal(value)}" for name, value in self.values.items())
        return f"UPDATE {self.table} SET {values} WHERE {self.where}"

    def run(self, lake: Path) -> None:
        values = {name: _literal(value) for name, value in self.values.items()}
        _opened(lake / self.table).update(values, predicate=self.where)


@dataclass(frozen=True, slots=True)
class Delete:
    """The rows where a condition holds."""

    table: str
    where: str

    @property
    def sql(self) -> str:
        return f"DELETE FROM {self.table} WHERE {self.where}"

    def run(self, lake: Path) -> None:
        _opened(lake / self.table).delete(self.where)


@dataclass(frozen=True, slots=True)
class Scene:
    """Some commits, and what to see in the result. ``restarts``: they are made while the application is stopped."""

    title: str
    remark: str
    statements: tuple[Statement, ...]
    restarts: bool = False


TABLES = (
    Insert("customers", ((1, "Ada", "London"), (2, "Grace", "Arlington"), (3, "Edsger", "Nuenen"))),
    Insert(
        "orders",
        ((10, 1, "tea", 12.5), (11, 1, "scarf", 9.0), (12, 2, "mug", 7.25), (13, 4, "lamp", 30.0)),
    ),
)
"""What the tables hold before the application begins."""

SCENES = (
    Scene(
        "A customer moves",
        "One row of customers has changed, and all orders of this customer follow.",
        (Update("customers", {"city": "Paris"}, "id = 1"),),
    ),
    Scene(
        "An order goes to another customer, and one is deleted",
        "Two commits, each read once: the rows that they have changed, not the tables.",
        (Update("orders", {"customer_id": 3}, "id = 11"), Delete("orders", "id = 12")),
    ),
    Scene(
        "The application stops. Two commits later it starts again",
        "It reads the two new commits only. The lamp was waiting for customer 4.",
        (Insert("customers", ((4, "Barbara", "Boston"),)), Delete("customers", "id = 3")),
        restarts=True,
    ),
)


def _opened(path: Path) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable(path)


def _literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
