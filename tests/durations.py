"""Seconds by test file, so that `schedule` can start the longest first.

``make durations`` runs the tests with this plugin (``-p tests.durations``) and writes `DURATIONS`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

DURATIONS = Path(__file__).parent / "durations.txt"
"""``seconds file``, the longest first; without those under half a second. ``~``: estimated from files like it."""


def read() -> dict[str, float]:
    """Seconds by file."""
    lines = map(str.split, DURATIONS.read_text().splitlines())
    return {file: float(seconds.lstrip("~")) for seconds, file in lines}


_taken: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds a test's set-up, its call and its end. Called where the reports of all processes come together."""
    _taken[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the file; no process of ``-n`` does, for each has a part of the tests only."""
    if not hasattr(session.config, "workerinput"):
        DURATIONS.write_text("".join(f"{s:.1f} {file}\n" for file, s in _taken.most_common() if s >= 0.5))
