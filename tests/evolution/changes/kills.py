"""Changes that are killed at a step of the file system, and what comes after it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from crossstream.errors import StateError
from tests.evolution.changes.applications import App
from tests.evolution.changes.building import topology
from tests.evolution.changes.worlds import Life
from tests.evolution.test_killed_changes import killing
from tests.faults.crash_points import Crash
from tests.faults.one_process import process
from tests.faults.simulator import Faults

HOW = ("before", "after", "midst")


def copied(life: Life, folder: str) -> Life:
    """The same application, with topics and state of its own."""
    root = Path(folder) / "copy"
    shutil.copytree(life.root, root)
    return replace(life, root=root, read=list(life.read))


def steps(life: Life, app: App) -> int:
    """How many steps the change takes."""
    with TemporaryDirectory() as folder:
        faults = Faults(Random(0), -1, "before")
        with killing(faults):
            copied(life, folder).evolve(app)
        return faults.done


class Killed:
    """Changes that are killed at any step, ``times`` one after the other; then the same change, whole, ends it."""

    def __init__(self, rng: Random, times: int = 2) -> None:
        self.rng, self.times = rng, times
        self.log: list[str] = []

    def __call__(self, life: Life, app: App) -> None:
        for _ in range(self.times):
            last = steps(life, app)
            if not last:  # the change is done
                break
            self.kill(life, app, self.rng.randint(1, last))
            if self.rng.random() < 0.3:
                starts(life, app)
        life.evolve(app)
        assert life.evolve(app).decision.is_empty

    def kill(self, life: Life, app: App, at: int) -> bool:
        """Whether the change was killed."""
        faults = Faults(self.rng, at, self.rng.choice(HOW))
        try:
            with killing(faults):
                life.evolve(app)
        except Crash:
            self.log.append(f"killed {faults.how} operation {at}: {faults.log[-1]}")
            return True
        return False


def starts(life: Life, app: App) -> bool:
    """Starts the new code; whether the state is that of it. The old code starts if it is not."""
    try:
        process(topology(app), life.config())
    except StateError as error:
        if error.code != "CS-750":
            raise
        process(topology(life.app), life.config())
        return False
    return True


def killed_while_it_ran(rng: Random, life: Life) -> bool:
    """Runs the code into a kill at any step."""
    faults = Faults(rng, rng.randint(1, 40), rng.choice(HOW))
    try:
        with killing(faults):
            life.run(max_records_per_batch=rng.choice([None, 2]))
    except Crash:
        return True
    return False
