"""Makes a case that fails smaller, step by step, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.laws.compositions.graphs import Case, Step, Way, kinds_of

TRIES = 400
_PLAIN = Step("")


def shrunk(case: Case, check: Callable[[Case], object]) -> Case:
    """A smaller case that fails as this one does, after `TRIES` cases at most."""
    wanted, left = _failure(case, check), TRIES
    while True:
        for smaller in _smaller(case):
            if left == 0:
                return case
            left -= 1
            if _failure(smaller, check) == wanted:
                case = smaller
                break
        else:
            return case


def _failure(case: Case, check: Callable[[Case], object]) -> object:
    """The kind of the error, and its code; None if there is none."""
    try:
        kinds_of(case.graph)
        check(case)
    except Exception as error:
        return type(error), getattr(error, "code", None)
    return None


def _smaller(case: Case) -> Iterator[Case]:
    graph, items, way = case.graph, case.items, case.way
    for number in reversed(range(len(graph))):
        yield from _without(case, number)
    for size in (8, 4, 2, 1):
        for start in range(0, len(items) if len(items) > size else 0, size):
            yield replace(case, items=items[:start] + items[start + size :])
    for one in (Way(), Way(each=True), Way(way.partitions), Way(way.partitions, each=True)):
        if len(repr(one)) < len(repr(way)):
            yield replace(case, way=one)
    for number, step in enumerate(graph):
        for name in ("store", "declared", "history", "nulls", "form", "fails"):
            if getattr(step, name) != getattr(_PLAIN, name):
                plainer = replace(step, **{name: getattr(_PLAIN, name)})  # type: ignore[arg-type]
                yield replace(case, graph=(*graph[:number], plainer, *graph[number + 1 :]))


def _without(case: Case, number: int) -> Iterator[Case]:
    """Without a step: what reads it reads a parent of it. A source goes with its records, if nothing reads it."""
    step = case.graph[number]
    is_read = any(number in one.parents for one in case.graph)
    for stand_in in dict.fromkeys(step.parents) if is_read else (0,):

        def moved(parent: int, stand_in: int = stand_in) -> int:
            parent = stand_in if parent == number else parent
            return parent - (parent > number)

        steps = [one for place, one in enumerate(case.graph) if place != number]
        graph = tuple(replace(one, parents=tuple(map(moved, one.parents))) for one in steps)
        kept = [one for one in case.items if one.source != number]
        if graph and kept:
            items = tuple(replace(one, source=moved(one.source)) for one in kept)
            yield replace(case, graph=graph, items=items)
