"""The notebooks run from their first cell to their last, and are kept without outputs."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.spark.fixtures import ROOT

pytestmark = [pytest.mark.spark]

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_through(path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the session that tests share: an application without one of its own takes the running one."""
    cells = [
        cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"
    ]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    names = types.ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", names)
    for number, cell in enumerate(cells, 1):
        exec(compile("".join(cell["source"]), f"{path.name}, code cell {number}", "exec"), vars(names))
