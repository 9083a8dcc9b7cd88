"""Nothing in the package makes objects, or runs code, of bytes and texts: read off its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "crossstream"

MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
METHODS = {
    "read_pickle",
    "to_pickle",
    "allow_pickle",
    "CloudPickleSerializer",
    "CPickleSerializer",
    "PyExtensionType",
}

TRANSPORT = {
    "serdes/json/typed.py": "the declared class of a serde, on its way to the workers",
    "serdes/shipping.py": "what makes the pickles of functions and classes for the workers",
    "spark/worker.py": "a worker reads the job of the application that Spark has sent it",
}
"""Spark's own transport of functions, from the driver to its workers: the files that may have to do with pickles."""

BUILDING = {"api/agg.py": "the parts of an expression of the user's own program, while it builds a topology"}
"""Files that take expressions apart that the program has just made."""


def found_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if (node.module or "").partition(".")[0] in MODULES or names & (MODULES | METHODS):
                yield f"{node.module}: {', '.join(sorted(names))}"
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            yield node.id
        elif isinstance(node, ast.Attribute) and (node.attr in METHODS | MODULES or _is_of_builtins(node)):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg in METHODS:
            yield node.arg
        elif (
            isinstance(node, ast.Attribute)
            and node.attr == "deserialize"
            and _name(node.value) in ("Expr", "LazyFrame")
        ):
            yield f"{_name(node.value)}.deserialize"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_of_builtins(node: ast.Attribute) -> bool:
    return node.attr in BUILTINS and _name(node.value) == "builtins"


@pytest.mark.slow
def test_only_sparks_own_transport_has_to_do_with_pickles() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): sorted(set(found_in(ast.parse(path.read_text("utf-8")))))
        for path in sorted(SOURCE.rglob("*.py"))
    }
    assert len(found) > 100
    assert {
        name: names for name, names in found.items() if names and name not in {**TRANSPORT, **BUILDING}
    } == {}
    assert {name for name, names in found.items() if names} >= TRANSPORT.keys() | BUILDING.keys(), (
        "a file is listed for nothing"
    )


@pytest.mark.slow
def test_pickles_are_read_in_two_places() -> None:
    """Where Spark's broadcast is read, and where that job makes its serdes; the other file only writes."""
    loads = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in ("load", "loads", "Unpickler")
        and _name(node.value) in MODULES
    }
    assert loads == TRANSPORT.keys() - {"serdes/shipping.py"}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "import cloudpickle as c", "from pickle import loads", "import marshal", "eval('1')",
        "from cloudpickle import cloudpickle", "import builtins; builtins.eval(x)", "map(eval, texts)", "exec(x)",
        "pd.read_pickle(x)", "np.load(x, allow_pickle=True)", "pl.Expr.deserialize(x)",
        "from pyspark.serializers import CPickleSerializer",
        "def f():\n    import dill", "compile(x, 'x', 'exec')",
    ],
)  # fmt: skip
def test_it_is_seen(text: str) -> None:
    assert list(found_in(ast.parse(text)))


@pytest.mark.parametrize(
    "text", ["re.compile(x)", "pl.element().eval(x)", "serde.deserialize(x)", "json.loads(x)"]
)
def test_what_only_looks_like_it(text: str) -> None:
    assert not list(found_in(ast.parse(text)))
