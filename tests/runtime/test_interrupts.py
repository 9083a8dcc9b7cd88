"""Ctrl-C in `process_available`, and the call again: as if nobody had touched the keyboard.

An interrupt comes between any two lines. Here that is before a line of the files that plan, run and commit batches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import crossstream as cs
from crossstream.application import loop as engine
from crossstream.runtime import scheduler as planning
from crossstream.storage import commit_log as log
from tests.faults.one_process import process, streams
from tests.laws.crashes import config, given_to, some_places, some_rows, what_is_left
from tests.laws.effort import cases
from tests.laws.engine import Way, build
from tests.laws.strategies import Case, chain_cases, stream_cases, table_cases
from tests.spark.world import World

PARTITIONS = 2
STORED = frozenset(range(3))
LINES_OF = frozenset(str(module.__file__) for module in (engine, log, planning))


@dataclass(slots=True)
class Keyboard:
    """Counts lines, and interrupts before the one with the number ``last``."""

    last: int
    count: int = 0

    def watch(self, frame: FrameType, event: str, what: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in LINES_OF:
            return None
        if event == "line":
            self.count += 1
            if self.count == self.last:
                raise KeyboardInterrupt
        return self.watch


@contextmanager
def interrupted(last: int) -> Iterator[Keyboard]:
    """An interrupt before the line that is the ``last``-th to be run."""
    keyboard, before = Keyboard(last), sys.gettrace()
    sys.settrace(keyboard.watch)
    try:
        yield keyboard
    finally:
        sys.settrace(before)


TEXT = cs.serdes.string()


def copied() -> cs.Topology:
    builder = cs.StreamsBuilder()
    rows = builder.table("rows", cs.Consumed(key=TEXT, value=TEXT), cs.Materialized(store="rows"))
    rows.to_stream().to("results", cs.Produced(key=TEXT, value=TEXT))
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_every_line_of_a_batch(step: int) -> None:
    """Rows come before the interrupt and after it, for the same keys and others; ``step``: from line to line."""
    last, over = 0, False
    with TemporaryDirectory() as folder:
        while not over:
            last += step
            world = World(Path(folder) / str(last))
            world.create(rows=1, results=1)
            with streams(copied(), world.config(partitions=1)) as app:
                world.append("rows", [("a", "0", 0)])
                app.process_available()
                world.append("rows", [("a", "1", 1), ("b", "1", 1)])
                with suppress(KeyboardInterrupt), interrupted(last) as keyboard:
                    app.process_available()
                over = keyboard.count < last
                world.append("rows", [("b", "2", 2), ("c", "2", 2)])
                app.process_available()
                rows = dict(app.store("rows").all())
            assert rows == {"a": "1", "b": "2", "c": "2"}, f"after an interrupt before line {last}"
            came = [(record.key, record.value) for record in world.read("results")]
            assert sorted(set(came)) == sorted(came), f"twice, after an interrupt before line {last}"
            assert world.table("results") == rows
    assert last > 100


def test_whoever_waits_for_a_running_application_leaves_no_haste_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`max_task_idle` holds again afterwards."""
    world = World(tmp_path)
    world.create(rows=1, results=1)
    with streams(copied(), world.config(partitions=1)) as app:
        app.start()
        running = app._runner.loop
        assert running is not None
        with monkeypatch.context() as patch:
            patch.setattr(running.inputs, "reached", interrupting)
            with pytest.raises(KeyboardInterrupt):
                app.process_available()
        assert app._runner.life.waiters == 0
        assert app.status == "running"
        world.append("rows", [("a", "0", 0)])
        app.process_available()
    assert world.table("results") == {"a": "0"}


def interrupting(ends: Any, transactions: Any, known: Any) -> bool:
    raise KeyboardInterrupt


@cases(0.5)
@given(
    table_cases() | chain_cases() | stream_cases(),
    some_places,
    st.integers(1, 6),
    st.lists(st.integers(1, 2_000), min_size=1, max_size=5),
    some_rows,
)
def test_interrupts_change_nothing(
    case: Case, places: list[int], size: int, lines: list[int], rows: int
) -> None:
    topology = build(case, Way(PARTITIONS, stored=STORED))
    with TemporaryDirectory() as folder:
        calm, hasty = (World(Path(folder) / name, single_task_rows=rows) for name in ("calm", "hasty"))
        for world in (calm, hasty):
            given_to(world, case, places)
        process(topology, config(calm, size))
        with streams(topology, config(hasty, size)) as app:
            for last in lines:
                with suppress(KeyboardInterrupt), interrupted(last):
                    app.process_available()
            app.process_available()
        assert what_is_left(hasty, case) == what_is_left(calm, case)
