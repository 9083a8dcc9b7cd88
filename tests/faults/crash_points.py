"""Crashes at the steps of a batch, and what they may leave behind.

A crash is an exception that nothing catches, right before or after a step; what a killed process leaves behind is the
same, since every step ends in one atomic write.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import crossstream as cs
from crossstream.application.local import LocalRounds
from crossstream.filetopics import FilePublisher
from crossstream.filetopics.partition_log import Appender
from crossstream.spark.rounds import SparkRounds
from crossstream.storage.commit_log import BatchLog
from crossstream.storage.files import Folder, partition_folder
from crossstream.storage.manifest import read_manifest
from crossstream.storage.vacuum import Vacuum
from tests.application.engines import LOCAL, NIGHTLY_SPARK, SPARK
from tests.spark.world import World

Arm = Callable[[pytest.MonkeyPatch], None]
"""Makes the application crash at some point."""


class Crash(BaseException):
    """The process is gone: no handler of the library may catch it."""


def before(owner: Any, name: str, count: int = 1) -> Arm:
    """Crashes instead of the ``count``-th call of a method."""
    return crashing(owner, name, count, after=False)


def after(owner: Any, name: str, count: int = 1) -> Arm:
    """Crashes at the end of the ``count``-th call of a method."""
    return crashing(owner, name, count, after=True)


def crashing(owner: Any, name: str, count: int, *, after: bool) -> Arm:
    def arm(patch: pytest.MonkeyPatch) -> None:
        method, calls = getattr(owner, name), [0]

        def crash(self: Any, *arguments: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] == count and not after:
                raise Crash
            result = method(self, *arguments, **more)
            if calls[0] == count:
                raise Crash
            return result

        patch.setattr(owner, name, crash)

    return arm


def either(*arms: Arm) -> Arm:
    """Crashes at whichever point comes."""

    def arm(patch: pytest.MonkeyPatch) -> None:
        for one in arms:
            one(patch)

    return arm


POINTS = {
    "before the batch is logged": before(BatchLog, "write_batch"),
    "after the batch is logged": after(BatchLog, "write_batch"),
    "after it ran": either(after(SparkRounds, "run"), after(LocalRounds, "run")),
    "before anything is published": before(FilePublisher, "publish"),
    "after the first frame is published": after(Appender, "append"),
    "after the second frame is published": after(Appender, "append", 2),
    "after everything is published": after(FilePublisher, "publish"),
    "before the commit": before(BatchLog, "write_commit"),
    "after the commit": after(BatchLog, "write_commit"),
    "before old state is deleted": before(Vacuum, "add"),
    "after old state is deleted": after(Vacuum, "add"),
}


EACH_TIME = ("after the batch is logged", "after the first frame is published", "before the commit")
"""Tried on Spark each time, the others nightly. `runtime/test_recovery` crashes at every step."""

at_each_point = pytest.mark.parametrize(
    ("engine", "point"),
    [
        pytest.param(*seat.values, point, id=f"{point}-{seat.id}", marks=seat.marks)
        for point in POINTS
        for seat in (LOCAL, SPARK if point in EACH_TIME else NIGHTLY_SPARK)
    ],
    indirect=["engine"],
)


def crash(app: cs.SparkStreams, arm: Arm) -> None:
    """Runs the application into its crash."""
    with pytest.MonkeyPatch.context() as patch:
        arm(patch)
        with pytest.raises(Crash):
            app.process_available()
    app.stop()


def files_in_use(world: World, log: BatchLog) -> set[Path]:
    """Manifests of the kept commits, and the runs they list."""
    used: set[Path] = set()
    for number in log.commits():
        for store, names in log.commit(number).versions.items():
            for partition, name in names.items():
                folder = world.state_dir / partition_folder(store, partition)
                used |= {folder / name} | {
                    folder / file for file in read_manifest(Folder(folder), name).files()
                }
    return used
