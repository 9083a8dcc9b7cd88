"""The stores of a part of a topology under the names that they have in the plan of all of it.

A store without a name of its own is called after its operator and the round in which it is kept, which is another one
in a part. The part and the whole have the same operators, so a store is known by what its operator calls it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from crossstream.graph.names import unique
from crossstream.planning.plan import Plan, StoreDef
from crossstream.planning.steps import Step
from crossstream.runtime.rescaling import partitioners
from crossstream.serdes.own import identity

Role = tuple[str, str, str, int]
"""The operator, the kind of its step, the setting that names the store, and which of its names."""


@dataclass(frozen=True, slots=True)
class Named:
    """The plan of a part. ``copies``: stores of the whole that are the same as another one, whose rows the part has.

    The whole may keep a table in two rounds, and the part in one.
    """

    plan: Plan
    copies: Mapping[str, str]


def named_as(part: Plan, whole: Plan, wanted: Collection[str]) -> Named | None:
    """The plan of a part with the names of the ``wanted`` stores; None if it lacks one, or fills it in another way."""
    mine, theirs = _roles(part), _roles(whole)
    names: dict[str, str] = {}
    copies: dict[str, str] = {}
    for role, stores in theirs.items():
        for store in (one for one in stores if one in wanted and one not in names):
            fit = [name for name in mine.get(role, ()) if _is_same(name, part, store, whole)]
            found = next((name for name in fit if name not in names.values()), None)
            if found is not None:
                names[store] = found
            elif fit:
                copies[store] = next(one for one, name in names.items() if name == fit[0])
    if set(wanted) - names.keys() - copies.keys():
        return None
    plan = _renamed(part, {name: store for store, name in names.items() if name != store})
    return Named(plan, {store: one for store, one in copies.items() if store not in names})


def _roles(plan: Plan) -> dict[Role, list[str]]:
    """The stores by what they are for an operator: one table may be kept in several rounds."""
    plans = [plan] if plan.global_stage is None else [plan, plan.global_stage]
    found: dict[Role, list[str]] = {}
    for one in plans:
        for step in one.steps:
            for setting, number, name in _settings(step):
                if name in plan.stores:
                    found.setdefault((step.node, step.kind, setting, number), []).append(name)
    return found


def _settings(step: Step) -> Iterator[tuple[str, int, str]]:
    """The names in the settings of a kind of step; see `Step.names`."""
    for setting in fields(step)[len(fields(Step)) :]:
        given = getattr(step, setting.name)
        names = (given,) if isinstance(given, str) else given if isinstance(given, tuple) else ()
        yield from (
            (setting.name, number, name) for number, name in enumerate(names) if isinstance(name, str)
        )


def _is_same(name: str, one: Plan, store: str, other: Plan) -> bool:
    """Whether two plans fill a store in the same way.

    In a part a table of results may be a source of its rows. Then they are no results, and each comes once.
    """
    mine, theirs = one.stores[name], other.stores[store]
    placed = [name in partitioners(one), store in partitioners(other)]
    serdes = [(identity(one.key), identity(one.value)) for one in (mine, theirs)]
    named = replace(mine, name=store, round=theirs.round, public=theirs.public)
    plain: StoreDef = replace(
        named, key=theirs.key, value=theirs.value, results=theirs.results, repeats=theirs.repeats
    )
    return serdes[0] == serdes[1] and plain == theirs and placed[0] == placed[1]


def _renamed(plan: Plan, names: Mapping[str, str]) -> Plan:
    """A plan with other names for its stores. One that has such a name gives it up."""
    if not names:
        return plan
    taken = {*plan.stores, *names.values()}
    moved = {name: unique(f"{name}-before", taken) for name in names.values() if name in plan.stores}
    every = {**moved, **names}
    stores = {
        every.get(name, name): replace(one, name=every.get(name, name)) for name, one in plan.stores.items()
    }
    steps = tuple(_with_names(step, every) for step in plan.steps)
    timed = {every.get(name, name): one for name, one in plan.timed.items()}
    stage = None if plan.global_stage is None else _renamed(plan.global_stage, names)
    return replace(plan, stores=stores, steps=steps, timed=timed, global_stage=stage)


def _with_names(step: Step, names: Mapping[str, str]) -> Step:
    changed: dict[str, Any] = {}
    for setting in fields(step)[len(fields(Step)) :]:
        given = getattr(step, setting.name)
        if isinstance(given, str):
            changed[setting.name] = names.get(given, given)
        elif isinstance(given, tuple):
            changed[setting.name] = tuple(
                names.get(one, one) if isinstance(one, str) else one for one in given
            )
    return replace(step, **changed)
