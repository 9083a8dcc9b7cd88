"""The law of changes: what must be true of topics and stores after each stage of a case.

rows     what the change wrote are the rows that differ between what a topic held and what a fresh run of the new
         code over all input so far gives, each once; afterwards both are equal, and so are public stores
events   results of streams are not sent again: a topic has what came while each code ran
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from crossstream.errors import StateError
from tests.evolution.changes.applications import App
from tests.evolution.changes.cases import Case, Stage
from tests.evolution.changes.drawing import Item
from tests.evolution.changes.worlds import (
    Life,
    Record,
    check_events,
    check_rows,
    check_stores,
    events,
    fold,
    fresh,
)

Evolve = Callable[[Life, App], Any]
"""How the state is taken over."""
REFUSED = ("CS-751", "CS-754")
"""What cannot be had any more, or cannot be rebuilt apart: the case ends there. `test_few_changes_are_refused`."""


def plainly(life: Life, app: App) -> None:
    life.evolve(app)


def check(case: Case, evolve: Evolve = plainly) -> int:
    """Lives through a case. Returns how many changes there were before one was refused."""
    with TemporaryDirectory() as folder:
        life = Life(Path(folder), case.stages[0].app)
        sent: dict[str, list[Record]] = {}
        for number, stage in enumerate(case.stages):
            life.partitions = stage.partitions
            if number:
                try:
                    change(life, stage.app, evolve)
                except StateError as error:
                    if error.code in REFUSED:
                        return number - 1
                    raise
            run(life, stage, sent)
        return len(case.stages) - 1


def change(life: Life, app: App, evolve: Evolve) -> None:
    """Changes the code, and compares what that wrote."""
    life.prepare(app)
    watched = dict.fromkeys(sink.topic for one in (life.app, app) for sink in one.sinks)
    before = {topic: life.topic(topic) for topic in watched}
    evolve(life, app)
    was, life.app = life.app, app
    after = {topic: life.topic(topic) for topic in watched}
    (wanted,) = fresh(app, life.read)
    for topic in watched:
        written = [
            one for old, new in zip(before[topic], after[topic], strict=True) for one in new[len(old) :]
        ]
        if topic not in wanted.topics or topic in events(app) | events(was):
            assert not written, f"{topic}: the change wrote {written}, and there was nothing to write"
            continue
        check_difference(topic, flat(before[topic]), written, wanted.topics[topic])
    check_rows(app, life.topics(), wanted, "after the change: ")
    check_stores(life, wanted)


def check_difference(
    topic: str, held: Sequence[Record], written: Sequence[Record], wanted: Sequence[Record]
) -> None:
    """The rows that differ, each once, and no others."""
    old, new = fold(held), fold(wanted)
    right = Counter((key, new.get(key)) for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    got = Counter((key, value) for key, value, _ in written)
    assert got == right, f"{topic}: the change wrote too much {got - right}, too little {right - got}"


def run(life: Life, stage: Stage, sent: dict[str, list[Record]]) -> None:
    """Runs the code over what comes, in batches. ``sent``: the events of earlier stages, by topic."""
    earlier: Sequence[Item] = tuple(life.read)
    life.feed(stage.items)
    life.run(max_records_per_batch=stage.every)
    _, wanted = fresh(life.app, earlier, stage.items)
    for topic in events(life.app):
        sent[topic] = [*sent.get(topic, ()), *wanted.topics[topic]]
    (whole,) = fresh(life.app, life.read)
    check_rows(life.app, life.topics(), whole, "after more input: ")
    check_events(life.app, life.topics(), sent)
    check_stores(life, whole)


def flat(parts: Sequence[Sequence[Record]]) -> list[Record]:
    return [one for part in parts for one in part]
