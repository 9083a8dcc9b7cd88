"""An application as small data: operators that know each other by name, and the topics that results go to.

The names stay when an application changes, so that a change is a replaced value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal

Shape = Literal["table", "stream"]
Form = Literal["expr", "call"]
SOURCES = ("table", "stream")
JOINS = ("join", "fk", "many", "enrich", "pair")
GROUPS = ("group", "window", "tally")
FILTERS = ("filter",)


class Brief:
    """Shows only what differs from the defaults, so that a failure reads as a story."""

    def __repr__(self) -> str:
        shown = []
        for one in fields(self):  # type: ignore[arg-type]
            value = getattr(self, one.name)
            if one.default is MISSING:
                shown.append(repr(value))
            elif value != one.default:
                shown.append(f"{one.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Op(Brief):
    """An operator. ``name``: in this data; users give it (``is_named``) or do not.

    ``fn``: which of its functions; of a source, which columns its values have. ``how``: the kind of a join. ``by``: the
    columns of foreign keys, one for each parent but the first, or that of a group. ``aggregates``: one for each column
    that is made, and more. ``key``: the serde of its keys. ``history``, ``size``: in ms. ``store``: users can query it.
    """

    name: str
    op: str
    parents: tuple[str, ...] = ()
    fn: str = ""
    how: str = "inner"
    by: tuple[str, ...] = ()
    aggregates: tuple[str, ...] = ()
    form: Form = "expr"
    is_named: bool = False
    store: bool = False
    key: str = "text"
    history: int | None = None
    size: int = 0


@dataclass(frozen=True, repr=False)
class Sink(Brief):
    """A topic of results. ``of``: the operator whose rows it gets; ``fn``: a mapper before it; ``key``: its serde."""

    topic: str
    of: str
    fn: str = ""
    key: str = ""
    is_named: bool = False


@dataclass(frozen=True)
class App:
    ops: tuple[Op, ...]
    sinks: tuple[Sink, ...]

    def __repr__(self) -> str:
        ops = "".join(f"\n        {one!r}," for one in self.ops)
        sinks = "".join(f"\n        {one!r}," for one in self.sinks)
        return f"App(\n    ({ops}\n    ),\n    ({sinks}\n    ),\n)"

    def __getitem__(self, name: str) -> Op:
        return next(one for one in self.ops if one.name == name)

    def each(self, *kinds: str) -> Iterator[Op]:
        return (one for one in self.ops if one.op in kinds)

    def children(self, name: str) -> list[Op]:
        return [one for one in self.ops if name in one.parents]

    def with_op(self, op: Op) -> App:
        """With another operator of this name."""
        return replace(self, ops=tuple(op if one.name == op.name else one for one in self.ops))

    def with_sink(self, before: Sink, after: Sink) -> App:
        return replace(self, sinks=tuple(after if one == before else one for one in self.sinks))

    def needed(self) -> App:
        """Without operators that lead to no result, and that nobody can query."""
        wanted = {sink.of for sink in self.sinks} | {
            one.name for one in self.ops if one.store or not one.parents
        }
        for one in reversed(self.ops):
            if one.name in wanted:
                wanted |= set(one.parents)
        return replace(self, ops=tuple(one for one in self.ops if one.name in wanted))

    def kinds(self) -> dict[str, Kind]:
        found: dict[str, Kind] = {}
        for one in self.ops:
            found[one.name] = kind_of(one, [found[parent] for parent in one.parents])
        return found


@dataclass(frozen=True)
class Kind:
    """What an operator makes. ``key``: "text", "either" (`LeftOrRight`) or "windowed". ``size``: of windows, in ms.

    ``extra``: names of columns beside n, s and t. ``from_stream``: a stream is above it.
    """

    shape: Shape
    key: str = "text"
    size: int = 0
    extra: frozenset[str] = frozenset()
    from_stream: bool = False


EXTRA = {"plus u": "u", "plus w": "w", "plus float u": "u"}


def kind_of(op: Op, parents: list[Kind]) -> Kind:
    from_stream = op.op == "stream" or any(parent.from_stream for parent in parents)
    if op.op in SOURCES:
        extra = frozenset({"u"} if "u" in op.fn else ())
        shape: Any = op.op
        return Kind(shape, op.key, extra=extra, from_stream=from_stream)
    first = replace(parents[0], from_stream=from_stream)
    if op.op == "filter":
        return first
    if op.op == "map":
        return replace(first, extra=frozenset({EXTRA[op.fn]} if op.fn in EXTRA else ()))
    extra = frozenset({"u"} if len(op.aggregates) > 3 else ())
    if op.op == "window":
        return Kind("table", "windowed", op.size, extra, from_stream)
    if op.op in ("group", "tally"):
        key = op.key if op.op == "group" else first.key
        return Kind("table", key, 0, extra, from_stream)
    if op.op == "latest":
        return replace(first, shape="table")
    either = op.op == "fk" and op.how in ("right", "outer")
    return replace(first, key="either" if either else first.key, extra=frozenset())
