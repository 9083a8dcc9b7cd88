"""What a graph means, one record at a time, in plain Python; joins of streams are those of `tests.reference`.

Steps are visited in the order in which they were built. Each makes events of those of its parents: records of a stream,
changes of a table. Nothing of the engine is used but `Windowed`, the key of a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from crossstream import LeftOrRight
from tests.laws.compositions import functions as f
from tests.laws.compositions.graphs import EITHER, SOURCES, Graph, Item, Kind, Step, kinds_of
from tests.laws.compositions.several import ways_of
from tests.reference.records import Change, Event, Record
from tests.reference.stream_global import StreamGlobalJoin
from tests.reference.stream_stream import StreamStreamJoin
from tests.reference.stream_table import StreamTableJoin
from tests.reference.suppression import Suppression
from tests.reference.tables import Row, VersionedTable

Events = Sequence[Event]


class Unknown(Exception):
    """The reference does not say what this graph gives, for the order of events decides that."""


class Node:
    """A step at work. ``rows``: those of a table, with their timestamps. ``history``: of a table with versions."""

    def __init__(self, history: int | None = None) -> None:
        self.rows: dict[Any, Row] = {}
        self.versions = None if history is None else VersionedTable(history)

    def get(self, key: Any, as_of: int | None = None) -> Row | None:
        return self.rows.get(key) if self.versions is None else self.versions.get(key, as_of)

    def put(self, key: Any, value: Any, ts: int) -> list[Event]:
        """The change that a new value of a row makes; none if its version is too old."""
        old = self.rows.get(key)
        latest = True
        if self.versions is not None:
            change = self.versions.put(key, value, ts)
            if change is None:
                return []
            latest = change.latest
        if latest:
            self.rows.pop(key, None)
            if value is not None:
                self.rows[key] = Row(value, ts)
        return [Change(key, value, old and old.value, ts, latest)]

    def take(self, *events: Events) -> list[Event]:
        raise NotImplementedError


class Made(Node):
    """A step that makes events of each event."""

    def __init__(self, make: Callable[[Any], list[Event]], history: int | None = None) -> None:
        super().__init__(history)
        self.make = make

    def take(self, *events: Events) -> list[Event]:
        made: list[Event] = []
        for event in (event for parent in events for event in parent):
            with suppress(f.Refused):
                made += self.make(event)
        return made


class Meaning:
    """Raises `Unknown` for graphs that it does not cover."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.kinds = kinds_of(graph)
        if any(kind.crossing or kind.emitted == "loose" for kind in self.kinds):
            raise Unknown
        merged = ways_of(graph)[1]
        if any(step.fails and any(merged[parent] for parent in step.parents) for step in graph):
            raise Unknown  # which of the changes of one record a function fails on
        self.nodes: list[Node] = []
        for step, kind in zip(graph, self.kinds, strict=True):
            self.nodes.append(self.node(step, kind))

    def feed(self, item: Item) -> list[Events]:
        """What each step makes of a record of a source."""
        made: list[Events] = []
        for number, (step, node) in enumerate(zip(self.graph, self.nodes, strict=True)):
            if step.op not in SOURCES:
                made.append(node.take(*(made[parent] for parent in step.parents)))
            elif number != item.source:
                made.append([])
            elif step.op == "stream":
                made.append([Record(item.key, item.value, item.ts)])
            else:
                made.append(node.put(item.key, item.value, item.ts))
        return made

    def node(self, step: Step, kind: Kind) -> Node:
        from tests.laws.compositions.meaning_aggregates import aggregation

        if step.op in SOURCES:
            return Node(step.history)
        kinds = [self.kinds[parent] for parent in step.parents]
        parents = [self.nodes[parent] for parent in step.parents]
        if step.op == "aggregate":
            return aggregation(step, kinds[0])
        if kinds[0].shape == "stream":
            return self.of_stream(step, kinds, parents)
        return self.of_table(step, kinds, parents)

    def of_stream(self, step: Step, kinds: Sequence[Kind], parents: Sequence[Node]) -> Node:
        if step.op == "join":
            return _join_of_stream(step, kinds[1], parents[1])
        if step.op == "to_table":
            table = Made(
                lambda one: [] if one.key is None else table.put(one.key, one.value, one.ts), step.history
            )
            return table
        if step.op in ("process", "process_values"):
            return Made(_counting(step.op == "process_values"))
        if step.op == "deduplicate":
            return Made(_deduplicating(step))
        each = _EACH[step.op](step)
        if step.op not in ("filter", "filter_not"):
            each = f.failing(each, step.fails)
        return Made(lambda one: [Record(key, value, one.ts) for key, value in each(one.key, one.value)])

    def of_table(self, step: Step, kinds: Sequence[Kind], parents: Sequence[Node]) -> Node:
        if step.op in ("filter", "filter_not", "map_values"):
            return _row_by_row(step, kinds[0], parents[0])
        if step.op == "to_stream":
            return Made(lambda one: [Record(_new_key(step, one), one.new, one.ts)])
        if step.op == "suppress":
            return _suppressed(self.graph, step)
        if step.op == "view":
            return View(step, parents)
        if step.op == "join":
            return TableJoin(step, parents)
        return Lookup(step, parents)


# streams


def _predicate(step: Step) -> Callable[[Any], bool]:
    call, _ = f.PREDICATES[step.fn]
    call = f.failing(call, step.fails)
    return lambda value: value is not None and call(value) == (step.op != "filter_not")


def _branches(step: Step) -> Any:
    call, _ = f.PREDICATES[step.fn]
    return lambda k, v: [] if v is None else [(k, f.joined(v, v if call(v) else None))]


def _branch(step: Step) -> Any:
    call, _ = f.PREDICATES[step.fn]
    return lambda k, v: [(k, v)] if (v is not None and call(v)) == (step.by == "some") else []


_EACH: dict[str, Callable[[Step], Callable[[Any, Any], list[tuple[Any, Any]]]]] = {
    "filter": lambda step: lambda k, v: [(k, v)] if _predicate(step)(v) else [],
    "filter_not": lambda step: lambda k, v: [(k, v)] if _predicate(step)(v) else [],
    "map_values": lambda step: lambda k, v: [(k, None if v is None else f.MAPPERS[step.fn][1](v))],
    "select_key": lambda step: lambda k, v: [(f.letter(v), v)],
    "map": lambda step: lambda k, v: [(f.letter(v), None if v is None else f.joined(v, None))],
    "flat_map": lambda step: lambda k, v: [(f.letter(v), one) for one in f.copies(v)],
    "flat_map_values": lambda step: lambda k, v: [(k, one) for one in f.copies(v)],
    "peek": lambda step: lambda k, v: [(k, v)],
    "present": lambda step: lambda k, v: [] if k is None or v is None else [(k, v)],
    "merge": lambda step: lambda k, v: [(k, v)],
    "branches": _branches,
    "branch": _branch,
    "transform": lambda step: lambda k, v: [(k, None if v is None else f.joined(v, None))],
    "repartition": lambda step: lambda k, v: [(k, v)],
}


def _counting(keeps_key: bool) -> Callable[[Any], list[Event]]:
    seen: Counter[Any] = Counter()

    def make(one: Any) -> list[Event]:
        seen[one.key] += 1
        key = one.key if keeps_key else f.letter(one.value)
        return [Record(key, f.counted(one.value, seen[one.key]), one.ts)]

    return make


def _deduplicating(step: Step) -> Callable[[Any], list[Event]]:
    kept: dict[Any, list[int]] = {}
    clock = [-1]

    def make(one: Any) -> list[Event]:
        clock[0] = max(clock[0], one.ts)
        identity = f.letter(one.value) if step.by else one.key
        seen = [ts for ts in kept.get(identity, []) if ts >= clock[0] - step.within]
        if identity is not None and any(abs(ts - one.ts) <= step.within for ts in seen):
            return []
        kept.setdefault(identity, []).append(one.ts)
        return [one]

    return make


def joiner_of(step: Step) -> Callable[[Any, Any], Any]:
    return f.JOINERS.get(step.form, f.failing(f.joined, step.fails))


def _join_of_stream(step: Step, kind: Kind, other: Node) -> Node:
    def joiner(key: Any, left: Any, right: Any) -> Any:
        return joiner_of(step)(left, right)

    dropped: Counter[str] = Counter()
    if kind.shape == "stream":
        window = {"before_ms": step.within, "after_ms": step.within, "grace_ms": step.grace}
        return StreamJoin(StreamStreamJoin(step.fn, joiner, window, False, dropped))
    if kind.shape == "global":
        looking = StreamGlobalJoin(step.fn, joiner, lambda key, value: f.letter(value), dropped)
        looking.table = other  # type: ignore[assignment]
        return StreamJoin(looking)
    return StreamJoin(StreamTableJoin(step.fn, joiner, other, None, dropped))


class StreamJoin(Node):
    """A join of the reference. Rows that are looked up are those of the other node at this moment."""

    def __init__(self, join: Any) -> None:
        super().__init__()
        self.join = join

    def take(self, *events: Events) -> list[Event]:
        left, right = events
        sides = [("left", event) for event in left]
        if isinstance(self.join, StreamStreamJoin):
            sides += [("right", event) for event in right]
        made: list[Event] = []
        for side in sides:
            with suppress(f.Refused):
                made += self.join.receive([side])
        return made


# tables


def _row_by_row(step: Step, kind: Kind, parent: Node) -> Node:
    if kind.versions != (step.history is not None or (kind.versions and not step.store)):
        raise Unknown  # the timestamps of changes decide
    if kind.versions and step.history is not None:
        raise Unknown
    history = parent.versions.history if kind.versions and parent.versions is not None else None
    if step.op == "map_values":
        call = f.failing(f.MAPPERS[step.fn][1], step.fails)
    else:
        passes = _predicate(step)
        call = lambda value: value if passes(value) else None  # noqa: E731

    def make(change: Any) -> list[Event]:
        new = None if change.new is None else _unless_refused(step, lambda: call(change.new))
        if step.op != "map_values" and not kind.versions and new is None and change.key not in table.rows:
            return []
        return table.put(change.key, new, change.ts)

    table = Made(make, history)
    return table


def _unless_refused(step: Step, call: Callable[[], Any]) -> Any:
    """What a function of a table gives. In a store of its own the row stays; without one it is gone."""
    if step.stored:
        return call()
    with suppress(f.Refused):
        return call()
    return None


def _new_key(step: Step, change: Any) -> Any:
    if step.by == "inner":
        return (
            (change.key.left or change.key.right) if isinstance(change.key, LeftOrRight) else change.key.key
        )
    return f.letter(change.new) if step.by == "s" else change.key


def _suppressed(graph: Graph, step: Step) -> Node:
    """Until windows close: that of the longest grace above."""

    def graces(number: int) -> set[int]:
        one = graph[number]
        if one.op in ("fk", "many"):
            raise Unknown  # the timestamps of changes decide
        if one.windows is not None:
            return {one.windows.grace + (one.windows.size if one.windows.kind == "session" else 0)}
        return set().union(*(graces(parent) for parent in one.parents))

    buffer = Suppression(max(graces(step.parents[0])), lambda key, ts: key.end, final=True)

    def make(change: Any) -> list[Event]:
        buffer.process(change.key, repr(change.key).encode(), change.new, change.ts)
        made = [one for key, value, ts in buffer.out for one in table.put(key, value, ts)]
        buffer.out.clear()
        return made

    table = Made(make)
    return table


class TableJoin(Node):
    """Of two tables by key: the relational join, of each key that changed."""

    def __init__(self, step: Step, parents: Sequence[Node]) -> None:
        super().__init__()
        self.step, self.kind, self.parents, self.joiner = step, step.fn, parents, joiner_of(step)

    def take(self, *events: Events) -> list[Event]:
        made: list[Event] = []
        latest = [
            event for parent in events for event in parent if isinstance(event, Change) and event.latest
        ]
        for key in dict.fromkeys(event.key for event in latest):
            left, right = (parent.rows.get(key) for parent in self.parents)
            there = {"inner": left and right, "left": left, "outer": left or right}[self.kind]
            times = [event.ts for event in latest if event.key == key]
            ts = max([*times, *(row.ts for row in (left, right) if row is not None)])
            with suppress(f.Refused):
                new = self.joined(left, right) if there else None
                if new is not None or key in self.rows:
                    made += self.put(key, new, ts)
        return made

    def joined(self, left: Row | None, right: Row | None) -> Any:
        return _unless_refused(self.step, lambda: self.joiner(left and left.value, right and right.value))


class View(Node):
    """Over two global tables: each row of the first, with the one of the other that it selects."""

    def __init__(self, step: Step, parents: Sequence[Node]) -> None:
        super().__init__()
        self.step, self.parents, self.joiner = step, parents, joiner_of(step)

    def take(self, *events: Events) -> list[Event]:
        left, right = self.parents
        self.rows = {}
        for key, row in left.rows.items():
            other = right.rows.get(f.letter(row.value))
            if other is not None or self.step.fn == "left":
                self.rows[key] = Row(self.joiner(row.value, other and other.value), row.ts)
        return [event for parent in events for event in parent]


class Lookup(Node):
    """Of a table with others by foreign keys: the relational join, as a whole."""

    def __init__(self, step: Step, parents: Sequence[Node]) -> None:
        super().__init__()
        self.step, self.parents = step, parents

    def take(self, *events: Events) -> list[Event]:
        ts = max((event.ts for parent in events for event in parent), default=0)
        left, *others = self.parents
        before = {key: row.value for key, row in self.rows.items()}
        rows: dict[Any, Any] = {}
        for key, one, found in self.found(left.rows, [other.rows for other in others]):
            try:
                rows[key] = self.joined(one, found)
            except f.Refused:
                rows[key] = before.get(key)
        changed = [key for key in {**before, **rows} if before.get(key) != rows.get(key)]
        return [one for key in changed for one in self.put(key, rows.get(key), ts)]

    def joined(self, left: Any, found: list[Any]) -> Any:
        if found[1:]:
            return f.joined_many(left, dict(zip(("one", "two"), found, strict=True)))
        return joiner_of(self.step)(left, found[0])

    def found(
        self, left: dict[Any, Row], others: list[dict[Any, Row]]
    ) -> Iterator[tuple[Any, Any, list[Any]]]:
        """The keys of the result, and the values that are joined for each."""
        either = self.step.fn in EITHER
        for key, row in left.items():
            found = [other.get(f.letter(row.value)) for other in others]
            if self.step.fn in ("left", "outer") or None not in found:
                yield LeftOrRight(key) if either else key, row.value, [one and one.value for one in found]
        for key in others[0].keys() - {f.letter(row.value) for row in left.values()} if either else ():
            yield LeftOrRight(None, key), None, [others[0][key].value]
