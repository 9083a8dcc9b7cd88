"""Writes docs/nexmark.md from the queries that run: ``python -m benchmarks.nexmark.page``."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType

from benchmarks.nexmark import groups, inputs, joins, rows
from benchmarks.nexmark.queries import OURS
from benchmarks.nexmark.reference import QUERIES

PAGE = Path(__file__).parents[2] / "docs" / "nexmark.md"

TEMPLATE = Path(__file__).with_name("page.md")

GROUPS = (
    (rows, "One bid at a time", "Expressions on columns: no Python function runs for any bid."),
    (
        joins,
        "Joins",
        "Persons and auctions are tables where the query asks for what is there now, and streams where it asks "
        "for pairs of events.",
    ),
    (groups, "Groups and windows", "Built-in aggregates, in windows of time and without."),
)
"""Module of the queries, heading, and a word on them."""


def page() -> str:
    """The text of the page."""
    parts = []
    for module, heading, words in GROUPS:
        parts += [f"## {heading}", words, python(shared_of(module))]
        for name, query in OURS.items():
            if query.__module__ == module.__name__:
                about, code = split(query)
                sql = inspect.cleandoc(QUERIES[name].sql)
                parts += [f"### {name}", about, python(code), f"```sql\n{sql}\n```"]
    read = python(imports_of(inputs) + "\n\n\n" + body_of(inputs))
    return TEMPLATE.read_text().replace("INPUTS", read).replace("QUERIES", "\n\n".join(parts))


def python(code: str) -> str:
    return f"```python\n{code.strip()}\n```"


def split(query: object) -> tuple[str, str]:
    """What a function says of itself, and its code without that."""
    source = inspect.getsource(query)  # type: ignore[arg-type]
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    first, rest = function.body[0], function.body[1]
    lines = source.splitlines()
    return inspect.getdoc(query) or "", "\n".join([*lines[: first.lineno - 1], *lines[rest.lineno - 1 :]])


def imports_of(module: ModuleType) -> str:
    """The imports of a module that are needed on the page, where all code is in one place."""
    return "\n".join(
        ast.unparse(node)
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.Import | ast.ImportFrom) and "__future__" not in ast.unparse(node)
    )


def body_of(module: ModuleType) -> str:
    """A module without its docstring and its imports."""
    source = inspect.getsource(module)
    nodes = [node for node in ast.parse(source).body[1:] if not isinstance(node, ast.Import | ast.ImportFrom)]
    first = nodes[0]
    begin = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))])
    return "\n".join(source.splitlines()[begin - 1 :])


def shared_of(module: ModuleType) -> str:
    """What queries of a module share: all but docstring, imports of inputs, and the queries."""
    source = inspect.getsource(module)
    lines, kept = source.splitlines(), [own_imports(module)]
    for node in ast.parse(source).body[1:]:
        is_query = isinstance(node, ast.FunctionDef) and node.name in OURS
        if not is_query and not isinstance(node, ast.Import | ast.ImportFrom):
            gap = "\n\n" if isinstance(node, ast.FunctionDef) else ""
            kept.append(gap + "\n".join(lines[node.lineno - 1 : node.end_lineno]) + gap)
    return "\n".join(kept).replace("\n\n\n\n", "\n\n\n")


def own_imports(module: ModuleType) -> str:
    """Imports that `inputs` has not."""
    have = set(imports_of(inputs).splitlines())
    mine = [line for line in imports_of(module).splitlines() if "nexmark" not in line and line not in have]
    return "\n".join([*mine, ""])


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
