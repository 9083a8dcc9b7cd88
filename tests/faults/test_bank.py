"""The bank of docs/consistency.md, small: the total is zero at any time, with kills in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossstream.cli.loading import execute
from tests.spark.fixtures import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_the_total_of_all_balances_is_always_zero(tmp_path: Path, kills: int) -> None:
    """The example checks every query, every total that came out and, at the end, every balance."""
    report = execute(ROOT / "examples" / "bank.py").main(str(tmp_path), transfers=5_000, kills=kills)
    assert report.kills == kills
    assert 1 < report.states <= min(report.totals, report.queries)
