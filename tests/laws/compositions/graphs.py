"""Cases as small data: a graph of steps, the records of its sources, and how they are cut; and what each step makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from tests.laws.compositions.functions import MAPPERS, ValueKind

Form = Literal["call", "expr", "field", "annotated", "keep-left", "keep-right", "prefixed"]
"""``annotated``: a callable that declares its result; ``keep-…``: no joiner, fields of both sides from this one;
``prefixed``: no joiner, the right side's fields renamed, and a mapper that makes of all what a joiner makes."""
EITHER = ("right", "outer")
"""Foreign-key joins that have rows of the right table, too."""
SOURCES = ("stream", "table", "global")
WITHOUT_JOINER = ("keep-left", "keep-right", "prefixed")
BY_KEY = ("repartition", "deduplicate", "process", "process_values", "to_table", "aggregate", "join")


class Windows(NamedTuple):
    """Durations in ms; ``kind``: time, session, sliding or unlimited. ``close``: results when windows close."""

    kind: str
    size: int = 10
    advance: int = 10
    grace: int = 0
    close: bool = False


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
class Step(Brief):
    """One operator. ``parents``: numbers of steps. ``fn``: which of its functions or kinds; sources: kind of values.

    ``form``: of its function. ``store``: its result is stored under a name. ``declared``: it gives the serde of its
    values. ``by``: groups and new keys are by this. ``nulls``: a stream has null keys and values, too. ``within``,
    ``grace``, ``history``: ms. ``fails``: its function raises for some values (`functions.failing`), which are skipped.
    """

    op: str
    parents: tuple[int, ...] = ()
    fn: str = ""
    form: Form = "call"
    store: bool = False
    declared: bool = False
    by: str = ""
    windows: Windows | None = None
    nulls: bool = False
    within: int = 0
    grace: int = 0
    history: int | None = None
    columns: tuple[str, ...] = ()
    fails: bool = False

    @property
    def stored(self) -> bool:
        """Whether its table has a store of its own."""
        return self.store or self.history is not None


Graph = tuple[Step, ...]


@dataclass(frozen=True, repr=False)
class Item(Brief):
    """A record: the number of its source, key, value, timestamp (ms); the partition of the topic that it goes to."""

    source: int
    key: str | None
    value: Any
    ts: int
    place: int = 0


@dataclass(frozen=True, repr=False)
class Way(Brief):
    """How a case is run. ``ends``: the numbers of records after which a batch ends, beside the last one.

    ``each``: every record is a batch.
    """

    partitions: int = 1
    ends: tuple[int, ...] = ()
    each: bool = False

    def batches(self, count: int) -> list[range]:
        """The numbers of the records of each batch."""
        ends = range(1, count) if self.each else (end for end in self.ends if 0 < end < count)
        cuts = [0, *sorted(set(ends)), count]
        return [range(start, end) for start, end in pairwise(cuts) if end > start]


@dataclass(frozen=True)
class Case:
    graph: Graph
    items: tuple[Item, ...]
    way: Way = field(default=Way())

    def __repr__(self) -> str:
        steps = "".join(f"\n        {step!r},  # {number}" for number, step in enumerate(self.graph))
        items = "".join(f"\n        {item!r}," for item in self.items)
        return f"Case(\n    ({steps}\n    ),\n    ({items}\n    ),\n    {self.way!r},\n)"


Emitted = Literal["exact", "net", "loose"]
"""What a stream or table is for any cut: the same records; the last one of each key is the same; neither."""


@dataclass(frozen=True)
class Kind:
    """What a step makes. ``key``: "text", "either" (`LeftOrRight`), or the kind of windows, whose ``size`` is part
    of the serde.

    ``typed``: the type of the values is declared. ``own``: in another way than for others, so that a merge with these
    forgets it. ``nulls``, ``open``: there may be null values, null keys. ``placed``:
    the serde of the keys is known. ``final``: a table each row of which comes out once. ``versions``: a table that
    keeps them. ``sources``: those above. ``crossing``: one record comes to it on several ways, so that their order
    counts. ``mixed``: records of several topics or state partitions, which have no order among them before an operator
    works by key (semantics 3.2).
    """

    shape: Literal["stream", "table", "global"]
    value: ValueKind = "row"
    key: str = "text"
    size: int = 0
    typed: bool = False
    own: bool = False
    nulls: bool = False
    open: bool = False
    placed: bool = True
    emitted: Emitted = "exact"
    final: bool = False
    versions: bool = False
    sources: frozenset[int] = frozenset()
    crossing: bool = False
    mixed: bool = False


def kinds_of(graph: Graph) -> list[Kind]:
    kinds: list[Kind] = []
    for number, step in enumerate(graph):
        kinds.append(kind_of(step, number, [kinds[parent] for parent in step.parents]))
    return kinds


def kind_of(step: Step, number: int, parents: Sequence[Kind]) -> Kind:
    if step.op in SOURCES:
        return _source(step, number)
    first = parents[0]
    sources = frozenset().union(*(parent.sources for parent in parents))
    base = replace(
        first,
        sources=sources,
        crossing=any(parent.crossing for parent in parents),
        final=False,
    )
    if any(parent.emitted == "loose" for parent in parents):
        base = replace(base, emitted="loose")
    made = _KINDS[step.op](step, base, parents)
    if step.op in BY_KEY and parents[-1].shape != "global":
        made = replace(made, mixed=step.op == "process" or (step.op == "deduplicate" and step.by != ""))
    meets = len(parents) > 1 and any(parent.shape == "stream" for parent in parents)
    shared = meets and len(parents[0].sources & parents[1].sources) > 0
    return replace(made, crossing=made.crossing or shared)


def _source(step: Step, number: int) -> Kind:
    shape: Any = step.op
    return Kind(
        shape,
        "int" if step.fn == "int" else "row",
        typed=step.declared or step.fn == "int",
        nulls=step.nulls,
        open=step.nulls,
        versions=step.history is not None,
        sources=frozenset([number]),
    )


def _same(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(base, final=parents[0].final)


def _filter(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    own_versions = step.history is not None or (parents[0].versions and not step.store)
    return replace(_loosened(base, parents), versions=own_versions, final=parents[0].final, nulls=False)


def _map_values(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    value = MAPPERS[step.fn][0]
    typed = step.form == "expr" or (
        step.form == "annotated" and value == "row"
    )  # that of numbers is for readers
    typed = typed or (base.shape == "table" and step.declared)
    versions = step.history is not None or (parents[0].versions and not step.store)
    final = parents[0].final and step.fn != "some"
    nulls = base.shape == "stream" and (base.nulls or step.fn == "some")
    own = step.form == "annotated" or (step.form == "expr" and value == "int")
    return replace(base, value=value, typed=typed, own=own, versions=versions, nulls=nulls, final=final)


def _loosened(base: Kind, parents: Sequence[Kind]) -> Kind:
    """What does more with the changes of a table than to pass on the last one of each key."""
    return replace(base, emitted="loose") if any(parent.emitted == "net" for parent in parents) else base


def _select_key(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(_loosened(base, parents), key="text", size=0, placed=False, open=True, mixed=True)


def _map(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(_select_key(step, base, parents), value="row", typed=False)


def _several(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(_loosened(base, parents), value="row", typed=False)


def _present(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(_loosened(base, parents), nulls=False, open=False)


def _merge(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    one, other = parents
    return replace(
        _loosened(base, parents),
        typed=one.typed and other.typed and one.own == other.own,
        nulls=one.nulls or other.nulls,
        open=one.open or other.open,
        placed=one.placed and other.placed,
        mixed=one.mixed or other.mixed or one.sources != other.sources,
    )


def _branch(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(_loosened(base, parents), nulls=base.nulls and step.by == "rest")


def _transform(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(_loosened(base, parents), value="row", typed=True, own=False, placed=False)


def _repartition(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(base, placed=True, typed=base.typed or step.declared, own=base.own and base.typed)


def _process(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    keeps = step.op == "process_values"
    loosened = _loosened(base, parents)
    return replace(loosened, value="row", typed=False, placed=keeps, open=not keeps, mixed=not keeps)


def _to_table(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    emitted: Emitted = "exact" if base.emitted == "net" else base.emitted
    return replace(
        base,
        shape="table",
        typed=base.typed or step.declared,
        own=base.own and base.typed,
        versions=step.history is not None,
        nulls=False,
        open=False,
        placed=True,
        emitted=emitted,
    )


def _to_stream(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    emitted: Emitted = base.emitted
    if not parents[0].final and emitted == "exact":
        emitted = "net" if step.by == "" else "loose"
    changed = (
        {"key": "text", "size": 0, "placed": False, "open": step.by == "s", "mixed": True} if step.by else {}
    )
    nulls = not parents[0].final
    return replace(base, shape="stream", emitted=emitted, nulls=nulls, versions=False, **changed)  # type: ignore[arg-type]


def _suppress(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(base, emitted="exact" if step.fn == "closes" else "loose", final=step.fn == "closes")


def _aggregate(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    value: ValueKind = {"count": "int", "reduce": base.value}.get(step.fn, "row")  # type: ignore[assignment]
    if step.by == "key, row":
        value = "int" if step.fn == "count" else "row"
    kept = base.typed and step.by != "key, row"
    typed = {"count": True, "agg": True, "reduce": kept or step.declared}.get(step.fn, step.declared)
    base = replace(
        _loosened(base, parents),
        shape="table",
        value=value,
        typed=typed,
        own=step.fn == "reduce" and kept and base.own,
        nulls=False,
        open=False,
        placed=True,
        versions=False,
        key="text",
        size=0,
    )
    if step.windows is None:
        return base
    size = step.windows.size if step.windows.kind in ("time", "sliding") else 0
    return replace(base, key=step.windows.kind, size=size, final=step.windows.close)


def _join(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    left, right = parents
    both = left.typed and right.typed
    typed = step.form in ("expr", "annotated") or (step.form in WITHOUT_JOINER and both)
    base = replace(
        base,
        value="row",
        typed=typed or (base.shape == "table" and step.declared),
        own=step.form == "annotated" or (step.form in ("keep-left", "keep-right") and left.own),
        versions=False,
    )
    if base.shape == "table":
        return replace(base, key="either") if step.op == "fk" and step.fn in EITHER else base
    streams = [parent for parent in parents if parent.shape == "stream"]
    nulls_pass = step.fn != "inner" and any(one.open for one in streams)
    placed = True if right.shape != "global" else left.placed
    opened = left.open if right.shape == "global" else nulls_pass
    return replace(_loosened(base, streams), nulls=False, open=opened, placed=placed)


def _many(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(base, value="row", versions=False, typed=step.form == "expr" or step.declared, own=False)


def _view(step: Step, base: Kind, parents: Sequence[Kind]) -> Kind:
    return replace(_join(step, replace(base, shape="table"), parents), shape="global")


_KINDS: dict[str, Any] = {
    "filter": _filter,
    "filter_not": _filter,
    "map_values": _map_values,
    "peek": _same,
    "select_key": _select_key,
    "map": _map,
    "flat_map": lambda *given: replace(_map(*given), nulls=False),
    "flat_map_values": lambda *given: replace(_several(*given), nulls=False),
    "present": _present,
    "merge": _merge,
    "branches": lambda *given: replace(_several(*given), typed=False, nulls=False),
    "branch": _branch,
    "transform": _transform,
    "repartition": _repartition,
    "deduplicate": lambda step, base, parents: _loosened(base, parents),
    "process": _process,
    "process_values": _process,
    "to_table": _to_table,
    "to_stream": _to_stream,
    "suppress": _suppress,
    "aggregate": _aggregate,
    "join": _join,
    "fk": _join,
    "many": _many,
    "view": _view,
}
