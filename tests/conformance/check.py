"""What any engine's run of a vector or a script, one record at a time, is held against."""

from __future__ import annotations

from typing import Protocol

from tests.conformance.case import Script
from tests.conformance.compare import assert_same_by_input
from tests.conformance.vectors import Vector
from tests.reference import Output, fold


class Run(Protocol):
    """``outputs[i]``: the results of input i."""

    @property
    def outputs(self) -> list[list[Output]]: ...


def check_vector(vector: Vector, run: Run) -> None:
    """Everything a recorded case pins, by crossstream's decisions."""
    changelog = [output for outputs in run.outputs for output in outputs]
    if vector.expected is not None:
        assert_same_by_input(run.outputs, vector.expected, vector.case["inputs"])
    if vector.last is not None:
        assert changelog[-1] == vector.last
    if vector.table is not None:
        assert fold(changelog) == vector.table
    if vector.records is not None:
        assert {(output.key, output.value) for output in changelog} == vector.records
        assert len(changelog) == len(vector.records)
    for count, table in vector.tables:
        so_far = fold(output for outputs in run.outputs[:count] for output in outputs)
        assert {key: value for key, (value, _) in so_far.items()} == table, f"table after {count} inputs"


def check_script(script: Script, run: Run) -> None:
    """The outputs of every row of a script."""
    assert_same_by_input(run.outputs, script.expected, [given for given, _ in script.rows])
