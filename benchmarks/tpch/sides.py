"""The sides of `crossstream bench tpch`, each a process that keeps one query up to date."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

import polars as pl
import psutil  # type: ignore[import-untyped]

from benchmarks.generate import Topics
from benchmarks.peers.flink import peer, sql
from benchmarks.tpch.app import OursQuery
from benchmarks.tpch.data import TABLES
from benchmarks.tpch.merging import Merging, ddl
from benchmarks.tpch.results import Results
from benchmarks.tpch.sql import SQL

SIDES = ("crossstream", "flink-heap", "flink-rocksdb", "merge")


DEDUPLICATED = ("q18", "lines")
"""Results that Flink writes only with that clause: rows of one key come from several tasks."""
PATIENCE = 600.0
"""Seconds in which a side has to be up."""
SHAPED = "-shaped"
"""Ends the name of a side of Flink that gets SQL in the shape of our queries, where that is another one."""


class Side(Protocol):
    """A side that runs."""

    def processes(self) -> list[psutil.Process]: ...

    def cpu(self) -> float:
        """Core-seconds so far."""

    def settle(self, wanted: pl.DataFrame, at_rest: Callable[[], None] = ...) -> float:
        """Waits until the result is the wanted one; when it was, in seconds since the epoch."""


class Program(Protocol):
    """A program that writes the result to a topic."""

    def __enter__(self) -> Program: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def processes(self) -> list[psutil.Process]: ...

    def cpu_parts(self) -> dict[str, float]: ...

    def check(self) -> None: ...


class IntoTopic:
    """A side whose result is a topic."""

    def __init__(self, program: Program, results: Results) -> None:
        self.program, self.results = program, results

    def __enter__(self) -> IntoTopic:
        self.program.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.results.close()
        self.program.__exit__(kind, error, trace)

    def processes(self) -> list[psutil.Process]:
        return self.program.processes()

    def cpu(self) -> float:
        return sum(self.program.cpu_parts().values())

    def settle(self, wanted: pl.DataFrame, at_rest: Callable[[], None] = lambda: None) -> float:
        return self.results.settle(wanted, self.program.check, at_rest)


def runnable(sides: list[str]) -> list[str]:
    """The sides that can be had on this machine; says why of the others."""
    reason = peer.available()
    if reason is None or not any(side.startswith("flink") for side in sides):
        return sides
    print(f"without Flink: {reason}")
    return [side for side in sides if not side.startswith("flink")]


def side_of(
    name: str, servers: str, prefix: str, query: str, partitions: int
) -> AbstractContextManager[Side]:
    if name == "merge":
        return Merging(servers, prefix, query)
    results = Results(servers, f"{prefix}-results", query, partitions)
    if name.startswith("flink-"):
        statements = flink_statements(servers, prefix, query, shaped=name.endswith(SHAPED))
        backend: Any = name.removeprefix("flink-").removesuffix(SHAPED)
        return IntoTopic(peer.FlinkPeer(statements, backend=backend, patience=PATIENCE), results)
    _, _, checkout = name.partition("@")
    asked = f"{query}@{checkout}" if checkout else query
    return IntoTopic(
        OursQuery(servers, prefix, Topics.of(prefix), functions=asked, patience=PATIENCE), results
    )


def flink_statements(servers: str, prefix: str, query: str, shaped: bool = False) -> list[str]:
    """The query as one job: its tables over the topics, and its text. A line is known by the text of its key."""
    asked = SQL[query]
    text, keys = asked.text.strip(), asked.key
    if shaped and asked.shaped is not None:
        text, keys = asked.shaped.strip(), (asked.first_key,)
    statements = []
    for table in asked.tables:
        columns, key = ddl(table), TABLES[table][0]
        if table == "lineitem":
            columns, key = f"l_key STRING, {columns}", "l_key"
        statements.append(sql.upsert_table(servers, table, f"{prefix}-{table}", columns, key=key))
    types = result_types(query)
    if query == "lines":
        text, types, keys = text.replace("SELECT ", "SELECT l_key, ", 1), f"l_key STRING, {types}", ("l_key",)
    whole = {"value.fields-include": "ALL"}
    written = sql.upsert_table(
        servers, "results", f"{prefix}-results", types, keys[0] if len(keys) == 1 else keys, whole
    )
    conflict = " ON CONFLICT DO DEDUPLICATE" if query in DEDUPLICATED or keys != asked.key else ""
    return [*statements, written, f"INSERT INTO results {text}{conflict}"]


def result_types(query: str) -> str:
    """The columns of the result with their types, in the order of the query."""
    types = {name: kind for table in SQL[query].tables for name, kind in columns_of(table).items()}
    return ", ".join(f"{name} {types.get(name, 'BIGINT')}" for name in SQL[query].columns)


def columns_of(table: str) -> dict[str, str]:
    return dict(column.split(" ") for column in ddl(table).split(", "))
