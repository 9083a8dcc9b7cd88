"""One Spark session for all tests.

Starting a JVM takes seconds, a session for every test would take minutes. A test that stops the
session only makes the next one start a new one in the same JVM.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.world import ALONE, SPREAD, World

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"spark.master": "local[2]", "spark.ui.enabled": "false"}


def importable_in_workers() -> None:
    """Puts the package and the tests on the path of every process started from here on."""
    paths = [str(ROOT / "src"), str(ROOT)]
    paths += [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in paths
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


class Sessions:
    """Gives the session that tests share, and a new one when a test has stopped it."""

    def __init__(self) -> None:
        self._session: Any = None

    def running(self) -> Any:
        if self._session is None or self._session.sparkContext._jsc is None:
            from crossstream.spark.session import make_session  # PySpark is loaded where it is needed

            importable_in_workers()
            self._session = make_session("crossstream tests", SETTINGS)
        return self._session

    def stop(self) -> None:
        if self._session is not None:
            self._session.stop()


@pytest.fixture(scope="session")
def sessions() -> Iterator[Sessions]:
    """For fixtures that live longer than a test."""
    held = Sessions()
    yield held
    held.stop()


@pytest.fixture
def spark(sessions: Sessions) -> Any:
    """A running session on two cores, made by crossstream."""
    return sessions.running()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Empty folders for topics and state."""
    return World(tmp_path)


@pytest.fixture(params=[SPREAD, ALONE], ids=["spread", "alone"])
def either_world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """Of an application that spreads its small batches, and of one whose tasks do them alone."""
    return World(tmp_path, single_task_rows=request.param)
