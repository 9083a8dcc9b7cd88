"""No circles of imports, and nothing heavy at import. Who may import whom is in .importlinter (`make check`)."""

from __future__ import annotations

import ast
import configparser
import fnmatch
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
MODULES = sorted((SOURCE / "crossstream").rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """The full names that the module imports, anywhere in it; `from a import b` gives ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


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


ALLOWED_CIRCLE = {
    "crossstream.api.stream",
    "crossstream.api.joining_stream",
    "crossstream.api.table",
    "crossstream.api.joining_table",
    "crossstream.api.grouped",
}
"""A stream becomes a table, and a table a stream; both are grouped, and groups become tables. Both are joined, and the
methods for that, in modules of their own, name the results for type checkers."""


@pytest.mark.slow
def test_no_circle_of_imports() -> None:
    """Counted with those inside functions and for type checkers: the package can be read from the bottom up."""
    names = {module_name(path) for path in MODULES}
    edges = {
        module_name(path): {target for full in imports(path) for target in targets(full, names)}
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


ROLES = {"__init__", "plan", "runner"}
"""The modules of an operator that are no kernels."""

WITH_STORES = {"process", "sink"}
"""The operators with more beside: what an own processor sees of the engine, and what a sink looks up in it."""


def test_what_an_operator_has_beside_its_plan_and_its_runner_is_a_kernel() -> None:
    config = configparser.ConfigParser()
    config.read(SOURCE.parent / ".importlinter")
    kernels = config["importlinter:contract:kernels"]["source_modules"].split()
    operators = SOURCE / "crossstream" / "operators"
    modules = [module_name(path) for path in operators.rglob("*.py") if path.stem not in ROLES]
    outside = {name for name in modules if not any(fnmatch.fnmatch(name, one) for one in kernels)}
    assert {name.split(".")[2] for name in outside} == WITH_STORES, outside
