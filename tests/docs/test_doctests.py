"""The examples in docstrings: each runs by itself, as a reader of the docstring would type it."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT

SOURCE = ROOT / "src"
WITH_EXAMPLES = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Finder(doctest.DocTestFinder):
    """Finds the examples of decorated functions too."""

    def _from_module(self, module: ModuleType | None, object: object) -> bool:
        return super()._from_module(module, inspect.unwrap(object) if inspect.isfunction(object) else object)  # type: ignore[misc]


@pytest.mark.parametrize("name", [module_of(path) for path in WITH_EXAMPLES])
def test_docstring_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for examples in Finder().find(module):
        runner.run(examples)
    assert runner.tries > 0
    assert runner.failures == 0


NEED_MORE = {"stream_from", "table_from", "preview"}
"""Methods that need Spark or topics: their examples are in docs/dataframes.md and docs/notebooks.md."""


@pytest.mark.parametrize("name", ["builder.StreamsBuilder", "stream.KStream", "table.KTable"])
def test_every_method_of_the_dsl_has_an_example(name: str) -> None:
    module, _, owner = name.partition(".")
    kind = getattr(importlib.import_module(f"crossstream.api.{module}"), owner)
    methods = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    without = {name for name, method in methods.items() if ">>> " not in (method.__doc__ or "")}
    assert without == NEED_MORE & methods.keys()
