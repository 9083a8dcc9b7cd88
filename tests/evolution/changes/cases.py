"""Cases as data: the stages of an application's life, each with other code; and how a case that fails gets smaller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.evolution.changes.applications import App
from tests.evolution.changes.drawing import Item, applications, histories, is_valid
from tests.evolution.changes.kinds import KINDS, changed

SECONDS = 40
"""A case that fails gets smaller for so long."""


@dataclass(frozen=True)
class Stage:
    """The code, and what came while it ran. ``kind``: what was changed before it. ``every``: records in a batch."""

    app: App
    items: tuple[Item, ...] = ()
    kind: str = ""
    partitions: int = 2
    every: int | None = None


@dataclass(frozen=True)
class Case:
    stages: tuple[Stage, ...]

    def __repr__(self) -> str:
        """As it is written in a test."""
        lines = []
        for one in self.stages:
            items = "".join(f"\n    {item!r}," for item in one.items)
            lines.append(f"Stage({one.app!r}, ({items}\n), {one.kind!r}, {one.partitions}, {one.every})")
        return "Case((" + ",\n".join(lines) + ",))"


def drawn(rng: Random, count: int = 1, records: int = 18, streams: bool | None = None) -> Case:
    """``count``: changes one after the other, the first of any kind; ``records``: that come at a stage, at most."""
    wanted = rng.choice(list(KINDS))
    while True:
        app = applications(rng, streams or (True if wanted == "a window's size" else streams))
        change = changed(rng, app, wanted) if count else None
        if change is not None or not count:
            break
    kind, partitions = "", rng.randint(1, 3)
    stages: list[Stage] = []
    for number in range(count + 1):
        if number:
            change = change if number == 1 else changed(rng, app)
            assert change is not None
            app, kind = change.after, change.kind
            partitions = rng.randint(1, 3) if rng.random() < 0.3 else partitions
        start = max((item.ts for one in stages for item in one.items), default=0)
        items = histories(rng, app, records, start)
        stages.append(Stage(app, items, kind, partitions, rng.choice([None, 1, 3, 5])))
    return Case(tuple(stages))


def shrunk(case: Case, fails: Callable[[Case], object]) -> Case:
    """A smaller case that fails in the same way. ``fails``: how it does; None if it does not."""
    wanted, until = fails(case), time.monotonic() + SECONDS
    while True:
        for smaller in _smaller(case):
            if time.monotonic() > until:
                return case
            if fails(smaller) == wanted:
                case = smaller
                break
        else:
            return case


def _smaller(case: Case) -> Iterator[Case]:
    stages = case.stages
    for number in range(len(stages) - 1 if len(stages) > 2 else 0):
        yield Case(stages[:number] + stages[number + 1 :])
    for name in dict.fromkeys(one.name for stage in reversed(stages) for one in reversed(stage.app.ops)):
        yield from _each(case, lambda app, name=name: _without(app, name))  # type: ignore[misc]
    for topic in dict.fromkeys(sink.topic for stage in stages for sink in stage.app.sinks):
        yield from _each(case, lambda app, topic=topic: _without_sink(app, topic))  # type: ignore[misc]
    for place, stage in enumerate(stages):
        for size in (8, 4, 2, 1):
            for start in range(0, len(stage.items), size) if len(stage.items) >= size else ():
                items = stage.items[:start] + stage.items[start + size :]
                yield _with(case, place, replace(stage, items=items))
        for plain in (replace(stage, partitions=1), replace(stage, every=None)):
            if plain != stage:
                yield _with(case, place, plain)
    for setting in ("is_named", "store", "history", "form", "fn"):
        for name in dict.fromkeys(one.name for stage in stages for one in stage.app.ops):
            yield from _each(case, lambda app, name=name, setting=setting: _plainer(app, name, setting))  # type: ignore[misc]


def _with(case: Case, place: int, stage: Stage) -> Case:
    return Case((*case.stages[:place], stage, *case.stages[place + 1 :]))


def _each(case: Case, change: Callable[[App], App]) -> Iterator[Case]:
    """With the code of every stage changed in the same way, if all of them are still code."""
    apps = [change(stage.app) for stage in case.stages]
    if apps != [stage.app for stage in case.stages] and all(app.ops and is_valid(app) for app in apps):
        yield Case(tuple(replace(stage, app=app) for stage, app in zip(case.stages, apps, strict=True)))


def _without(app: App, name: str) -> App:
    """What reads the operator reads its first parent; a source goes if nothing reads it."""
    if all(one.name != name for one in app.ops):
        return app
    op = app[name]
    if not op.parents:
        is_read = bool(app.children(name)) or any(sink.of == name for sink in app.sinks)
        return app if is_read else replace(app, ops=tuple(one for one in app.ops if one != op))
    stand_in = op.parents[0]
    ops = tuple(
        replace(one, parents=tuple(stand_in if up == name else up for up in one.parents))
        for one in app.ops
        if one != op
    )
    return App(ops, tuple(replace(one, of=stand_in) if one.of == name else one for one in app.sinks))


def _without_sink(app: App, topic: str) -> App:
    return replace(app, sinks=tuple(one for one in app.sinks if one.topic != topic)).needed()


def _plainer(app: App, name: str, setting: str) -> App:
    plain = {"is_named": False, "store": False, "history": None, "form": "expr", "fn": "plain"}[setting]
    if all(one.name != name for one in app.ops) or (setting == "fn" and app[name].parents):
        return app
    return app.with_op(replace(app[name], **{setting: plain}))  # type: ignore[arg-type]
