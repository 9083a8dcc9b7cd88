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

NEVER = {
    "crossstream.algebra": {
        "crossstream.state",
        "crossstream.spark",
        "crossstream.files",
        "crossstream.kafka",
        "crossstream.dsl",
        "crossstream.topology",
        "crossstream.engine",
        "crossstream.query",
        "crossstream.testing",
        "logging",
        "random",
        "time",
    },
    "crossstream.topology": {
        "crossstream.dsl",
        "crossstream.spark",
        "crossstream.files",
        "crossstream.kafka",
    },
    "crossstream.files": {"crossstream.kafka"},
    "crossstream.kafka": {"crossstream.files"},
}
"""Package → what it must not import: a kernel is a pure function, with no clock, log, chance or file."""

VALUES = {"crossstream.state.columns", "crossstream.state.run", "crossstream.state.view"}
"""State in memory: columns and sorted runs, without files. Kernels look things up in it."""

CLOSED = {"crossstream.state": {"crossstream.state", "crossstream.errors"}}
"""Package → the only modules of ours that it may import."""


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
        if within(importer, package) and not any(within(imported, name) for name in VALUES):
            yield from (
                f"{package} must not import {name}" for name in sorted(banned) if within(imported, name)
            )
    for package, allowed in CLOSED.items():
        ours = within(importer, package) and within(imported, "crossstream")
        if ours and not any(within(imported, name) for name in allowed):
            yield f"{package} may import only {', '.join(sorted(allowed))} of crossstream"


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
        ("crossstream.algebra.table_table", "time"),
        ("crossstream.algebra.table_table", "crossstream.state.store.Store"),
        ("crossstream.algebra.table_table", "crossstream.state.Storage"),
        ("crossstream.state.runs", "crossstream.records.RECORDS"),
        ("crossstream.state.runs", "crossstream.topics"),
        ("crossstream.dsl.builder", "pyspark.sql.DataFrame"),
        ("crossstream.spark.source", "confluent_kafka"),
    ],
)
def test_a_breach_is_found(importer: str, imported: str) -> None:
    assert list(breaches(importer, imported))


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("crossstream.algebra.table_table", "crossstream.algebra.time.Windows"),
        ("crossstream.algebra.table_table", "crossstream.state.view.View"),
        ("crossstream.state.runs", "crossstream.errors.StateError"),
        ("crossstream.spark.source", "pyspark.sql"),
        ("crossstream.cli.run", "crossstream.spark.streams.SparkStreams"),
    ],
)
def test_what_is_allowed_is_allowed(importer: str, imported: str) -> None:
    assert not list(breaches(importer, imported))
