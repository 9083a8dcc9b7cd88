"""The sides of the benchmark by name, and what each of them has to be.

A side is a module with ``QUERIES`` (those it can say), ``available()`` (the reason why it cannot run here, or None) and
``side(…)``; one that reads events from memory has ``measure(…)`` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Protocol

import psutil  # type: ignore[import-untyped]

from benchmarks.nexmark.queries import OURS
from benchmarks.nexmark.topics import Topics


class Side(Protocol):
    """One run of one query: a context manager, inside of which it reads its topics as records come."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def check(self) -> None:
        """Raises `RuntimeError` with the end of its log if it died."""

    def processes(self) -> list[psutil.Process]:
        """All its processes. They are suspended while input becomes visible."""

    def cpu_parts(self) -> dict[str, float]:
        """Core-seconds so far, by part."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a side gave that reads a folder of `benchmarks.nexmark.write`: seconds from its first row in to its last one
    out, core-seconds of these, and the file of results: JSON lines of the final rows.
    """

    seconds: float
    cores: float
    results: Path


MakeSide = Callable[[str, str, str, Topics, Topics], Side]
"""Of the side's name, query, bootstrap servers, topics, and topics to warm up with."""
Measure = Callable[[str, str, Path], Measured]
"""Of the side's name, query, and folder."""

MODULES = {
    "crossstream": "app",
    "flink-heap": "side_flink",
    "flink-rocksdb": "side_flink",
    "kafka-streams": "side_kafka_streams",
    "spark": "side_spark",
    "dbsp-inline": "side_dbsp",
    "dbsp-shared": "side_dbsp",
    "dbsp-json": "side_dbsp",
}


def module_of(name: str) -> ModuleType:
    """The module of a side."""
    return import_module(f"benchmarks.nexmark.{MODULES[name.partition('@')[0]]}")


def queries_of(name: str) -> frozenset[str]:
    """The queries that a side can say."""
    return frozenset(getattr(module_of(name), "QUERIES", OURS))


def why_not(name: str) -> str | None:
    """The reason why a side cannot run here, or None."""
    known = MODULES.get(name.partition("@")[0])
    if known is None:
        return f"there is no side of this name; the sides are {', '.join(MODULES)}"
    if find_spec(f"benchmarks.nexmark.{known}") is None:
        return f"there is no module {known}"
    available: Callable[[], str | None] = getattr(module_of(name), "available", lambda: None)
    return available()
