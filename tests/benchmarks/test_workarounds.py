"""The benchmark of the work-arounds: all sides get the same records, and its figures are there."""

from __future__ import annotations

import json
from typing import Any

from benchmarks import workarounds


def test_every_side_is_measured(capsys: Any) -> None:
    assert workarounds.main(["--scale", "0.01", "--fan-out", "10"]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    figures = {line["side"]: line for line in map(json.loads, lines)}
    assert list(figures) == list(workarounds.topologies())
    for side, line in figures.items():
        assert line["product changes a core-second"] > 0
        assert ("merchant changes a core-second" in line) == (side in workarounds.FOLLOW)
    join, grouped = (figures[side]["bytes of state"] for side in workarounds.FOLLOW)
    assert 0 < join < grouped
