"""Random applications and histories. Everything is small: up to three tables, four operators, a dozen records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from crossstream.errors import TopologyError
from tests.evolution.changes import functions as f
from tests.evolution.changes.applications import App, Brief, Kind, Op, Sink
from tests.evolution.changes.building import topology

WITH_STREAMS = 4
"""One in so many applications has streams."""
HISTORY = 1000
SIZES = (4, 10)
_BY = ("s", "t")
_FORMS: Any = ("expr", "expr", "expr", "call")


def is_valid(app: App) -> bool:
    """Whether the library takes it."""
    try:
        topology(app)
    except TopologyError:
        return False
    return True


def _aggregates(rng: Random) -> tuple[str, ...]:
    of_n, of_s, of_t = ["n sum", "n max", "n count"], ["s max", "s min"], ["t max", "t min"]
    return rng.choice(of_n), rng.choice(of_s), rng.choice(of_t)


def sources(rng: Random, streams: bool) -> list[Op]:
    tables = rng.randint(1, 3)
    found = [_source(rng, "table", f"t{number}") for number in range(tables)]
    if streams:
        found += [_source(rng, "stream", f"e{number}") for number in range(rng.randint(1, 2))]
    return found


def _source(rng: Random, op: str, name: str) -> Op:
    fn = rng.choice(["plain", "plain", "plain", "and u"])
    is_table = op == "table"
    history = rng.choice([*[None] * 9, HISTORY]) if is_table else None
    named = rng.random() < 0.5
    return Op(name, op, fn=fn, is_named=named, store=is_table and rng.random() < 0.5, history=history)


Draw = Callable[[Random, str, Sequence[tuple[str, Kind]]], Op | None]


def _pick(rng: Random, places: Sequence[tuple[str, Kind]], shape: str, key: str = "") -> str | None:
    """One of the operators that make such rows, the newest as often as all others."""
    found = [name for name, kind in places if kind.shape == shape and key in ("", kind.key)]
    if not found:
        return None
    return rng.choice([found[-1], rng.choice(found)])


def _filter(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    parent = rng.choice([one for one, _ in places])
    return Op(name, "filter", (parent,), rng.choice(sorted(f.PREDICATES)))


def _map(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    parent = rng.choice([one for one, _ in places])
    return Op(name, "map", (parent,), rng.choice(sorted(f.MAPPERS)))


def _join(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    left, right = _pick(rng, places, "table", "text"), _pick(rng, places, "table", "text")
    if left is None or right is None:
        return None
    how = rng.choice(["inner", "left", "outer"])
    return Op(name, "join", (left, right), rng.choice(sorted(f.JOINERS)), how)


def _fk(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    left, right = _pick(rng, places, "table", "text"), _pick(rng, places, "table", "text")
    if left is None or right is None:
        return None
    how = rng.choice(["inner", "left", "left", "right", "outer"])
    return Op(name, "fk", (left, right), rng.choice(sorted(f.JOINERS)), how, (rng.choice(_BY),))


def _many(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    left = _pick(rng, places, "table", "text")
    rights = [_pick(rng, places, "table", "text") for _ in range(rng.randint(1, 2))]
    if left is None:
        return None
    how, by = rng.choice(["inner", "left"]), tuple(rng.choice(_BY) for _ in rights)
    return Op(name, "many", (left, *map(str, rights)), rng.choice(sorted(f.MANY)), how, by)


def _group(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    parent = _pick(rng, places, "table")
    if parent is None:
        return None
    return Op(name, "group", (parent,), by=(rng.choice(_BY),), aggregates=_aggregates(rng))


def _tally(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    parent = _pick(rng, places, "stream")
    return None if parent is None else Op(name, "tally", (parent,), aggregates=_aggregates(rng))


def _window(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    made = _tally(rng, name, places)
    return None if made is None else replace(made, op="window", size=rng.choice(SIZES))


def _latest(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    parent = _pick(rng, places, "stream")
    return None if parent is None else Op(name, "latest", (parent,))


def _enrich(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    stream, table = _pick(rng, places, "stream"), _pick(rng, places, "table", "text")
    if stream is None or table is None:
        return None
    how = rng.choice(["inner", "left"])
    return Op(name, "enrich", (stream, table), rng.choice(sorted(f.JOINERS)), how)


def _pair(rng: Random, name: str, places: Sequence[tuple[str, Kind]]) -> Op | None:
    left, right = _pick(rng, places, "stream"), _pick(rng, places, "stream")
    if left is None or right is None:
        return None
    how = rng.choice(["inner", "left", "outer"])
    fn, size = rng.choice(sorted(f.JOINERS)), rng.choice(SIZES)
    return Op(name, "pair", (left, right), fn, how, size=size)


ON_TABLES: tuple[Draw, ...] = (_filter, _filter, _map, _join, _join, _fk, _fk, _fk, _many, _group, _group)
ON_STREAMS: tuple[Draw, ...] = (
    *(_enrich, _enrich, _pair, _window, _window, _tally, _latest),
    *(_filter, _map, _join, _fk, _many, _group),
)


def applications(rng: Random, streams: bool | None = None, most: int = 4) -> App:
    """``streams``: there are some, too; None: now and then."""
    if streams is None:
        streams = rng.randint(1, WITH_STREAMS) == WITH_STREAMS
    app = App(tuple(sources(rng, streams)), ())
    for number in range(rng.randint(1, most)):
        made = drawn_op(rng, app, f"o{number}", ON_STREAMS if streams else ON_TABLES)
        grown = None if made is None else replace(app, ops=(*app.ops, made))
        app = app if grown is None or not is_valid(grown) else grown
    return replace(app, sinks=tuple(drawn_sinks(rng, app))).needed()


def drawn_op(rng: Random, app: App, name: str, makers: Sequence[Draw]) -> Op | None:
    kinds = app.kinds()
    made = rng.choice(makers)(rng, name, list(kinds.items()))
    if made is None:
        return None
    shape = replace(app, ops=(*app.ops, made)).kinds()[name].shape
    stored = shape == "table" and rng.random() < 0.5
    form = "expr" if made.op in ("group", "tally", "window", "latest") else rng.choice(_FORMS)
    return replace(made, form=form, is_named=rng.random() < 0.5, store=stored)


def drawn_sinks(rng: Random, app: App) -> list[Sink]:
    """The last operator has one, others now and then; sources have none."""
    made = [one.name for one in app.ops if one.parents] or [app.ops[0].name]
    of = [name for name in made if name == made[-1] or (rng.random() < 0.5)]
    return [drawn_sink(rng, f"out-{number}", name) for number, name in enumerate(of)]


def drawn_sink(rng: Random, topic: str, of: str) -> Sink:
    return Sink(topic, of, rng.choice(["", "", "", "same"]), is_named=rng.random() < 0.5)


# Histories


@dataclass(frozen=True, repr=False)
class Item(Brief):
    """A record: its source, key, value, time (ms); the partition of the topic that it goes to."""

    source: str
    key: str
    value: Any
    ts: int


KEYS = ("1", "2", "3", "4")
DELETES = 0.2


def histories(rng: Random, app: App, count: int = 16, start: int = 0) -> tuple[Item, ...]:
    """Records in order of time, no two of one time: so no cut into batches changes their order."""
    sources = [*app.each("table", "stream")]
    found, now = [], start
    for _ in range(rng.randint(count // 3, count)):
        now += rng.randint(1, 4)
        source = rng.choice(sources)
        is_deleted = source.op == "table" and rng.random() < DELETES
        found.append(Item(source.name, rng.choice(KEYS), None if is_deleted else _value(rng), now))
    return tuple(found)


def _value(rng: Random) -> Any:
    """Its letters are keys of tables, now and then none."""
    s, t = (rng.choice([*KEYS[:3], None]) for _ in range(2))
    return {"n": rng.randint(1, 6), "s": s, "t": t, "u": rng.randint(1, 3)}
