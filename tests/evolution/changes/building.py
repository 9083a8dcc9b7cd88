"""An application as a topology, by nothing but the public API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import crossstream as cs
from crossstream import serdes
from tests.evolution.changes import functions as f
from tests.evolution.changes.applications import App, Kind, Op, Sink


def topology(app: App) -> cs.Topology:
    built = Building(app)
    for op in app.ops:
        built.handles[op.name] = getattr(built, f"_{op.op}")(op, *(built.handles[one] for one in op.parents))
    for sink in app.sinks:
        built.sink(sink)
    return built.builder.build()


def store_of(op: Op) -> str:
    return f"{op.name}-rows"


def ms(duration: int) -> timedelta:
    return timedelta(milliseconds=duration)


def key_serde(kind: Kind) -> Any:
    if kind.key == "either":
        return serdes.left_or_right(f.TEXT, f.TEXT)
    return serdes.windowed(f.TEXT, ms(kind.size)) if kind.key == "windowed" else f.KEYS[kind.key]


_JOINS = {"inner": "join", "left": "left_join", "right": "right_join", "outer": "outer_join"}


class Building:
    def __init__(self, app: App) -> None:
        self.builder = cs.StreamsBuilder()
        self.kinds = app.kinds()
        self.handles: dict[str, Any] = {}

    # options

    def named(self, op: Op) -> dict[str, Any]:
        return {"named": cs.Named(op.name)} if op.is_named else {}

    def name(self, op: Op) -> str | None:
        return op.name if op.is_named else None

    def kept(self, op: Op) -> dict[str, Any]:
        """The store of a table."""
        if not op.store and op.history is None:
            return {}
        return {
            "materialized": cs.Materialized(
                store=store_of(op), history_retention=None if op.history is None else ms(op.history)
            )
        }

    def of_table(self, op: Op) -> dict[str, Any]:
        return self.kept(op) if self.kinds[op.name].shape == "table" else {}

    def either(self, op: Op, functions: Any, *given: Any) -> Any:
        call, make = functions[op.fn]
        return make(*given) if op.form == "expr" else call

    # sources

    def _table(self, op: Op) -> Any:
        consumed = cs.Consumed(key=f.KEYS[op.key], value=f.COLUMNS[op.fn], name=self.name(op))
        return getattr(self.builder, op.op)(f"in-{op.name}", consumed, **self.of_table(op))

    _stream = _table

    # row by row

    def _filter(self, op: Op, parent: Any) -> Any:
        return parent.filter(self.either(op, f.PREDICATES), **self.named(op), **self.of_table(op))

    def _map(self, op: Op, parent: Any) -> Any:
        return parent.map_values(self.either(op, f.MAPPERS), **self.named(op), **self.of_table(op))

    # joins

    def _join(self, op: Op, left: Any, right: Any) -> Any:
        joiner = self.either(op, f.JOINERS)
        return getattr(left, _JOINS[op.how])(right, joiner, **self.named(op), **self.kept(op))

    def _fk(self, op: Op, left: Any, right: Any) -> Any:
        keyed: dict[str, Any] = {"keyed_by": cs.LeftOrRight} if op.how in ("right", "outer") else {}
        if op.is_named:
            keyed["table_joined"] = cs.TableJoined(name=op.name)
        joiner = self.either(op, f.JOINERS)
        return getattr(left, _JOINS[op.how])(right, joiner, foreign_key=op.by[0], **keyed, **self.kept(op))

    def _many(self, op: Op, left: Any, *rights: Any) -> Any:
        others = {
            f"d{number}": (right, by) for number, (right, by) in enumerate(zip(rights, op.by, strict=True))
        }
        joiner = self.either(op, f.MANY, len(rights)) if op.form == "expr" else f.MANY[op.fn][0]
        method = left.join_many if op.how == "inner" else left.left_join_many
        return method(others, joiner, **self.named(op), **self.kept(op))

    def _enrich(self, op: Op, stream: Any, table: Any) -> Any:
        joined = cs.Joined(name=self.name(op))
        return getattr(stream, _JOINS[op.how])(table, self.either(op, f.JOINERS), joined=joined)

    def _pair(self, op: Op, left: Any, right: Any) -> Any:
        joined, windows = cs.StreamJoined(name=self.name(op)), cs.JoinWindows.of(ms(op.size), grace=ms(0))
        joiner = self.either(op, f.JOINERS)
        return getattr(left, _JOINS[op.how])(right, joiner, windows, joined)

    # groups

    def _group(self, op: Op, parent: Any) -> Any:
        grouped = cs.Grouped(key=f.KEYS[op.key], name=f"{op.name}-by" if op.is_named else None)
        groups = parent.group_by(op.by[0], grouped)
        return groups.agg(**self.kept(op), **self.named(op), **f.aggregates(op.aggregates))

    def _tally(self, op: Op, parent: Any) -> Any:
        groups = parent.group_by_key()
        return groups.agg(**self.kept(op), **self.named(op), **f.aggregates(op.aggregates))

    def _window(self, op: Op, parent: Any) -> Any:
        windows = parent.group_by_key().windowed_by(cs.TimeWindows(size=ms(op.size), grace=ms(0)))
        return windows.agg(**self.kept(op), **self.named(op), **f.aggregates(op.aggregates))

    def _latest(self, op: Op, parent: Any) -> Any:
        return parent.to_table(**self.named(op), **self.kept(op))

    # results

    def sink(self, sink: Sink) -> None:
        made, kind = self.handles[sink.of], self.kinds[sink.of]
        stream = made.to_stream() if kind.shape == "table" else made
        if sink.fn:
            stream = stream.map_values(f.SENT[sink.fn])
        key = f.KEYS[sink.key] if sink.key else key_serde(kind)
        name = f"{sink.topic}-sink" if sink.is_named else None
        stream.to(sink.topic, cs.Produced(key=key, value=f.JSON, name=name))
