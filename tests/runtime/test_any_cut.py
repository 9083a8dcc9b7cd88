"""Any cut gives the same, for every operator: each row of the registry (`tests/laws/any_cut.py`) holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

import crossstream.operators
from tests.laws.any_cut import ROWS, Row
from tests.laws.effort import cases
from tests.laws.engine import Way

FOLDERS = {
    path.parent.name
    for path in Path(crossstream.operators.__file__).parent.glob("*/__init__.py")
    if path.parent.name != "__pycache__"
}


def test_every_operator_has_a_row() -> None:
    assert set(ROWS) == FOLDERS
    assert all(ROWS.values())


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{operator}: {name}")
        for operator in ROWS
        for name, row in ROWS[operator].items()
    ],
)
def test_any_cut_gives_the_same(row: Row) -> None:
    def holds(case: Any, way: Way) -> None:
        row.check(case, way)

    law = given(row.cases, row.ways)(holds)
    for tried in row.examples:
        law = example(*tried)(law)
    cases(row.share)(law)()
