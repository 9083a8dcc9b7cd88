"""A graph as a topology, by nothing but the public API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl

import crossstream as cs
from crossstream import serdes
from tests.laws.compositions import functions as f
from tests.laws.compositions.aggregates import columns
from tests.laws.compositions.graphs import EITHER, SOURCES, Graph, Kind, Step, Windows, kinds_of


def topology(graph: Graph, plain: bool = False) -> cs.Topology:
    """``plain``: every function is a callable, and nothing is stored that need not be.

    The records of each step that nothing reads, and of each stream and table, go to the topic ``out-`` and its number.
    """
    built = Building(graph, plain)
    for number, (step, kind) in enumerate(zip(graph, built.kinds, strict=True)):
        built.handles.append(built.built(number, step))
        if step.op not in SOURCES and kind.shape != "global":
            built.handles[-1].to(f"out-{number}", key=key_serde(kind), value=f.JSON)
    return built.builder.build()


_JOINS = {"inner": "join", "left": "left_join", "right": "right_join", "outer": "outer_join"}


def ms(duration: int) -> timedelta:
    return timedelta(milliseconds=duration)


def key_serde(kind: Kind) -> Any:
    if kind.key == "either":
        return serdes.left_or_right(f.TEXT, f.TEXT)
    if kind.key == "session":
        return serdes.session_windowed(f.TEXT)
    if kind.key == "unlimited":
        return serdes.windowed(f.TEXT, "unlimited")
    return f.TEXT if kind.key == "text" else serdes.windowed(f.TEXT, ms(kind.size))


def windows(given: Windows) -> Any:
    if given.kind == "time":
        return cs.TimeWindows(size=ms(given.size), advance=ms(given.advance), grace=ms(given.grace))
    if given.kind == "session":
        return cs.SessionWindows(gap=ms(given.size), grace=ms(given.grace))
    if given.kind == "sliding":
        return cs.SlidingWindows(difference=ms(given.size), grace=ms(given.grace))
    return cs.UnlimitedWindows()


class Building:
    def __init__(self, graph: Graph, plain: bool) -> None:
        self.builder = cs.StreamsBuilder()
        self.plain = plain
        self.kinds = kinds_of(graph)
        self.handles: list[Any] = []

    def built(self, number: int, step: Step) -> Any:
        parents = [self.handles[parent] for parent in step.parents]
        kinds = [self.kinds[parent] for parent in step.parents]
        return getattr(self, f"_{step.op}")(number, step, kinds, *parents)

    # what options and functions are

    def kept(self, number: int, step: Step, key: Any = None) -> dict[str, Any]:
        """The store of a table. ``key``: its serde where the input's is lost."""
        kind = self.kinds[number]
        value = f.DECLARED[kind.value] if step.declared else None
        history = None if step.history is None else ms(step.history)
        after_versions = any(self.kinds[parent].versions for parent in step.parents)
        needed = after_versions or step.fails or not self.plain
        named = history is not None or (step.store and needed)
        name = f"store-{number}" if named else None
        if (name, key, value) == (None, None, None):
            return {}
        return {"materialized": cs.Materialized(store=name, key=key, value=value, history_retention=history)}

    def either(self, form: str, call: Any, expression: Callable[[], pl.Expr], kind: Kind) -> Any:
        """The function in its form; a callable where the type of the values is not declared."""
        return expression() if form == "expr" and not self.plain and kind.typed else call

    def selector(self, form: str, kind: Kind) -> Any:
        """The letter of a value as a key."""
        if form == "field" and not self.plain:
            return "s"
        return self.either(
            form, lambda value: f.letter(value), lambda: f.selected(kind.value, kind.nulls), kind
        )

    def joiner(self, step: Step, left: Kind, right: Kind) -> dict[str, Any]:
        """The arguments of a join that say what it makes."""
        if step.form in f.JOINERS:
            return {"joiner": f.JOINERS[step.form]} if self.plain else {"on_merge": step.form}
        if step.form == "prefixed" and not self.plain:
            return {"on_merge": cs.prefixed(f.RIGHT)}
        if step.form == "annotated" and not self.plain:
            return {"joiner": f.annotated_join}
        expressed = step.form == "expr" and not self.plain and left.typed and right.typed
        return {
            "joiner": f.joining(left.value, right.value) if expressed else f.failing(f.joined, step.fails)
        }

    # sources

    def _source(self, number: int, step: Step, kinds: list[Kind]) -> Any:
        kind = self.kinds[number]
        consumed = cs.Consumed(key=f.TEXT, value=f.DECLARED[kind.value] if kind.typed else f.JSON)
        make = {
            "stream": self.builder.stream,
            "table": self.builder.table,
            "global": self.builder.global_table,
        }
        more = self.kept(number, Step(step.op, store=step.store, history=step.history))
        return make[step.op](f"in-{number}", consumed, **more)

    _stream = _table = _global = _source

    # row by row

    def _filter(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        (kind,) = kinds
        call, make = f.PREDICATES[step.fn]
        call, nulls = f.failing(call, step.fails), kind.nulls
        make = f.refusing(make, step.fails)
        negated = step.op == "filter_not"
        predicate = self.either(
            step.form,
            f.with_nulls(call, negated) if nulls else call,
            lambda: f.expressed(make, kind.value, nulls, pl.lit(negated)),
            kind,
        )
        more = self.kept(number, step) if kind.shape == "table" else {}
        return getattr(parent, step.op)(predicate, **more)

    _filter_not = _filter

    def _map_values(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        (kind,) = kinds
        _, call, make = f.MAPPERS[step.fn]
        call, make = f.failing(call, step.fails), f.refusing(make, step.fails)
        call = f.with_nulls(call) if kind.nulls else call
        if step.form == "annotated" and not self.plain:
            call = f.annotated(call, self.kinds[number].value)
        mapper = self.either(
            step.form,
            call,
            lambda: f.expressed(make, kind.value, kind.nulls),
            kind,
        )
        more = self.kept(number, step) if kind.shape == "table" else {}
        return parent.map_values(mapper, **more)

    def _select_key(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        return parent.select_key(self.selector(step.form, kinds[0]))

    def _map(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        def mapped(key: Any, value: Any) -> tuple[Any, Any]:
            return f.letter(value), value if value is None else f.joined(value, None)

        return parent.map(f.failing(mapped, step.fails))

    def _flat_map(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        def mapped(key: Any, value: Any) -> list[Any]:
            return [(f.letter(value), one) for one in f.copies(value)]

        return parent.flat_map(f.failing(mapped, step.fails))

    def _flat_map_values(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        return parent.flat_map_values(f.failing(f.copies, step.fails))

    def _peek(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        return parent.peek(f.failing(lambda key, value: None, step.fails))

    def _present(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        return parent.filter(lambda key, value: key is not None and value is not None)

    def _branches(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        """Two branches that come together again."""
        call, _ = f.PREDICATES[step.fn]
        split = (
            parent.split()
            .branch(f.with_nulls(call, False), "some")
            .branch(lambda value: value is not None, "others")
        )
        ways = split.no_default_branch()
        return (
            ways["some"]
            .map_values(lambda value: f.joined(value, value))
            .merge(ways["others"].map_values(lambda value: f.joined(value, None)))
        )

    def _branch(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        """One of two branches."""
        call, _ = f.PREDICATES[step.fn]
        ways = parent.split().branch(f.with_nulls(call, False), "some").default_branch("rest")
        return ways[step.by]

    def _transform(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        return parent.transform_batches(f.transformed, f.BATCHES)

    def _merge(self, number: int, step: Step, kinds: list[Kind], one: Any, other: Any) -> Any:
        return one.merge(other)

    # by key

    def _repartition(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        value = f.DECLARED[kinds[0].value] if step.declared and not kinds[0].typed else None
        return parent.repartition(cs.Repartitioned(key=f.TEXT, value=value))

    def _deduplicate(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        key = self.selector(step.form, kinds[0]) if step.by else None
        return parent.deduplicate(ms(step.within), key=key)

    def _process(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        name = f"seen-{number}"
        method = getattr(parent, step.op)
        keeps = step.op == "process_values"
        return method(lambda: f.Counting(name, keeps), [cs.KeyValueStore(name, key=f.TEXT, value=f.INT)])

    _process_values = _process

    def _to_table(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        declared = step.declared and not kinds[0].typed
        step = Step("to_table", store=step.store, declared=declared, history=step.history)
        return parent.to_table(**self.kept(number, step, None if kinds[0].placed else f.TEXT))

    def _to_stream(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        (kind,) = kinds
        if step.by == "inner":
            inner = (lambda key: key.left or key.right) if kind.key == "either" else (lambda key: key.key)
            return parent.to_stream(lambda key, value: inner(key))
        if step.by == "s":
            call = lambda value: f.letter(value)  # noqa: E731
            return parent.to_stream(self.either(step.form, call, lambda: f.selected(kind.value, True), kind))
        return parent.to_stream()

    def _suppress(self, number: int, step: Step, kinds: list[Kind], parent: Any) -> Any:
        if step.fn == "closes":
            return parent.suppress(cs.Suppressed.until_window_closes())
        return parent.suppress(cs.Suppressed.until_time_limit(ms(step.within)))

    # aggregation

    def grouped(self, step: Step, kind: Kind, parent: Any, declared: bool) -> Any:
        """``by``: nothing, the letter, or (tables) a row of the letter."""
        value = f.DECLARED[kind.value] if self.plain or (declared and not kind.typed) else None
        key = None if kind.placed and kind.shape == "stream" and not step.by else f.TEXT
        if step.by == "key, row":
            return parent.group_by(
                lambda key, value: (f.letter(value), f.row(f.number(value), f.letter(value), 1.0)),
                key=f.TEXT,
                value=f.ROW if declared else None,
            )
        if step.by == "s":
            selector = self.selector(step.form, kind)
            if kind.shape == "table" and callable(selector):
                return parent.group_by(
                    lambda key, value: (f.letter(value), value),
                    key=f.TEXT,
                    value=value or f.DECLARED[kind.value],
                )
            return parent.group_by(selector, key=f.TEXT, value=value)
        return parent.group_by_key(key=key, value=value)

    def _aggregate(self, number: int, step: Step, kinds: list[Kind], parent: Any, other: Any = None) -> Any:
        kind = kinds[0]
        named = step.fn == "cogroup" or step.fn == "aggregate"
        groups, added = self.grouped(step, kind, parent, step.declared), f.failing(f.added, step.fails)
        if other is not None:
            groups = groups.cogroup(added).cogroup(self.grouped(step, kinds[1], other, step.declared), added)
        if step.windows is not None:
            groups = groups.windowed_by(
                windows(step.windows), emit="close" if step.windows.close else "update"
            )
        kept = self.kept(number, Step(step.op, store=step.store, declared=step.declared and named))
        if kind.shape == "table":
            return self.aggregated_table(step, kind, groups, kept)
        merger = {"merger": f.merged} if step.windows is not None and step.windows.kind == "session" else {}
        if step.fn == "count":
            return groups.count(**kept)
        if step.fn == "reduce":
            return groups.reduce(f.failing(f.reduced, step.fails), **kept)
        if step.fn == "agg":
            return groups.agg(**columns(step.columns, kind.value), **kept)
        if step.fn == "cogroup":
            return groups.aggregate(f.nothing, **merger, **kept)
        return groups.aggregate(f.nothing, added, **merger, **kept)

    def aggregated_table(self, step: Step, kind: Kind, groups: Any, kept: dict[str, Any]) -> Any:
        if step.fn == "count":  # a group without rows may be there with 0, or may never have been there
            return groups.count(**kept).filter(lambda count: count > 0)
        if step.fn == "agg":
            return groups.agg(**columns(step.columns, kind.value), **kept)
        if step.fn == "reduce" and step.by == "s":
            return groups.reduce(f.plus, f.minus, **kept)
        if step.fn == "reduce":
            return groups.reduce(f.put_row, f.taken_row, **kept)
        return groups.aggregate(f.nothing, f.failing(f.put, step.fails), f.taken, **kept)

    # joins

    def united(self, joined: Any, number: int, step: Step, kinds: list[Kind]) -> Any:
        """What a joiner makes, of both sides' fields."""
        mapper = f.uniting() if all(kind.typed for kind in kinds) else f.united
        return joined.map_values(mapper, **(self.kept(number, step) if kinds[0].shape == "table" else {}))

    def _join(self, number: int, step: Step, kinds: list[Kind], left: Any, right: Any) -> Any:
        if step.form == "prefixed" and not self.plain:
            unnamed = replace(step, store=False, declared=False)
            made = self.join_of(number, unnamed, kinds, left, right)
            return self.united(made, number, step, kinds)
        return self.join_of(number, step, kinds, left, right)

    def join_of(self, number: int, step: Step, kinds: list[Kind], left: Any, right: Any) -> Any:
        method = getattr(left, _JOINS[step.fn])
        joiner = self.joiner(step, *kinds)
        if kinds[0].shape == "table":
            return method(right, **joiner, **self.kept(number, step))
        if kinds[1].shape == "global":
            return method(right, **joiner, key_selector=self.selector(step.by, kinds[0]))
        if kinds[1].shape == "table":
            joined = cs.Joined() if kinds[0].placed else cs.Joined(key=f.TEXT)
            return method(right, joined=joined, **joiner)
        option = cs.StreamJoined() if kinds[0].placed and kinds[1].placed else cs.StreamJoined(key=f.TEXT)
        near = cs.JoinWindows(before=ms(step.within), after=ms(step.within), grace=ms(step.grace))
        return method(right, windows=near, stream_joined=option, **joiner)

    def _fk(self, number: int, step: Step, kinds: list[Kind], left: Any, right: Any) -> Any:
        if step.form == "prefixed" and not self.plain:
            unnamed = replace(step, store=False, declared=False)
            return self.united(self.fk_of(number, unnamed, kinds, left, right), number, step, kinds)
        return self.fk_of(number, step, kinds, left, right)

    def fk_of(self, number: int, step: Step, kinds: list[Kind], left: Any, right: Any) -> Any:
        by, keyed = (
            self.selector(step.by, kinds[0]),
            {"keyed_by": cs.LeftOrRight} if step.fn in EITHER else {},
        )
        more = {**self.joiner(step, *kinds), **keyed, **self.kept(number, step)}
        return getattr(left, _JOINS[step.fn])(right, foreign_key=by, **more)

    def _view(self, number: int, step: Step, kinds: list[Kind], left: Any, right: Any) -> Any:
        by = self.selector(step.by, kinds[0])
        return getattr(left, _JOINS[step.fn])(right, key_selector=by, **self.joiner(step, *kinds))

    def _many(self, number: int, step: Step, kinds: list[Kind], left: Any, one: Any, two: Any) -> Any:
        method = getattr(left, {"inner": "join_many", "left": "left_join_many"}[step.fn])
        by = self.selector(step.by, kinds[0])
        expressed = step.form == "expr" and not self.plain and all(kind.typed for kind in kinds)
        joiner = f.joining_many(*(kind.value for kind in kinds)) if expressed else f.joined_many
        return method({"one": (one, by), "two": (two, by)}, joiner, **self.kept(number, step))
