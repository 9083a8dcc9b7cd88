"""The twelve kinds of change. Each gives the ways in which it can be applied to an application."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from tests.evolution.changes import functions as f
from tests.evolution.changes.applications import JOINS, App, Op, Sink
from tests.evolution.changes.drawing import HISTORY, SIZES, is_valid

Changing = Callable[[App], Iterator[App]]


@dataclass(frozen=True)
class Change:
    """What was changed, and into what."""

    kind: str
    after: App


def candidates(app: App, kind: str) -> list[App]:
    """What a kind of change can make of an application; the library may refuse some of it."""
    found = (after.needed() for after in KINDS[kind](app))
    return list(dict.fromkeys(after for after in found if after != app))


def changed(rng: Random, app: App, kind: str = "") -> Change | None:
    """Any change of a kind, or of any kind, that the library takes; None without one."""
    kinds = [kind] if kind else sorted(KINDS, key=lambda _: rng.random())
    for one in kinds:
        found = candidates(app, one)
        rng.shuffle(found)
        for after in found:
            if is_valid(after):
                return Change(one, after)
    return None


def joiner(app: App) -> Iterator[App]:
    """Another joiner, or another mapper."""
    for op in app.each(*JOINS):
        for fn in f.MANY if op.op == "many" else f.JOINERS:
            yield app.with_op(replace(op, fn=fn))


def filters(app: App) -> Iterator[App]:
    """A filter added, changed or removed."""
    for op in app.each("filter"):
        yield from (app.with_op(replace(op, fn=fn)) for fn in f.PREDICATES)
        yield without(app, op)
    for op in app.ops:
        yield inserted(app, Op(f"{op.name}-f", "filter", (op.name,), "n > 2"))
        yield inserted(app, Op(f"{op.name}-f", "filter", (op.name,), "s there", is_named=True, store=True))


def how(app: App) -> Iterator[App]:
    """Inner, left, right and outer."""
    for op in app.each(*JOINS):
        kinds = ["inner", "left"]
        if op.op in ("join", "pair", "fk"):
            kinds.append("outer")
        if op.op == "fk":
            kinds.append("right")
        yield from (app.with_op(replace(op, how=kind)) for kind in kinds)


def columns(app: App) -> Iterator[App]:
    """A column added, removed, renamed, or of a wider type: by a mapper, in a topic, in what is sent."""
    for op in app.each("map"):
        yield from (app.with_op(replace(op, fn=fn)) for fn in f.MAPPERS)
    for op in app.each("table", "stream"):
        yield from (app.with_op(replace(op, fn=fn)) for fn in f.COLUMNS)
    for sink in app.sinks:
        yield from (app.with_sink(sink, replace(sink, fn=fn)) for fn in ("", *f.SENT))


def foreign_key(app: App) -> Iterator[App]:
    """Another foreign key, or another column that groups are by."""
    for op in app.each("fk", "many", "group"):
        for number in range(len(op.by)):
            by = list(op.by)
            by[number] = "t" if by[number] == "s" else "s"
            yield app.with_op(replace(op, by=tuple(by)))


def dimension(app: App) -> Iterator[App]:
    """One more table in a join of many, or one less."""
    kinds = app.kinds()
    for op in app.each("many"):
        before = app.ops[: app.ops.index(op)]
        tables = [
            one.name for one in before if (kinds[one.name].shape, kinds[one.name].key) == ("table", "text")
        ]
        for table in tables:
            yield app.with_op(replace(op, parents=(*op.parents, table), by=(*op.by, "t")))
        if len(op.by) > 1:
            yield app.with_op(replace(op, parents=op.parents[:-1], by=op.by[:-1]))


def order(app: App) -> Iterator[App]:
    """Sides exchanged, and the order of two joins."""
    for op in app.each("join", "pair"):
        yield app.with_op(replace(op, parents=op.parents[::-1]))
    for op in app.each("many"):
        yield app.with_op(replace(op, parents=(op.parents[0], *op.parents[:0:-1]), by=op.by[::-1]))
    for op in app.each("join", "fk"):
        inner = app[op.parents[0]]
        if inner.op in ("join", "fk") and app.ops.index(app[op.parents[1]]) < app.ops.index(inner):
            first = replace(inner, parents=(inner.parents[0], op.parents[1]))
            second = replace(op, parents=(op.parents[0], inner.parents[1]))
            yield app.with_op(first).with_op(second)


def aggregate(app: App) -> Iterator[App]:
    """Another aggregate in a group or beside it, or another one instead."""
    for op in app.each("group", "tally", "window"):
        three = op.aggregates[:3]
        yield app.with_op(replace(op, aggregates=three))
        yield from (app.with_op(replace(op, aggregates=(*three, one))) for one in ("u count", "u min"))
        yield app.with_op(replace(op, aggregates=("n max", *op.aggregates[1:])))
        other = replace(op, name=f"{op.name}-g", aggregates=("n count", "s min", "t max"))
        yield with_result(inserted(app, other, above=False), other)
    kinds = app.kinds()
    for op in app.ops:
        if kinds[op.name].shape == "table" and op.parents:
            made = Op(f"{op.name}-g", "group", (op.name,), by=("s",), aggregates=("n sum", "s max", "t min"))
            yield with_result(inserted(app, made, above=False), made)


def window(app: App) -> Iterator[App]:
    """The size of windows."""
    for op in app.each("window", "pair"):
        yield from (app.with_op(replace(op, size=size)) for size in SIZES)


def versions(app: App) -> Iterator[App]:
    """A table is kept with its versions, or no longer."""
    for op in app.each("table"):
        yield app.with_op(replace(op, history=HISTORY if op.history is None else None))


def key_serde(app: App) -> Iterator[App]:
    """Another serde of keys: of groups, of what is sent, of a topic."""
    kinds = app.kinds()
    simple = all(kind.key not in ("either", "windowed") for kind in kinds.values())
    for op in app.each("table", "stream", "group") if simple else app.each("group"):
        yield from (app.with_op(replace(op, key=key)) for key in f.KEY_FORMS)
    for sink in app.sinks:
        if kinds[sink.of].key == "text":
            yield from (app.with_sink(sink, replace(sink, key=key)) for key in ("", "json"))


def sinks(app: App) -> Iterator[App]:
    """A topic of results added or removed, or of another table."""
    kinds = app.kinds()
    for op in app.ops:
        if op.parents:
            yield with_result(app, op)
    for sink in app.sinks:
        if len(app.sinks) > 1:
            yield replace(app, sinks=tuple(one for one in app.sinks if one != sink))
        for op in app.ops:
            if op.parents and kinds[op.name].shape == "table" == kinds[sink.of].shape:
                yield app.with_sink(sink, replace(sink, of=op.name))


KINDS: dict[str, Changing] = {
    "another joiner": joiner,
    "a filter": filters,
    "inner, left, outer": how,
    "a column": columns,
    "another foreign key": foreign_key,
    "one more dimension": dimension,
    "join order": order,
    "another aggregate": aggregate,
    "a window's size": window,
    "kept with versions": versions,
    "another key serde": key_serde,
    "a sink": sinks,
}


def without(app: App, op: Op) -> App:
    """Without an operator of one parent, which those below it read."""
    (parent,) = op.parents
    ops = tuple(
        replace(one, parents=tuple(parent if above == op.name else above for above in one.parents))
        for one in app.ops
        if one != op
    )
    return App(ops, tuple(replace(one, of=parent) if one.of == op.name else one for one in app.sinks))


def inserted(app: App, op: Op, above: bool = True) -> App:
    """With another operator right behind the first of its parents; ``above``: what read the parent reads it."""
    place = app.ops.index(app[op.parents[0]]) if len(op.parents) == 1 else len(app.ops) - 1
    place = (
        max(place, *(app.ops.index(app[one]) for one in op.parents)) + 1 if len(op.parents) > 1 else place + 1
    )
    parent = op.parents[0]
    if any(one.name == op.name for one in app.ops):
        return app
    ops: list[Op] = list(app.ops)
    if above:
        ops = [
            replace(one, parents=tuple(op.name if up == parent else up for up in one.parents)) for one in ops
        ]
    ops.insert(place, op)
    sinks = tuple(replace(one, of=op.name) if above and one.of == parent else one for one in app.sinks)
    return App(tuple(ops), sinks)


def with_result(app: App, op: Op) -> App:
    """With another topic for its rows."""
    topic = f"more-{op.name}"
    if any(one.topic == topic for one in app.sinks) or all(one.name != op.name for one in app.ops):
        return app
    return replace(app, sinks=(*app.sinks, Sink(topic, op.name)))
