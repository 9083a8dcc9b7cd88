"""The clock of an application in a test, which the test moves; and what its batches gave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crossstream.application import loop as spark_engine
from crossstream.application.loop import Loop
from tests.spark.world import World

START = 1_700_000_000_000


class Clock:
    """What the application takes for the clock: milliseconds."""

    def __init__(self) -> None:
        self.ms = START

    def advance(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(spark_engine, "milliseconds", lambda: clock.ms)
    return clock


def out(world: World) -> list[tuple[str, str, int]]:
    return [(output.key, output.value, output.ts) for output in world.read("out")]


def batches(engine: Loop) -> int:
    """Batches until there is nothing to do."""
    count = 0
    while engine.run_next():
        count += 1
    return count
