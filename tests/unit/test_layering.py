"""Who may import whom: the layers of the package, read off its source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
MODULES = sorted((SOURCE / "crossstream").rglob("*.py"))

ONLY = {
    "pyspark": {"crossstream.spark"},
    "py4j": {"crossstream.spark"},
    "confluent_kafka": {"crossstream.kafka"},
    "crossstream.cli": {"crossstream.cli", "crossstream.__main__"},
}
"""Module (and what is below it) → the packages that may import it; the command line may import everything."""

EDGES = {
    "crossstream.spark",
    "crossstream.kafka",
    "crossstream.filetopics",
    "crossstream.query",
    "crossstream.testing",
}
ROOMS = {
    f"crossstream.{room}"
    for room in ("api", "graph", "planning", "operators", "columns", "serdes", "storage", "runtime")
} | EDGES
CHANCE = {"logging", "random", "time"}
NEVER = {
    "crossstream.serdes": ROOMS - {"crossstream.serdes"},
    "crossstream.columns": ROOMS - {"crossstream.columns", "crossstream.serdes", "crossstream.storage"}
    | CHANCE,
    "crossstream.graph": ROOMS - {"crossstream.graph", "crossstream.serdes", "crossstream.columns"},
    "crossstream.planning": {"crossstream.api", "crossstream.runtime"} | EDGES,
    "crossstream.operators": {"crossstream.api"} | EDGES,
    "crossstream.storage": ROOMS - {"crossstream.storage", "crossstream.serdes", "crossstream.runtime"},
    "crossstream.runtime": {"crossstream.api"} | EDGES,
    "crossstream.filetopics": {"crossstream.kafka"},
    "crossstream.kafka": {"crossstream.filetopics"},
}
"""Room → what it must not import."""

OPERATORS = """
    foreign_key_join global_join star_join stateless stream_join stream_table_join table table_join
"""
KERNELS = tuple(f"crossstream.operators.{name}." for name in OPERATORS.split())
PURE = (
    ".kernel",
    ".changelog",
    ".unreferenced",
    ".state",
    ".right_rows",
    ".partners",
    ".records",
    ".results",
    ".as_of",
    ".global_table",
)
"""Modules of an operator that are pure functions: no clock, log, chance or file, and nothing of the engine."""

VALUES = {"crossstream.storage.columns", "crossstream.storage.sorted_run", "crossstream.storage.snapshot"}
"""State in memory: columns and sorted runs, without files. Kernels look things up in it."""


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of all that the module imports, anywhere in it; `from a import b` gives ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def breaches(importer: str, imported: str) -> Iterator[str]:
    """Why ``importer`` may not import ``imported``; nothing if it may."""
    for module, allowed in ONLY.items():
        if within(imported, module) and not any(within(importer, package) for package in allowed):
            yield f"only {', '.join(sorted(allowed))} may import {module}"
    for package, banned in NEVER.items():
        if within(importer, package):
            yield from (
                f"{package} must not import {name}" for name in sorted(banned) if within(imported, name)
            )
    looks = within(imported, "crossstream.storage") and not any(within(imported, name) for name in VALUES)
    if looks and (within(importer, "crossstream.columns") or is_kernel(importer)):
        yield "a pure function looks at no files"
    if is_kernel(importer):
        banned = (
            ROOMS
            - {"crossstream.columns", "crossstream.serdes", "crossstream.storage"}
            - {package_of(importer)}
        ) | CHANCE
        ours = within(imported, "crossstream.operators")
        yield from (
            f"a kernel must not import {name}"
            for name in sorted(banned)
            if within(imported, name) and not (ours and is_kernel(imported.rpartition(".")[0]))
        )


def package_of(module: str) -> str:
    return module.rpartition(".")[0]


def is_kernel(module: str) -> bool:
    return module.startswith(KERNELS) and module.endswith(PURE)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_respect_the_layers(path: Path) -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: imports {imported}, but {breach}"
        for line, imported in imports(path)
        for breach in breaches(module_name(path), imported)
    ]
    assert not found, "\n".join(found)


def test_importing_crossstream_loads_neither_spark_nor_kafka() -> None:
    """Topologies are built, described and tested without a JVM or a broker's client."""
    code = "import sys, crossstream; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"pyspark", "py4j", "confluent_kafka"}.isdisjoint(run.stdout.split())


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("crossstream.operators.table_join.kernel", "time"),
        ("crossstream.operators.table_join.kernel", "crossstream.storage.store.Store"),
        ("crossstream.operators.table_join.kernel", "crossstream.runtime.batch.Batch"),
        ("crossstream.storage.sorted_run", "crossstream.columns.values.Values"),
        ("crossstream.api.builder", "pyspark.sql.DataFrame"),
        ("crossstream.spark.source", "confluent_kafka"),
    ],
)
def test_a_breach_is_found(importer: str, imported: str) -> None:
    assert list(breaches(importer, imported))


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("crossstream.operators.table_join.kernel", "crossstream.columns.order.by_key"),
        ("crossstream.operators.table_join.kernel", "crossstream.storage.snapshot.View"),
        ("crossstream.storage.sorted_run", "crossstream.errors.StateError"),
        ("crossstream.spark.source", "pyspark.sql"),
        ("crossstream.cli.run", "crossstream.spark.streams.SparkStreams"),
    ],
)
def test_what_is_allowed_is_allowed(importer: str, imported: str) -> None:
    assert not list(breaches(importer, imported))


ALLOWED_CIRCLE = {"crossstream.api.stream", "crossstream.api.table"}
"""A stream becomes a table, and a table a stream."""


def test_no_circle_of_imports() -> None:
    """Counted with those inside functions and for type checkers: the package can be read from the bottom up."""
    names = {module_name(path) for path in MODULES}
    edges = {
        module_name(path): {target for _, full in imports(path) for target in targets(full, names)}
        for path in MODULES
    }
    while leaves := {name for name, below in edges.items() if not below & edges.keys() - {name}}:
        edges = {name: below for name, below in edges.items() if name not in leaves}
    while tops := {
        name for name in edges if not any(name in below for other, below in edges.items() if other != name)
    }:
        edges = {name: below for name, below in edges.items() if name not in tops}
    assert edges.keys() == ALLOWED_CIRCLE


def targets(full: str, names: set[str]) -> Iterator[str]:
    """The module that an import is of: itself, or the one that has the name."""
    yield from [name for name in (full, full.rpartition(".")[0]) if name in names][:1]
