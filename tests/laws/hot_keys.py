"""Keys that become hot after a row or two, where it takes tens of thousands otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

import crossstream as cs
from crossstream.runtime import spreading
from crossstream.task import batch
from crossstream.task.batch import Settings
from crossstream.testing import driver

NEVER = 1 << 60


@contextmanager
def hot_from(rows: int) -> Iterator[None]:
    """Keys with so many rows are hot, whatever share of all these are."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (driver, batch):
            patch.setattr(module, "Settings", partial(Settings, hot_rows=rows))
        patch.setattr(spreading, "EACH", 0)
        patch.setattr(spreading, "SHARE", NEVER)
        yield


def hot_keys(ran: cs.TopologyTestDriver) -> int:
    """How many keys are hot in the stores of a driver."""
    return sum(map(len, ran._hot.values()))
